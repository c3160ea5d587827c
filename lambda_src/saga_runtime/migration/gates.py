"""Gates between phases: what must hold before the phase changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from saga_runtime.migration.layout import LEGACY, READY
from saga_runtime.migration.progress import Job, Pass, Phase
from saga_runtime.migration.terms import Terms

_ALL_DUAL, _VERIFIED, _PILOTS_NEW = 2, 3, 4
"""Phases of a group between which both items are compared; the second one's gate asks for a result."""

COMPARED_WITHIN_SECONDS: Final = 3 * 3_600
"""Age of the last comparison at which it still opens a gate, besides the time that it took. It runs once an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts that gates decide by.

    Attributes:
        phase: the phase item.
        now_ms: epoch milliseconds, by AWS's clock.
        moved: last complete pass of each segment that moves; None: there was none.
        compared: likewise, of those that compare.
        deployed: when each writer was last deployed, epoch milliseconds, by its name.
        unready: writers that may run code of another release, or layout, and why.
    """

    phase: Phase
    now_ms: int
    moved: Sequence[Pass | None]
    compared: Sequence[Pass | None]
    deployed: Mapping[str, int]
    unready: Mapping[str, str] = field(default_factory=dict)


def ahead(terms: Terms, facts: Facts) -> list[str]:
    """Reasons why the phase must not advance; none: it may."""
    layout, phase = terms.layout, facts.phase
    if phase.number >= layout.last:
        return [f"phase must be below {layout.last} to advance, got {phase.number}; it is the last one"]
    reasons: list[str] = []
    if phase.number + 1 > terms.most_phase:
        reasons.append(
            f"phase must be at most {terms.most_phase} by this deployment, got {phase.number + 1}; deploy "
            f"Migration(phase={phase.number + 1})"
        )
    if phase.number == LEGACY:
        return reasons
    reasons += _missing(terms, facts) + _unready(facts)
    if phase.number == READY:
        return reasons + _ended(terms, facts, "code that knows no marks")
    reasons += _all_moved(terms, facts)
    group = layout.group_of(phase.number)
    stage = 0 if group is None else layout.stage(phase.number, group)
    if _ALL_DUAL <= stage <= _PILOTS_NEW:
        reasons += _different(facts) or (_clean(terms, facts) if stage == _VERIFIED else [])
    if phase.number + 1 == layout.last:
        reasons += _ended(terms, facts, "code of a phase before")
        kept = (facts.now_ms - _moved_since_ms(facts)) // 1_000
        if kept < terms.kept_for_seconds:
            reasons.append(
                f"old items must be kept for {terms.kept_for_seconds} s, got {kept} s; wait for "
                f"{terms.kept_for_seconds - kept} s"
            )
    return reasons


def back(terms: Terms, facts: Facts) -> list[str]:
    """Reasons why the phase must not return to the one before; none: it may."""
    layout, phase = terms.layout, facts.phase
    if phase.number == LEGACY:
        return [f"phase must be above {LEGACY} to return, got {LEGACY}; it is the first one"]
    if phase.number == layout.last:
        return [f"phase must be below {layout.last} to return, got {layout.last}; old items are deleted"]
    if phase.number == READY:
        ended_ms = phase.changed_at_ms + terms.ended_after_seconds * 1_000
        reasons = _missing(terms, facts) + _ended(terms, facts, "a birth or a worker of phase 2")
        return reasons + _all_moved(terms, facts, since_ms=ended_ms)
    return []


def due(terms: Terms, job: Job, phase: Phase, last: Pass | None, now_ms: int) -> bool:
    """Test whether a scheduled run has anything to do.

    A backfill passes until a pass left nothing, and once more when births that read the phase before have ended. A
    comparison passes while a group is in both items.
    """
    layout = terms.layout
    if phase.number == LEGACY:
        return False
    if job is Job.VERIFY:
        group = layout.group_of(phase.number)
        return group is not None and _ALL_DUAL <= layout.stage(phase.number, group) <= _PILOTS_NEW
    done = _of(last, phase, now_ms)
    if done is None or done.left:
        return True
    settled_ms = phase.changed_at_ms + terms.ended_after_seconds * 1_000
    return done.began_at_ms < settled_ms <= now_ms


