"""A crash or a lost response before and after every call of a dispatcher, to AWS and to its provider; then redelivery.

The calls are those of an undisturbed delivery. Each is disturbed in each way; the queue redelivers the message, later
each time, the warehouse reports, and a sweep delivers pending outcomes. Then the warehouse has done the job once at
most, and the saga resumed once. The numbers are printed, and have to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from saga_runtime.callbacks import settle
from saga_runtime.shared.backoff import Backoff
from saga_runtime.steps.verdict import Applied
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.gateway import ASKED, IDEMPOTENT
from tests.unit.support.job_saga import JOB_ID, PARCEL, REFUSED
from tests.unit.support.retries import try_only
from tests.unit.support.warehouse import TIMEOUT_SECONDS, Picking, Sent
from tests.unit.support.wire import SDK_ATTEMPTS, Action, Fault, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.proof

PROVIDERS: dict[str, dict[str, Any]] = {"asked": ASKED, "idempotent": IDEMPOTENT}
ID = "pick-77"
DONE = (PARCEL, "DONE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A delivery and its history.

    Attributes:
        before: creates the history; returns the message that is delivered.
        calls: calls of the delivery, by provider; ``test_every_call_is_enumerated`` checks them.
        ends: final outcome for the saga, and the job's row.
        job: True for a job, False for a wait.
        last: number of the attempt that receives the outcome.
    """

    before: Callable[[Picking], Sent]
    calls: dict[str, tuple[str, ...]]
    ends: tuple[Any, str | None] = DONE
    job: bool = True
    last: int = 1


def _first(picking: Picking) -> Sent:
    return picking.send()


def _refused(picking: Picking) -> Sent:
    picking.warehouse.refuses = "no such article"
    return picking.send()


def _of_its_own(picking: Picking) -> Sent:
    picking.warehouse.own_id = ID
    return picking.send()


def _of_its_own_and_quick(picking: Picking) -> Sent:
    picking.warehouse.own_id = ID
    picking.calls_back("early", job_id=ID)
    return picking.send()


def _of_its_own_and_contradicted(picking: Picking) -> Sent:
    picking.warehouse.own_id = ID
    picking.calls_back("failed", job_id=ID, outcome=REFUSED)
    picking.calls_back("early", job_id=ID)
    return picking.send()


def _unknown_and_contradicted(picking: Picking) -> Sent:
    def reports() -> None:
        picking.calls_back("failed", outcome=REFUSED)
        picking.calls_back("early")

    picking.unserved(reports)
    return picking.send()


def _unknown_and_refused(picking: Picking) -> Sent:
    """A success of an unknown job, and then, once its saga is served, a refusal."""
    picking.unserved(lambda: picking.calls_back("early"))
    picking.calls_back("failed", outcome=REFUSED)
    return picking.send()


def _reported_before_its_id_is_known(picking: Picking) -> Sent:
    """The dispatch was cut off, and the warehouse reported under its own id, which only the query supplies."""
    message = _cut_off(Moment.AFTER)(picking)
    picking.calls_back("early", job_id=ID)
    picking.warehouse.says = Applied(output=PARCEL, job_id=ID)
    return message


def _early(picking: Picking) -> Sent:
    picking.calls_back("early")
    return picking.send()


def _cut_off(moment: Moment) -> Callable[[Picking], Sent]:
    def before(picking: Picking) -> Sent:
        picking.world.wire.plan(Fault(operation="warehouse:pick", action=Action.DROP, moment=moment, times=1))
        message = picking.send()
        assert not picking.dispatch(message)
        picking.pass_every_deadline()
        return message

    return before


def _refused_after_it_was_cut_off(picking: Picking) -> Sent:
    message = _cut_off(Moment.BEFORE)(picking)
    picking.warehouse.refuses = "no such article"
    return message


def _lost(picking: Picking) -> Sent:
    """A job that the warehouse has done, with every callback lost."""
    picking.dispatch()
    picking.warehouse.finish()
    picking.pass_every_deadline()
    return picking.send_again()


def _slow(picking: Picking) -> Sent:
    picking.dispatch()
    picking.pass_every_deadline()
    return picking.send_again()


def _overdue(picking: Picking) -> Sent:
    picking.dispatch()
    picking.passes(TIMEOUT_SECONDS * 1_000)
    return picking.send_again()


def _known(picking: Picking) -> Sent:
    picking.dispatch()
    picking.job_saga.time_out()
    picking.calls_back()
    return picking.send()


def _asked(*calls: str) -> dict[str, tuple[str, ...]]:
    """Calls of a delivery that are the same for every provider."""
    return {"asked": calls}


