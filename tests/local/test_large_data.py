"""Requests and outputs that are too large to travel: through the bucket and back, whatever happens around its calls."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from constructs_lib.testing.fault_plan import Fault
from constructs_lib.testing.fault_schedules import Nth
from constructs_lib.testing.invariants import Item, read_table
from saga_runtime.payloads.references import is_reference, reference_to
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    INLINE_BODY_BYTES,
    INLINE_OUTPUT_BYTES,
    MAX_PAYLOAD_BYTES,
    REFERENCE_FIELD,
    REPLAYED_HEADER,
    LogAttribute,
    RecordAttribute,
)

from .two_ledgers import edit

SPEED: Final = 4.0
FUNCTION_SECONDS: Final = 120
PATIENCE_SECONDS: Final = 240.0
"""Time for processes that start slowly on a busy machine."""
AT_ONCE: Final = 6
BODY: Final = 200_000
OUTPUT: Final = 100_000
GATEKEEPER: Final = "Large/Api/Gatekeeper/reports/Function"
MAKE: Final = "Large/Make/Function"
CHECK: Final = "Large/Check/Function"
UNDO: Final = "Large/Undo/Function"
PUT: Final = "s3:PutObject"
GET: Final = "s3:GetObject"


@dataclass(frozen=True)
class LargeSystem:
    """The deployed stack and its one user."""

    aws: LocalAws
    outputs: Mapping[str, str]
    user: ApiUser

    @property
    def url(self) -> str:
        """URL for reports."""
        return f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/reports"

    def post(self, key: str, body: object) -> HttpResponse:
        """Send a request once."""
        return self.user.request("POST", self.url, headers={IDEMPOTENCY_KEY_HEADER: key}, body=body)

    def settle(self, key: str, body: object) -> HttpResponse:
        """Send a request until its settled answer comes back."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        told = "nothing"
        while time.monotonic() < deadline:
            try:
                answer = self.post(key, body)
            except (OSError, http.client.HTTPException) as error:
                told = repr(error)
            else:
                if answer.headers.get(REPLAYED_HEADER.lower()) == "true":
                    return answer
                told = f"{answer.status} {answer.text[:500]}"
            time.sleep(0.3)
        raise AssertionError(f"{key} was not settled within {PATIENCE_SECONDS:.0f} s; last answer: {told}")

    def objects(self) -> dict[str, bytes]:
        """Contents of the bucket, by key."""
        s3, bucket = self.aws.client("s3"), self.outputs["PayloadBucketName"]
        keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def items(self, table: str) -> list[Item]:
        """Every item of a table."""
        return read_table(self.aws.client("dynamodb"), self.outputs[table])

    def counts(self, saga_id: str) -> dict[str, int]:
        """Number of effects of each step."""
        items = {item["id"]["S"]: item for item in self.items("CounterTableName")}
        return {
            step: int(items[f"{saga_id}/{step}"]["n"]["N"])
            for step in ("Make", "Check")
            if f"{saga_id}/{step}" in items
        }

    def history(self, saga_id: str) -> list[str]:
        """The events of a saga's first execution, each as text."""
        arn = f"{self.outputs['MachineArn'].replace(':stateMachine:', ':execution:')}:{saga_id}"
        pages = self.aws.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=arn)
        return [json.dumps(event, default=str) for page in pages for event in page["events"]]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeSystem]:
    # Imported here: the CDK takes seconds, and only these tests need it.
    from aws_cdk import App

    from .large.stack import LargeStack

    folder: Path = tmp_path_factory.mktemp("large") / "cdk.out"
    app = App(outdir=str(folder))
    LargeStack(app, "Large")
    app.synth()
    with LocalAws(speed=SPEED) as aws:
        outputs = aws.deploy(folder)["Large"]
        _give_time(aws)
        yield LargeSystem(aws, outputs, aws.create_api_user("reporter", api_id=outputs["ApiId"]))


