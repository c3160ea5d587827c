"""``cdk-sagas list`` finds sagas; ``cdk-sagas resume`` resumes many, each once, whatever dies or is repeated."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import boto3
import pytest

from constructs_lib.cli.main import main
from saga_runtime.idempotency.record import RequestRecord, reserve_put
from saga_runtime.protocol import HoldAttribute, RecordAttribute, RecordStatus
from saga_runtime.recovery.decisions import ParkedFor
from saga_runtime.recovery.hold import HOLD_KEY, hold_key
from saga_runtime.recovery.proposals import Proposal
from saga_runtime.recovery.takeover import Finding
from saga_runtime.shared import aws
from saga_runtime.shared.decisions import Decision
from tests.unit.support import settling
from tests.unit.support.checked_stack import SWITCH, create_hold_table
from tests.unit.support.executions import ExecutionStatus
from tests.unit.support.manifests import saga_entry
from tests.unit.support.operated_saga import OperatedSaga, operated_saga_in
from tests.unit.support.samples import NOW_MS, SAGA_ID, reservation_of
from tests.unit.support.wire import Action, Fault, Killed, Moment, before
from tests.unit.support.world import World

LIST = import_module("constructs_lib.cli.fleet.list")
RESUME = import_module("constructs_lib.cli.fleet.resume")
SAGA = import_module("constructs_lib.cli.shared.saga")
A = RecordAttribute
KEYS = ("key-1", "key-2", "key-3")
SAGAS = {key: reservation_of(key=key).saga_id for key in KEYS}
WHY = ("--yes", "--reason", "the provider is back", "--rate", "1000")


@pytest.fixture
def operated(world: World, monkeypatch: pytest.MonkeyPatch, boto3_session: boto3.Session) -> Iterator[OperatedSaga]:
    """Three sagas that run."""
    with operated_saga_in(world, monkeypatch, boto3_session) as made:
        made.saga["shards"] = 16
        for module in (LIST, RESUME):
            monkeypatch.setattr(module, "session_of", SAGA.session_of)
        for key in KEYS[1:]:
            put: Any = reserve_put(reservation_of(key=key, body=f'{{"order":"order-{key}"}}'))
            aws.dynamodb().put_item(TableName="requests", **{name: put[name] for name in put if name != "TableName"})
            world.executions.start(SAGAS[key], "{}")
        yield made


def run(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([words[0], "--stack", "Shop", *words[1:]])
        except SystemExit as ended:
            status = int(str(ended.code))
    return status, out.getvalue(), err.getvalue()


def listed(*words: str) -> list[dict[str, Any]]:
    status, out, err = run("list", "--lines", "-", *words)
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


def keys(*words: str) -> list[str]:
    ids = {saga_id: key for key, saga_id in SAGAS.items()}
    return sorted(ids[one["saga_id"]] for one in listed(*words))


def park(world: World, key: str, error: str = "ManualResolutionRequired", owner: str | None = None) -> None:
    """Let a saga's owner park it, and end."""
    reservation, owner = reservation_of(key=key), owner or SAGAS[key]
    update: Any = settling.park(request_id=reservation.request_id, execution=owner, now_ms=world.clock.ms)
    update["ExpressionAttributeValues"][":parked_reason"] = {"S": json.dumps({"step": "Charge", "error": error})}
    aws.dynamodb().update_item(**update)
    world.executions.end(owner, ExecutionStatus.FAILED)


def settle(world: World, key: str) -> None:
    update: Any = settling.settle(
        request_id=reservation_of(key=key).request_id,
        execution=SAGAS[key],
        status=RecordStatus.COMPLETED,
        now_ms=world.clock.ms,
    )
    aws.dynamodb().update_item(**update)


def record(world: World, key: str) -> dict[str, Any]:
    items = [item for item in world.items("requests") if item[A.SAGA_ID]["S"] == SAGAS[key]]
    return dict(items[0])


def started(world: World, key: str) -> list[str]:
    """Recoveries of a saga."""
    return sorted(name for name in world.executions.by_name if name.startswith(f"{SAGAS[key]}-"))


# list