_BEGUN = ("PutItem", "PutItem", "GetItem")
"""The row, the waiting task, and an outcome that arrived under the job's id before the job was known."""
_HANDED_OVER = ("warehouse:pick", "UpdateItem")
_RECEIVED = ("BatchGetItem", "TransactWriteItems")
_RECEIVED_LATE = ("BatchGetItem", "GetItem", "TransactWriteItems")
"""The same of a late effect, whose saga's record is read."""
_TOLD = ("SendTaskSuccess", "UpdateItem")
_TOLD_NO = ("SendTaskFailure", "UpdateItem")
_TAKEN_OVER = (*_BEGUN, "UpdateItem", *_HANDED_OVER)
PARTIES: dict[str, Party] = {
    "dispatch": Party(before=_first, calls=_asked(*_BEGUN, *_HANDED_OVER)),
    "refusal": Party(
        before=_refused,
        calls=_asked(*_BEGUN, "warehouse:pick", *_RECEIVED, *_TOLD_NO),
        ends=("Declined", "REFUSED"),
    ),
    "id of its own": Party(before=_of_its_own, calls=_asked(*_BEGUN, "warehouse:pick", "PutItem", "UpdateItem")),
    "id of its own, answered before": Party(
        before=_of_its_own_and_quick,
        calls=_asked(*_BEGUN, "warehouse:pick", "PutItem", *_RECEIVED, *_TOLD, "PutItem", "UpdateItem"),
    ),
    "id of its own, contradicted before": Party(
        before=_of_its_own_and_contradicted,
        calls=_asked(*_BEGUN, "warehouse:pick", "PutItem", *_RECEIVED, *_TOLD, "PutItem", "UpdateItem"),
    ),
    "id that a query supplies": Party(
        before=_reported_before_its_id_is_known,
        calls=_asked(*_BEGUN, "warehouse:find", *_RECEIVED, *_TOLD, "PutItem", *_RECEIVED, "PutItem"),
    ),
    "contradicted before": Party(
        before=_unknown_and_contradicted,
        calls=_asked(*_BEGUN, "PutItem", *_RECEIVED, *_TOLD, "PutItem"),
    ),
    "answered before": Party(before=_early, calls=_asked("PutItem", "GetItem", "SendTaskSuccess")),
    "answered before, unknown and refused": Party(
        before=_unknown_and_refused,
        calls=_asked("PutItem", "GetItem", "PutItem", *_RECEIVED_LATE, "PutItem", "SendTaskFailure"),
        ends=("OutOfStock", "APPLIED_LATE"),
    ),
    "after a dispatched one": Party(
        before=_cut_off(Moment.AFTER),
        calls={"asked": (*_BEGUN, "warehouse:find", "UpdateItem"), "idempotent": _TAKEN_OVER},
    ),
    "after one that was not": Party(
        before=_cut_off(Moment.BEFORE),
        calls={
            "asked": (*_BEGUN, "warehouse:find", "UpdateItem", *_HANDED_OVER),
            "idempotent": _TAKEN_OVER,
        },
    ),
    "refusal after one that was cut off": Party(
        before=_refused_after_it_was_cut_off,
        calls={
            "asked": (*_BEGUN, "warehouse:find", "UpdateItem", "warehouse:pick", *_RECEIVED, *_TOLD_NO),
            "idempotent": (*_BEGUN, "UpdateItem", "warehouse:pick", *_RECEIVED, *_TOLD_NO),
        },
        ends=("Declined", "REFUSED"),
    ),
    "answer that was lost": Party(
        before=_lost,
        calls=_asked("PutItem", "PutItem", "UpdateItem", "GetItem", "warehouse:find", *_RECEIVED, *_TOLD),
        last=2,
    ),
    "answer that takes long": Party(
        before=_slow,
        calls={
            "asked": ("PutItem", "PutItem", "UpdateItem", "GetItem", "warehouse:find", "UpdateItem"),
            "idempotent": ("PutItem", "PutItem", "UpdateItem", "GetItem"),
        },
        last=2,
    ),
    "answer that does not come": Party(
        before=_overdue,
        calls={
            "asked": ("PutItem", "PutItem", "UpdateItem", "GetItem", "warehouse:find", "SendTaskFailure"),
            "idempotent": ("PutItem", "PutItem", "UpdateItem", "GetItem", "SendTaskFailure"),
        },
        ends=("JobStillPending", "INTENT"),
        last=2,
    ),
    "answer that is known": Party(before=_known, calls=_asked("PutItem", "GetItem", "SendTaskSuccess"), last=2),
    "wait": Party(
        before=_first,
        calls=_asked("GetItem", "PutItem", "GetItem", "warehouse:pick"),
        ends=(PARCEL, "RECORDED"),
        job=False,
    ),
    "wait that is known": Party(
        before=_known,
        calls=_asked("GetItem", "GetItem", "SendTaskSuccess"),
        ends=(PARCEL, "RECORDED"),
        job=False,
        last=2,
    ),
    "wait that is known, unknown and refused": Party(
        before=_unknown_and_refused,
        calls=_asked("GetItem", "GetItem", "PutItem", *_RECEIVED, "PutItem", "SendTaskFailure"),
        ends=("OutOfStock", "REFUSED"),
        job=False,
    ),
    "wait that is over": Party(
        before=_overdue,
        calls=_asked("GetItem", "PutItem", "UpdateItem", "GetItem", "SendTaskFailure"),
        ends=("WaitTimedOut", None),
        job=False,
        last=2,
    ),
}
MOMENTS = list(product((Action.KILL, Action.DROP), Moment))


