"""The JSONata in generated definitions: it compiles, and has the intended value for awkward inputs too."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonata.jexception import JException

from constructs_lib.saga.asl import definition_of, recovery_of
from constructs_lib.saga.asl.plan import Notice
from constructs_lib.saga.steps.routes import ContinueWith
from saga_runtime.protocol import EXPRESS_MARK
from tests.constructs.support.asl import expressions
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.interpreter import Answer, Failure, Run, run
from tests.constructs.support.jsonata import EXECUTION, REQUEST_ID, compiled, evaluate
from tests.constructs.support.plans import PLANS, QUEUE, plan, step

ONE = definition_of(PLANS["one step"])
TWO = definition_of(PLANS["two pivots"])
FORWARD_MACHINE = "arn:aws:states:eu-west-1:111111111111:stateMachine:forward"
PARTNER = '{"to_ledger":"partner"}'
CONDITION_FAILED = "DynamoDB.ConditionalCheckFailedException"


def _cause(message: str, **others: Any) -> str:
    """An exception of a Python function, as Lambda reports it."""
    return json.dumps({"errorMessage": message, "errorType": "X", "requestId": "r", "stackTrace": ["  t\n"], **others})


def _answers(**by_state: Any) -> Answer:
    """Answers by state name (``_`` for a space): a result, or a failure to raise."""
    known: dict[str, Any] = {name.replace("_", " "): answer for name, answer in by_state.items()}

    def answer(name: str, _arguments: Any) -> Any:
        found = known.get(name)
        if isinstance(found, Failure):
            raise found
        if found is not None:
            return found
        return {"Count": 0} if name == "Query saga log" else {"Payload": {"output": {"of": name}}}

    return answer


def _body(done: Run, state: str) -> Any:
    return json.loads(done.sent[state]["ExpressionAttributeValues"][":body"]["S"])


@pytest.mark.parametrize("name", PLANS)
def test_every_expression_compiles(name: str) -> None:
    found = [*expressions(definition_of(PLANS[name])), *expressions(recovery_of(PLANS[name], FORWARD_MACHINE))]
    assert len(found) > 20
    for _, expression in found:
        compiled(expression)


@pytest.mark.parametrize("path", ["Transfer/StateMachine", "Transfer/Recovery"])
def test_every_expression_of_the_reference_app_compiles(reference: Cloud, path: str) -> None:
    found = list(expressions(reference.definition(path)))
    assert found
    for _, expression in found:
        compiled(expression)


def test_an_invalid_expression_would_be_detected() -> None:
    with pytest.raises(JException):
        compiled("$merge([$outputs, {)")


@pytest.mark.parametrize("name", [*PLANS])
def test_no_delimiter_is_inside_an_expression(name: str) -> None:
    for where, expression in expressions(definition_of(PLANS[name])):
        assert "%}" not in expression, where
        assert "{%" not in expression, where


# ---- the refusal's message ------------------------------------------------------------------------------------------


def _detail(cause: str) -> Any:
    (rule,) = (rule for rule in ONE["States"]["Transfer"]["Catch"] if "InsufficientFunds" in rule["ErrorEquals"])
    output = {"Error": "InsufficientFunds", "Cause": cause}
    return evaluate(rule["Assign"]["failure"]["detail"], states={"errorOutput": output})


@pytest.mark.parametrize(
    "message",
    [
        "account a has 3, needs 5",
        'a "quoted" word',
        'a back\\slash, and \\" both',
        "ends with a backslash\\",
        "two\nlines\tand a tab",
        "umlaut ä, euro €, emoji 😀",
        '{"errorMessage": "not this one"}',
        "brackets [ ] { } ( ) / and % signs",
        "",
        "x" * 4_000,
    ],
)
def test_a_refusals_message_is_read_from_the_functions_report(message: str) -> None:
    assert _detail(_cause(message)) == message


def test_a_message_in_plain_unicode_is_read_too() -> None:
    assert _detail(json.dumps({"errorMessage": "ä €"}, ensure_ascii=False)) == "ä €"


def test_spaces_around_the_colon_do_no_harm() -> None:
    assert _detail('{ "errorMessage" :"no", "errorMessage":  "yes" }'.replace('"errorMessage" :"no", ', "")) == "yes"


@pytest.mark.parametrize(
    "cause",
    ["", "no JSON at all", '{"errorType": "X"}', _cause("cut off in the middle of the message")[:30], "null", "[]"],
)
def test_a_report_without_a_whole_message_leaves_an_empty_detail(cause: str) -> None:
    assert _detail(cause) == ""


def test_a_truncated_error_report_still_has_its_message() -> None:
    assert _detail(_cause("poor", stackTrace=["x" * 500])[:120]) == "poor"


def test_the_trace_never_reaches_the_failure() -> None:
    cause = _cause("poor", stackTrace=["secret"])
    done = run(ONE, _answers(Transfer=Failure("InsufficientFunds", cause)))
    assert "secret" not in json.dumps(done.variables)
    assert "secret" not in json.dumps(done.sent)


def test_the_message_of_an_unexpected_failure_never_reaches_the_response() -> None:
    done = run(ONE, _answers(Transfer=Failure("KeyError", _cause("internal-host-7"))))
    assert "internal-host-7" not in json.dumps(done.sent)
    assert _body(done, "Settle failed")["error"] == "StepFailed"


# ---- settling -------------------------------------------------------------------------------------------------------


def test_a_saga_that_went_well_settles_with_every_output() -> None:
    done = run(TWO, _answers(), request=PARTNER)
    assert done.trace == ["Select first step", "Debit", "Credit", "Receipt", "Settle completed"]
    assert done.status == "SUCCEEDED"
    assert _body(done, "Settle completed") == {
        "saga_id": EXECUTION,
        "status": "COMPLETED",
        "result": {name: {"of": name} for name in ("Debit", "Credit", "Receipt")},
    }


def test_do_not_arise_with_a_bucket() -> None:
    settle = run(ONE, _answers()).sent["Settle completed"]
    assert settle["UpdateExpression"].endswith("REMOVE #due_at, #due_shard")
    values = settle["ExpressionAttributeValues"]
    assert values[":http_status"] == {"N": "200"}
    now = int(values[":now"]["N"]) // 1000
    assert int(values[":response_expires_at"]["N"]) - now == PLANS["one step"].replay_seconds
    assert int(values[":expiration"]["N"]) - now == PLANS["one step"].remember_seconds
    assert "#response_shard = if_not_exists(#due_shard, :shard)" in settle["UpdateExpression"]


def test_a_response_that_expires_with_its_key_is_not_listed() -> None:
    machine = definition_of(plan(step("Transfer", pivot=True), remember_seconds=604_800))
    settle = run(machine, _answers()).sent["Settle completed"]
    values = settle["ExpressionAttributeValues"]
    assert values[":expiration"] == values[":response_expires_at"]
    assert "response_shard" not in str(settle)


def test_the_record_and_the_rows_are_found_by_their_keys() -> None:
    sent = run(ONE, _answers(Transfer=Failure("Invalid", _cause("no")))).sent
    assert sent["Settle failed"]["Key"] == {"id": {"S": REQUEST_ID}}
    assert sent["Fence Transfer"]["Item"]["saga_id"] == {"S": EXECUTION}
    assert sent["Fence Transfer"]["Item"]["step"] == {"S": "Transfer"}


@pytest.mark.parametrize(
    ("error", "status"), [("InsufficientFunds", 402), ("Invalid", 422), ("PermanentError", 422), ("KeyError", 500)]
)
def test_a_failed_saga_settles_with_the_status_of_its_error(error: str, status: int) -> None:
    done = run(ONE, _answers(Transfer=Failure(error, _cause("why"))))
    assert done.sent["Settle failed"]["ExpressionAttributeValues"][":http_status"] == {"N": str(status)}
    assert _body(done, "Settle failed")["status"] == status


def test_a_refused_saga_settles_with_a_problem_document() -> None:
    done = run(ONE, _answers(Transfer=Failure("InsufficientFunds", _cause('needs "5"\n'))))
    assert _body(done, "Settle failed") == {
        "type": "urn:cdk-sagas:problem:saga-refused",
        "title": "The request was refused and has no remaining effects",
        "status": 402,
        "detail": 'needs "5"\n',
        "error": "InsufficientFunds",
        "step": "Transfer",
        "saga_id": EXECUTION,
    }


def test_a_custom_result_is_the_response() -> None:
    definition = definition_of(plan(step("Transfer", pivot=True), result='{"entry": $outputs.Transfer.of}'))
    assert _body(run(definition, _answers()), "Settle completed")["result"] == {"entry": "Transfer"}


FAILING = plan(step("Transfer", pivot=True), result='{"total": $outputs.Transfer.of + 1}')


def test_a_result_that_fails_to_evaluate_parks_the_saga() -> None:
    done = run(definition_of(replace(FAILING, operators=QUEUE)), _answers())

    assert done.trace == ["Transfer", "Settle completed", "Notify operators", "Park saga", "End parked"]
    entry = json.loads(done.sent["Notify operators"]["MessageBody"])
    assert (entry["parked_reason"]["step"], entry["parked_reason"]["error"]) == ("Settle completed", "ResultFailed")
    assert "number" in entry["parked_reason"]["detail"]


def test_an_express_execution_whose_result_fails_to_evaluate_delegates() -> None:
    express = definition_of(replace(FAILING, standard_arn=FORWARD_MACHINE))
    done = run(express, _answers(), defined=FAILING.fingerprint + EXPRESS_MARK)

    assert done.trace == ["Transfer", "Settle completed", "Start Standard", "End delegated"]


def test_an_amount_of_twenty_digits_passes_through_as_text() -> None:
    amount = "12345678901234567890"
    done = run(ONE, _answers(Transfer={"Payload": {"output": {"amount": amount}}}), request=f'{{"amount":{amount}}}')
    assert done.sent["Transfer"]["Payload"]["request"] == f'{{"amount":{amount}}}'
    assert _body(done, "Settle completed")["result"]["Transfer"]["amount"] == amount


# ---- which way ------------------------------------------------------------------------------------------------------


def test_every_step_receives_the_outputs_of_earlier_steps() -> None:
    sent = run(TWO, _answers(), request=PARTNER).sent
    assert sent["Debit"]["Payload"]["outputs"] == {}
    assert sent["Credit"]["Payload"]["outputs"] == {"Debit": {"of": "Debit"}}


@pytest.mark.parametrize("request_", ["{}", '{"to_ledger":"main"}', '{"to_ledger":null}'])
def test_steps_whose_condition_is_not_met_are_skipped(request_: str) -> None:
    done = run(TWO, _answers(), request=request_)
    assert done.trace == ["Select first step", "Transfer", "Select step after Transfer", "Receipt", "Settle completed"]


def test_a_condition_sees_outputs() -> None:
    definition = definition_of(PLANS["conditional steps"])
    done = run(definition, _answers(Debit={"Payload": {"output": {"large": True}}}), request='{"debit": true}')
    assert "Check" in done.trace


def test_giving_up_before_the_pivot_compensates_and_settles_failed() -> None:
    done = run(TWO, _answers(Debit=Failure("InsufficientFunds", _cause("poor"))), request=PARTNER)
    assert done.trace == [
        "Select first step",
        "Debit",
        "Begin compensation at Debit",
        "Compensate Debit",
        "Query saga log",
        "All compensated?",
        "Settle failed",
    ]


def test_giving_up_on_the_pivot_fences_it_first() -> None:
    done = run(TWO, _answers(Credit=Failure("Runtime.ExitError")), request=PARTNER)
    assert done.trace[2:6] == ["Credit", "Fence Credit", "Begin compensation at Credit", "Compensate Debit"]
    tombstone = done.sent["Fence Credit"]
    assert tombstone["Item"]["status"] == {"S": "TOMBSTONE"}
    assert tombstone["ConditionExpression"] == "attribute_not_exists(#saga_id)"


def _row(status: str) -> dict[str, Any]:
    return {"Item": {"status": {"S": status}, "output": {"S": '{"entry": "e"}'}}}


def test_a_pivot_that_was_applied_goes_forward_with_the_output_of_its_row() -> None:
    done = run(
        TWO,
        _answers(
            Credit=Failure("States.Timeout"),
            Fence_Credit=Failure(CONDITION_FAILED),
            **{"Fence Credit - read row": _row("DONE")},
        ),
        request=PARTNER,
    )
    assert done.trace[-3:] == ["Continue forward at Credit", "Receipt", "Settle completed"]
    assert done.sent["Continue forward at Credit"]["ExpressionAttributeValues"][":direction"] == {"S": "forward"}
    assert _body(done, "Settle completed")["result"]["Credit"] == {"entry": "e"}


@pytest.mark.parametrize("status", ["TOMBSTONE", "COMPENSATED", "REFUSED"])
def test_a_pivot_whose_row_has_no_effect_is_compensated(status: str) -> None:
    done = run(
        ONE,
        _answers(
            Transfer=Failure("States.Timeout"),
            Fence_Transfer=Failure(CONDITION_FAILED),
            **{"Fence Transfer - read row": _row(status)},
        ),
    )
    assert done.trace[-1] == "Settle failed"


@pytest.mark.parametrize("found", [_row("SOMETHING_NEW"), {}])
def test_a_pivot_with_an_unknown_row_is_parked(found: dict[str, Any]) -> None:
    done = run(
        ONE,
        _answers(
            Transfer=Failure("States.Timeout"),
            Fence_Transfer=Failure(CONDITION_FAILED),
            **{"Fence Transfer - read row": found},
        ),
    )
    assert done.trace[-2:] == ["Park saga", "End parked"]
    assert done.status == "FAILED"


@pytest.mark.parametrize("answer", [{"Count": 1}, {"Count": 0, "LastEvaluatedKey": {"saga_id": {"S": "x"}}}])
def test_a_saga_with_a_remaining_effect_or_a_partly_read_log_is_parked(answer: dict[str, Any]) -> None:
    done = run(ONE, _answers(Transfer=Failure("Invalid", _cause("no")), Query_saga_log=answer))
    assert "Settle failed" not in done.trace
    assert done.trace[-1] == "End parked"


def test_a_step_after_the_pivot_is_parked_and_never_compensated() -> None:
    done = run(TWO, _answers(Receipt=Failure("Runtime.ExitError")), request=PARTNER)
    assert done.trace[-3:] == ["Receipt", "Park saga", "End parked"]


def test_a_compensation_that_fails_is_parked() -> None:
    done = run(
        TWO, _answers(Credit=Failure("Invalid", _cause("no")), Compensate_Debit=Failure("KeyError")), request=PARTNER
    )
    assert done.trace[-3:] == ["Compensate Debit", "Park saga", "End parked"]


@pytest.mark.parametrize("state", ["Debit", "Compensate_Debit"])
def test_a_fenced_execution_ends_at_once(state: str) -> None:
    answers = {"Credit": Failure("Invalid", _cause("no")), state: Failure("SagaFenced")}
    done = run(TWO, _answers(**answers), request=PARTNER)
    assert done.trace[-1] == "End fenced"
    assert done.error == "SagaFenced"
    assert not [name for name in done.trace if name.startswith(("Settle", "Park"))]


def _record(**changes: str) -> dict[str, Any]:
    item = {"saga_id": EXECUTION, "owner": EXECUTION, "status": "IN_PROGRESS", "definition": "d", **changes}
    return {"Item": {name: {"S": value} for name, value in item.items()}}


@pytest.mark.parametrize(
    ("record", "end"),
    [
        (_record(status="COMPLETED"), "Already settled"),
        (_record(status="FAILED"), "Already settled"),
        (_record(owner=f"{EXECUTION}-r1"), "End fenced"),
        (_record(saga_id="another"), "End fenced"),
        (_record(saga_id="another", status="COMPLETED"), "End fenced"),
        (_record(), "End parked"),
        ({}, "End fenced"),
    ],
)
def test_a_refused_settle_ends_as_the_record_requires(record: dict[str, Any], end: str) -> None:
    done = run(ONE, _answers(Settle_completed=Failure(CONDITION_FAILED), Read_record=record))
    assert done.trace[-1] == end


def test_a_refused_direction_is_read_before_anything_is_compensated() -> None:
    done = run(
        TWO,
        _answers(
            Debit=Failure("Invalid", _cause("no")),
            Begin_compensation_at_Debit=Failure(CONDITION_FAILED),
            Check_direction=_record(direction="forward"),
        ),
        request=PARTNER,
    )
    assert done.trace[-1] == "End parked"
    assert "Compensate Debit" not in done.trace
    assert done.trace.count("Debit") == done.trace.count("Wait before retry") + 1 == 21


def test_a_park_that_is_refused_is_fenced() -> None:
    done = run(TWO, _answers(Receipt=Failure("KeyError"), Park_saga=Failure(CONDITION_FAILED)), request=PARTNER)
    assert done.trace[-1] == "End fenced"


# ---- routes and notices ---------------------------------------------------------------------------------------------


def test_a_refusal_with_a_substitute_fences_the_step_and_continues() -> None:
    definition = definition_of(
        plan(
            step("Discount", undo=True, going_on={"Invalid": ContinueWith(output={"percent": "0"})}),
            step("Charge", pivot=True),
        )
    )
    done = run(definition, _answers(Discount=Failure("Invalid", _cause("no code"))))
    fence = "Skip Discount (Invalid)"
    assert done.trace == ["Discount", fence, "Charge", "Settle completed"]
    assert done.sent[fence]["Item"]["status"] == {"S": "TOMBSTONE"}
    assert done.sent[fence]["Item"]["output"] == {"S": '{"percent": "0"}'}
    assert done.sent["Charge"]["Payload"]["outputs"] == {"Discount": {"percent": "0"}}


def test_two_executions_refused_by_different_errors_take_one_route() -> None:
    """The tombstone of the first one decides which way is paid."""
    routes = {"Empty": ContinueWith(output={"by": "bank"}), "Locked": ContinueWith(output={"by": "card"})}
    definition = definition_of(
        plan(
            step("Wallet", undo=True, going_on=routes),
            step("PayBank", pivot=True, when='$outputs.Wallet.by = "bank"'),
            step("PayCard", pivot=True, when='$outputs.Wallet.by = "card"'),
        )
    )
    first = run(definition, _answers(Wallet=Failure("Empty", _cause("empty"))))
    kept = first.sent["Skip Wallet (Empty)"]["Item"]
    fence = "Skip Wallet (Locked)"
    met = {fence: Failure(CONDITION_FAILED), f"{fence} - read row": {"Item": kept}}
    second = run(definition, _answers(Wallet=Failure("Locked", _cause("locked")), **met))

    assert "PayBank" in first.trace
    assert "PayBank" in second.trace
    assert "PayCard" not in second.trace
    assert second.sent["PayBank"]["Payload"]["outputs"] == {"Wallet": {"by": "bank"}}


def test_saga_that_two_executions_compensate_names_the_failure_in_its_record() -> None:
    made = plan(step("Pay", undo=True), step("Wallet"), alongside=True)
    first = run(
        definition_of(made),
        _answers(Wallet=Failure("Empty", _cause("empty")), Set_direction_to_compensate=_written("Empty")),
    )
    second = run(
        definition_of(made),
        _answers(Wallet=Failure("Locked", _cause("x")), Set_direction_to_compensate=_written("Empty")),
    )

    assert second.sent["Set direction to compensate"]["ReturnValues"] == "UPDATED_NEW"
    assert _body(second, "Settle failed")["error"] == "Empty"
    assert _body(second, "Settle failed") == _body(first, "Settle failed")


def _written(error: str) -> dict[str, Any]:
    """Response of DynamoDB to the direction's write: the record keeps this failure."""
    failure = {"step": "Wallet", "error": error, "detail": "", "status": 422, "title": "t", "kind": "saga-refused"}
    return {"Attributes": {"failure": {"S": json.dumps(failure)}}}