def test_open_sagas_are_listed_and_settled_ones_are_not(operated: OperatedSaga) -> None:
    settle(operated.world, "key-3")

    assert keys() == ["key-1", "key-2"]
    _, out, _ = run("list")
    assert "saga  " in out
    assert out.endswith("2 sagas, 0 parked\n")
    assert json.loads(run("list", "--json")[1])["now"] == NOW_MS


def test_sagas_are_found_by_what_they_wait_for(operated: OperatedSaga) -> None:
    park(operated.world, "key-1")
    park(operated.world, "key-2", error="IncompatibleDefinition")

    assert keys("--parked") == ["key-1", "key-2"]
    assert keys("--error", "ManualResolutionRequired") == ["key-1"]
    assert keys("--error", "Undecided") == []
    assert keys("--operation", "transfers", "--parked") == ["key-1", "key-2"]
    assert keys("--operation", "refunds") == []
    assert "Charge: ManualResolutionRequired" in run("list", "--parked")[1]


def test_sagas_are_found_by_their_age(operated: OperatedSaga) -> None:
    operated.world.clock.ms += 60_000

    assert keys("--older", "1m") == list(KEYS)
    assert keys("--older", "61s") == []


def test_settled_sagas_are_found_in_whole_tables_whose_size_is_printed(operated: OperatedSaga) -> None:
    settle(operated.world, "key-3")

    status, _, err = run("list", "--status", "COMPLETED")
    assert (status, "needs --scan: no index has settled sagas" in err) == (2, True)
    status, _, err = run("list", "--status", "COMPLETED", "--scan", "--parked")
    assert (status, "--parked and --error need an open saga, got --status COMPLETED" in err) == (2, True)
    assert keys("--status", "COMPLETED", "--scan") == ["key-3"]
    assert "reads table requests whole" in run("list", "--status", "COMPLETED", "--scan")[2]


@pytest.mark.parametrize("words", [("--status", "COMPLETED"), ("--status", "FAILED"), ("--contains", "order-x")])
def test_a_scan_reads_no_settled_saga_twice(operated: OperatedSaga, words: tuple[str, ...]) -> None:
    for number in range(250):
        put: Any = reserve_put(reservation_of(key=f"old-{number}", body='{"order":"order-x"}'))
        aws.dynamodb().put_item(TableName="requests", Item=put["Item"] | {"status": {"S": "COMPLETED"}})
    operated.world.wire.forget()

    found = listed("--scan", *words)

    assert len(found) == (0 if "FAILED" in words else 250)
    assert operated.world.wire.sent.count("BatchGetItem") == 1  # of the three that are open


def test_a_saga_is_found_by_its_clients_key(operated: OperatedSaga) -> None:
    settle(operated.world, "key-2")

    assert keys("--key", "key-2") == ["key-2"]
    assert keys("--key", "nobody's") == []
    for one in ("key-1", "key-3"):
        settle(operated.world, one)
    assert keys("--key", "key-2") == []
    assert "name the client with --caller, or use --scan" in run("list", "--key", "key-2")[2]
    assert keys("--key", "key-2", "--scan") == ["key-2"]
    caller = ("--operation", "transfers", "--caller", "iam,111122223333,AIDAALICE")
    assert keys("--key", "key-2", *caller) == ["key-2"]


def test_a_saga_is_found_by_a_text_of_its_request(operated: OperatedSaga) -> None:
    assert keys("--contains", "order-key-2") == ["key-2"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--older", "1w"), "must be a number of s, m, h or d"),
        (("--older", "0s"), "must be a number of s, m, h or d"),
        (("--key", " "), "--key must not be blank"),
        (("--error", ""), "--error must not be blank"),
        (("--rate", "5"), "--rate must be a number from 1 on, with --scan"),
        (("--scan", "--rate", "0"), "--rate must be a number from 1 on"),
        (("--caller", "iam,1,2"), "--caller needs --key and --operation"),
        (("--lines", "/nowhere/x"), "--lines must be a file that can be written, got /nowhere/x: No such file"),
        (("--key", "k", "--operation", "o", "--caller", "iam"), "--caller must be a kind and its parts"),
    ],
)
@pytest.mark.usefixtures("operated")
def test_wrong_filters_are_refused(words: tuple[str, ...], says: str) -> None:
    status, out, err = run("list", *words)

    assert (status in (1, 2), out) == (True, "")
    assert says in err


