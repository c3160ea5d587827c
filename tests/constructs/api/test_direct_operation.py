"""Direct operations: their functions' permissions and settings, and what ends the synth."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from cdk_nag import AwsSolutionsChecks

from constructs_lib import (
    Backoff,
    DirectFunction,
    DirectOperation,
    IdempotencyTable,
    PayloadBucket,
    RefusalPolicy,
    StepFunction,
    TransactionApi,
)
from constructs_lib.api.schema_form import schema_file
from constructs_lib.functions.bundle import merged_code
from saga_runtime.http.direct_operation import Settings
from saga_runtime.protocol import SCHEMA_FILE, Env, InProgressResponse, KeyPolicy
from tests.constructs.support.cloud import Cloud
from tests.constructs.support.factories import StackFactory
from tests.constructs.support.sagas import FUNCTIONS, saga

SCHEMA = {"type": "object", "required": ["amount"]}


def _function(stack: Stack, id: str = "Pay", **settings: Any) -> DirectFunction:
    return DirectFunction(stack, id, code=FUNCTIONS, handler="direct.handler", **settings)


def _operation(stack: Stack, **settings: Any) -> DirectOperation:
    defaults = {"requests": IdempotencyTable(stack, "Requests"), "previous": None}
    return DirectOperation(fn=_function(stack), **{**defaults, **settings})


@pytest.fixture
def cloud(stack: Stack) -> Cloud:
    """A direct operation next to a saga."""
    direct = _operation(stack, http_status_by_error={"InsufficientFunds": 402}, refusal_policy=RefusalPolicy.OPEN)
    TransactionApi(stack, "Api", operations={"payments": direct, "transfers": saga(stack)})
    return Cloud(stack)


def _actions(cloud: Cloud, role: str) -> set[str]:
    return {action for statement in cloud.statements(role) for action in statement.actions}


def test_its_function_handles_post_and_get(cloud: Cloud) -> None:
    methods = {m.path.split("/Default/")[-1]: m.properties for m in cloud.of_type("AWS::ApiGateway::Method")}

    for method in ("payments/POST", "payments/{saga_id}/GET"):
        assert "${Pay/Function.Arn}" in methods[method]["Integration"]["Uri"]
        assert methods[method]["AuthorizationType"] == "AWS_IAM"


def test_its_function_may_put_and_read_records_and_nothing_else(cloud: Cloud) -> None:
    actions = _actions(cloud, "Pay/Role")

    assert {action for action in actions if action.startswith("dynamodb:")} == {"dynamodb:PutItem", "dynamodb:GetItem"}
    assert {action.partition(":")[0] for action in actions} == {"dynamodb", "logs", "xray"}


def test_it_has_no_gatekeeper_and_no_alarm_of_starts(cloud: Cloud, stack: Stack) -> None:
    api = stack.node.find_child("Api")
    assert isinstance(api, TransactionApi)
    assert set(api.start_refused_alarms) == {"transfers"}
    assert api.gatekeepers["payments"] is stack.node.find_child("Pay")
    assert not [f.path for f in cloud.of_type("AWS::Lambda::Function") if "Gatekeeper/payments" in f.path]


def test_its_function_reads_its_settings_from_the_template(cloud: Cloud) -> None:
    variables = cloud.one("Pay/Function").properties["Environment"]["Variables"]

    settings = Settings.from_env(variables)

    assert settings.common.request_table == "${Requests/Table}"
    assert (settings.common.operation, settings.common.identity) == ("payments", "iam")
    assert (settings.common.key_policy, settings.common.in_progress_response) == (
        KeyPolicy.REQUIRED,
        InProgressResponse.CONFLICT,
    )
    assert (settings.replay_seconds, settings.remember_seconds) == (7 * 86_400, 400 * 86_400)
    assert (settings.refusal_policy, settings.http_status_by_error) == (RefusalPolicy.OPEN, {"InsufficientFunds": 402})
    assert set(variables) <= set(Env)


def test_its_function_has_the_backoff_that_it_was_given(stack: Stack) -> None:
    backoff = Backoff(attempts=4, base_ms=50, cap_ms=200, full=False)
    operation = DirectOperation(
        fn=_function(stack, backoff=backoff), requests=IdempotencyTable(stack, "Requests"), previous=None
    )
    TransactionApi(stack, "Api", operations={"payments": operation})

    variables = Cloud(stack).one("Pay/Function").properties["Environment"]["Variables"]

    assert Settings.from_env(variables).backoff == backoff


def test_a_backoff_that_outlasts_the_function_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"backoff must sum to at most 1000 ms, .* got up to 2260 ms"):
        _function(stack, backoff=Backoff(), timeout=Duration.seconds(2))


def test_refusals_are_final_by_default(stack: Stack) -> None:
    assert _operation(stack).refusal_policy is RefusalPolicy.FINAL


def test_its_schema_is_a_file_next_to_its_code(stack: Stack, tmp_path: Path) -> None:
    _function(stack, schema=SCHEMA)

    with zipfile.ZipFile(merged_code(Path(FUNCTIONS), schema_file(SCHEMA))) as asset:
        assert json.loads(asset.read(SCHEMA_FILE)) == SCHEMA
        assert "direct.py" in asset.namelist()


def test_it_reads_the_bucket_of_the_saga_that_it_replaces(stack: Stack) -> None:
    operation = _operation(stack, payloads=PayloadBucket(stack, "Payloads"))
    TransactionApi(stack, "Api", operations={"payments": operation})

    found = Cloud(stack)
    actions = _actions(found, "Pay/Role")

    assert "s3:GetObject" in {action.rstrip("*") for action in actions}
    assert not [action for action in actions if action.startswith("s3:Put")]
    assert Env.PAYLOADS in found.one("Pay/Function").properties["Environment"]["Variables"]


def test_it_reads_the_bucket_of_the_previous_saga(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests")
    previous = saga(stack, requests=requests, payloads=PayloadBucket(stack, "Payloads"))
    operation = DirectOperation(fn=_function(stack), requests=requests, previous=previous)
    TransactionApi(stack, "Api", operations={"payments": operation})

    variables = Cloud(stack).one("Pay/Function").properties["Environment"]["Variables"]

    assert variables[Env.PAYLOADS] == "${Payloads/Bucket}"


def test_saga_and_direct_operation_may_share_a_table(stack: Stack) -> None:
    requests = IdempotencyTable(stack, "Requests")
    previous = saga(stack, requests=requests)  # stays until its last saga has settled
    operation = DirectOperation(fn=_function(stack), requests=requests, previous=previous)
    TransactionApi(stack, "Api", operations={"payments": operation})

    assert Cloud(stack).one("Saga/StateMachine").type == "AWS::StepFunctions::StateMachine"


def test_its_function_is_clean_to_cdk_nag(new_stack: StackFactory) -> None:
    """An API without a web ACL is not: it has the findings of a saga's, and no other."""
    direct, of_saga = new_stack(), new_stack()
    TransactionApi(direct, "Api", operations={"payments": _operation(direct)})
    TransactionApi(of_saga, "Api", operations={"payments": saga(of_saga)})

    assert _rules(direct) <= _rules(of_saga)


