"""Two operators resume a list of parked sagas: one proposes it, another confirms it, each saga is decided as seen."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import pytest

from constructs_lib.cli.main import main
from saga_runtime.idempotency.record import reserve_put
from saga_runtime.protocol import LIST_PREFIX, HoldAttribute, ListAttribute, RecordAttribute, RecordStatus, SecondPerson
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.hold import HOLD_KEY, KEPT_MS, hold_key
from saga_runtime.recovery.operators import Operators
from saga_runtime.recovery.proposals import Caller
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision
from tests.unit.support import settling
from tests.unit.support.asked_function import ANN, BEN, EVE, FEDERATED, AskedFunction, asked_function
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.operated_saga import operated_saga_in
from tests.unit.support.samples import DAY_MS, reservation_of
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

LISTS = import_module("saga_runtime.recovery.listed")
HOLD = import_module("saga_runtime.recovery.hold")
RESUME = import_module("constructs_lib.cli.fleet.resume")
COMMAND = import_module("constructs_lib.cli.shared.saga")
KEYS = ("key-1", "key-2", "key-3")
SAGAS = {key: reservation_of(key=key).saga_id for key in KEYS}
PROPOSES = ("--yes", "--reason", "the provider works again")
CONFIRMS = ("--yes", "--reason", "I asked it, too", "--rate", "1000")


@dataclass
class Crew:
    """Operators of three parked sagas, and the list of these.

    Attributes:
        asked: the function that acts for them.
        plan: the list.
        printed: by the last command.
    """

    asked: AskedFunction
    plan: Path
    printed: str = field(default="")

    @property
    def world(self) -> World:
        return self.asked.operated.world

    def run(self, caller: tuple[str, str], *words: str) -> int:
        """Run ``resume`` as a caller."""
        self.asked.caller = caller
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = main(["resume", "--stack", "Shop", *words])
        self.printed = out.getvalue()
        return status

    def propose(self, caller: tuple[str, str] = ANN) -> str:
        """Propose the list; its id."""
        assert self.run(caller, str(self.plan), *PROPOSES) == 0, self.printed
        return self.list_id

    def confirm(self, caller: tuple[str, str] = EVE, *more: str) -> int:
        """Confirm the proposed list, and resume its sagas."""
        return self.run(caller, "--proposal", self.list_id, "--results", str(self.results), *CONFIRMS, *more)

    @property
    def results(self) -> Path:
        return self.plan.with_name("results")

    @property
    def outcomes(self) -> dict[str, str]:
        """The last outcome of each saga, by its key."""
        lines = map(json.loads, self.results.read_text().splitlines())
        ids = {saga_id: key for key, saga_id in SAGAS.items()}
        return {ids[one["saga_id"]]: one["outcome"] for one in lines}

    @property
    def items(self) -> list[dict[str, Any]]:
        """Proposed lists, as they are stored."""
        return [one for one in self.world.items("requests") if one["id"]["S"].startswith(LIST_PREFIX)]

    @property
    def list_id(self) -> str:
        (item,) = self.items
        return str(item["id"]["S"].removeprefix(LIST_PREFIX))

    def record(self, key: str) -> dict[str, Any]:
        (item,) = [one for one in self.world.items("requests") if one.get("saga_id", {}).get("S") == SAGAS[key]]
        return item

    def decisions(self, key: str) -> list[tuple[str, str, str, str | None]]:
        return [(one.what, one.who, one.why, one.proposed_by) for one in Decision.all_of(self.record(key))]

    def park(self, key: str, error: str = "ManualResolutionRequired") -> None:
        """Let a saga's owner park it, and end."""
        owner = self.record(key)["owner"]["S"]
        request_id = reservation_of(key=key).request_id
        update: Any = settling.park(request_id=request_id, execution=owner, now_ms=self.world.clock.ms)
        update["ExpressionAttributeValues"][":parked_reason"] = {"S": json.dumps({"step": "Charge", "error": error})}
        aws.dynamodb().update_item(**update)
        self.world.executions.end(owner, ExecutionStatus.FAILED)

    def unpark(self, key: str) -> None:
        """Let an outcome resume a saga: its owner stays the same."""
        key_of: Any = {"TableName": "requests", "Key": {"id": self.record(key)["id"]}}
        aws.dynamodb().update_item(**key_of, UpdateExpression="REMOVE parked_by, parked_at, parked_reason")

    def park_again(self, key: str) -> None:
        """Let an outcome resume a saga, and the same owner park it again."""
        self.unpark(key)
        self.world.clock.ms += 1
        self.park(key)

    def settle(self, key: str) -> None:
        self.unpark(key)
        request_id = reservation_of(key=key).request_id
        update: Any = settling.settle(
            request_id=request_id, execution=SAGAS[key], status=RecordStatus.COMPLETED, now_ms=self.world.clock.ms
        )
        aws.dynamodb().update_item(**update)

    @property
    def recoveries(self) -> dict[str, list[str]]:
        """Recoveries that exist, by key."""
        names = self.world.executions.by_name
        return {key: sorted(name for name in names if name.startswith(f"{saga}-")) for key, saga in SAGAS.items()}

    @property
    def state(self) -> tuple[Any, ...]:
        return self.asked.operated.state