def _give_time(aws: LocalAws) -> None:
    """Set timeouts that a process which starts slowly on a busy machine meets: emulated time passes fast."""
    for path in (GATEKEEPER, MAKE, CHECK, UNDO):
        name = aws.resolve_function(path)
        aws.client("lambda").update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
    edit(aws, "Large/Report/StateMachine", _wait_longer)


def _wait_longer(states: dict[str, Any]) -> None:
    for state in states.values():
        if state.get("Resource", "").endswith("lambda:invoke"):
            state["TimeoutSeconds"] = FUNCTION_SECONDS + 10


@pytest.fixture
def system(deployed: LargeSystem) -> LargeSystem:
    """The same, emptied."""
    deployed.aws.reset()
    return deployed


def report(name: str = "report", *, size: int = BODY, **further: object) -> dict[str, object]:
    """A body of that many bytes and a few more; its output ends with the name turned around."""
    return {"text": (name + ' "ü\\' * size).encode()[:size].decode("utf-8", "ignore"), "length": OUTPUT, **further}


def output_of(body: Mapping[str, Any]) -> str:
    """Output of the first step for a body."""
    return str(body["text"])[::-1][: body["length"]]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_large_request_and_a_large_output_are_returned_unchanged(system: LargeSystem) -> None:
    body = report()

    answers = [system.settle("k", body), system.settle("k", body)]

    saga_id = str(answers[0].json()["saga_id"])
    look = system.user.request("GET", f"{system.url}/{saga_id}")
    result = answers[0].json()["result"]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].text == answers[1].text
    assert result["Make"] == {"text": output_of(body)}
    assert result["Check"] == {"request": sha(str(body["text"])), "output": sha(output_of(body))}
    assert look.json()["answer"] == answers[0].json()


def test_neither_history_nor_record_nor_log_holds_a_large_payload(system: LargeSystem) -> None:
    saga_id = str(system.settle("k", report()).json()["saga_id"])

    (record,) = system.items("RequestTableName")
    (make,) = (row for row in system.items("LogTableName") if row[LogAttribute.STEP]["S"] == "Make")
    started = json.loads(record[RecordAttribute.INPUT]["S"])
    assert max(len(event) for event in system.history(saga_id)) < 4_000
    assert len(json.dumps(record)) < 4_000
    assert is_reference(json.loads(started["request"]))
    assert is_reference(json.loads(make[LogAttribute.OUTPUT]["S"]))
    assert {key.partition("/")[0] for key in system.objects()} == {saga_id, saga_id[:26]}
    assert all(key.endswith(hashlib.sha256(value).hexdigest()) for key, value in system.objects().items())


def test_a_compensation_receives_the_large_output(system: LargeSystem) -> None:
    body = report(refuse=True)

    answer = system.settle("k", body)

    saga_id = answer.json()["saga_id"]
    (note,) = (item for item in system.items("CounterTableName") if item["id"]["S"] == f"{saga_id}/undone")
    assert answer.status == 422
    assert note["text"]["S"] == sha(output_of(body))
    assert system.counts(saga_id) == {"Make": 0}