def test_an_item_that_is_not_a_record_is_reported_and_hides_no_other(operated: OperatedSaga) -> None:
    aws.dynamodb().update_item(
        TableName="requests",
        Key={A.ID: {"S": reservation_of(key="key-2").request_id}},
        UpdateExpression="REMOVE #arn",
        ExpressionAttributeNames={"#arn": A.EXECUTION_ARN},
    )

    status, out, err = run("list", "--lines", "-")

    assert (status, len(out.splitlines()), "is not readable: see cdk-sagas doctor" in err) == (1, 2, True)


@pytest.fixture
def two_tables(operated: OperatedSaga) -> OperatedSaga:
    """A first saga whose request table does not exist, before the other one."""
    gone = {**saga_entry(path="Shop/Gone"), "requests": "gone"}
    operated.manifests["Shop"]["sagas"].insert(0, gone)
    return operated


@pytest.mark.usefixtures("two_tables")
@pytest.mark.parametrize(
    "words", [(), ("--key", "key-2", "--operation", "transfers", "--caller", "iam,111122223333,AIDAALICE")]
)
def test_a_table_that_cannot_be_read_hides_no_saga_of_another(words: tuple[str, ...]) -> None:
    status, out, err = run("list", *words)

    assert (status, SAGAS["key-2"] in out) == (1, True)
    assert "sagas are missing: table gone: is of the stack, and is not there any more" in err


def test_nothing_is_listed_where_no_table_can_be_read(two_tables: OperatedSaga) -> None:
    del two_tables.manifests["Shop"]["sagas"][1]

    status, out, err = run("list")

    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "sagas were not listed: table gone: is of the stack" in err


def test_a_saga_is_resumed_although_another_table_cannot_be_read(two_tables: OperatedSaga, tmp_path: Path) -> None:
    park(two_tables.world, "key-1")
    file = tmp_path / "ids"
    missing = reservation_of(key="gone").saga_id
    file.write_text(f"{SAGAS['key-1']}\n{missing}\n")

    shown = run("resume", str(file))[1]
    status, out, _ = run("resume", str(file), *WHY)

    assert f"{missing}  unknown  request tables must be readable to find saga {missing}" in shown
    assert "got refusals of gone (ResourceNotFoundException), and no record of it in the others" in shown
    assert (status, out.split(";")[0]) == (1, "1 failed, 1 resumed")


def test_no_saga_is_called_unknown_where_no_table_can_be_read(two_tables: OperatedSaga, tmp_path: Path) -> None:
    del two_tables.manifests["Shop"]["sagas"][1]
    file = tmp_path / "ids"
    file.write_text(SAGAS["key-1"])

    status, out, err = run("resume", str(file))

    assert (status, out) == (1, "")
    assert "not every saga was resumed; repeat this: ResourceNotFoundException" in err
    assert run("resume", str(file), *WHY)[1].startswith("1 failed;")


# resume


@pytest.fixture
def plan(operated: OperatedSaga, tmp_path: Path) -> Path:
    """The list of three parked sagas."""
    for key in KEYS:
        park(operated.world, key)
    file = tmp_path / "parked.jsonl"
    assert run("list", "--parked", "--lines", str(file))[1] == f"3 in {file}\n"
    return file


def outcomes(plan: Path) -> dict[str, str]:
    ids = {saga_id: key for key, saga_id in SAGAS.items()}
    lines = plan.with_name(f"{plan.name}.results").read_text().splitlines()
    return {ids[one["saga_id"]]: one["outcome"] for one in map(json.loads, lines)}


def test_without_yes_nothing_is_changed(operated: OperatedSaga, plan: Path) -> None:
    before = operated.state

    status, out, _ = run("resume", str(plan))

    assert (status, operated.state) == (0, before)
    assert out.endswith("3 is parked: would be resumed; 0 done before; nothing was changed: use --yes and --reason\n")
    assert not plan.with_name(f"{plan.name}.results").exists()


