"""Rows that show what is still to be done are there until it is done."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from saga_runtime.callbacks import Receipt, adopt_alias, register
from saga_runtime.callbacks.decisions import conflict_id_of
from saga_runtime.callbacks.rows import Outcome
from saga_runtime.callbacks.sweeper import Swept, sweep
from saga_runtime.protocol import NOTICE_PREFIX, CallField, RecordStatus, StepStatus
from saga_runtime.saga_log.rows import KEEP_DAYS, log_key
from saga_runtime.shared import aws
from tests.unit.recovery.test_retention_traces import pass_days
from tests.unit.support.job_saga import DONE, JOB_ID, REFUSED, STEP, JobSaga, acknowledge, operators_queue
from tests.unit.support.samples import REQUEST_ID, SAGA_ID
from tests.unit.support.warehouse import Picking
from tests.unit.support.wire import Action, Fault, Moment, before
from tests.unit.support.world import World

LOG_DAYS: Final = 400
DAY: Final = 86_400
LOG: Final[tuple[str, dict[str, Any]]] = ("log", log_key(SAGA_ID, STEP))
TOKENS: Final[tuple[str, dict[str, Any]]] = ("tokens", {"id": {"S": JOB_ID}})
PLACES: Final = pytest.mark.parametrize("place", [LOG, TOKENS], ids=["row", "token row"])
Place = tuple[str, dict[str, Any]]


@pytest.fixture
def job_saga(world: World, monkeypatch: pytest.MonkeyPatch) -> JobSaga:
    return JobSaga.open(world, monkeypatch)


def fenced(job_saga: JobSaga) -> None:
    """A job that its saga has treated as not applied, and forgets in a day."""
    job_saga.register()
    job_saga.time_out()
    job_saga.compensate()
    job_saga.change_record(status=RecordStatus.FAILED)
    for place in (LOG, TOKENS):
        expires_in(job_saga, place, 1)


def applied_late(job_saga: JobSaga) -> None:
    fenced(job_saga)
    assert job_saga.reports("late") is Receipt.APPLIED_LATE


def expires_in(job_saga: JobSaga, place: Place, days: int | None) -> None:
    """Let a row expire; None: never."""
    table, key = place
    value = {} if days is None else {"ExpressionAttributeValues": {":at": {"N": str(now(job_saga) + days * DAY)}}}
    change: Any = {"UpdateExpression": "REMOVE expiration" if days is None else "SET expiration = :at", **value}
    aws.dynamodb().update_item(TableName=table, Key=key, **change)


def days_left(job_saga: JobSaga, place: Place) -> int | None:
    """Days until a row expires; None: never."""
    table, key = place
    item = aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
    return (int(item["expiration"]["N"]) - now(job_saga)) // DAY if "expiration" in item else None


def now(job_saga: JobSaga) -> int:
    return job_saga.world.clock.ms // 1_000


def swept() -> Swept:
    return sweep(remaining_ms=lambda: 60_000)


def gone(place: Place) -> Callable[[], object]:
    table, key = place
    return lambda: aws.dynamodb().delete_item(TableName=table, Key=key)


# ---- a late effect ------------------------------------------------------------------------------------------------


@PLACES
def test_a_late_effect_is_kept_as_long_as_a_new_row(job_saga: JobSaga, place: Place) -> None:
    applied_late(job_saga)

    assert days_left(job_saga, place) == LOG_DAYS


@PLACES
@pytest.mark.parametrize("days", [LOG_DAYS + 50, None], ids=["longer", "for ever"])
def test_a_late_effect_shortens_nothing(job_saga: JobSaga, place: Place, days: int | None) -> None:
    fenced(job_saga)
    expires_in(job_saga, place, days)

    assert job_saga.reports("late") is Receipt.APPLIED_LATE

    assert days_left(job_saga, place) == days


@PLACES
def test_a_row_that_is_kept_for_longer_meanwhile_is_not_shortened(job_saga: JobSaga, place: Place) -> None:
    fenced(job_saga)
    before(job_saga.world.wire, "TransactWriteItems", lambda: expires_in(job_saga, place, LOG_DAYS + 50))

    assert job_saga.reports("late") is Receipt.APPLIED_LATE

    assert days_left(job_saga, place) == LOG_DAYS + 50


def test_a_late_effect_is_kept_until_it_is_compensated(job_saga: JobSaga) -> None:
    """Neither is one of a step that nothing compensates: only an operator's decision ends it."""
    applied_late(job_saga)
    job_saga.world.clock.ms += DAY * 1_000

    for _ in range(2 * LOG_DAYS // 10):
        pass_days(job_saga.world, 10, expire=("log", "tokens"))
        found = swept()
        assert (found.late, found.undecided, found.failed) == (1, 1, 0)

    job_saga.change_log(status=StepStatus.COMPENSATED)
    assert (swept().late, swept().undecided) == (0, 0)
    pass_days(job_saga.world, KEEP_DAYS, expire=("log", "tokens"))
    assert (job_saga.log, job_saga.token) == (None, {})


@PLACES
def test_rows_of_a_late_effect_are_extended_once_in_a_while(job_saga: JobSaga, place: Place) -> None:
    applied_late(job_saga)
    lefts = set()
    for _ in range(LOG_DAYS + KEEP_DAYS):
        pass_days(job_saga.world, 1, expire=("log", "tokens"))
        swept()
        lefts.add(days_left(job_saga, place))

    assert min(left for left in lefts if left is not None) == KEEP_DAYS // 2
    calls = job_saga.world.calls_of(swept)
    assert "UpdateItem" not in calls


@PLACES
def test_a_row_without_an_end_is_left_so(job_saga: JobSaga, place: Place) -> None:
    applied_late(job_saga)
    expires_in(job_saga, place, None)
    pass_days(job_saga.world, LOG_DAYS - 1, expire=())

    assert swept().late == 1

    assert days_left(job_saga, place) is None


@pytest.mark.parametrize(("place", "write"), [(TOKENS, 1), (LOG, 2)], ids=["token row", "row"])
def test_what_another_extends_meanwhile_is_not_shortened(job_saga: JobSaga, place: Place, write: int) -> None:
    applied_late(job_saga)
    pass_days(job_saga.world, LOG_DAYS - 1, expire=())
    before(job_saga.world.wire, "UpdateItem", lambda: expires_in(job_saga, place, 2 * KEEP_DAYS), on=write)

    assert (swept().late, days_left(job_saga, place)) == (1, 2 * KEEP_DAYS)


@pytest.mark.parametrize(("place", "write"), [(TOKENS, 1), (LOG, 2)], ids=["token row", "row"])
def test_what_is_deleted_meanwhile_is_not_made_again(job_saga: JobSaga, place: Place, write: int) -> None:
    applied_late(job_saga)
    pass_days(job_saga.world, LOG_DAYS - 1, expire=())
    before(job_saga.world.wire, "UpdateItem", gone(place), on=write)

    swept()

    table, key = place
    assert "Item" not in aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True)


