"""Two operators, who may do nothing but ask a function, drive a parked saga to its right end, on local AWS."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws
from examples.payment_gateway import Action, Moment, Operation, PaymentGateway, Trouble
from saga_runtime.idempotency.identity import request_id_from
from saga_runtime.protocol import Env
from saga_runtime.shared.decisions import Decision

from .test_doctor import GUIDE
from .test_parked import PATIENCE_SECONDS, SPEED, Parked
from .two_ledgers import drain

ORDER = "charged"
LISTED = ("listed-1", "listed-2")
REPAIRS = 4


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parked]:
    """A parked saga."""
    from .operated.stack import synthesize
    from .parked.stack import FUNCTION_SECONDS

    with PaymentGateway(speed=SPEED) as gateway, LocalAws(speed=SPEED) as aws:
        outputs = dict(aws.deploy(synthesize(gateway.url, Path(tmp_path_factory.mktemp("operated"))))["Parked"])
        aws.client("lambda").update_function_configuration(
            FunctionName=aws.resolve_function("Parked/Api/Gatekeeper/orders/Function"), Timeout=FUNCTION_SECONDS
        )
        made = Parked(aws, outputs, gateway, aws.create_api_user("alice", api_id=outputs["ApiId"]))
        for order in (ORDER, *LISTED):
            gateway.plan(
                Trouble(on=Operation.CHARGE, action=Action.DROP, moment=Moment.AFTER, containing=f'"{order}-Charge')
            )
            made.begin(order)
        for order in (ORDER, *LISTED):
            made.waited(order, lambda record: "parked_by" in record)
        yield made


def operator(parked: Parked, name: str) -> dict[str, str]:
    """Credentials of a user with the rights of ``grant_operate``, and no other."""
    key = parked.aws.client("iam").create_access_key(UserName=name)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def run(parked: Parked, credentials: dict[str, str], *words: str) -> tuple[int, str]:
    """Run the command as an operator; again while an answer is too early."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "AWS_ENDPOINT_URL": parked.aws.endpoint_url,
        "AWS_DEFAULT_REGION": parked.aws.region,
        "AWS_CONFIG_FILE": os.devnull,
        Env.CLOCK: parked.aws.clock,
        **credentials,
    }
    of_saga = [] if words[0] in ("doctor", "resume") else [parked.sagas[ORDER]]
    command = [sys.executable, "-m", "constructs_lib.cli", words[0], *of_saga, *words[1:]]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        done = subprocess.run(
            [*command, "--stack", "Parked"], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        told = done.stdout + done.stderr
        if "wait, ask" not in told or time.monotonic() > deadline:
            return done.returncode, told
        time.sleep(1)


def session_of(parked: Parked, credentials: dict[str, str]) -> boto3.Session:
    return boto3.Session(
        aws_access_key_id=credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=credentials["AWS_SECRET_ACCESS_KEY"],
        region_name=parked.aws.region,
    )


def decisions(parked: Parked, order: str = ORDER) -> list[tuple[str, str, str | None]]:
    key: Any = {"id": {"S": request_id_from(parked.sagas[order])}}
    found: Any = parked.aws.client("dynamodb").get_item(TableName=parked.outputs["RequestTableName"], Key=key)
    return [(one.what, one.who.rpartition("/")[2], one.proposed_by) for one in Decision.all_of(found["Item"])]


def test_two_operators_decide_with_one_right_each(parked: Parked) -> None:
    ann, ben = operator(parked, "ann"), operator(parked, "ben")
    (charge,) = [one.id for one in parked.gateway.books().charges if one.reference == f"{ORDER}-Charge"]
    output = json.dumps({"charge": charge})

    status, told = run(parked, ann, "resolve", "Charge", "--applied", "--output", output, "--reason", "in the books")
    assert (status, told.startswith("proposed as 1: Charge: applied, output ")) == (0, True), told
    assert "parked_by" in parked.record(ORDER)

    status, told = run(parked, ann, "confirm", "--proposal", "1", "--reason", "I am sure", "--yes")
    assert (status, "must be confirmed by another IAM user or role" in told) == (1, True), told

    status, told = run(parked, ben, "confirm", "--proposal", "1", "--reason", "I asked the provider, too", "--yes")
    assert (status, "proposal 1 is executed: Charge: applied" in told) == (0, True), told

    assert parked.settled(ORDER) == "FAILED"
    assert parked.books(ORDER) == (1, 1)
    (proposed, answered, resumed) = decisions(parked)
    assert proposed[0] == "proposed 1: Charge: applied"
    assert (proposed[1], proposed[2]) == ("ann", None)
    assert [(one[0], one[1], str(one[2]).rpartition("/")[2]) for one in (answered, resumed)] == [
        ("Charge: applied", "ben", "ann"),
        ("resumed", "ben", "ann"),
    ]


def test_two_operators_resume_a_list_with_one_right_each(parked: Parked, tmp_path: Path) -> None:
    ann, ben = operator(parked, "ann"), operator(parked, "ben")
    plan, results = tmp_path / "parked", tmp_path / "results"
    plan.write_text("\n".join([*(parked.sagas[order] for order in LISTED), f"{'a' * 26}-mdwqr4j1"]))
    why, sure = ("--yes", "--reason", "the provider is back"), ("--yes", "--reason", "I asked it, too")

    status, told = run(parked, ann, "resume", str(plan), *why)
    assert (status, f"{'a' * 26}-mdwqr4j1  unknown" in told) == (1, True), told
    found = re.search(r"proposed as ([0-9a-f]{32}): 2 sagas", told)
    assert found is not None, told
    proposal = ("--proposal", found[1], "--results", str(results))
    assert all("parked_by" in parked.record(order) for order in LISTED)

    status, told = run(parked, ann, "resume", *proposal, *sure)
    assert (status, "must be confirmed by another IAM user or role" in told) == (1, True), told

    status, told = run(parked, ben, "resume", *proposal)
    assert (status, told.count("is parked: would be resumed\n"), "the provider is back" in told) == (0, 2, True), told
    assert not results.exists()

    status, told = run(parked, ben, "resume", *proposal, *sure)
    assert (status, told.startswith("2 resumed; 0 before")) == (0, True), told
    status, told = run(parked, ann, "resume", *proposal, *sure)
    assert (status, told.startswith("nothing to do; 2 before")) == (0, True), told

    # The provider still does not report the charge: each saga is parked again, which the two did not decide about.
    for order in LISTED:
        parked.waited(order, lambda record: str(record.get("parked_by")).endswith("-r1"))
    status, told = run(parked, ann, "resume", *proposal[:2], "--results", str(tmp_path / "again"), *sure)
    assert (status, told.startswith("2 left alone")) == (0, True), told
    for order in LISTED:
        assert parked.record(order)["recoveries"] == "1"
        proposed, resumed = decisions(parked, order)
        assert proposed == (f"proposed in list {found[1]}: resume", "ann", None)
        assert (resumed[:2], str(resumed[2]).rpartition("/")[2]) == ((f"resumed by list {found[1]}", "ben"), "ann")


def test_who_holds_and_releases_a_saga_is_shown(parked: Parked) -> None:
    """A person who may do anything, and the saga that another test settles."""
    saga = parked.sagas[ORDER]

    assert parked.run("hold", "on", "--saga", saga, "--reason", "examined")[0] == 0
    assert parked.run("hold", "off", "--saga", saga, "--reason", "it is right")[0] == 0

    told = parked.run("inspect", saga)[1]
    assert re.search(r"\n    held\n    why: examined\n(.*\n)+    released\n    why: it is right\n", told), told
    status, told = parked.run("hold", "status", "--saga", saga)
    assert (status, "is not held" in told, told.count("; why: ")) == (0, True, 2), told


def test_doctor_repairs_by_the_function_what_its_caller_may_only_read(parked: Parked) -> None:
    """An entry about the saga, which is settled by now, is left in the operators' queue."""
    events, sqs, url = parked.aws.client("events"), parked.aws.client("sqs"), parked.outputs["OperatorsQueueUrl"]
    for rule in events.list_rules()["Rules"]:
        events.disable_rule(Name=rule["Name"])  # the reconciler clears the queue, too
    entry = {"saga_id": parked.sagas[ORDER], "execution": "arn:of-an-earlier-owner", "parked_reason": {"error": "Lost"}}
    credentials = operator(parked, "ann")
    looks, _ = re.findall(r"```json\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    parked.aws.client("iam").put_user_policy(UserName="ann", PolicyName="looks", PolicyDocument=looks)

    told = ""
    for _ in range(REPAIRS):  # a reconciler that was under way may clear the queue first
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(entry))
        _, told = run(parked, credentials, "doctor", "--repair", "--reason", "stale entries")
        if re.search(r"repaired: [1-9]\d* deleted, 0 left", told):
            break

    assert re.search(r"repaired: [1-9]\d* deleted, 0 left", told), told
    assert drain(parked.aws, url) == []
    with pytest.raises(ClientError, match="AccessDenied"):
        session_of(parked, credentials).client("sqs", endpoint_url=parked.aws.endpoint_url).receive_message(
            QueueUrl=url
        )


def test_proof_of_another_request_is_refused_by_sts(parked: Parked) -> None:
    """A caller that may invoke the function has another one's proof, and claims to be that one."""
    from saga_runtime.recovery.callers import prove

    victim, function = operator(parked, "victim"), parked.outputs["OperatorsFunctionArn"]
    session = session_of(parked, victim)
    sts = session.client("sts", endpoint_url=parked.aws.endpoint_url)
    proof = prove(sts, session.get_credentials(), function, "{}")
    saga = {"do": "resolve", "saga": parked.sagas[ORDER], "reason": "mine"}

    def asks(request: dict[str, Any]) -> dict[str, Any]:
        event = json.dumps({"request": json.dumps(request), "proof": proof}).encode()
        said: dict[str, Any] = json.loads(
            parked.aws.client("lambda").invoke(FunctionName=function, Payload=event)["Payload"].read()
        )
        return said

    assert "SignatureDoesNotMatch" in asks(saga)["refused"]
    assert "must ask for resolve, confirm" in asks({})["refused"]


def test_operator_has_no_right_on_what_the_function_changes(parked: Parked) -> None:
    credentials = operator(parked, "ben")
    session = session_of(parked, credentials)

    with pytest.raises(ClientError, match="AccessDenied"):
        session.client("dynamodb", endpoint_url=parked.aws.endpoint_url).scan(
            TableName=parked.outputs["RequestTableName"]
        )
