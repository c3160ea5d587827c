"""A crash or a lost response before and after every call of registrations, receipts, sweeps and heartbeats.

The calls are those of an undisturbed run. Each is disturbed in each way; afterwards the message or the event is
retried, as queues and providers do, and pending outcomes are swept. Then the log has the expected outcome, the waiting
task received it once, and no write is left half done. The numbers are printed, and have to agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from saga_runtime.callbacks import Heartbeat, adopt_alias, record_dispatch_error, register, settle
from saga_runtime.callbacks.decisions import conflict_id_of
from saga_runtime.callbacks.rows import Outcome
from saga_runtime.callbacks.store import alias_id, read_token
from saga_runtime.callbacks.sweeper import sweep
from saga_runtime.callbacks.writes import forgotten_update
from saga_runtime.protocol import NOTICE_PREFIX, Env, StepStatus, TokenAttribute, TokenStatus
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Audit, decided, stored
from tests.unit.support.enumerated import selected
from tests.unit.support.job_saga import (
    JOB_ID,
    REFUSED,
    JobSaga,
    Snapshots,
    acknowledge,
    notified,
    operators_queue,
    served,
)
from tests.unit.support.retries import try_only
from tests.unit.support.samples import NOW_MS
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

pytestmark = pytest.mark.proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A component that makes calls.

    Attributes:
        before: the history.
        act: the disturbed action, which is retried.
        calls: in order; ``test_every_call_is_enumerated`` checks them.
        log: final status of the log row; None without a row.
        token: final status of the job's token row; several where a lost response looks like a missing task.
        woken: relevant part of the outcome that the newest attempt received; None: nothing.
        operators: whether operators are notified.
        notices: states of the notices after the next sweep; None: they are not of interest.
    """

    before: Callable[[JobSaga], object] = lambda _: None
    act: Callable[[JobSaga], object]
    calls: tuple[str, ...]
    log: StepStatus | None
    token: tuple[TokenStatus | None, ...]
    woken: str | None = None
    operators: bool = False
    notices: tuple[TokenStatus, ...] | None = None