def test_a_proposal_is_listed_with_its_saga(operated: OperatedSaga) -> None:
    key = KEYS[0]
    park(operated.world, key)
    item = record(operated.world, key)
    found = RequestRecord.from_item(item)
    proposal = Proposal(
        number=1,
        at_ms=operated.now,
        who="arn:aws:iam::123456789012:user/ann",
        user_id="AIDAANN",
        why="why",
        expires_at=operated.now + 1,
        step=None,
        statement=None,
        row_status=None,
        status=found.status,
        owner=found.owner,
        parked_at=found.parked_at,
    )
    aws.dynamodb().put_item(TableName="requests", Item={**item, "proposals": {"L": [{"M": proposal.stored}]}})

    assert "PARKED, proposed 1" in run("list", "--parked")[1]
    assert [one["proposals"] for one in listed() if one["proposals"]] == [
        [{"number": 1, "expires_at": operated.now + 1}]
    ]


def test_all_are_resumed_once_and_the_reason_is_kept(operated: OperatedSaga, plan: Path) -> None:
    status, out, _ = run("resume", str(plan), *WHY)

    assert (status, out.split(";")[0]) == (0, "3 resumed")
    assert outcomes(plan) == dict.fromkeys(KEYS, "resumed")
    for key in KEYS:
        assert started(operated.world, key) == [f"{SAGAS[key]}-r1"]
        assert [one.why for one in Decision.all_of(record(operated.world, key))] == ["the provider is back"]
    state = operated.state

    assert run("resume", str(plan), *WHY)[1].startswith("nothing to do; 3 before")
    assert operated.state == state


def test_a_saga_that_was_parked_again_is_left_alone(operated: OperatedSaga, plan: Path) -> None:
    run("resume", str(plan), *WHY)
    plan.with_name(f"{plan.name}.results").unlink()
    park(operated.world, "key-1", owner=f"{SAGAS['key-1']}-r1")

    status, _, _ = run("resume", str(plan), *WHY)

    assert (status, outcomes(plan)["key-1"]) == (0, "left alone")
    assert started(operated.world, "key-1") == [f"{SAGAS['key-1']}-r1"]
    assert A.PARKED_BY in record(operated.world, "key-1")


def test_every_failure_is_kept_blocks_no_other_and_is_tried_again(operated: OperatedSaga, plan: Path) -> None:
    operated.world.wire.plan(Fault(operation="StartExecution", action=Action.INVALID, on=2, times=1))

    status, out, _ = run("resume", str(plan), *WHY)

    assert (status, out.split(";")[0]) == (1, "1 failed, 2 resumed")
    (failed,) = [key for key, outcome in outcomes(plan).items() if outcome == "failed"]
    operated.world.wire.forget()
    assert run("resume", str(plan), *WHY)[0] == 0
    assert outcomes(plan)[failed] == "recovered"
    assert [started(operated.world, key) for key in KEYS] == [[f"{SAGAS[key]}-r1"] for key in KEYS]


def test_a_saga_that_was_not_parked_when_it_was_listed_is_left_alone(operated: OperatedSaga, tmp_path: Path) -> None:
    file = tmp_path / "all"
    run("list", "--lines", str(file))
    park(operated.world, "key-1")

    assert run("resume", str(file), *WHY)[0] == 0
    assert outcomes(file) == dict.fromkeys(KEYS, "left alone")
    assert A.PARKED_BY in record(operated.world, "key-1")


def test_a_saga_that_is_listed_again_is_resumed_again(operated: OperatedSaga, plan: Path) -> None:
    run("resume", str(plan), *WHY)
    park(operated.world, "key-1", owner=f"{SAGAS['key-1']}-r1")
    assert run("resume", str(plan), *WHY)[1].startswith("nothing to do; 3 before")

    run("list", "--parked", "--lines", str(plan))

    assert run("resume", str(plan), *WHY)[1].startswith("1 resumed; 0 before")
    assert started(operated.world, "key-1") == [f"{SAGAS['key-1']}-r1", f"{SAGAS['key-1']}-r2"]
    assert run("resume", str(plan), *WHY)[1].startswith("nothing to do; 1 before")


def test_ids_alone_are_read_again_each_time(operated: OperatedSaga, plan: Path) -> None:
    plan.write_text(SAGAS["key-1"])
    run("resume", str(plan), *WHY)
    assert run("resume", str(plan), *WHY)[1].startswith("1 left alone; 0 before")
    park(operated.world, "key-1", owner=f"{SAGAS['key-1']}-r1")

    assert run("resume", str(plan), *WHY)[1].startswith("1 resumed; 0 before")


