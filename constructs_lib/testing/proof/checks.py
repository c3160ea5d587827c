"""Checks of a proof: what each claims, the cases that were run for it, and the invariants that were audited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.simulator.checks.requests import Requests, add_requests, unproven

_TOLD: Final = 10


class NotProvenError(AssertionError):
    """A claim does not hold in one of its cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of a request, with what went wrong in it.

    Attributes:
        seed: what the request was drawn from.
        caller: the function, state machine or client whose call was broken; empty: none was.
        call: the call, ``dynamodb:PutItem``, or the state.
        nth: 1 for the caller's first such call.
        fault: what happened there.
        hit: whether it did happen. A fault that does not hit its call proves nothing, so that is a violation.
        made: whether the call was made at all. On local AWS time is real: what a process keeps for a while, as a
            secret, is read in some runs of a request only.
        status: of the client's settled response; None: it received none.
        checked: how many things each invariant was checked of.
        requests: those of each operation.
        violations: what must not be, one sentence each.
    """

    seed: int
    caller: str = ""
    call: str = ""
    nth: int = 1
    fault: str = "none"
    hit: bool = True
    made: bool = True
    status: int | None = None
    checked: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, Requests] = field(default_factory=dict)
    violations: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if the fault hit, or its call was not made, and nothing was found."""
        return (self.hit or not self.made) and not self.violations

    @property
    def told(self) -> list[str]:
        """Every violation, also that the fault did not hit its call."""
        return [*([] if self.hit or not self.made else ["the fault did not happen"]), *self.violations]

    def __str__(self) -> str:
        at = f"{self.caller} {self.call}#{self.nth}: " if self.caller else ""
        return f"seed {self.seed}: {at}{self.fault}"

    def as_json(self) -> dict[str, Any]:
        """The case as data."""
        return {
            "seed": self.seed,
            "caller": self.caller,
            "call": self.call,
            "nth": self.nth,
            "fault": self.fault,
            "hit": self.hit,
            "made": self.made,
            "status": self.status,
            "checked": dict(self.checked),
            "violations": self.told,
        }


@dataclass(slots=True, kw_only=True)
class Check:
    """One claim, and what was run for it.

    Attributes:
        name: of the check.
        claim: the sentence that it proves of these requests.
        stated: whether ``Workload.audit_results`` stated what they must have resulted in.
        enumerated: number of cases that there are.
        drawn: whether only as many as were asked for are run.
        draw: what these were drawn by; None: the seed.
        cases: those that were run.
        finished: whether each case was run that was asked for.
        seconds: of real time.
    """

    name: str
    claim: str
    enumerated: int = 0
    drawn: bool = False
    draw: int | None = None
    stated: bool = False
    cases: list[Case] = field(default_factory=list)
    finished: bool = False
    seconds: float = 0.0

    @property
    def broken(self) -> list[Case]:
        """Cases in which the claim does not hold."""
        return [case for case in self.cases if not case.holds]

    @property
    def not_made(self) -> list[Case]:
        """Cases whose call no run made: they prove nothing."""
        return [case for case in self.cases if not case.made]

    @property
    def holds(self) -> bool:
        """True if the claim holds in every case, there is one, and each was run unless they were drawn.

        Requests must have been done, or refused by a step, too: no invariant is about others. And if there are faults,
        one must have happened.
        """
        whole = self.finished and (self.drawn or len(self.cases) == self.enumerated)
        faults = [case for case in self.cases if case.fault != "none"]
        proven = bool(self.cases) and (not faults or len(self.not_made) < len(faults))
        return proven and not self.broken and whole and not self.unproven

    @property
    def requests(self) -> dict[str, Requests]:
        """Requests of each operation, over all cases."""
        found: dict[str, Requests] = {}
        for case in self.cases:
            add_requests(found, case.requests)
        return found

    @property
    def unproven(self) -> list[str]:
        """Why the cases prove nothing, or nothing of an operation: none of its requests was done or refused."""
        return list(unproven(self.requests, self.invariants)) if self.cases else []

    @property
    def is_sample(self) -> bool:
        """True if only some of the cases were run."""
        return self.drawn and len(self.cases) < self.enumerated

    @property
    def invariants(self) -> dict[str, int]:
        """Numbers of things that each invariant was checked of, over all cases."""
        found: dict[str, int] = {}
        for case in self.cases:
            for name, checked in case.checked.items():
                found[name] = found.get(name, 0) + checked
        return found

    def require(self) -> None:
        """Fail unless the claim holds.

        Raises:
            NotProvenError: naming the first cases that break it, or how requests ended that were neither done nor
                refused.
        """
        if not self.holds:
            raise NotProvenError(str(self))

    def __str__(self) -> str:
        drawn = "" if self.draw is None else f", drawn by {self.draw}"
        run = f"{len(self.cases)} of {self.enumerated} cases were run{drawn}"
        missing = f", calls of {len(self.not_made)} were not made" if self.not_made else ""
        lines = [f"{self.name}: {run}{missing}, {len(self.broken)} break it"]
        lines += [f"  {text}" for text in self.unproven]
        for case in self.broken[:_TOLD]:
            lines += [f"  {case}", *(f"    {text}" for text in case.told[:_TOLD])]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The check as data."""
        return {
            "name": self.name,
            "claim": self.claim,
            "stated": self.stated,
            "holds": self.holds,
            "enumerated": self.enumerated,
            "finished": self.finished,
            "drawn": self.is_sample,
            "draw": self.draw,
            "run": len(self.cases),
            "hit": sum(case.hit for case in self.cases),
            "not_made": len(self.not_made),
            "seconds": round(self.seconds, 1),
            "invariants": self.invariants,
            "requests": {name: one.as_json() for name, one in sorted(self.requests.items())},
            "unproven": self.unproven,
            "cases": [case.as_json() for case in self.cases],
        }


def counted(invariants: Iterable[Invariant]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Numbers of things that were checked, by invariant, and every violation."""
    checked: dict[str, int] = {}
    violations: list[str] = []
    for invariant in invariants:
        checked[invariant.name] = checked.get(invariant.name, 0) + invariant.checked
        violations += [f"{invariant.name}: {violation}" for violation in invariant.violations]
    return checked, tuple(violations)
