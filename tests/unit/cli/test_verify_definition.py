"""``cdk-sagas verify-definition``: cases of a definition, and AWS's answers against those computed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from constructs_lib.cli.main import main
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.verify.cases import Case, cases_of
from constructs_lib.cli.verify.command import AGREES, DIFFERS, NOT_COMPARED, REFUSED, lines_of, report, verify
from constructs_lib.cli.verify.one_state import VARIES, Expected, Mocked, differences, expected_of, gaps
from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec

_RETRY = [
    {"ErrorEquals": ["Busy"], "IntervalSeconds": 2, "MaxAttempts": 3, "BackoffRate": 2},
    {"ErrorEquals": ["States.ALL"], "MaxAttempts": 0},
]
_CATCH = [{"ErrorEquals": ["States.ALL"], "Assign": {"error": "{% $states.errorOutput.Error %}"}, "Next": "Failed"}]
DEFINITION: dict[str, Any] = {
    "QueryLanguage": "JSONata",
    "StartAt": "Begin",
    "States": {
        "Begin": {"Type": "Pass", "Assign": {"at": "{% $string($millis()) %}", "count": 1}, "Next": "Large?"},
        "Large?": {"Type": "Choice", "Choices": [{"Condition": "{% $count > 5 %}", "Next": "Both"}], "Default": "Pay"},
        "Pay": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": "pay", "Payload": {"at": "{% $at %}"}},
            "Assign": {"paid": "{% $states.result.Payload.output %}"},
            "Retry": _RETRY,
            "Catch": _CATCH,
            "Next": "Wait for it",
        },
        "Wait for it": {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Arguments": {"QueueUrl": "q", "MessageBody": {"token": "{% $states.context.Task.Token %}"}},
            "Next": "Each",
        },
        "Each": {
            "Type": "Map",
            "Items": [1],
            "ItemProcessor": {"StartAt": "Item", "States": {"Item": {"Type": "Pass", "End": True}}},
            "Next": "Done",
        },
        "Both": {
            "Type": "Parallel",
            "Branches": [
                {"StartAt": "One", "States": {"One": {"Type": "Succeed"}}},
                {"StartAt": "Two", "States": {"Two": {"Type": "Wait", "Seconds": 1, "End": True}}},
            ],
            "Next": "Done",
        },
        "Done": {"Type": "Succeed", "Output": {"at": "{% $at %}", "now": "{% $millis() %}", "x": 1}},
        "Failed": {"Type": "Fail", "Error": "{% $error %}"},
    },
}
MACHINE = MachineSpec(name="Pay", definition=DEFINITION, kind="STANDARD", role="role")


@pytest.fixture(name="cases")
def _cases() -> list[Case]:
    return list(cases_of(MACHINE))


def _named(cases: list[Case], state: str, situation: str) -> Case:
    (found,) = (case for case in cases if (case.state, case.situation) == (state, situation))
    return found


def test_every_state_has_a_case(cases: list[Case]) -> None:
    assert {case.state for case in cases} == {*DEFINITION["States"], "Item", "One", "Two"}
    assert len({case.id for case in cases}) == len(cases)


def test_expected_ends_are_those_of_the_definition(cases: list[Case]) -> None:
    paid = _named(cases, "Pay", "succeeds").expected
    assert (paid.status, paid.next_state, paid.assigned) == ("SUCCEEDED", "Wait for it", {"paid": {}})
    busy = _named(cases, "Pay", "fails with Busy").expected
    assert (busy.status, busy.error, busy.retry) == ("RETRIABLE", "Busy", (0, 2.0))
    tired = _named(cases, "Pay", "fails with Busy after its retries").expected
    assert (tired.status, tired.next_state, tired.catch) == ("CAUGHT_ERROR", "Failed", 0)
    assert tired.assigned == {"error": "Busy"}
    assert _named(cases, "Large?", "as it is").expected.next_state == "Pay"
    assert _named(cases, "Failed", "as it is").expected.status == "FAILED"


@pytest.mark.parametrize(
    ("rules", "error", "retries", "details"),
    [
        (
            [{"ErrorEquals": ["MockException"], "IntervalSeconds": 1, "MaxAttempts": 5, "BackoffRate": 2.0}],
            "MockException",
            4,
            {"retryIndex": 0, "retryBackoffIntervalSeconds": 16},
        ),
        (
            [{"ErrorEquals": ["MockException"], "MaxAttempts": 3}, {"ErrorEquals": ["Other"], "MaxAttempts": 2}],
            "Other",
            0,
            {"retryIndex": 1, "retryBackoffIntervalSeconds": 1},
        ),
    ],
)
def test_retries_are_those_that_were_recorded_on_aws(
    rules: list[dict[str, Any]], error: str, retries: int, details: dict[str, int]
) -> None:
    """LocalStack's recordings of TestState: test_state_configuration, 2025-11-13."""
    state = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Retry": rules, "End": True}
    expected = expected_of(state, {}, {}, {}, Mocked(error=error, retries=retries))
    assert not list(differences(expected, _answer("RETRIABLE", error=error, details=details)))