OTHERS = [
    "[1]\n",
    "7\n",
    "null\n",
    "{}\n",
    '{"saga_id": []}\n',
    f"{SAGA_ID}\n",
    f'{{"saga_id": "{SAGA_ID}", "parked": ""}}\n',
    f'{{"saga_id": "{SAGA_ID}", "outcome": "resumed"}}\n',
]


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("words", [(), WHY], ids=["shown", "done"])
def test_results_of_another_form_are_refused(
    operated: OperatedSaga, plan: Path, text: str, words: tuple[str, ...]
) -> None:
    before = operated.state
    results = plan.with_name(f"{plan.name}.results")
    results.write_text(text)

    status, _, err = run("resume", str(plan), *words)

    assert (status, "--results must be outcomes of this command, got line 1" in err, err.count("\n")) == (1, True, 1)
    assert (operated.state, results.read_text()) == (before, text)


def test_the_list_itself_takes_no_results(operated: OperatedSaga, plan: Path) -> None:
    before, text = operated.state, plan.read_text()
    linked = plan.with_name("linked")
    linked.symlink_to(plan)

    for results in (plan, linked):
        status, _, err = run("resume", str(plan), *WHY, "--results", str(results))
        assert (status, "--results must be another file than the list" in err, err.count("\n")) == (1, True, 1)
    assert (operated.state, plan.read_text()) == (before, text)


def test_results_that_cannot_be_written_end_it_before_anything_is_done(operated: OperatedSaga, plan: Path) -> None:
    before = operated.state

    for results in ("/nowhere/results", str(plan.parent), str(plan / "below"), "/dev/null"):
        status, _, err = run("resume", str(plan), *WHY, "--results", results)
        assert (status, "--results must be" in err, err.count("\n")) == (1, True, 1)
    assert operated.state == before


def test_results_of_a_full_disk_name_the_last_outcome(
    operated: OperatedSaga, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RESUME.os, "fsync", full)

    status, _, err = run("resume", str(plan), *WHY)

    assert (status, err.count("\n")) == (1, 1)
    assert "No space left on device; saga" in err
    assert "is the last one: resumed; make room" in err


def test_a_list_that_is_gone_is_refused_though_its_results_are_there(operated: OperatedSaga, plan: Path) -> None:
    plan.with_name(f"{plan.name}.results").write_text("")
    plan.unlink()

    status, _, err = run("resume", str(plan))

    assert (status, "FILE must be a list of sagas" in err, err.count("\n")) == (1, True, 1)


def test_a_list_may_begin_with_a_byte_order_mark(operated: OperatedSaga, plan: Path) -> None:
    plan.write_text("\ufeff" + plan.read_text(), encoding="utf-8")

    assert run("resume", str(plan), *WHY)[0] == 0


CALLS = [(call, moment, on) for call in ("UpdateItem", "StartExecution") for moment in Moment for on in (1, 2, 3)]


@pytest.mark.parametrize(("call", "moment", "on"), CALLS, ids=[f"{m} {n}. {c}" for c, m, n in CALLS])
def test_a_command_that_dies_continues_where_it_stopped(
    operated: OperatedSaga, plan: Path, call: str, moment: Moment, on: int
) -> None:
    operated.world.wire.plan(Fault(operation=call, action=Action.KILL, moment=moment, on=on, times=1))
    with pytest.raises(Killed):
        run("resume", str(plan), *WHY)
    operated.world.wire.forget()

    assert run("resume", str(plan), *WHY)[0] == 0

    for key in KEYS:
        assert started(operated.world, key) == [f"{SAGAS[key]}-r1"]
        assert record(operated.world, key)[A.RECOVERIES] == {"N": "1"}
        assert len(Decision.all_of(record(operated.world, key))) == 1


def test_a_result_that_was_cut_off_is_that_of_a_saga_to_try_again(operated: OperatedSaga, plan: Path) -> None:
    run("resume", str(plan), *WHY)
    results = plan.with_name(f"{plan.name}.results")
    results.write_text(results.read_text()[:-20])
    state = operated.state

    assert run("resume", str(plan), *WHY)[1].startswith("1 left alone; 2 before")
    assert operated.state == state
    assert run("resume", str(plan), *WHY)[1].startswith("nothing to do; 3 before")


