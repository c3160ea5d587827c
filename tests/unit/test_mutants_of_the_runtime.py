"""Each important decision of the edge, removed: what it protects against over serialized DynamoDB must then happen."""

from __future__ import annotations

from importlib import import_module

import pytest

from handlers import gatekeeper
from saga_runtime import Commit, StepCall, Write, atomic_step
from saga_runtime.errors import SagaError
from saga_runtime.http.operation import OperationRequest
from saga_runtime.protocol import RecordAttribute
from saga_runtime.saga_log import transaction
from tests.unit.support.client import accepted
from tests.unit.support.mutation import Mutant, mutate
from tests.unit.support.samples import BODY, DUE_AFTER_MS, get, post, step_event
from tests.unit.support.transfers import run, undo
from tests.unit.support.wire import Action, Fault, Moment
from tests.unit.support.world import Context, World

ALL_OF_IT = {**BODY, "amount": 500}
LOST = Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER)


def a_step_is_not_refused_by_its_own_effect(world: World) -> None:
    """Its answer was lost, and what it did leaves nothing to do it again with."""
    world.open_accounts(alice=500, bob=0)
    world.wire.plan(LOST)
    _no_error(lambda: run(body=ALL_OF_IT))


def an_undo_is_not_refused_by_its_own_effect(world: World) -> None:
    """Its answer was lost, and what it did leaves nothing to undo it again with."""
    world.open_accounts(alice=500, bob=0)
    run()
    world.wire.plan(LOST)
    _no_error(undo)


def a_row_that_stands_decides_before_a_write_that_is_refused(world: World) -> None:
    """Both refuse a duplicate; only the row can say that it is one."""

    def keyed(_: StepCall) -> Commit:
        item = {"pk": {"S": "seat-1"}, "sk": {"S": "seat"}}
        put = {"TableName": "ledger", "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
        return Commit(writes=[Write(action={"Put": put})])

    handler = atomic_step(keyed)
    handler(step_event(), Context())
    _no_error(lambda: handler(step_event(), Context()))


def a_foreign_saga_is_not_shown(world: World) -> None:
    """Not even to somebody who knows its id."""
    saga_id = accepted(world)
    assert world.call(get(saga_id, principal="AIDABOB"))[0] == 404


def a_saga_of_another_reservation_is_not_shown_under_this_ones_name(world: World) -> None:
    """The record is of a later saga of the same key."""
    saga_id = accepted(world)
    assert world.call(get(f"{saga_id[:26]}-1"))[0] == 404


def a_saga_is_started_again_with_its_stored_bytes(world: World) -> None:
    """A later release reserves with another definition; the saga keeps its own."""
    world.wire.plan(Fault(operation="StartExecution", action=Action.DROP))
    saga_id = accepted(world)
    world.wire.forget()
    world.clock.ms += DUE_AFTER_MS
    world.call(post())
    assert world.executions.by_name[saga_id].input == world.items("requests")[0][RecordAttribute.INPUT]["S"]


def a_start_without_an_answer_promises_nothing_less(world: World) -> None:
    """The record is durable: 202."""
    world.wire.plan(Fault(operation="StartExecution", action=Action.THROTTLE))
    assert world.call(post())[0] == 202


def _no_error(action: object) -> None:
    assert callable(action)
    try:
        action()
    except SagaError as error:
        raise AssertionError(repr(error)) from error


MUTANTS = [
    Mutant(
        name="do not look at the row after a refusal",
        owner=import_module("saga_runtime.steps.atomic"),
        target="_run",
        old="if row is None:",
        new="if True:",
        kills=a_step_is_not_refused_by_its_own_effect,
    ),
    Mutant(
        name="do not look at the row after a refused undo",
        owner=import_module("saga_runtime.steps.atomic_compensation"),
        target="_run",
        old="if undo_entry_of(read_row(call)) is UndoEntry.NOTHING:",
        new="if False:",
        kills=an_undo_is_not_refused_by_its_own_effect,
    ),
    Mutant(
        name="take a write's refusal before the row's",
        owner=transaction,
        target="_cancelled",
        old='if codes[:1] == ["ConditionalCheckFailed"]:',
        new="if False:",
        kills=a_row_that_stands_decides_before_a_write_that_is_refused,
    ),
    Mutant(
        name="show everybody's sagas",
        owner=OperationRequest,
        target="_look",
        old="record.scope != scope or ",
        new="",
        kills=a_foreign_saga_is_not_shown,
    ),
    Mutant(
        name="show whichever saga the key has now",
        owner=OperationRequest,
        target="_look",
        old=" or record.saga_id != saga_id",
        new="",
        kills=a_saga_of_another_reservation_is_not_shown_under_this_ones_name,
    ),
    Mutant(
        name="start again with new bytes",
        owner=gatekeeper,
        target="_answer_met",
        old="RESTARTED)\n        if not _start(record.execution_arn, record.saga_id, record.input)",
        new="RESTARTED)\n        if not _start(record.execution_arn, record.saga_id, reservation.start_input)",
        kills=a_saga_is_started_again_with_its_stored_bytes,
    ),
    Mutant(
        name="let a start's failure out",
        owner=gatekeeper,
        target="_start",
        old="except (ClientError, BotoCoreError) as error:",
        new="except ZeroDivisionError as error:",
        kills=a_start_without_an_answer_promises_nothing_less,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_history_ends_well(world: World, mutant: Mutant) -> None:
    mutant.kills(world)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_noticed(world: World, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, mutant)

    with pytest.raises(Exception, match=r".") as noticed:
        mutant.kills(world)

    assert not isinstance(noticed.value, NameError | SyntaxError | TypeError), "the mutant is not alive"