def test_values_that_depend_on_time_vary(cases: list[Case]) -> None:
    done = _named(cases, "Done", "as it is").expected.output
    assert (done["now"], done["x"]) == (VARIES, 1)
    varying = Expected(status="SUCCEEDED", output={"now": VARIES})
    assert not list(differences(varying, _answer(output={"now": 7})))
    assert list(gaps(varying, _answer(output={"now": 7}))) == ["output.now depends on time or chance"]


def test_requests_keep_the_rules_that_were_recorded_on_aws(cases: list[Case]) -> None:
    """LocalStack's recordings of TestState: test_state_mock_validation and test_state_context_object, 2025-12-03."""
    for case in cases:
        kind = next(s for s in _states(DEFINITION) if s[0] == case.state)[1]
        mock = case.request.get("mock")
        # "State type 'Pass' is not supported when a mock is specified"
        assert (mock is not None) == (kind["Type"] in ("Task", "Map", "Parallel"))
        context = json.loads(case.request["context"])
        # "'Map' field is not supported when mocking a Context object"
        assert context.keys() <= {"Execution", "State", "StateMachine", "Task"}
        # "Context object contains 'Task' when state is not a Task state with a ..."
        assert ("Task" in context) == str(kind.get("Resource", "")).endswith(".waitForTaskToken")
        if mock is None:
            continue
        # Of the fields result and errorOutput, a mock has only one.
        assert ("result" in mock) != ("errorOutput" in mock)
        if "result" in mock and kind["Type"] != "Task":
            result = json.loads(mock["result"])
            # "Mocked result must be an array.", with as many items as branches
            assert isinstance(result, list)
            assert kind["Type"] == "Map" or len(result) == len(kind["Branches"])