def test_a_notification_is_sent_with_the_default_document() -> None:
    payload = run(TWO, _answers(), request="{}").sent["Receipt"]["Payload"]
    assert payload["queue_url"] == QUEUE
    assert json.loads(payload["message"]) == {
        "saga_id": EXECUTION,
        "step": "Receipt",
        "outputs": {"Transfer": {"of": "Transfer"}},
    }


@pytest.mark.parametrize(
    ("message", "sent"),
    [('"to " & $request.to', "to bob"), ('{"to": $request.to}', '{"to":"bob"}'), ("$outputs.Pay.of", "Pay")],
)
def test_a_message_is_sent_as_text(message: str, sent: str) -> None:
    definition = definition_of(plan(step("Pay", pivot=True), step("Tell", queue_url=QUEUE, message=message)))
    assert run(definition, _answers(), request='{"to":"bob"}').sent["Tell"]["Payload"]["message"] == sent


@pytest.mark.parametrize("message", ["$request.note", "$request.nothing", '"" & $request.note', "$outputs.Pay.nothing"])
def test_a_message_that_is_missing_or_empty_is_the_default_document(message: str) -> None:
    definition = definition_of(plan(step("Pay", pivot=True), step("Tell", queue_url=QUEUE, message=message)))
    payload = run(definition, _answers(), request='{"note":""}').sent["Tell"]["Payload"]

    assert json.loads(payload["message"]) == {"saga_id": EXECUTION, "step": "Tell", "outputs": {"Pay": {"of": "Pay"}}}