def _retried(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.time_out()
    job_saga.enter()


def _early(job_saga: JobSaga) -> None:
    job_saga.reports("e1")
    job_saga.enter()


def _early_elsewhere(job_saga: JobSaga) -> None:
    job_saga.reports("e1")
    job_saga.misplace()
    job_saga.enter()


def _early_elsewhere_and_unknown(job_saga: JobSaga) -> None:
    """The provider reported a refusal before any saga was served, and a success while only another one was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("e0", REFUSED)
    _early_elsewhere(job_saga)


def _unknown(job_saga: JobSaga) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("e1")
    job_saga.enter()


def _unknown_twice(job_saga: JobSaga) -> None:
    """An unknown job failed, and was done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("e1", REFUSED)
        job_saga.reports("e2")
    job_saga.enter()


def _unknown_and_retried(job_saga: JobSaga) -> None:
    """The first attempt's registration died when its token was stored."""
    _unknown(job_saga)
    job_saga.world.wire.plan(Fault(operation="PutItem", action=Action.KILL, moment=Moment.AFTER, times=1))
    with pytest.raises(Killed):
        _register(job_saga)
    job_saga.time_out()
    job_saga.enter()


def _forgotten(job_saga: JobSaga) -> None:
    """An operator has forgotten the outcome of an unknown job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(Env.CALLBACKS, "[]")
        job_saga.reports("e1")
    row = read_token(alias_id(JOB_ID))
    assert row is not None
    audit = Audit(who="arn:aws:iam::111111111111:user/ann", why="of the test environment")
    kept = stored([decided(audit, "forgotten", NOW_MS)])
    aws.dynamodb().update_item(**forgotten_update("tokens", row, kept, NOW_MS)["Update"])
    job_saga.enter()


def _nobody_waits(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.time_out()


def _parked_unregistered(job_saga: JobSaga) -> None:
    job_saga.change_record(parked_by="owner", parked_reason='{"step":"Pick"}')


def _parked(job_saga: JobSaga) -> None:
    _nobody_waits(job_saga)
    _parked_unregistered(job_saga)


def _buried(job_saga: JobSaga) -> None:
    _nobody_waits(job_saga)
    job_saga.compensate()


def _refused(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1", REFUSED)


def _done(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1")


def _untold(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.world.wire.plan(Fault(operation="SendTaskSuccess", action=Action.KILL, times=1))
    with pytest.raises(Killed):
        job_saga.reports("e1")
    job_saga.world.clock.ms += 60_000


def _contradicted(job_saga: JobSaga) -> None:
    _done(job_saga)
    job_saga.reports("e2", REFUSED)


def _acknowledged(job_saga: JobSaga) -> None:
    _contradicted(job_saga)
    sweep(remaining_ms=lambda: 60_000)
    aws.sqs().purge_queue(QueueUrl=operators_queue())  # as a sweep of the queue does
    acknowledge(conflict_id_of(JOB_ID, Outcome.of(REFUSED)))


def _spoken_of(job_saga: JobSaga) -> None:
    job_saga.register()
    adopt_alias("their-1", JOB_ID)


def _spoken_of_early(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1", job_id="their-1")


def _spoken_of_early_and_twice(job_saga: JobSaga) -> None:
    job_saga.register()
    job_saga.reports("e1", REFUSED, job_id="their-1")
    job_saga.reports("e2", job_id="their-1")


def _register(job_saga: JobSaga) -> object:
    return register(job_saga.waiting(job_saga.attempts[-1]))


def _sweep(_: JobSaga) -> object:
    return sweep(remaining_ms=lambda: 60_000)


_TOLD = (TokenStatus.DELIVERED, TokenStatus.UNDELIVERED)
_TELL = ("SendTaskSuccess", "UpdateItem")
_ADOPT = ("PutItem", "BatchGetItem", "TransactWriteItems", *_TELL, "PutItem")
PARTIES: dict[str, Party] = {
    "registration": Party(
        before=JobSaga.enter,
        act=_register,
        calls=("PutItem", "GetItem"),
        log=None,
        token=(TokenStatus.WAITING,),
    ),
    "registration of a newer attempt": Party(
        before=_retried,
        act=_register,
        calls=("PutItem", "UpdateItem", "GetItem"),
        log=StepStatus.INTENT,
        token=(TokenStatus.WAITING,),
    ),
    "registration after an early answer": Party(
        before=_early,
        act=_register,
        calls=("PutItem", "GetItem", "TransactWriteItems", "GetItem", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "registration after an outcome that another saga's log has": Party(
        before=_early_elsewhere,
        act=_register,
        calls=("PutItem", "GetItem", "GetItem", "TransactWriteItems", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "registration after outcomes of an unknown job, and in another saga's log": Party(
        before=_early_elsewhere_and_unknown,
        act=_register,
        calls=("PutItem", "GetItem", "GetItem", "TransactWriteItems", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
        operators=True,
        notices=(TokenStatus.NOTIFIED,),
    ),
    "registration after an outcome of an unknown job": Party(
        before=_unknown,
        act=_register,
        calls=("PutItem", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "registration after two outcomes of an unknown job": Party(
        before=_unknown_twice,
        act=_register,
        calls=("PutItem", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
        operators=True,
        notices=(TokenStatus.NOTIFIED,),
    ),
    "registration of a newer attempt after an outcome of an unknown job": Party(
        before=_unknown_and_retried,
        act=_register,
        calls=("PutItem", "UpdateItem", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "registration after a forgotten outcome of an unknown job": Party(
        before=_forgotten,
        act=_register,
        calls=("PutItem", "GetItem", *_ADOPT),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "receipt": Party(
        before=JobSaga.register,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "TransactWriteItems", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "receipt of a refusal": Party(
        before=JobSaga.register,
        act=lambda job_saga: job_saga.reports("e1", REFUSED),
        calls=("BatchGetItem", "TransactWriteItems", "SendTaskFailure", "UpdateItem"),
        log=StepStatus.REFUSED,
        token=_TOLD,
        woken="OutOfStock",
    ),
    "receipt without a waiting task": Party(
        before=_nobody_waits,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "TransactWriteItems", "SendTaskSuccess", "GetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.UNDELIVERED,),
    ),
    "receipt for a parked saga": Party(
        before=_parked,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "TransactWriteItems", "SendTaskSuccess", "GetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.UNDELIVERED,),
    ),
    "early receipt": Party(
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "GetItem", "GetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.EARLY,),
    ),
    "early receipt for a parked saga": Party(
        before=_parked_unregistered,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "GetItem", "GetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.EARLY,),
    ),
    "receipt after a burial": Party(
        before=_buried,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=(
            *("BatchGetItem", "GetItem", "TransactWriteItems"),
            *("SendTaskFailure", "GetItem", "TransactWriteItems"),
        ),
        log=StepStatus.APPLIED_LATE,
        token=(TokenStatus.UNDELIVERED,),
    ),
    "receipt after a refusal": Party(
        before=_refused,
        act=lambda job_saga: job_saga.reports("e2"),
        calls=("BatchGetItem", "GetItem", "TransactWriteItems"),
        log=StepStatus.APPLIED_LATE,
        token=(TokenStatus.DELIVERED,),
        woken="OutOfStock",
        operators=True,
    ),
    "receipt that contradicts": Party(
        before=_done,
        act=lambda job_saga: job_saga.reports("e2", REFUSED),
        calls=("BatchGetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.DELIVERED,),
        woken="output",
        operators=True,
    ),
    "receipt of what is known": Party(
        before=_done,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "TransactWriteItems"),
        log=StepStatus.DONE,
        token=(TokenStatus.DELIVERED,),
        woken="output",
    ),
    "receipt of a known outcome that was not delivered": Party(
        before=_untold,
        act=lambda job_saga: job_saga.reports("e1"),
        calls=("BatchGetItem", "TransactWriteItems", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "receipt under the provider's id": Party(
        before=_spoken_of,
        act=lambda job_saga: job_saga.reports("e1", job_id="their-1"),
        calls=("GetItem", "BatchGetItem", "TransactWriteItems", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "receipt of an unknown job": Party(
        act=lambda job_saga: job_saga.reports("e1", job_id="their-1"),
        calls=("GetItem", "TransactWriteItems"),
        log=None,
        token=(None,),
    ),
    "alias": Party(
        before=JobSaga.register,
        act=lambda _: adopt_alias("their-1", JOB_ID),
        calls=("PutItem",),
        log=StepStatus.INTENT,
        token=(TokenStatus.WAITING,),
    ),
    "alias after an answer": Party(
        before=_spoken_of_early,
        act=lambda _: adopt_alias("their-1", JOB_ID),
        calls=_ADOPT,
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "alias after two answers": Party(
        before=_spoken_of_early_and_twice,
        act=lambda _: adopt_alias("their-1", JOB_ID),
        calls=_ADOPT,
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
        operators=True,
        notices=(TokenStatus.NOTIFIED,),
    ),
    "settling": Party(
        before=_untold,
        act=lambda _: settle(JOB_ID),
        calls=("GetItem", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "sweep": Party(
        before=_untold,
        act=_sweep,
        calls=(*("Query",) * 8, "GetItem", *_TELL),
        log=StepStatus.DONE,
        token=_TOLD,
        woken="output",
    ),
    "sweep of a notice": Party(
        before=_contradicted,
        act=_sweep,
        calls=(*("Query",) * 8, "GetItem", "SendMessage", "UpdateItem"),
        log=StepStatus.DONE,
        token=(TokenStatus.DELIVERED,),
        woken="output",
        operators=True,
        notices=(TokenStatus.NOTIFIED,),
    ),
    "sweep of an acknowledged notice": Party(
        before=_acknowledged,
        act=_sweep,
        calls=(*("Query",) * 8, "GetItem", "GetItem", "DeleteItem"),
        log=StepStatus.DONE,
        token=(TokenStatus.DELIVERED,),
        woken="output",
        notices=(),
    ),
    "heartbeat": Party(
        before=JobSaga.register,
        act=lambda job_saga: job_saga.reports("beat", Heartbeat()),
        calls=("GetItem", "SendTaskHeartbeat", "UpdateItem"),
        log=StepStatus.INTENT,
        token=(TokenStatus.WAITING,),
    ),
    "dispatch that failed": Party(
        before=JobSaga.register,
        act=lambda _: record_dispatch_error(JOB_ID, "ConnectionError"),
        calls=("UpdateItem",),
        log=StepStatus.INTENT,
        token=(TokenStatus.WAITING,),
    ),
}
MOMENTS = list(product((Action.KILL, Action.DROP), Moment))


def _calls(party: Party) -> list[tuple[str, int]]:
    return [(call, party.calls[: index + 1].count(call)) for index, call in enumerate(party.calls)]


MATRIX = {
    name: [
        Fault(operation=call, action=action, moment=moment, on=nth)
        for (call, nth), (action, moment) in product(_calls(party), MOMENTS)
    ]
    for name, party in PARTIES.items()
}
ENUMERATED = sum(len(faults) for faults in MATRIX.values())
RAN: set[tuple[str, str]] = set()


@pytest.fixture
def job_saga(world: World, monkeypatch: pytest.MonkeyPatch) -> JobSaga:
    """A saga in progress with an operator queue."""
    opened = JobSaga.open(world, monkeypatch)
    monkeypatch.setenv(Env.CALLBACKS, json.dumps([served(operators=operators_queue())]))
    return opened


def to_the_end(act: Callable[[], Any]) -> None:
    """Do it until it ends without an error, as queues and providers do."""
    for _ in range(20):
        try:
            act()
        except (Exception, Killed):  # noqa: BLE001  # whatever it is, it comes again
            continue
        return
    raise AssertionError("it never came to an end")


def check(job_saga: JobSaga, party: Party) -> None:
    """Compare the results with a party's expectations."""
    log, row = job_saga.log, job_saga.token
    assert (log.status if log else None) is party.log
    aliases = [one for one in job_saga.world.items("tokens") if one["status"] == {"S": TokenStatus.ALIAS}]
    assert not any(one.keys() & {"outcome", "conflict"} for one in aliases), "a known job has all its outcomes"
    assert (TokenStatus(row["status"]) if row else None) in party.token
    if row and row["status"] != TokenStatus.WAITING:
        assert TokenAttribute.TOKEN not in row
    if row and row["status"] in _TOLD and log is not None and log.status is not StepStatus.APPLIED_LATE:
        assert TokenAttribute.DUE_AT not in row, "the row needs no sweep"
    told = job_saga.outcome(len(job_saga.attempts)) if job_saga.attempts else None
    assert (told and ("output" if "output" in told else told["error"])) == party.woken
    assert "parked_by" not in job_saga.record()
    if log is not None and log.status is StepStatus.APPLIED_LATE:
        assert int(row[TokenAttribute.DUE_AT]) <= job_saga.world.clock.ms
        assert int(job_saga.record()["due_at"]) <= job_saga.world.clock.ms


def check_operators(job_saga: JobSaga, party: Party) -> None:
    """Compare what operators have after the next sweep with a party's expectations."""
    assert bool(notified(operators_queue())) is party.operators
    rows = (item for item in job_saga.world.items("tokens") if item["id"]["S"].startswith(NOTICE_PREFIX))
    assert party.notices in (None, tuple(TokenStatus(item["status"]["S"]) for item in rows))


@pytest.mark.parametrize("name", PARTIES)
def test_every_call_is_enumerated(job_saga: JobSaga, name: str) -> None:
    party = PARTIES[name]
    party.before(job_saga)
    job_saga.world.wire.forget()

    party.act(job_saga)

    assert tuple(job_saga.world.wire.sent) == party.calls
    check(job_saga, party)
    check_operators(job_saga, party)


@pytest.mark.parametrize("name", PARTIES)
def test_nothing_is_left_half_done_after_a_disturbance(
    job_saga: JobSaga, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fault lasts for as long as the SDK tries; that the runtime tries on has a test of its own.
    try_only(monkeypatch, 1)
    party, snapshots = PARTIES[name], Snapshots(job_saga)
    party.before(job_saga)
    before = snapshots.take()
    for fault in MATRIX[name]:
        snapshots.put_back(before)
        job_saga.world.wire.forget()
        job_saga.world.wire.plan(fault)

        to_the_end(lambda: party.act(job_saga))

        assert job_saga.world.wire.fired, f"{fault} never struck"
        job_saga.world.wire.forget()
        settle(JOB_ID)  # as a sweep does with what is due
        try:
            check(job_saga, party)
            check_operators(job_saga, party)
        except AssertionError as error:
            raise AssertionError(f"{name}, {fault}: {error}") from error
        RAN.add((name, str(fault)))


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    cases = selected(request, test_nothing_is_left_half_done_after_a_disturbance)
    parties = [str(case.callspec.params["name"]) for case in cases]
    print(f"crash matrix of callbacks: {ENUMERATED} enumerated, {len(RAN)} run")

    assert {(name, str(fault)) for name in parties for fault in MATRIX[name]} == RAN
    assert sum(len(MATRIX[name]) for name in parties) == len(RAN)
