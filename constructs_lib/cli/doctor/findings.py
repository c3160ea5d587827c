"""Findings of ``cdk-sagas doctor`` as data: kinds, severities, and repairs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from typing import Final

from constructs_lib.cli.shared.manifest import DeployedSaga
from constructs_lib.cli.shared.process import moment
from saga_runtime.recovery.hold import Held
from saga_runtime.recovery.repairs import Repair
from saga_runtime.recovery.saga_reconciler import Served

UNKNOWN_DAYS: Final = 100_000
"""Retention of a log with unknown retention: none of its rows is near its end."""
NOBODY_CAME_MS: Final = 15 * 60_000
"""Something due for longer than this was not checked: its reconciler does not work."""
RECOVERIES: Final = 20
"""Recovery limit without a known reconciler: its own default."""


class Severity(StrEnum):
    """Severities of findings, the worst first."""

    OPERATOR = "operator"
    """Operator action is required; no repair applies."""
    REPAIR = "repair"
    """Not repaired automatically: run with ``--repair``."""
    SOON = "soon"
    """Repaired automatically, soon."""
    OK = "ok"
    """Nothing has to be done."""


class Kind(StrEnum):
    """Kinds of findings, as displayed."""

    NOT_CHECKED = "not checked"
    NOT_MONITORED = "not monitored"
    RULE_DISABLED = "rule disabled"
    SOURCE_DISABLED = "source disabled"
    THROTTLED = "concurrency at zero"
    HELD = "held"
    DEAD_LETTERS = "dead letters"
    FOR_OPERATORS = "for operators"

    PARKED = "parked"
    EXHAUSTED = "recoveries exhausted"
    NAME_EXPIRED = "name expired"
    ROWS_GONE = "saga log expired"
    UNSETTLED = "execution unsettled"
    NOT_ALLOWED = "owner unknown"
    MACHINE_GONE = "machine gone"
    NOT_DUE = "missing from index"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"
    START_REFUSED = "start refused"
    OVER_TIME = "over its timeout"
    RETRYING = "retrying"
    STILL_DUE = "settled, still indexed"
    ROWS_END = "saga log expiring"
    UNREADABLE = "unreadable"

    LATE = "late effect"
    CONTRADICTED = "contradicted"
    NOT_DELIVERED = "outcome not delivered"
    ORPHANED_OUTCOME = "orphaned outcome"
    ORPHANED_WAIT = "orphaned wait"

    ROW_OPEN = "row in doubt"
    RECORD_LOST = "record lost"
    RECORD_WRONG = "record contradicted"

    END_STUCK = "handler failed"
    END_NOT_NOTIFIED = "failure not notified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """A saga of the system, as it was found.

    Attributes:
        served: its names, as in its reconciler's environment; unknown ones are empty.
        limit: recoveries before it is parked.
        has_reconciler: whether one serves it.
        attended: whether that one works.
        held: whether it is kept from acting, so that nothing may be repaired.
        hold: the table of what holds single runs of it; empty: without a reconciler.
        deployed: its entry in the manifest; None: it is in a stack that was not named.
    """

    served: Served
    limit: int = RECOVERIES
    has_reconciler: bool = False
    attended: bool = False
    held: bool = False
    hold: str = ""
    deployed: DeployedSaga | None = None

    @property
    def remember_seconds(self) -> int | None:
        """Time for which a settled record is kept; None: not known."""
        return self.deployed.remember_seconds if self.deployed is not None else None

    @property
    def always(self) -> frozenset[str]:
        """Steps of its deployed definition that every request takes, and that leave a row; none: not known."""
        return self.deployed.always if self.deployed is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found.

    Attributes:
        kind, severity: what, and how bad.
        what: what was found, in a sentence.
        then: what happens next, or what to do.
        since: since when, epoch milliseconds; None: not known.
        id: the saga, the job, or the resource that it is about.
        command: what to type.
        repair: action of ``--repair``; None: without one.
        saga_id: the saga; empty for other findings.
        saga: where that saga is at home.
        table: of a job: the token table.
        amount, currency: what the saga moves, in minor units; None and empty: unknown.
        repaired: what ``--repair`` did; empty: nothing.
    """

    kind: Kind
    severity: Severity
    what: str
    then: str
    since: int | None = None
    _: KW_ONLY
    id: str
    command: str = ""
    repair: Repair | None = None
    saga_id: str = ""
    saga: Saga | None = None
    table: str = ""
    amount: int | None = None
    currency: str = ""
    repaired: str = ""

    @property
    def open(self) -> bool:
        """True if action is needed, by an operator or with ``--repair``."""
        return self.severity is Severity.OPERATOR or (self.severity is Severity.REPAIR and not self.repaired)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Requests in flight: those that are not settled.

    Attributes:
        sagas: how many.
        parked: how many of them are parked.
        oldest: when the oldest was reserved, epoch milliseconds.
        money: what they move, by currency, in minor units; of records with an amount.
        complete: whether every record was read; else there may be more.
    """

    sagas: int = 0
    parked: int = 0
    oldest: int | None = None
    money: Mapping[str, int] = field(default_factory=dict)
    complete: bool = True


_NEVER_HELD: Final = frozenset({Kind.ROWS_END, Kind.STILL_DUE})
"""What a reconciler does for a saga that is held, too: nothing of the saga changes by it."""
_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}
_KINDS: Final = {kind: place for place, kind in enumerate(Kind)}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by kind, the oldest first. What was found twice is kept once."""
    once = {(finding.kind, finding.id, finding.table, finding.what): finding for finding in findings}
    return sorted(
        once.values(),
        key=lambda one: (_ORDER[one.severity], _KINDS[one.kind], one.since if one.since is not None else -1, one.id),
    )