@pytest.mark.parametrize(
    ("message", "sent"),
    [('"no " & $failure.step', "no Wallet"), ("$substring($failure.step, 0, 0)", None), ("$failure.nothing", None)],
)
def test_a_notice_of_a_failure_is_never_empty(message: str, sent: str | None) -> None:
    made = replace(plan(step("Wallet", pivot=True)), on_failed=Notice(queue_url=QUEUE, message=message))
    done = run(definition_of(made), _answers(Wallet=Failure("Empty", _cause(""))))

    body = done.sent["Notify failure"]["MessageBody"]
    assert body == sent if sent is not None else json.loads(body)["saga_id"] == EXECUTION


@pytest.mark.parametrize(
    ("error", "state"), [("InsufficientFunds", "Notify InsufficientFunds"), ("Invalid", "Notify failure")]
)
def test_a_failure_is_notified_once_and_before_it_settles(error: str, state: str) -> None:
    definition = definition_of(PLANS["notices of failures"])
    done = run(definition, _answers(Debit=Failure(error, _cause("why"))))
    assert done.trace[-2:] == [state, "Settle failed"]
    assert [name for name in done.trace if name.startswith("Notify")] == [state]
    assert done.sent[state]["MessageGroupId"] == REQUEST_ID
    assert done.sent[state]["MessageDeduplicationId"].startswith(EXECUTION)
    assert "why" in done.sent[state]["MessageBody"]