@pytest.fixture
def crew(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session, tmp_path: Path) -> Iterator[Crew]:
    """Three parked sagas, and a function that requires a second person of another role."""
    with operated_saga_in(world, monkeypatch, boto3_session) as operated:
        asked = asked_function(operated, monkeypatch, SecondPerson.OTHER_ROLE)
        monkeypatch.setattr(RESUME, "session_of", COMMAND.session_of)
        made = Crew(asked, tmp_path / "parked")
        for key in KEYS[1:]:
            put: Any = reserve_put(reservation_of(key=key, body=f'{{"order":"order-{key}"}}'))
            aws.dynamodb().put_item(TableName="requests", **{name: put[name] for name in put if name != "TableName"})
            world.executions.start(SAGAS[key], "{}")
        for key in KEYS:
            made.park(key)
        lines = [json.dumps({"saga_id": saga, "parked": saga}) for saga in SAGAS.values()]
        made.plan.write_text("\n".join(lines))
        yield made


def is_carried_out(crew: Crew, keys: tuple[str, ...] = KEYS) -> None:
    """Each saga was resumed once, by both."""
    for key in keys:
        assert crew.decisions(key) == [
            (f"proposed in list {crew.list_id}: resume", ANN[0], PROPOSES[-1], None),
            (f"resumed by list {crew.list_id}", EVE[0], CONFIRMS[2], ANN[0]),
        ]
        assert crew.record(key)["owner"]["S"] == f"{SAGAS[key]}-r1"
        assert crew.recoveries[key] == [f"{SAGAS[key]}-r1"]


def test_two_operators_resume_a_list(crew: Crew) -> None:
    state = crew.state[1:]
    list_id = crew.propose()
    assert crew.state[1:] == state
    assert f"proposed as {list_id}: 3 sagas" in crew.printed
    assert f"cdk-sagas resume --proposal {list_id} --stack Shop\n" in crew.printed

    assert crew.confirm() == 0, crew.printed

    is_carried_out(crew)
    assert crew.printed == f"3 resumed; 0 before; outcomes in {crew.results}\n"
    crew.asked.operated.run("inspect")


def test_inspect_shows_both(crew: Crew) -> None:
    crew.propose()
    crew.confirm()

    told = crew.asked.operated.run("inspect")[1]

    assert f"    as {ANN[0]} proposed\n" in told
    assert f"why: {PROPOSES[-1]}" in told
    assert f"why: {CONFIRMS[2]}" in told


def test_a_list_is_shown_before_it_is_confirmed(crew: Crew) -> None:
    list_id = crew.propose()
    crew.park_again("key-2")
    crew.settle("key-3")
    state = crew.state

    assert crew.run(EVE, "--proposal", list_id) == 0

    assert crew.state == state
    assert f"proposed by {ANN[0]}, until " in crew.printed
    assert f"  why  {PROPOSES[-1]}\n" in crew.printed
    for key, what in zip(
        KEYS, ("is parked: would be resumed", "was parked since it was listed: left alone", "is settled"), strict=True
    ):
        assert f"{SAGAS[key]}  {what}\n" in crew.printed
    crew.confirm()
    crew.run(BEN, "--proposal", list_id, "--results", str(crew.results))
    assert f", confirmed by {EVE[0]}\n" in crew.printed
    assert "nothing to do; 3 done before" in crew.printed


def test_a_held_saga_is_shown_as_held(crew: Crew) -> None:
    list_id = crew.propose()
    held: Any = {HoldAttribute.REASON: {"S": "its charge is exam\x1b[2Ained"}}
    for key in ("key-2", "key-3"):
        aws.dynamodb().put_item(TableName="hold", Item={**hold_key(SAGAS[key]), **held})
    crew.settle("key-3")

    assert crew.run(EVE, "--proposal", list_id) == 0

    what = "needs an operator: an operator holds it: its charge is exam [2Ained"
    assert f"{SAGAS['key-1']}  is parked: would be resumed\n" in crew.printed
    assert f"{SAGAS['key-2']}  {what}\n" in crew.printed
    assert f"{SAGAS['key-3']}  is settled\n" in crew.printed
    assert f"1 is parked: would be resumed, 1 is settled, 1 {what}; 0 done before" in crew.printed


