"""``cdk-sagas hold``, and the doctor's findings and repairs while a reconciler is paused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import boto3
import pytest

from constructs_lib.cli.main import main
from saga_runtime.protocol import HoldAttribute
from saga_runtime.recovery.hold import HOLD_KEY, Held, decisions_key, hold_key
from saga_runtime.shared import aws
from saga_runtime.shared.clock import moment
from saga_runtime.shared.decisions import Decision
from tests.unit.support.checked_stack import SWITCH, CheckedStack, checked_stack_in
from tests.unit.support.manifests import manifest
from tests.unit.support.samples import SAGA_ID
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

HOLD = import_module("constructs_lib.cli.hold")
DECISIONS = import_module("saga_runtime.shared.decisions")
DONE = ("--reason", "it is restored")
REPAIR = ("--repair", "--reason", "repairs")
WHO: Final = "arn:aws:sts::123456789012:user/moto"


@pytest.fixture
def stack(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[CheckedStack]:
    """A stack whose reconciler is not held."""
    with checked_stack_in(world, monkeypatch, boto3_session) as stack:

        def client(service: Any, **config: Any) -> Any:
            return boto3_session.client(service, **config)

        monkeypatch.setattr(HOLD, "session_of", lambda _: SimpleNamespace(client=client))
        yield stack


def held() -> Held | None:
    item = aws.dynamodb().get_item(TableName=SWITCH, Key=HOLD_KEY).get("Item")
    return Held.from_item(item) if item is not None else None


def hold(*words: str) -> int:
    return main(["hold", *words, "--stack", "Shop"])


def test_hold_and_release(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    assert hold("on", "--reason", "tables are restored") == 0
    assert held() == Held(since_ms=stack.world.clock.ms, reason="tables are restored", who=WHO)
    said = capsys.readouterr().out
    assert "Reconciler is held since" in said
    assert f" by {WHO}: tables are restored" in said
    assert "end within a minute" in said

    assert hold("off", *DONE) == 0
    assert held() is None
    since = moment(stack.world.clock.ms)
    was = f"it was held since {since} by {WHO}: tables are restored"
    assert capsys.readouterr().out == f"Reconciler is not held; {was}\n"


def kept() -> list[tuple[str, str, str]]:
    item = aws.dynamodb().get_item(TableName=SWITCH, Key=decisions_key(None)).get("Item", {})
    return [(one.what, one.who, one.why) for one in Decision.all_of(item)]


def test_each_hold_and_release_is_kept_and_shown(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        hold("on", "--reason", "tables are restored")
        hold("on", "--reason", "tables are restored")
        hold("off", *DONE)

    assert kept() == [("held", WHO, "tables are restored"), ("released", WHO, DONE[1])] * 2
    capsys.readouterr()
    hold("status")
    assert capsys.readouterr().out.count(f"  {WHO}: released; why: {DONE[1]}\n") == 2


def test_status_has_no_character_that_moves_the_cursor(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a table that something else than the command wrote."""
    hold("on", *DONE)
    for key in (HOLD_KEY, decisions_key(None)):
        item: Any = aws.dynamodb().get_item(TableName=SWITCH, Key=key)["Item"]
        text = json.dumps(item, default=str).replace(DONE[1], "sure\\u001b[2A")
        aws.dynamodb().put_item(TableName=SWITCH, Item=json.loads(text))
    capsys.readouterr()

    hold("status")

    said = capsys.readouterr().out
    assert (said.count("sure [2A"), "\x1b" in said) == (2, False)