# ---- recovery -------------------------------------------------------------------------------------------------------

RECOVERY = recovery_of(PLANS["two pivots"], FORWARD_MACHINE)


def _recover(record: dict[str, Any], **answers: Any) -> Run:
    return run(RECOVERY, _answers(Read_direction=record, **answers), request=PARTNER)


def test_a_recovery_that_finds_forward_starts_the_forward_machine_under_its_own_name() -> None:
    done = _recover(_record(direction="forward"))
    assert done.trace[-2:] == ["Start forward execution", "Forward execution started"]
    sent = done.sent["Start forward execution"]
    assert (sent["StateMachineArn"], sent["Name"]) == (FORWARD_MACHINE, EXECUTION)
    assert json.loads(sent["Input"])["request"] == PARTNER


def test_a_recovery_that_finds_compensate_compensates_with_the_recorded_reason() -> None:
    failure = {"step": "Credit", "error": "Invalid", "detail": "d", "status": 422, "title": "t", "kind": "saga-refused"}
    done = _recover(_record(direction="compensate", failure=json.dumps(failure)))
    assert done.trace[-4:] == ["Compensate Debit", "Query saga log", "All compensated?", "Settle failed"]
    assert _body(done, "Settle failed")["error"] == "Invalid"


def test_a_recovery_that_finds_no_direction_fences_every_pivot_before_it_compensates() -> None:
    done = _recover(_record())
    assert done.trace[5:8] == ["Fence Transfer", "Fence Credit", "Set direction to compensate"]
    assert done.trace[-1] == "Settle failed"
    assert _body(done, "Settle failed")["error"] == "SagaInterrupted"