def test_a_list_is_shown_as_held_with_all_sagas(crew: Crew) -> None:
    list_id = crew.propose()
    aws.dynamodb().put_item(TableName="hold", Item={**HOLD_KEY, HoldAttribute.REASON: {"S": "restore"}})
    crew.world.clock.ms += KEPT_MS

    assert crew.run(EVE, "--proposal", list_id) == 0

    assert "3 an operator holds all sagas: restore; 0 done before" in crew.printed


def test_list_is_shown_without_characters_that_move_the_cursor(crew: Crew) -> None:
    """As it was written by whom no function has asked for a reason."""
    list_id = crew.propose()
    (item,) = crew.items
    aws.dynamodb().put_item(TableName="requests", Item={**item, ListAttribute.WHY: {"S": "sure\x1b[2A\x9b2K"}})

    assert crew.run(EVE, "--proposal", list_id) == 0

    assert "  why  sure [2A 2K\n" in crew.printed
    assert "\x1b" not in crew.printed


def test_a_proposal_that_is_repeated_is_the_same(crew: Crew) -> None:
    list_id = crew.propose()
    crew.world.clock.ms += 1
    (item,) = crew.items

    assert crew.propose() == list_id

    assert crew.items == [item]


def test_a_list_is_read_a_hundred_sagas_at_a_time(crew: Crew) -> None:
    """Each with one call would outlast the function."""
    many = [reservation_of(key=f"many-{number}") for number in range(197)]
    for one in many:
        put: Any = reserve_put(one)
        aws.dynamodb().put_item(TableName="requests", **{name: put[name] for name in put if name != "TableName"})
    lines = [json.dumps({"saga_id": one.saga_id, "parked": None}) for one in many]
    crew.plan.write_text("\n".join([*lines, crew.plan.read_text()]))
    crew.world.wire.forget()

    crew.propose()
    assert crew.world.wire.sent[1:4] == ["BatchGetItem", "BatchGetItem", "UpdateItem"]
    assert "3 sagas" in crew.printed
    crew.world.wire.forget()

    assert crew.run(EVE, "--proposal", crew.list_id) == 0
    assert crew.world.wire.sent[-6:] == ["GetItem", "BatchGetItem", *["GetItem"] * 4]  # the holds: of all, of each
    shown = [saga for saga in SAGAS.values() if f"{saga}  is parked: would be resumed\n" in crew.printed]
    assert shown == list(SAGAS.values())


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_proposal_that_died_is_repeated(crew: Crew, moment: Moment) -> None:
    crew.world.wire.plan(Fault(operation="UpdateItem", action=Action.KILL, moment=moment, times=1))
    with pytest.raises(Killed):
        crew.propose()

    crew.propose()

    assert len(crew.items) == 1


def test_a_proposal_is_confirmed_by_another_principal(crew: Crew) -> None:
    crew.propose()
    state = crew.state

    assert crew.confirm(BEN) == 1

    assert "must be confirmed by another IAM user or role than its proposer's" in crew.printed
    assert crew.state == state


@pytest.mark.parametrize("proposes", [True, False])
def test_a_federated_user_neither_proposes_nor_confirms(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, proposes: bool
) -> None:
    monkeypatch.setenv("CDK_SAGAS_OPERATORS", f"arn:aws:iam::123456789012:user/eve {FEDERATED[0]} {ANN_ROLE}")
    words: tuple[str, ...] = (str(crew.plan), *PROPOSES)
    if not proposes:
        words = ("--proposal", crew.propose(), *CONFIRMS)

    assert crew.run(FEDERATED, *words) == 1

    assert "must be an IAM user or a role" in crew.printed


ANN_ROLE = "arn:aws:iam::123456789012:role/ops/Operator"