def test_inspect_shows_who_held_and_released_a_saga(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    hold("off", "--saga", SAGA_ID, *DONE)
    capsys.readouterr()

    assert main(["inspect", SAGA_ID, "--stack", "Shop", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)["decisions"]
    assert [(one["what"], one["who"], one["why"]) for one in shown] == [
        ("held", WHO, "examined"),
        ("released", WHO, DONE[1]),
    ]


def test_of_a_switch_the_newest_decisions_are_kept(stack: CheckedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DECISIONS, "MOST_DECISIONS", 3)
    for number in range(3):
        hold("on", "--reason", f"hold {number}")
        hold("off", *DONE)

    assert [what for what, _, _ in kept()] == ["released", "held", "released"]


@pytest.mark.parametrize("earlier", [0, 1])
def test_of_two_decisions_at_once_none_is_lost(stack: CheckedStack, earlier: int) -> None:
    def others() -> None:
        hold("on", "--reason", "other")
        hold("off", *DONE)

    for _ in range(earlier):
        others()
    before(stack.world.wire, "TransactWriteItems", others)

    assert hold("on", "--reason", "mine") == 0

    assert [why for _, _, why in kept()] == ["other", DONE[1]] * (1 + earlier) + ["mine"]


@pytest.mark.parametrize("action", ["on", "off"])
def test_hold_without_its_decision_is_not_written(stack: CheckedStack, action: str) -> None:
    if action == "off":
        hold("on", "--reason", "first")
    was, decided = held(), kept()
    stack.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.KILL))

    with pytest.raises(Killed):
        hold(action, *DONE)

    assert (held(), kept()) == (was, decided)


@pytest.mark.parametrize("action", ["status", "off"])
def test_nothing_is_written_where_nothing_is_to_change(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    calls = stack.world.calls_of(lambda: hold(action, *(DONE if action == "off" else ())))

    assert not {"PutItem", "DeleteItem", "UpdateItem", "TransactWriteItems"}.intersection(calls)
    assert capsys.readouterr().out == "Reconciler is not held\n"


@pytest.mark.parametrize(("again", "status"), [("first", 0), ("second", 1)])
def test_second_hold_keeps_the_first_ones_reason_and_time(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str], again: str, status: int
) -> None:
    hold("on", "--reason", "first")
    before = held()
    stack.pass_time()
    capsys.readouterr()

    assert hold("on", "--reason", again) == status
    assert held() == before
    err = capsys.readouterr().err
    assert ("Reconciler must be held for the reason given, got is held since" in err) == (status == 1)
    assert (": first; its operator may release it at any time" in err) == (status == 1)


def put_other(reason: str = "other") -> None:
    a = HoldAttribute
    item: Any = {**HOLD_KEY, a.SINCE: {"N": "1"}, a.REASON: {"S": reason}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)


def test_of_two_concurrent_holds_the_first_ones_reason_is_kept(stack: CheckedStack) -> None:
    before(stack.world.wire, "TransactWriteItems", put_other)

    assert hold("on", "--reason", "second") == 1

    assert held() == Held(since_ms=1, reason="other", who="")