def _ended(terms: Terms, facts: Facts, what: str) -> list[str]:
    """Functions that began before the phase changed have ended, and none was deployed since."""
    reasons = []
    since_ms = max([facts.phase.changed_at_ms, *facts.deployed.values()])
    passed = (facts.now_ms - since_ms) // 1_000
    if passed < terms.ended_after_seconds:
        reasons.append(
            f"{what} may still run for {terms.ended_after_seconds - passed} s: phase {facts.phase.number} must have "
            f"lasted for {terms.ended_after_seconds} s after the last deployment, got {passed} s"
        )
    return reasons


def _missing(terms: Terms, facts: Facts) -> list[str]:
    """Every writer exists."""
    missing = sorted(set(terms.writers) - set(facts.deployed))
    return (
        [f"writers must exist, got no function {', '.join(missing)}; correct Migration(writers=…)"] if missing else []
    )


def _unready(facts: Facts) -> list[str]:
    """Every writer runs the release and the layout of this migration."""
    return [f"writer {name} must be ready, got {why}" for name, why in sorted(facts.unready.items())]


def _moved_since_ms(facts: Facts) -> int:
    """Since when nothing of this phase was left to move; the phase's begin without a pass."""
    served = [_of(one, facts.phase, facts.now_ms) for one in facts.moved]
    return max(facts.phase.changed_at_ms, *(one.clean_since_ms or 0 for one in served if one is not None), 0)


def _all_moved(terms: Terms, facts: Facts, since_ms: int = 0) -> list[str]:
    """Each segment has a pass of this phase that left nothing."""
    done = [_of(one, facts.phase, facts.now_ms, since_ms) for one in facts.moved]
    open_ = [str(index) for index, one in enumerate(done) if one is None]
    if open_ or len(done) < terms.segments:
        return [
            (
                f"a backfill pass of phase {facts.phase.number} must be complete, got none of segment "
                f"{', '.join(open_) or 'any'}; run cdk-sagas migrate backfill, or wait for the worker"
            )
        ]
    left = sum(one.left for one in done if one is not None)
    return [f"nothing must be left to move, got {left}; wait for the next pass"] if left else []


def _different(facts: Facts) -> list[str]:
    """Differences that are known in this phase, whatever the clock of the pass that found them."""
    served = [one for one in facts.compared if one is not None and one.changes == facts.phase.changes]
    different = sum(one.different for one in served)
    return [f"differences must be 0, got {different}; see cdk-sagas migrate status"] if different else []


def _clean(terms: Terms, facts: Facts) -> list[str]:
    done = [_of(one, facts.phase, facts.now_ms) for one in facts.compared]
    found = [one for one in done if one is not None]
    if len(found) < terms.segments:
        return [
            (
                f"a verify pass of phase {facts.phase.number} must be complete, got {len(found)} of {terms.segments}; "
                "run cdk-sagas migrate verify, or wait for the worker"
            )
        ]
    if any(one.clean_since_ms is None for one in found):
        return ["every concern must be compared, got some that writers held; wait for the next pass"]
    old = max(_overdue_seconds(one, facts.now_ms) for one in found)
    if old > 0:
        return [
            (
                f"the last comparison must have ended within {COMPARED_WITHIN_SECONDS} s and its duration, got {old} s "
                "more; run cdk-sagas migrate verify, or wait for the worker"
            )
        ]
    changed_last_ms = max([_moved_since_ms(facts), *facts.deployed.values()])
    if any(one.began_at_ms < changed_last_ms for one in found):
        return [
            (
                "the last comparison must have begun after the last move and the last deployment of a writer, got one "
                "that began before; run cdk-sagas migrate verify, or wait for the worker"
            )
        ]
    # From the begin of the first clean pass to the begin of the last one: what came later was not compared.
    changed_ms = facts.phase.changed_at_ms
    clean = min((one.began_at_ms - max(one.clean_since_ms or 0, changed_ms)) // 1_000 for one in found)
    if clean < terms.clean_for_seconds:
        return [
            (
                f"passes must be clean for {terms.clean_for_seconds} s, got {clean} s; wait for "
                f"{terms.clean_for_seconds - clean} s"
            )
        ]
    return []


def _overdue_seconds(done: Pass, now_ms: int) -> int:
    took_ms = max(0, done.ended_at_ms - done.began_at_ms)
    return (now_ms - done.ended_at_ms - took_ms) // 1_000 - COMPARED_WITHIN_SECONDS


def _of(done: Pass | None, phase: Phase, now_ms: int, since_ms: int = 0) -> Pass | None:
    """The pass, if it served this phase since its last change, and began late enough; not by a clock that is ahead."""
    if done is None or done.changes != phase.changes:
        return None
    return done if since_ms <= done.began_at_ms <= now_ms else None