@pytest.mark.parametrize("after_it_was_read", [False, True])
def test_an_expired_proposal_is_refused_and_may_be_made_again(crew: Crew, after_it_was_read: bool) -> None:
    list_id = crew.propose()
    if after_it_was_read:
        key: Any = {"TableName": "requests", "Key": {"id": {"S": f"{LIST_PREFIX}{list_id}"}}}

        def expires() -> None:
            new: Any = {":at": {"N": str(crew.world.clock.ms)}}
            aws.dynamodb().update_item(**key, UpdateExpression="SET expires_at = :at", ExpressionAttributeValues=new)

        before(crew.world.wire, "UpdateItem", expires)
    else:
        crew.world.clock.ms += DAY_MS

    assert crew.confirm() == 1
    assert ("changed meanwhile" if after_it_was_read else "expired 0 s ago") in crew.printed
    assert crew.propose() == list_id
    assert crew.confirm() == 0
    is_carried_out(crew)


def test_of_two_confirmations_one_counts(crew: Crew) -> None:
    crew.propose()
    carl = ("arn:aws:iam::123456789012:user/carl", "AIDACARL")
    crew.asked.monkeypatch.setenv("CDK_SAGAS_OPERATORS", f"{ANN_ROLE} {EVE[0]} {carl[0]}")
    operators = Operators.from_env()
    request = json.dumps({"do": "confirm_list", "list": crew.list_id, "reason": CONFIRMS[2]})
    before(crew.world.wire, "UpdateItem", lambda: operators.answer(request, Caller(arn=EVE[0], user_id=EVE[1])))

    assert crew.confirm(carl, "--reason", "mine") == 0, crew.printed

    is_carried_out(crew)


@pytest.mark.parametrize("change", [Crew.park_again, Crew.unpark, Crew.settle])
@pytest.mark.parametrize("after_it_was_read", [False, True])
def test_a_saga_that_changed_since_is_left(crew: Crew, change: Any, after_it_was_read: bool) -> None:
    crew.propose()
    if after_it_was_read:
        # The first update confirms.
        before(crew.world.wire, "UpdateItem", lambda: change(crew, "key-1"), on=2)
    else:
        change(crew, "key-1")

    assert crew.confirm() == 0, crew.printed

    left = "settled" if change is Crew.settle and not after_it_was_read else "left alone"
    assert crew.outcomes == {"key-1": left, "key-2": "resumed", "key-3": "resumed"}
    assert (crew.decisions("key-1"), crew.recoveries["key-1"]) == ([], [])
    is_carried_out(crew, KEYS[1:])


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("operation", ["UpdateItem", "StartExecution"])
def test_a_confirmation_that_dies_continues_where_it_stopped(
    crew: Crew, operation: str, number: int, moment: Moment
) -> None:
    crew.propose()
    fault = Fault(operation=operation, action=Action.KILL, moment=moment, on=number, times=1)
    crew.world.wire.plan(fault)
    with contextlib.suppress(Killed):
        crew.confirm()
    confirmed = ListAttribute.CONFIRMED_BY in crew.items[0]
    crew.world.clock.ms += DAY_MS if confirmed else 0  # what is confirmed may be continued by anybody, at any time
    crew.world.wire.fired.clear()

    assert crew.confirm(BEN if confirmed else EVE) == 0, crew.printed

    assert set(crew.outcomes.values()) <= {"resumed", "recovered", "left alone"}
    is_carried_out(crew)


def test_what_is_done_is_not_asked_again(crew: Crew) -> None:
    crew.propose()
    crew.confirm()
    asked = len(crew.asked.asked)

    assert crew.confirm() == 0

    assert len(crew.asked.asked) - asked == 2, "shown and confirmed"
    assert crew.printed.startswith("nothing to do; 3 before")


def test_each_failure_is_in_the_results_and_tried_again(crew: Crew) -> None:
    crew.propose()
    aws.dynamodb().put_item(TableName="hold", Item=hold_key(SAGAS["key-2"]))

    assert crew.confirm() == 1
    assert crew.outcomes == {"key-1": "resumed", "key-2": "needs an operator", "key-3": "resumed"}
    assert "an operator holds it: " in crew.results.read_text()
    aws.dynamodb().delete_item(TableName="hold", Key=hold_key(SAGAS["key-2"]))

    assert crew.confirm() == 0
    is_carried_out(crew)


def test_nothing_is_confirmed_while_the_reconciler_is_held(crew: Crew) -> None:
    crew.propose()
    aws.dynamodb().put_item(TableName="hold", Item=HOLD_KEY)
    crew.world.clock.ms += KEPT_MS
    state = crew.state

    assert crew.confirm() == 1

    assert "an operator holds all sagas" in crew.printed
    assert crew.state == state