def test_release_leaves_the_hold_that_another_operator_put_meanwhile(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    hold("on", "--reason", "first")

    def others() -> None:
        aws.dynamodb().delete_item(TableName=SWITCH, Key=HOLD_KEY)
        put_other()

    before(stack.world.wire, "TransactWriteItems", others)

    assert hold("off", *DONE) == 1

    assert held() == Held(since_ms=1, reason="other", who="")
    assert "Reconciler must be released, got is held since" in capsys.readouterr().err


SINCE, REASON = HoldAttribute.SINCE, HoldAttribute.REASON
FULL: Final[dict[str, Any]] = {SINCE: {"N": "1"}, REASON: {"S": "first"}}


def _without(attribute: str, **instead: Any) -> dict[str, Any]:
    return {name: value for name, value in FULL.items() if name != attribute} | instead


@pytest.mark.parametrize(
    "item",
    [FULL, _without(SINCE), _without(SINCE, since={"N": "0"}), _without(REASON), _without(REASON, reason={"S": ""})],
    ids=["both", "no time", "time 0", "no reason", "empty reason"],
)
def test_release_deletes_a_hold_whatever_it_lacks(stack: CheckedStack, item: dict[str, Any]) -> None:
    aws.dynamodb().put_item(TableName=SWITCH, Item={**HOLD_KEY, **item})

    assert hold("off", *DONE) == 0
    assert held() is None


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (FULL, {**FULL, SINCE: {"N": "2"}}),
        (FULL, {**FULL, REASON: {"S": "other"}}),
        (_without(SINCE), {**FULL, SINCE: {"N": "2"}}),
        (_without(REASON), {**FULL, REASON: {"S": "other"}}),
        (_without(SINCE), _without(SINCE, reason={"S": "other"})),
        (_without(REASON), _without(REASON, since={"N": "2"})),
    ],
    ids=["another time", "another reason", "a time", "a reason", "no time, another reason", "no reason, another time"],
)
def test_release_leaves_a_hold_that_differs_in_one_attribute(
    stack: CheckedStack, was: dict[str, Any], becomes: dict[str, Any]
) -> None:
    aws.dynamodb().put_item(TableName=SWITCH, Item={**HOLD_KEY, **was})
    changed: Any = {**HOLD_KEY, **becomes}
    before(stack.world.wire, "TransactWriteItems", lambda: aws.dynamodb().put_item(TableName=SWITCH, Item=changed))

    assert hold("off", *DONE) == 1
    assert aws.dynamodb().get_item(TableName=SWITCH, Key=HOLD_KEY)["Item"] == changed


def test_release_whose_answer_is_lost_leaves_the_next_hold(stack: CheckedStack) -> None:
    hold("on", "--reason", "first")
    stack.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, on=1, times=1))
    before(stack.world.wire, "TransactWriteItems", put_other, on=2)

    assert hold("off", *DONE) == 1

    assert held() == Held(since_ms=1, reason="other", who="")


def test_release_whose_answer_is_lost_is_a_release(stack: CheckedStack) -> None:
    hold("on", "--reason", "first")
    stack.world.wire.plan(Fault(operation="TransactWriteItems", action=Action.DROP, moment=Moment.AFTER, on=1, times=1))

    assert hold("off", *DONE) == 0

    assert held() is None