def test_a_body_of_the_largest_size_is_accepted_with_any_content(system: LargeSystem) -> None:
    text = '"' * ((MAX_PAYLOAD_BYTES - 100) // 2)
    body = {"text": text, "length": 100}

    answer = system.settle("k", body)

    assert answer.json()["result"]["Check"]["request"] == sha(text)
    assert system.post("l", {**body, "more": "x" * 200}).status == 413


def test_a_client_cannot_name_a_payload_that_is_stored(system: LargeSystem) -> None:
    body = report()
    saga_id = str(system.settle("k", body).json()["saga_id"])
    stored = next(key for key in system.objects() if key.startswith(f"{saga_id}/"))

    answers = [
        system.post("thief", {REFERENCE_FIELD: stored}),
        system.post("thief", {"text": {REFERENCE_FIELD: stored}, "length": 1}),
        system.post("thief", reference_to(saga_id, "x")),
    ]

    assert [answer.status for answer in answers] == [400, 400, 400]
    assert len(system.items("RequestTableName")) == 1


def test_a_function_reads_payloads_under_its_own_role_only(system: LargeSystem) -> None:
    """A role without the permission is denied: a grant that was forgotten is noticed here."""
    name = system.aws.resolve_function(CHECK)
    role = system.aws.client("lambda").get_function_configuration(FunctionName=name)["Role"].rpartition("/")[2]
    deny = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "s3:GetObject", "Resource": "*"}]}
    iam = system.aws.client("iam")
    iam.put_role_policy(RoleName=role, PolicyName="denied", PolicyDocument=json.dumps(deny))
    try:
        saga_id = str(system.post("k", report()).json()["saga_id"])
        _until(lambda: any("PayloadLost" in event and "AccessDenied" in event for event in system.history(saga_id)))
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName="denied")

    assert system.settle("k", report()).status == 200


@dataclass(frozen=True, kw_only=True)
class Case:
    """A saga, and what happens to one of its calls of the bucket."""

    name: str
    fault: Fault
    refuse: bool = False


def cases() -> Sequence[Case]:
    """Every call of the bucket, hit in each way that can matter to it.

    A read has no effect, so that there is no "after" to it. Its request has no body by which it could be singled out:
    it is whichever comes first.
    """
    found = []
    for function, name in ((GATEKEEPER, "front"), (MAKE, "make")):
        for action in ("kill", "drop"):
            for moment in ("before", "after"):
                case = f"{name}-{action}-{moment}"
                # The output is the end of the request, turned around.
                fault = _fault(function, PUT, action, moment=moment, containing=case if name == "front" else case[::-1])
                found.append(Case(name=case, fault=fault))
    readers = ((MAKE, "request", False), (CHECK, "check", False), (GATEKEEPER, "replay", False), (UNDO, "undo", True))
    for function, name, refuse in readers:
        for number, action in enumerate(("kill", "drop"), start=1):
            fault = _fault(function, GET, action, on=Nth(number))
            found.append(Case(name=f"{name}-{action}", fault=fault, refuse=refuse))
    return found


def _fault(function: str, call: str, action: Any, **how: Any) -> Fault:
    attempts: Any = {"drop": {"attempts": "all"}}.get(action, {})
    return Fault(function=function, call=call, action=action, **attempts, **how)


def body_of(case: Case) -> dict[str, object]:
    """The case's name is at both ends of the text, in the request and in the output. Just too large to travel."""
    text = f"{case.name} {'x' * INLINE_BODY_BYTES} {case.name}"
    return {"text": text, "length": INLINE_OUTPUT_BYTES, "refuse": case.refuse}


def test_a_death_or_a_lost_response_at_any_call_of_the_bucket_does_no_harm(system: LargeSystem) -> None:
    planned = cases()
    with system.aws.calls.record() as calls:
        for refuse in (False, True):
            system.settle(f"clean-{refuse}", report(f"clean-{refuse}", refuse=refuse))
    made = {(call.caller, call.call) for call in calls if call.call.startswith("s3:")}
    system.aws.faults.plan(*(case.fault for case in planned))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda case: system.settle(case.name, body_of(case)), planned))

    system.aws.faults.report().require_all_fired()
    assert made == {(system.aws.resolve_function(case.fault.function), case.fault.call) for case in planned}
    for case, answer in zip(planned, answers, strict=True):
        saga_id = str(answer.json()["saga_id"])
        assert answer.status == (422 if case.refuse else 200), case
        assert system.counts(saga_id) == ({"Make": 0} if case.refuse else {"Make": 1, "Check": 1}), case
        if not case.refuse:
            assert answer.json()["result"]["Make"]["text"] == output_of(body_of(case)), case


def _until(probe: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not probe():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.1)