def test_agreeing_answers_are_kept_and_not_asked_for_again(cases: list[Case], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    pauses: list[float] = []
    with Aws([_agreeing(case) for case in cases]) as client:
        lines = verify(client, [MACHINE], cases, results, pause=0.5, sleep=pauses.append)
    assert {line.verdict for line in lines if line.state not in ("Begin", "Done")} == {AGREES}
    varying = {line.state: (line.verdict, line.why) for line in lines if line.state in ("Begin", "Done")}
    assert varying["Begin"] == (NOT_COMPARED, ["$at depends on time or chance"])
    assert varying["Done"] == (NOT_COMPARED, ["output.now depends on time or chance"])
    assert pauses == [0.5] * (len(cases) + 1)
    assert report([line for line in lines if line.verdict == AGREES]) == 0
    assert report(lines) == 1
    assert len(lines_of(results)) == len(cases)
    # A second run validates the definition only.
    with Aws([]) as client:
        again = verify(client, [MACHINE], cases, results, pause=0, sleep=pauses.append)
    assert again == lines


def test_former_answer_is_compared_with_what_this_version_expects(cases: list[Case], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    case = _named(cases, "Pay", "succeeds")
    other = replace(case, expected=replace(case.expected, next_state="Elsewhere"))
    with Aws([_agreeing(case)]) as client:
        verify(client, [MACHINE], [case], results, pause=0)
    verdicts: list[str] = []
    for now in (other, case):
        with Aws([]) as client:
            verdicts.append(verify(client, [MACHINE], [now], results, pause=0)[-1].verdict)
        assert lines_of(results)[case.id].verdict == verdicts[-1]
    assert verdicts == [DIFFERS, AGREES]


def test_line_without_an_answer_is_asked_for_again(cases: list[Case], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    case = _named(cases, "Pay", "succeeds")
    former = {"id": case.id, "machine": "Pay", "state": "Pay", "situation": "succeeds", "verdict": AGREES}
    results.write_text(json.dumps(former), "utf-8")  # cut off before its line's end
    with Aws([{**_agreeing(case), "nextState": "Elsewhere"}]) as client:
        assert verify(client, [MACHINE], [case], results, pause=0)[-1].verdict == DIFFERS
    assert [json.loads(line)["verdict"] for line in results.read_text("utf-8").splitlines()] == [
        AGREES,
        AGREES,
        DIFFERS,
    ]


@pytest.mark.parametrize(
    ("situation", "without", "why"),
    [
        ("succeeds", "variables", "AWS returned no variables"),
        ("fails with Busy", "errorDetails", "AWS returned no error details"),
        ("fails with Busy after its retries", "errorDetails", "AWS returned no error details"),
    ],
)
def test_part_that_aws_does_not_return_is_not_compared(
    situation: str, without: str, why: str, cases: list[Case], tmp_path: Path
) -> None:
    case = _named(cases, "Pay", situation)
    answer = _agreeing(case)
    del answer["inspectionData"][without]
    with Aws([answer]) as client:
        lines = verify(client, [MACHINE], [case], tmp_path / "r", pause=0)
    assert (lines[-1].verdict, lines[-1].why, report(lines)) == (NOT_COMPARED, [why], 1)


def test_state_whose_end_varies_is_not_compared(cases: list[Case], tmp_path: Path) -> None:
    case = replace(_named(cases, "Pay", "succeeds"), expected=Expected(status=VARIES))
    with Aws([_answer()]) as client:
        lines = verify(client, [MACHINE], [case], tmp_path / "r", pause=0)
    assert lines[-1].verdict == NOT_COMPARED


def test_machine_in_jsonpath_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = {
        "StartAt": "Large?",
        "States": {
            "Large?": {"Type": "Choice", "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "Done"}]},
            "Done": {"Type": "Succeed"},
        },
    }
    _assembly(tmp_path, Old=path, Pay=DEFINITION)
    assert main(["verify-definition", str(tmp_path), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "Old: its QueryLanguage is JSONPath; only JSONata is evaluated here\n" in printed
    assert "\n1 state machines, " in printed

    assert main(["verify-definition", str(tmp_path), "--dry-run", "--machine", "Old"]) == 1
    assert "at least one state machine must be in JSONata, got none" in capsys.readouterr().err


def test_assembly_without_state_machines_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _assembly(tmp_path)
    assert main(["verify-definition", str(tmp_path), "--dry-run"]) == 1
    assert f"ASSEMBLY must have a state machine, got none in {tmp_path}; " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (None, "has no manifest.json; synthesize first (cdk synth)"),
        ('{"name": "web app"}', "is not the manifest of a cloud assembly"),
        ("[]", "is not the manifest of a cloud assembly"),
        ("{", "is not JSON"),
    ],
)
def test_folder_without_an_assembly_is_refused(
    manifest: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest, "utf-8")
    assert main(["verify-definition", str(tmp_path), "--dry-run"]) == 1
    error = capsys.readouterr().err
    assert f"ASSEMBLY must be a cloud assembly, got {tmp_path}: " in error
    assert why in error


def test_results_that_cannot_be_written_are_refused(
    cases: list[Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _assembly(tmp_path, Pay=DEFINITION)
    assert main(["verify-definition", str(tmp_path), "--results", str(tmp_path)]) == 1
    assert f"--results must be a file, got the folder {tmp_path}; name a file in it" in capsys.readouterr().err

    client = boto3.client("stepfunctions", region_name="us-east-1")
    with Stubber(client), pytest.raises(CommandError, match="--results must be a file that can be written, got "):
        verify(client, [MACHINE], cases, tmp_path / "manifest.json" / "r", pause=0)


def test_run_continues_after_the_last_complete_line(cases: list[Case], tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    with Aws([_agreeing(case) for case in cases[:3]]) as client:
        verify(client, [MACHINE], cases[:3], results, pause=0)
    with results.open("a", encoding="utf-8") as file:
        file.write('{"id": "cut o\n')
    with Aws([_agreeing(case) for case in cases[3:]]) as client:
        lines = verify(client, [MACHINE], cases, results, pause=0)
    assert len(lines) == len(cases) + 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nextState": "Elsewhere"}, "nextState is 'Elsewhere' on AWS, 'Wait for it' here"),
        ({"status": "FAILED"}, "status is 'FAILED' on AWS, 'SUCCEEDED' here"),
        ({"output": "1"}, "output is 1 on AWS"),
        ({"inspectionData": {"variables": '{"paid": 3}'}}, "$paid is 3 on AWS, {} here"),
    ],
)
def test_another_answer_of_aws_is_a_difference(
    change: dict[str, Any], why: str, cases: list[Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = _named(cases, "Pay", "succeeds")
    with Aws([{**_agreeing(case), **change}]) as client:
        lines = verify(client, [MACHINE], [case], tmp_path / "r", pause=0)
    assert (lines[-1].verdict, report(lines)) == (DIFFERS, 1)
    assert why in capsys.readouterr().out


def test_another_retry_or_catch_is_a_difference(cases: list[Case]) -> None:
    busy = _named(cases, "Pay", "fails with Busy").expected
    details = {"retryIndex": 0, "retryBackoffIntervalSeconds": 2}
    assert not list(differences(busy, _answer("RETRIABLE", error="Busy", details=details)))
    assert list(differences(busy, _answer("RETRIABLE", error="Busy", details={**details, "retryIndex": 1})))
    tired = _named(cases, "Pay", "fails with Busy after its retries").expected
    answer = _answer("CAUGHT_ERROR", tired.output, error="Busy", next_state="Failed", details={"catchIndex": 1})
    assert list(differences(tired, answer)) == ["the catch is {'catchIndex': 1} on AWS, rule 0 here"]


def test_refused_call_is_made_again(cases: list[Case], tmp_path: Path) -> None:
    client = boto3.client("stepfunctions", region_name="us-east-1")
    with Stubber(client) as stubbed:
        stubbed.add_response("validate_state_machine_definition", {"result": "OK", "diagnostics": []})
        stubbed.add_client_error("test_state", "ValidationException", "roleArn is needed")
        lines = verify(client, [MACHINE], cases[:1], tmp_path / "r", pause=0)
    assert [line.verdict for line in lines] == [AGREES, REFUSED]
    assert report(lines) == 1
    assert lines_of(tmp_path / "r") == {}


def test_missing_permission_ends_the_run(cases: list[Case], tmp_path: Path) -> None:
    client = boto3.client("stepfunctions", region_name="us-east-1")
    with Stubber(client) as stubbed:
        stubbed.add_response("validate_state_machine_definition", {"result": "OK", "diagnostics": []})
        stubbed.add_response("test_state", _agreeing(cases[0]))
        stubbed.add_client_error("test_state", "AccessDeniedException", "no")
        with pytest.raises(ClientError, match="AccessDenied"):
            verify(client, [MACHINE], cases, tmp_path / "r", pause=0)
    assert lines_of(tmp_path / "r").keys() == {cases[0].id}


def test_diagnostics_of_a_definition_are_differences(tmp_path: Path) -> None:
    client = boto3.client("stepfunctions", region_name="us-east-1")
    warning = {"severity": "WARNING", "code": "UNREACHABLE", "message": "state"}
    with Stubber(client) as stubbed:
        stubbed.add_response("validate_state_machine_definition", {"result": "OK", "diagnostics": [warning]})
        (line,) = verify(client, [MACHINE], [], tmp_path / "r", pause=0)
    assert (line.verdict, line.why) == (DIFFERS, ["WARNING UNREACHABLE: state"])


def _states(flow: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in flow["States"].items():
        yield name, state
        for inner in (*state.get("Branches", ()), *([state["ItemProcessor"]] if "ItemProcessor" in state else ())):
            yield from _states(inner)


def _answer(
    status: str = "SUCCEEDED",
    output: Any = None,
    *,
    error: str | None = None,
    next_state: str | None = None,
    details: dict[str, int] | None = None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"status": status, "output": json.dumps(output)}
    answer |= {"error": error} if error is not None else {}
    answer |= {"nextState": next_state} if next_state is not None else {}
    return answer | ({"inspectionData": {"errorDetails": details}} if details is not None else {})


def _agreeing(case: Case) -> dict[str, Any]:
    wanted = case.expected
    answer = _answer(wanted.status, wanted.output, error=wanted.error, next_state=wanted.next_state)
    details: dict[str, int] = {"catchIndex": wanted.catch} if wanted.catch is not None else {}
    if wanted.retry is not None:
        details |= {"retryIndex": wanted.retry[0], "retryBackoffIntervalSeconds": int(wanted.retry[1])}
    return answer | {"inspectionData": {"variables": json.dumps(dict(wanted.assigned)), "errorDetails": details}}


def _assembly(folder: Path, **definitions: object) -> None:
    resources = {
        name: {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {"DefinitionString": json.dumps(definition), "RoleArn": "arn:aws:iam::1:role/r"},
        }
        for name, definition in definitions.items()
    }
    artifact = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "Stack.json"}}
    (folder / "manifest.json").write_text(json.dumps({"version": "1", "artifacts": {"Stack": artifact}}), "utf-8")
    (folder / "Stack.json").write_text(json.dumps({"Resources": resources}), "utf-8")


class Aws:
    """A client that answers as given; botocore checks each request against the service's model."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self._client = boto3.client("stepfunctions", region_name="us-east-1")
        self._stubber = Stubber(self._client)
        self._stubber.add_response("validate_state_machine_definition", {"result": "OK", "diagnostics": []})
        for answer in answers:
            self._stubber.add_response("test_state", answer)

    def __enter__(self) -> Any:
        self._stubber.activate()
        return self._client

    def __exit__(self, *error: object) -> None:
        self._stubber.deactivate()
        if error[0] is None:
            self._stubber.assert_no_pending_responses()