TRIES = 2
"""How often the runtime sends a call again; with as many as in earnest, the matrix would take four times as long."""


@pytest.fixture(autouse=True)
def _soon_discouraged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saga_runtime.saga_log.row_write.BACKOFF", Backoff(attempts=TRIES))
    try_only(monkeypatch, TRIES)


def _repeats(call: str, action: Action) -> int:
    """As often as SDK and runtime try together: healing within a delivery has tests of its own."""
    return 1 if action is Action.KILL or call.startswith("warehouse:") else TRIES * SDK_ATTEMPTS


def _calls(calls: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(call, calls[: index + 1].count(call)) for index, call in enumerate(calls)]


MATRIX = [
    pytest.param(name, provider, call, nth, action, moment, times, id=f"{provider}, {name}: {fault} x{times}")
    for name, party in PARTIES.items()
    for provider, calls in party.calls.items()
    for (call, nth), (action, moment) in product(_calls(calls), MOMENTS)
    for times in [_repeats(call, action)]
    for fault in [Fault(operation=call, action=action, moment=moment, on=nth)]
]
RAN: set[str] = set()


def _answered(picking: Picking, party: Party) -> None:
    """Let the warehouse report what it was asked to do, and deliver pending outcomes."""
    told = picking.outcome(party.last)
    if told is None and not picking.warehouse.refuses:
        picking.calls_back("answer")
    settle(JOB_ID)


def _check(picking: Picking, party: Party) -> None:
    told, status = party.ends
    assert (picking.outcome(party.last), picking.status) == (told, status)
    assert len(picking.world.tasks.woken) == 1, "a saga is woken once"
    assert len(picking.warehouse.begun) <= 1 or not party.job, "a job is done once"
    assert picking.job_saga.token.get("status") != "DELIVERING", "a known outcome is delivered"
    aliases = [one for one in picking.world.items("tokens") if one["status"] == {"S": "ALIAS"}]
    assert not any(one.keys() & {"outcome", "conflict"} for one in aliases), "a known job has all its outcomes"


@pytest.mark.parametrize(
    ("name", "provider"), [(name, provider) for name, party in PARTIES.items() for provider in party.calls]
)
def test_every_call_is_enumerated(world: World, monkeypatch: pytest.MonkeyPatch, name: str, provider: str) -> None:
    party = PARTIES[name]
    picking = Picking(world, monkeypatch, job=party.job, **PROVIDERS[provider])
    message = party.before(picking)
    world.wire.forget()

    assert picking.dispatch(message)

    assert tuple(world.wire.sent) == party.calls[provider]
    _answered(picking, party)
    _check(picking, party)


@pytest.mark.parametrize(("name", "provider", "call", "nth", "action", "moment", "times"), MATRIX)
def test_the_job_is_done_once_and_the_saga_woken_once(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    provider: str,
    call: str,
    nth: int,
    action: Action,
    moment: Moment,
    times: int,
    request: pytest.FixtureRequest,
) -> None:
    party = PARTIES[name]
    picking = Picking(world, monkeypatch, job=party.job, **PROVIDERS[provider])
    message = party.before(picking)
    world.wire.forget()
    world.wire.plan(Fault(operation=call, action=action, moment=moment, on=nth, times=times))

    picking.to_the_end(message)

    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    _answered(picking, party)
    _check(picking, party)
    if party.job and party.ends == DONE and picking.warehouse.begun:
        picking.check()
    RAN.add(request.node.name)


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_the_job_is_done_once_and_the_saga_woken_once,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of dispatchers",
    )
