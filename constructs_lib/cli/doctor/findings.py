"""What ``cdk-sagas doctor`` finds, as data: which kinds there are, how bad each is, and what becomes of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_runtime.recovery.saga_reconciler import Served

UNKNOWN_DAYS: Final = 100_000
"""Of a log of which nobody knows for how long it keeps its rows: none of them is near its end."""
RECOVERIES: Final = 20
"""After as many a person decides, where no reconciler says otherwise: its own default."""


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    PERSON = "person"
    """A person has to do something; no repair does it."""
    REPAIR = "repair"
    """Nobody does it by himself: ``--repair`` does."""
    SOON = "soon"
    """What is deployed does it by itself, soon."""
    OK = "ok"
    """Nothing has to be done."""


class Kind(StrEnum):
    """What was found, as it is shown."""

    NOT_LOOKED_AT = "not looked at"
    NOBODY_LOOKS = "nobody looks"
    RULE_DISABLED = "rule disabled"
    SOURCE_DISABLED = "source disabled"
    THROTTLED = "function at zero"
    HELD = "held"
    DEAD_LETTERS = "dead letters"
    FOR_OPERATORS = "for operators"

    PARKED = "parked"
    EXHAUSTED = "recoveries spent"
    NAME_EXPIRED = "name expired"
    ROWS_GONE = "rows may be gone"
    UNSETTLED = "left unsettled"
    NOT_ALLOWED = "owner unknown"
    MACHINE_GONE = "machine gone"
    NOT_DUE = "never found again"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"
    START_REFUSED = "start refused"
    OVER_TIME = "over its time"
    STILL_DUE = "settled, still due"
    ROWS_END = "rows near their end"
    UNREADABLE = "unreadable"

    LATE = "took effect late"
    CONTRADICTED = "contradicted"
    NOT_TOLD = "answer not told"
    NOBODY_WAITS = "answer for nobody"
    WAITS_FOR_NOTHING = "waits for nothing"

    ROW_OPEN = "row left open"
    RECORD_LOST = "record lost"
    RECORD_WRONG = "record contradicted"

    END_STUCK = "end stuck"
    END_NOT_TOLD = "end not told"


class Mend(StrEnum):
    """What ``--repair`` does."""

    LOOK_AFTER = "look after"
    """What the reconciler does for the saga."""
    MAKE_DUE = "make due"
    TELL = "tell"
    """Tell whoever waits."""
    SWEEP = "sweep"
    """What the sweeper does for a row of its table that is due."""
    UNDO_LATE = "undo late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    """A saga of the system, as it was found.

    Attributes:
        served: its names, as a reconciler is told them; those that are not known are empty.
        limit: recoveries after which a person decides.
        limit_known: whether that is so, and not only usual: nothing is parked by a guess.
        shards_known: whether the number of its index's shards is; else all that there can be are looked at.
        has_reconciler: whether one is told of it.
        attended: whether that one looks.
        held: whether it is kept from acting, so that nothing may be repaired.
        timeout_seconds: of its machine; None: not known.
        remember_seconds: how long a settled record is kept; None: not known.
        arn: of its forward state machine; empty: not known.
        definition: fingerprint of its deployed definition; empty: not known.
        always: steps of that definition that every request takes, and that leave a row.
    """

    served: Served
    limit: int = RECOVERIES
    limit_known: bool = True
    shards_known: bool = True
    has_reconciler: bool = False
    attended: bool = False
    held: bool = False
    timeout_seconds: int | None = None
    remember_seconds: int | None = None
    arn: str = ""
    definition: str = ""
    always: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that was found.

    Attributes:
        kind, severity: what, and how bad.
        id: the saga, the job, or the resource that it is about.
        what: what was found, in a sentence.
        then: what becomes of it, or what is to be done.
        since: since when, epoch milliseconds; None: not known.
        command: what to type.
        mend: what ``--repair`` does about it; None: nothing.
        saga_id: the saga; empty: it is about none.
        saga: where that saga is at home.
        table: of a job: the token table.
        amount, currency: what the saga moves, in minor units; None and empty: its record does not say it.
        mended: what ``--repair`` did; empty: nothing.
    """

    kind: Kind
    severity: Severity
    id: str
    what: str
    then: str
    since: int | None = None
    command: str = ""
    mend: Mend | None = None
    saga_id: str = ""
    saga: Saga | None = None
    table: str = ""
    amount: int | None = None
    currency: str = ""
    mended: str = ""

    @property
    def open(self) -> bool:
        """True if somebody has to do something about it: a person, or whoever runs ``--repair``."""
        return self.severity is Severity.PERSON or (self.severity is Severity.REPAIR and not self.mended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """What is in flight: requests that are not settled.

    Attributes:
        sagas: how many.
        parked: how many of them wait for a person.
        oldest: when the oldest was reserved, epoch milliseconds.
        money: what they move, by currency, in minor units; of those whose records say it.
        complete: whether every record was looked at; else there may be more.
    """

    sagas: int = 0
    parked: int = 0
    oldest: int | None = None
    money: Mapping[str, int] = field(default_factory=dict)
    complete: bool = True


_ORDER: Final = {severity: place for place, severity in enumerate(Severity)}
_KINDS: Final = {kind: place for place, kind in enumerate(Kind)}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by kind, the oldest first. What was found twice is kept once."""
    once = {(finding.kind, finding.id, finding.table, finding.what): finding for finding in findings}
    return sorted(
        once.values(),
        key=lambda one: (_ORDER[one.severity], _KINDS[one.kind], one.since if one.since is not None else -1, one.id),
    )


def by_nobody(finding: Finding) -> Finding:
    """A finding that would be repaired soon, where nobody is there who does it."""
    if finding.severity is not Severity.SOON:
        return finding
    if finding.mend is None:
        return replace(finding, severity=Severity.PERSON, then=f"nobody does it: {finding.then}")
    return replace(finding, severity=Severity.REPAIR, then="nobody does it by himself; --repair does")


def while_held(finding: Finding) -> Finding:
    """A finding that is not repaired while its saga's reconciler is held."""
    if finding.saga is None or not finding.saga.held or finding.mend is None:
        return finding
    then = "its reconciler is held: nothing is repaired until it is released"
    return replace(finding, severity=Severity.PERSON, then=then, mend=None)


def exit_status(findings: Iterable[Finding]) -> int:
    """0: nobody has to do anything. 1: somebody has to."""
    return 1 if any(finding.open for finding in findings) else 0