def unreadable(table: str, key: str, error: Exception) -> Finding:
    """An item that claims to be a saga's record, and is not."""
    why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
    what = f"an item of table {table} that cannot be read: {why}"
    return Finding(Kind.UNREADABLE, Severity.OPERATOR, what, "find out what wrote it: no reconciler handles it", id=key)


def by_nobody(finding: Finding) -> Finding:
    """A finding that is repaired automatically elsewhere, without the component that does it."""
    if finding.severity is not Severity.SOON:
        return finding
    if finding.repair is None:
        return replace(finding, severity=Severity.OPERATOR, then=f"not done automatically: {finding.then}")
    return replace(finding, severity=Severity.REPAIR, then="not repaired automatically; run with --repair")


def while_held(finding: Finding) -> Finding:
    """A finding that is not repaired while its saga's reconciler is held."""
    if finding.saga is None or not finding.saga.held or finding.repair is None:
        return finding
    then = "its reconciler is held: nothing is repaired until it is released"
    return replace(finding, severity=Severity.OPERATOR, then=then, repair=None)


def is_held_back(finding: Finding) -> bool:
    """Test whether a hold of its saga keeps a reconciler from what a finding needs."""
    return finding.repair is not None and finding.kind not in _NEVER_HELD


def of_held_saga(finding: Finding, held: Held, release: str) -> Finding:
    """A finding about a saga that an operator holds.

    Args:
        finding: the finding.
        held: since when, why, and by whom.
        release: the command that ends the hold.
    """
    if is_held_back(finding):
        return held_back(finding, held, release)
    return finding if finding.repair is not None else replace(finding, what=f"{finding.what}; {_held(held)}")


def held_back(finding: Finding, held: Held, release: str) -> Finding:
    """A finding of which nothing is repaired until its saga is released; arguments as of ``of_held_saga``."""
    then = f"{_held(held)}; nothing is repaired until it is released"
    return replace(finding, severity=Severity.OPERATOR, then=then, command=release, repair=None)


def _held(held: Held) -> str:
    return f"an operator holds this saga since {moment(held.since_ms)}, by {held.who or 'unknown'}: {held.reason}"


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 0 if no action is needed, else 1."""
    return 1 if any(finding.open for finding in findings) else 0