def test_only_what_is_parked_as_listed_is_proposed(crew: Crew) -> None:
    unknown = reservation_of(key="key-9").saga_id
    crew.unpark("key-1")
    crew.park("key-1", ParkedFor.OWNER_SUCCEEDED)
    crew.settle("key-2")
    lines = [SAGAS["key-1"], SAGAS["key-2"], json.dumps({"saga_id": SAGAS["key-3"], "parked": "another"}), unknown]
    crew.plan.write_text("\n".join(lines))

    assert crew.run(ANN, str(crew.plan), *PROPOSES) == 1

    assert (crew.items, "proposed" in crew.printed) == ([], False)
    assert [line.partition("  ")[2].partition(":")[0] for line in crew.printed.splitlines()] == [
        "needs an operator",
        "is settled",
        "was parked since it was listed",
        "unknown",
    ]


def test_a_list_is_bounded(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LISTS, "MOST_SAGAS", 2)

    assert crew.run(ANN, str(crew.plan), *PROPOSES) == 1

    assert "a list to propose must have 1 to 2 sagas, got 3; propose it in parts" in crew.printed
    assert crew.items == []


@pytest.mark.parametrize("list_id", ["../x", "0" * 31, "G" * 32])
def test_another_text_than_an_id_is_refused(crew: Crew, list_id: str) -> None:
    assert crew.run(EVE, "--proposal", list_id) == 1
    assert "--proposal must be the id of a list" in crew.printed


def test_an_unknown_list_is_refused(crew: Crew) -> None:
    for words in ((), CONFIRMS):
        assert crew.run(EVE, "--proposal", "0" * 32, *words) == 1
        assert "must have list 00000000000000000000000000000000, got none" in crew.printed


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"do": "propose_list", "sagas": {}}, "sagas must be a list, got dict"),
        ({"do": "propose_list", "sagas": []}, "must have 1 to 1,000 sagas, got 0"),
        ({"do": "propose_list", "sagas": [["x"]]}, "a saga must be its id and what parked it"),
        ({"do": "propose_list", "sagas": [["x", None]]}, "not a saga id"),
        ({"do": "show_list"}, "list must be text"),
        ({"do": "confirm_list", "list": "x", "digest": "y"}, "must be known, got digest"),
    ],
)
def test_a_wrong_request_is_refused(crew: Crew, request_: dict[str, Any], reason: str) -> None:
    caller = Caller(arn=EVE[0], user_id=EVE[1])

    answer = Operators.from_env().answer(json.dumps({**request_, "reason": "y"}), caller)

    assert reason in answer["refused"]


def test_only_a_confirmed_saga_of_the_list_is_resumed(crew: Crew) -> None:
    crew.plan.write_text(SAGAS["key-1"])
    list_id, caller = crew.propose(), Caller(arn=EVE[0], user_id=EVE[1])
    state = crew.state

    for saga, wrong in ((SAGAS["key-1"], "be confirmed"), (SAGAS["key-2"], "have saga")):
        request = json.dumps({"do": "resume_listed", "list": list_id, "saga": saga})
        assert f"must {wrong}" in Operators.from_env().answer(request, caller)["refused"]

    assert crew.state == state


def test_without_a_second_person_no_list_is_proposed(crew: Crew) -> None:
    crew.asked.require(None)
    request = json.dumps({"do": "propose_list", "sagas": [], "reason": "y"})

    answer = Operators.from_env().answer(request, Caller(arn=EVE[0], user_id=EVE[1]))

    assert "requires no second operator" in answer["refused"]


def test_a_list_is_not_read_as_a_record(crew: Crew) -> None:
    crew.propose()

    assert RecordAttribute.SAGA_ID not in crew.items[0]


def test_a_hold_of_all_sagas_stops_the_work(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOLD, "KEPT_MS", 0)
    crew.propose()

    def held() -> None:
        item: Any = {**HOLD_KEY, "since": {"N": "1700000000000"}, "reason": {"S": "restore"}}
        aws.dynamodb().put_item(TableName="hold", Item=item)

    before(crew.world.wire, "StartExecution", held)

    assert crew.confirm() == 1
    assert list(crew.outcomes.values()) == ["resumed"]
    assert "no saga may be held, got all, since 2023-11-14 22:13:20 UTC: restore" in crew.printed
    aws.dynamodb().delete_item(TableName="hold", Key=HOLD_KEY)

    assert crew.confirm() == 0
    is_carried_out(crew)


def test_what_is_done_to_a_list_leaves_room_for_decisions_about_each(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LISTS, "MOST_BEFORE_LISTS", 1)
    crew.propose()

    assert crew.confirm() == 1
    assert set(crew.outcomes.values()) == {"failed"}
    assert "must have at most 1 bytes" in crew.results.read_text()