def test_a_recovery_that_finds_a_pivot_done_goes_forward() -> None:
    done = _recover(_record(), Fence_Credit=Failure(CONDITION_FAILED), **{"Fence Credit - read row": _row("DONE")})
    assert done.trace[-4:] == [
        "Set direction to forward",
        "Same conditions?",
        "Start forward execution",
        "Forward execution started",
    ]


@pytest.mark.parametrize(
    "record", [_record(owner=f"{EXECUTION}-r9"), _record(status="COMPLETED"), _record(saga_id="another"), {}]
)
def test_a_recovery_that_does_not_own_the_record_touches_nothing(record: dict[str, Any]) -> None:
    done = _recover(record)
    assert done.trace == ["Read direction", "Select direction", "End fenced"]


def test_a_recovery_whose_forward_execution_exists_succeeds() -> None:
    done = _recover(
        _record(direction="forward"), Start_forward_execution=Failure("Sfn.ExecutionAlreadyExistsException")
    )
    assert done.status == "SUCCEEDED"


def test_the_interpreter_refuses_a_condition_that_is_not_a_boolean() -> None:
    definition = {
        "StartAt": "A?",
        "States": {
            "A?": {"Type": "Choice", "Choices": [{"Condition": "{% $nothing.here %}", "Next": "B"}], "Default": "B"},
            "B": {"Type": "Succeed"},
        },
    }
    with pytest.raises(AssertionError, match="neither true nor false"):
        run(definition, _answers())