def test_two_operators_at_once_resume_each_saga_once(operated: OperatedSaga, plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run("resume", str(plan), *WHY, "--results", str(other))

    assert run("resume", str(plan), *WHY)[0] == 0
    assert outcomes(plan) == dict.fromkeys(KEYS, "left alone")
    assert [started(operated.world, key) for key in KEYS] == [[f"{SAGAS[key]}-r1"] for key in KEYS]


def test_ids_alone_are_a_list_and_settled_and_unknown_sagas_are_named(operated: OperatedSaga, tmp_path: Path) -> None:
    settle(operated.world, "key-1")
    park(operated.world, "key-2")
    gone = replace(reservation_of(key="gone")).saga_id
    file = tmp_path / "ids"
    file.write_text("\n".join([SAGAS["key-1"], "", SAGAS["key-2"], SAGAS["key-2"], gone]))

    shown = run("resume", str(file))[1]
    status, out, _ = run("resume", str(file), *WHY)

    assert f"{gone}  unknown" in shown
    assert (status, out.split(";")[0]) == (1, "1 failed, 1 resumed, 1 settled")


@pytest.mark.parametrize("error", [ParkedFor.OWNER_SUCCEEDED, ParkedFor.OWNER_UNKNOWN])
def test_a_saga_whose_record_is_in_doubt_needs_an_operator(
    operated: OperatedSaga, tmp_path: Path, error: ParkedFor
) -> None:
    park(operated.world, "key-1", error=error)
    park(operated.world, "key-2")
    file = tmp_path / "parked"
    run("list", "--parked", "--lines", str(file))
    before = record(operated.world, "key-1")

    shown = run("resume", str(file))[1]
    assert f"{SAGAS['key-1']}  needs an operator  Charge: {error}\n" in shown
    assert f"{SAGAS['key-2']}  is parked: would be resumed  Charge: ManualResolutionRequired\n" in shown
    assert run("resume", str(file), *WHY)[0] == 1
    assert outcomes(file) == {"key-1": "needs an operator", "key-2": "resumed"}
    assert (record(operated.world, "key-1"), started(operated.world, "key-1")) == (before, [])
    assert run("resume", str(file), *WHY)[1].startswith("1 needs an operator; 1 before")


def test_a_saga_whose_owner_succeeded_is_not_called_left_alone(operated: OperatedSaga, tmp_path: Path) -> None:
    operated.world.executions.end(SAGAS["key-1"], ExecutionStatus.SUCCEEDED)
    operated.world.clock.ms += 10 * 60_000
    file = tmp_path / "ids"
    file.write_text(SAGAS["key-1"])

    assert run("resume", str(file), *WHY)[1].startswith("1 needs an operator;")
    assert run("resume", str(file), *WHY)[0] == 1


def test_findings_that_need_an_operator_are_those_of_the_protocol() -> None:
    names = {Finding.NAME_EXPIRED, Finding.OWNER_SUCCEEDED, Finding.OWNER_UNKNOWN, Finding.ROWS_EXPIRED}
    harmless = {Finding.SETTLED, Finding.PARKED, Finding.NOT_STARTED, Finding.RUNNING, Finding.DEAD}

    assert names == SAGA.FOR_AN_OPERATOR
    assert names | harmless == set(Finding)


def hold(reason: str = "restore", saga_id: str | None = None) -> None:
    item: Any = {**hold_key(saga_id), HoldAttribute.SINCE: {"N": "1"}, HoldAttribute.REASON: {"S": reason}}
    aws.dynamodb().put_item(TableName=SWITCH, Item=item)


@pytest.mark.parametrize("words", [(), WHY], ids=["shown", "done"])
def test_nothing_is_resumed_while_a_reconciler_is_held(
    operated: OperatedSaga, plan: Path, words: tuple[str, ...]
) -> None:
    create_hold_table()
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": SWITCH, "limit": 3, "serves": []}]
    hold()
    before = operated.state

    status, _, err = run("resume", str(plan), *words)

    assert (status, operated.state, err.count("\n")) == (1, before, 1)
    assert "got Reconciler, held since" in err
    assert ": restore; repeat this when it is released" in err
    aws.dynamodb().delete_item(TableName=SWITCH, Key=HOLD_KEY)
    assert run("resume", str(plan), *words)[0] == 0


def test_a_held_saga_is_not_resumed(operated: OperatedSaga, plan: Path) -> None:
    create_hold_table()
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": SWITCH, "limit": 3, "serves": []}]
    examined = KEYS[0]
    hold("examined", SAGAS[examined])

    status, out, _ = run("resume", str(plan))
    assert (status, f"{len(KEYS) - 1} is parked: would be resumed, 1 needs an operator" in out) == (0, True)
    assert f"{SAGAS[examined]}  needs an operator  an operator holds it: examined\n" in out

    assert run("resume", str(plan), *WHY)[0] == 1
    found = outcomes(plan)
    assert found.pop(examined) == "needs an operator"
    assert set(found.values()) == {"resumed"}

    aws.dynamodb().delete_item(TableName=SWITCH, Key=hold_key(SAGAS[examined]))
    assert run("resume", str(plan), *WHY)[0] == 0
    assert outcomes(plan)[examined] == "resumed"


def test_a_saga_that_is_held_is_listed_so(operated: OperatedSaga) -> None:
    create_hold_table()
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": SWITCH, "limit": 3, "serves": []}]
    hold("examined", SAGAS["key-1"])

    holds = {one["saga_id"]: one["held"] for one in listed()}
    assert holds.pop(SAGAS["key-1"]) == {"since_ms": 1, "reason": "examined", "who": ""}
    assert set(holds.values()) == {None}
    assert run("list")[1].count("IN_PROGRESS, held") == 1


def test_sagas_are_listed_if_their_holds_cannot_be_read(operated: OperatedSaga) -> None:
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": "gone", "limit": 3, "serves": []}]

    status, out, err = run("list")

    assert (status, out.endswith("3 sagas, 0 parked\n")) == (0, True)
    assert err.startswith("which sagas are held is not known: table gone: ")


def test_a_hold_stops_what_is_being_resumed(
    operated: OperatedSaga, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_hold_table()
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": SWITCH, "limit": 3, "serves": []}]
    monkeypatch.setattr(RESUME, "_SWITCHES_READ_SECONDS", 0.0)
    before(operated.world.wire, "StartExecution", hold)

    assert run("resume", str(plan), *WHY)[0] == 1
    assert list(outcomes(plan).values()) == ["resumed"]


def test_switches_that_cannot_be_read_are_not_taken_for_released(operated: OperatedSaga, plan: Path) -> None:
    operated.manifests["Shop"]["reconcilers"] = [{"function": "Reconciler", "hold": "gone", "limit": 3, "serves": []}]
    state = operated.state

    status, _, err = run("resume", str(plan), *WHY)

    assert (status, operated.state) == (1, state)
    assert "reconcilers must be known not to be held, got table gone" in err


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("x", (), "line 1 of"),
        ('{"saga_id": 1}', (), "must have saga_id and parked as texts"),
        ("{", (), "must be JSON"),
        (SAGA_ID, ("--yes",), "--yes and --reason go together"),
        (SAGA_ID, ("--reason", "r"), "--yes and --reason go together"),
        (SAGA_ID, ("--yes", "--reason", " "), "--reason: a reason must be"),
        (SAGA_ID, ("--yes", "--reason", "a\x1b[2Kb"), "--reason: a reason must be printable"),
        (SAGA_ID, ("--rate", "0"), "--rate must be more than 0"),
        (SAGA_ID, ("--rate", "nan"), "--rate must be more than 0"),
        (None, (), "FILE must be a list of sagas"),
    ],
)
def test_wrong_lists_and_options_are_refused_before_anything_is_done(
    operated: OperatedSaga, tmp_path: Path, text: str | None, words: tuple[str, ...], says: str
) -> None:
    file, before = tmp_path / "list", operated.state
    if text is not None:
        file.write_text(text)

    status, _, err = run("resume", str(file), *words)

    assert status in (1, 2)
    assert says in err
    assert operated.state == before


def test_a_missing_right_ends_it_at_once(operated: OperatedSaga, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operated.unseen |= {operated.record.recovery_machine_arn}

    status, _, err = run("resume", str(plan), *WHY)

    assert (status, "AccessDenied" in err, started(operated.world, "key-1")) == (1, True, [])