def test_a_late_effect_whose_row_is_gone_is_still_late(job_saga: JobSaga) -> None:
    applied_late(job_saga)
    gone(LOG)()
    job_saga.world.clock.ms += DAY * 1_000

    for _ in range(2 * LOG_DAYS // 10):
        pass_days(job_saga.world, 10, expire=("log", "tokens"))
        found = swept()
        assert (found.late, found.undecided, found.failed) == (1, 1, 0)


# ---- another outcome of an unknown job ----------------------------------------------------------------------------


def test_another_outcome_of_an_unknown_job_is_kept_as_long_as_the_first(job_saga: JobSaga) -> None:
    job_saga.reports("e1", REFUSED, job_id="their-1")
    pass_days(job_saga.world, LOG_DAYS - 1, expire=("tokens",))
    job_saga.reports("e2", DONE, job_id="their-1")
    pass_days(job_saga.world, LOG_DAYS - 1, expire=("tokens",))

    (row,) = [one for one in job_saga.world.items("tokens") if "conflict" in one]
    assert int(row["due_at"]["N"]) // 1_000 == int(row["expiration"]["N"]) == now(job_saga) + DAY


# ---- notices --------------------------------------------------------------------------------------------------------


@pytest.fixture
def contradicted(world: World, monkeypatch: pytest.MonkeyPatch) -> JobSaga:
    """A job of which a success was reported, and then a refusal."""
    job_saga = JobSaga.open(world, monkeypatch, operators=operators_queue())
    job_saga.register()
    job_saga.reports("e1", DONE)
    assert job_saga.reports("e2", REFUSED) is Receipt.CONFLICT
    return job_saga


def notices(job_saga: JobSaga) -> list[int]:
    """When notices expire, in days from now."""
    found = [one for one in job_saga.world.items("tokens") if one["id"]["S"].startswith(NOTICE_PREFIX)]
    return [(int(one["expiration"]["N"]) - now(job_saga)) // DAY for one in found]


def test_a_contradiction_is_kept_until_it_is_acknowledged(contradicted: JobSaga) -> None:
    swept()
    for _ in range(2 * LOG_DAYS // 10):
        pass_days(contradicted.world, 10, expire=("log", "tokens"))
        assert (swept().contradicted, swept().contradicted) == (1, 1)

    acknowledge(conflict_id_of(JOB_ID, Outcome.of(REFUSED)))

    assert (swept().contradicted, notices(contradicted)) == (0, [])


def test_a_contradiction_is_removed_with_its_sagas_record(contradicted: JobSaga) -> None:
    swept()
    pass_days(contradicted.world, LOG_DAYS - 1, expire=("tokens",))
    swept()
    assert notices(contradicted) == [KEEP_DAYS]
    gone(("requests", {"id": {"S": REQUEST_ID}}))()

    assert (swept().contradicted, notices(contradicted)) == (0, [])


def test_a_notice_that_cannot_be_sent_is_kept(contradicted: JobSaga) -> None:
    contradicted.world.wire.plan(Fault(operation="SendMessage", action=Action.DROP, moment=Moment.BEFORE, times=999))
    for _ in range(2 * LOG_DAYS // 10):
        pass_days(contradicted.world, 10, expire=("log", "tokens"))
        assert swept().failed == 1

    contradicted.world.wire.forget()
    assert swept().notices == 1


# ---- jobs that are waited for again, and their providers' ids -----------------------------------------------------


@pytest.mark.parametrize("known", ["no outcome", "its outcome", "an outcome that an operator took back"])
def test_a_new_wait_is_kept_as_long_as_a_first_one(job_saga: JobSaga, known: str) -> None:
    job_saga.register()
    if known != "no outcome":
        assert job_saga.reports("e1") is Receipt.DELIVERED
    if known == "an outcome that an operator took back":
        job_saga.change_log(status=StepStatus.INTENT)
    pass_days(job_saga.world, LOG_DAYS - 1, expire=("tokens",))

    register(job_saga.waiting(job_saga.enter()))

    assert days_left(job_saga, TOKENS) == LOG_DAYS
    assert bool(job_saga.outcome(2)) is (known == "its outcome")


@pytest.mark.parametrize("days", [LOG_DAYS + 50, None], ids=["longer", "for ever"])
def test_a_new_wait_shortens_nothing(job_saga: JobSaga, days: int | None) -> None:
    job_saga.register()
    expires_in(job_saga, TOKENS, days)

    register(job_saga.waiting(job_saga.enter()))

    assert days_left(job_saga, TOKENS) == days


ALIAS: Final[Place] = ("tokens", {"id": {"S": "alias##their-1"}})


@pytest.mark.parametrize(("log_days", "kept"), [(30, 400), (1_000, 1_000)])
def test_a_providers_own_id_is_kept_as_long_as_its_job(
    world: World, monkeypatch: pytest.MonkeyPatch, log_days: int, kept: int
) -> None:
    picking = Picking(world, monkeypatch)
    picking.warehouse.own_id = "their-1"
    picking.dispatch(picking.send(**{CallField.LOG_DAYS: log_days}))
    assert days_left(picking.job_saga, ALIAS) == kept
    pass_days(world, kept - 1, expire=("tokens",))

    adopt_alias("their-1", JOB_ID, log_days)
    assert days_left(picking.job_saga, ALIAS) == kept
    world.clock.ms += 3_600_000
    assert "UpdateItem" not in world.calls_of(lambda: adopt_alias("their-1", JOB_ID, log_days))


@pytest.mark.parametrize("happens", ["is extended", "is deleted"])
def test_an_id_that_changes_before_it_is_extended_is_read_again(job_saga: JobSaga, happens: str) -> None:
    adopt_alias("their-1", JOB_ID)
    expires_in(job_saga, ALIAS, 1)
    change = gone(ALIAS) if happens == "is deleted" else partial(expires_in, job_saga, ALIAS, LOG_DAYS + 50)
    before(job_saga.world.wire, "UpdateItem", change)

    adopt_alias("their-1", JOB_ID)

    assert days_left(job_saga, ALIAS) == (LOG_DAYS if happens == "is deleted" else LOG_DAYS + 50)
    assert job_saga.token_row("alias##their-1")["job_id"] == JOB_ID