@pytest.mark.parametrize("lacks", ["since", "reason"])
def test_hold_that_lacks_an_attribute_is_released(stack: CheckedStack, lacks: str) -> None:
    put_other()
    name = {"#lacks": lacks}
    aws.dynamodb().update_item(
        TableName=SWITCH, Key=HOLD_KEY, UpdateExpression="REMOVE #lacks", ExpressionAttributeNames=name
    )

    assert hold("off", *DONE) == 0

    assert held() is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["on"], "--reason must be given with on and off, and only with it, got None"),
        (["on", "--reason", "  "], "a reason must be 1 to 1000 characters"),
        (["on", "--reason", "x" * 1_001], "a reason must be 1 to 1000 characters"),
        (["status", "--reason", "x"], "and only with it, got 'x'"),
        (["off"], "--reason must be given with on and off"),
    ],
)
def test_wrong_options_are_refused(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert hold(*words) == 1

    assert message in capsys.readouterr().err
    assert held() is None


def test_stack_without_a_reconciler_is_refused(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.part("reconcilers").clear()

    assert hold("on", "--reason", "restore") == 1
    assert "must have a TimeoutReconciler of sagas, got none" in capsys.readouterr().err


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    main(["doctor", "--stack", "Shop", "--json", *words])
    return {one["kind"]: one for one in json.loads(capsys.readouterr().out)["findings"]}


def test_doctor_finds_a_held_reconciler(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    hold("on", "--reason", "restore")

    found = findings(capsys)["held"]

    assert found["severity"] == "operator"
    assert found["what"].startswith("it changes nothing since ")
    assert found["what"].endswith(": restore")
    assert found["command"] == "cdk-sagas hold off --reason WHY --stack Shop"
    assert main(found["command"].replace("WHY", "done").split()[1:]) == 0
    assert held() is None


def test_doctor_of_several_stacks_leaves_their_choice_to_the_operator(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.manifests["Care"] = manifest()
    hold("on", "--reason", "restore")

    found = findings(capsys, "--stack", "Care")["held"]

    assert found["command"] == ""
    assert found["then"].endswith("cdk-sagas hold off --stack NAME")


def test_doctor_finds_no_hold_where_none_exists(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(capsys) == {}


def test_doctor_repairs_nothing_while_the_reconciler_is_held(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.dies()
    hold("on", "--reason", "restore")
    before = stack.stored

    found = findings(capsys, *REPAIR)

    assert stack.stored == before
    assert (found["interrupted"]["severity"], found["interrupted"]["repaired"]) == ("operator", "")
    assert found["interrupted"]["then"] == "its reconciler is held: nothing is repaired until it is released"

    hold("off", *DONE)

    assert findings(capsys, *REPAIR)["interrupted"]["repaired"].startswith(f"handed to {SAGA_ID}-r1")


# One saga


def held_saga() -> Held | None:
    item = aws.dynamodb().get_item(TableName=SWITCH, Key=hold_key(SAGA_ID)).get("Item")
    return Held.from_item(item) if item is not None else None


def test_one_saga_is_held_and_released(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    assert hold("on", "--saga", SAGA_ID, "--reason", "examined") == 0
    assert (held(), held_saga()) == (None, Held(since_ms=stack.world.clock.ms, reason="examined", who=WHO))
    assert f"Reconciler, saga {SAGA_ID}, is held since" in capsys.readouterr().out

    assert hold("on", "--reason", "restore") == 0
    assert hold("off", "--saga", SAGA_ID, *DONE) == 0
    assert (held() is not None, held_saga()) == (True, None)

    assert hold("status", "--saga", SAGA_ID) == 0
    assert f"Reconciler, saga {SAGA_ID}, is not held" in capsys.readouterr().out


def test_status_lists_single_sagas_that_are_held(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    capsys.readouterr()

    assert hold("status") == 0
    everything, single = capsys.readouterr().out.splitlines()

    assert everything == "Reconciler is not held"
    assert single.startswith(f"Reconciler, saga {SAGA_ID}, is held since")
    assert single.endswith(": examined")


def test_unknown_saga_is_not_held(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = SAGA_ID[:-1] + ("a" if SAGA_ID[-1] != "a" else "b")

    assert hold("on", "--saga", unknown, "--reason", "examined") == 1

    assert f"must have saga {unknown}, got no record of it" in capsys.readouterr().err
    assert stack.world.items(SWITCH) == []


def test_release_of_an_unknown_saga_is_refused_unless_it_is_held(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = SAGA_ID[:-1] + ("a" if SAGA_ID[-1] != "a" else "b")

    assert hold("off", "--saga", unknown, *DONE) == 1
    said = capsys.readouterr()
    assert (said.out, f"must have saga {unknown}, got no record of it" in said.err) == ("", True)

    assert hold("off", "--saga", SAGA_ID, *DONE) == 0
    assert "is not held" in capsys.readouterr().out

    item: Any = {**hold_key(unknown), HoldAttribute.REASON: {"S": "of a record that has ended"}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)
    assert hold("off", "--saga", unknown, *DONE) == 0
    assert hold_key(unknown)["id"] not in [one["id"] for one in stack.world.items(SWITCH)]


def test_status_of_an_unknown_saga_is_refused_unless_its_hold_is_known(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = SAGA_ID[:-1] + ("a" if SAGA_ID[-1] != "a" else "b")

    assert hold("status", "--saga", unknown) == 1
    said = capsys.readouterr()
    assert (said.out, f"must have saga {unknown}, got no record of it" in said.err) == ("", True)

    item: Any = {**hold_key(unknown), HoldAttribute.REASON: {"S": "of a record that has ended"}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)
    for state, words in (("is held since", ("off", "--saga", unknown, *DONE)), ("is not held", ())):
        assert hold("status", "--saga", unknown) == 0
        assert f"Reconciler, saga {unknown}, {state}" in capsys.readouterr().out
        assert not words or hold(*words) == 0
        capsys.readouterr()


@pytest.mark.parametrize("saga", ["", " ", "hold", "x" * 300])
def test_what_is_not_a_saga_id_is_not_held(stack: CheckedStack, capsys: pytest.CaptureFixture[str], saga: str) -> None:
    assert hold("on", "--saga", saga, "--reason", "examined") == 1

    assert "not a saga id" in capsys.readouterr().err
    assert held() is None


def test_two_holds_within_a_second_differ(stack: CheckedStack) -> None:
    hold("on", "--reason", "same")
    first = held()
    hold("off", *DONE)
    stack.world.clock.ms += 1
    hold("on", "--reason", "same")

    assert held() != first


def test_doctor_repairs_nothing_of_a_held_saga(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.dies()
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    before = stack.stored

    found = findings(capsys, *REPAIR)["interrupted"]

    assert stack.stored == before
    assert (found["severity"], found["repaired"]) == ("operator", "")
    assert "an operator holds this saga since" in found["then"]
    assert found["then"].endswith(": examined; nothing is repaired until it is released")

    hold("off", "--saga", SAGA_ID, *DONE)

    assert findings(capsys, *REPAIR)["interrupted"]["repaired"].startswith(f"handed to {SAGA_ID}-r1")


HOLD_OFF = f"cdk-sagas hold off --saga {SAGA_ID} --reason WHY --stack Shop"


@pytest.mark.parametrize("minutes", [0, 60])
def test_doctor_finds_that_a_saga_is_held_and_not_that_it_is_repaired_soon(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str], minutes: int
) -> None:
    stack.dies()
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    since = moment(stack.world.clock.ms)
    stack.pass_time(minutes * 60_000)
    capsys.readouterr()

    found = findings(capsys)

    assert {kind: one["severity"] for kind, one in found.items()} == {"interrupted": "operator"}
    assert found["interrupted"]["then"].startswith(f"an operator holds this saga since {since}, by {WHO}: examined;")
    assert found["interrupted"]["command"] == HOLD_OFF
    assert stack.run("--log-table", "log")[1].count(HOLD_OFF) == 1


def test_doctor_finds_that_a_parked_saga_is_held(stack: CheckedStack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.operated.park()
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    capsys.readouterr()

    found = findings(capsys)["parked"]

    assert f", by {WHO}: examined" in found["what"]
    assert found["then"].startswith("determine the outcome")


def test_status_and_release_of_one_saga_name_the_hold_of_all(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    hold("on", "--reason", "restore")
    for words in (["status"], ["off", *DONE]):
        capsys.readouterr()
        assert hold(*words, "--saga", SAGA_ID) == 0
        said = capsys.readouterr().out
        assert f"Reconciler, saga {SAGA_ID}, is not held\n" in said
        assert "Reconciler holds all sagas: it is held since" in said


def test_release_of_all_names_single_sagas_that_stay_held(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    hold("on", "--saga", SAGA_ID, "--reason", "examined")
    hold("on", "--reason", "restore")
    capsys.readouterr()

    assert hold("off", *DONE) == 0

    said = capsys.readouterr().out
    assert f"Reconciler, saga {SAGA_ID}, is held since" in said


def test_hold_of_another_operator_for_the_same_reason_is_named(
    stack: CheckedStack, capsys: pytest.CaptureFixture[str]
) -> None:
    put_other("restore")

    assert hold("on", "--reason", "restore") == 0
    assert "; this is not your hold: that operator's release ends it\n" in capsys.readouterr().out
    assert hold("off", *DONE) == 0
    assert "; it was held since 1970-01-01 00:00:00 UTC by another operator: restore\n" in capsys.readouterr().out