def _rules(stack: Stack) -> set[str]:
    return {violation.rule_name for violation in AwsSolutionsChecks().validate_scope(stack).violations}


class TestWhatEndsTheSynth:
    def test_a_function_that_outlives_the_gateway(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"timeout must be .*28"):
            _function(stack, timeout=Duration.seconds(29))

    def test_a_handler_of_another_decorator(self, stack: Stack, tmp_path: Path) -> None:
        (tmp_path / "step.py").write_text(
            "from saga_runtime import atomic_step\n@atomic_step\ndef handler(call): ...\n", "utf-8"
        )
        with pytest.raises(ValueError, match="must be decorated with direct_operation, got atomic_step"):
            DirectFunction(stack, "Pay", code=tmp_path, handler="step.handler")

    def test_a_variable_that_the_api_sets(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match=r"environment must not set .*CDK_SAGAS_OPERATION"):
            _function(stack, environment={Env.OPERATION: "x"})

    def test_a_schema_that_is_invalid(self, stack: Stack) -> None:
        with pytest.raises(ValueError, match="schema of DirectFunction Pay must be a JSON schema"):
            _function(stack, schema={"type": "objekt"})

    def test_a_step_function(self, stack: Stack) -> None:
        function: Any = StepFunction(stack, "Pay", code=FUNCTIONS, handler="plain.handler")
        with pytest.raises(ValueError, match="fn of DirectOperation must be a DirectFunction"):
            DirectOperation(fn=function, requests=IdempotencyTable(stack, "Requests"), previous=None)

    def test_an_operation_that_does_not_state_what_it_was(self, stack: Stack) -> None:
        unstated: Any = DirectOperation
        with pytest.raises(TypeError, match="previous"):
            unstated(fn=_function(stack), requests=IdempotencyTable(stack, "Requests"))

    def test_another_table_than_that_of_the_previous_saga(self, stack: Stack) -> None:
        previous = saga(stack, requests=IdempotencyTable(stack, "Former"))
        with pytest.raises(ValueError, match=r"requests must be the table of previous, .*Former, got .*Requests"):
            _operation(stack, previous=previous)

    def test_another_bucket_than_that_of_the_previous_saga(self, stack: Stack) -> None:
        requests = IdempotencyTable(stack, "Requests")
        previous, other = saga(stack, requests=requests), PayloadBucket(stack, "Payloads")
        with pytest.raises(ValueError, match=r"payloads must be the bucket of previous, got .*Payloads"):
            DirectOperation(fn=_function(stack), requests=requests, previous=previous, payloads=other)

    def test_one_function_for_two_operations(self, stack: Stack) -> None:
        operation = _operation(stack)
        with pytest.raises(ValueError, match=r"must serve one operation, got .*Pay, which serves .*Api/payments"):
            TransactionApi(stack, "Api", operations={"payments": operation, "others": operation})

    def test_keys_that_expire_before_their_senders_are_dead(self, stack: Stack) -> None:
        requests = IdempotencyTable(
            stack, "Requests", replay_for=Duration.minutes(5), remember_for=Duration.seconds(899)
        )
        with pytest.raises(ValueError, match="remember_for of requests must be at least 900 s"):
            DirectOperation(fn=_function(stack), requests=requests, previous=None)

    @pytest.mark.parametrize("status", [200, 399, 500, True, "402"])
    def test_a_status_outside_of_refusals(self, stack: Stack, status: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=r"400 to 499|http_status_by_error"):
            _operation(stack, http_status_by_error={"InsufficientFunds": status})

    @pytest.mark.parametrize("name", ["", " ", "Not A Name"])
    def test_an_error_without_a_name(self, stack: Stack, name: str) -> None:
        with pytest.raises(ValueError, match="an error's name in http_status_by_error"):
            _operation(stack, http_status_by_error={name: 402})

    @pytest.mark.parametrize("size", [0, 65_537])
    def test_a_body_limit_out_of_range(self, stack: Stack, size: int) -> None:
        with pytest.raises(ValueError, match="max_body_bytes"):
            _operation(stack, max_body_bytes=size)
