"""Step Functions: the state machine's role is asked before each service integration."""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable
from typing import Any, Final

from ministack.core import iam_actions, iam_evaluator
from ministack.core.responses import get_account_id, get_region
from ministack.services import stepfunctions as states

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace
from constructs_lib.testing.emulator.corrections.versions import unqualified

_INTEGRATION: Final = re.compile(r"arn:aws:states:::(aws-sdk:)?([a-z0-9-]+):([A-Za-z0-9]+)")
#: What a task fails as, for an error that the service's model does not name; the SDK integrations follow one pattern.
_OPTIMIZED_ERRORS: Final = {
    "lambda": "Lambda.AWSLambdaException",
    "dynamodb": "DynamoDB.AmazonDynamoDBException",
    "sqs": "SQS.AmazonSQSException",
    "states": "StepFunctions.AWSStepFunctionsException",
}

_role: contextvars.ContextVar[str | None] = contextvars.ContextVar("role", default=None)

Permission = tuple[str, str]


def state_machine_role(_emulator: Emulator) -> None:
    """A service integration needs the permission of the state machine's role.

    The emulator lets state machines do everything, so that a forgotten grant is first seen in production. Checked
    are Lambda, SQS, Step Functions, and every service that is called with JSON; others are still let through.
    """

    def make_run(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(execution_arn: str) -> None:
            execution = states._executions.get(execution_arn)
            machine = states._state_machines.get(execution["stateMachineArn"]) if execution else None
            # Taken back at the end: a nested execution may run in the thread of the task that waits for it.
            outer = _role.set(machine["roleArn"] if machine else None)
            try:
                original(execution_arn)
            finally:
                _role.reset(outer)

        return run

    def make_invoke(original: Callable[..., Any]) -> Callable[..., Any]:
        def invoke(resource: str, arguments: Any) -> Any:
            role = _role.get()
            for action, target in required_permissions(resource, arguments) if role else []:
                _require(role or "", action, target, resource)
            return original(resource, arguments)

        return invoke

    replace(states, "_run_execution", make_run)
    replace(states, "_invoke_resource", make_invoke)


def required_permissions(resource: str, arguments: Any) -> list[Permission]:
    """Return which actions on which resources a service integration performs."""
    if ":lambda:" in resource and ":function:" in resource:
        return [("lambda:InvokeFunction", resource)]
    match = _INTEGRATION.match(resource)
    if match is None or not isinstance(arguments, dict):
        return []
    _sdk, service, operation = match.groups()
    if service == "lambda":
        name = str(arguments.get("FunctionName", ""))
        return [("lambda:InvokeFunction", name if name.startswith("arn:") else _arn("lambda", f"function:{name}"))]
    if service == "sqs":
        return [("sqs:SendMessage", _arn("sqs", str(arguments.get("QueueUrl", "")).rsplit("/", 1)[-1]))]
    if service == "states":
        return [("states:StartExecution", unqualified(str(arguments.get("StateMachineArn", ""))))]
    return _json_permissions(service, operation[0].upper() + operation[1:], arguments)


def _json_permissions(service: str, operation: str, arguments: dict[str, Any]) -> list[Permission]:
    information = states._AWS_SDK_SERVICE_MAP.get(service, {})
    if information.get("protocol") != "json":
        return []
    key = information.get("service_key", service)
    wire = states._sdk_json_params(information, key, operation, arguments)
    body = json.dumps(wire).encode()
    headers = {"x-amz-target": f"{information['target_prefix']}.{operation}"}
    action = iam_actions.extract_iam_action(key, "POST", "/", headers, body, {})
    if action is None:
        return []
    region, account = get_region(), get_account_id()
    if key == "dynamodb":
        items: list[Permission] = iam_actions.dynamodb_transaction_checks(action, body, region, account)
        if items:
            return items
    return [(action, iam_actions.extract_resource_arn(key, "POST", "/", headers, body, {}, region, account))]


def _arn(service: str, name: str) -> str:
    return f"arn:aws:{service}:{get_region()}:{get_account_id()}:{name}"


def is_allowed(role: str, action: str, target: str) -> bool:
    """Return whether a role's own policies let it do something.

    Args:
        role: ARN of the role.
        action: The action, as policies name it.
        target: ARN of what it is done to.
    """
    account, name = get_account_id(), role.rsplit("/", 1)[-1]
    context = iam_evaluator.EvalContext(
        principal_arn=_session_of(role),
        principal_type="AssumedRole",
        principal_account=account,
        action=action,
        resource_arn=target,
        region=get_region(),
    )
    evaluated = iam_evaluator.evaluate(context, iam_evaluator._gather_role_policies(name, account))
    return bool(evaluated.decision == "Allow")


def _session_of(role: str) -> str:
    return f"arn:aws:sts::{get_account_id()}:assumed-role/{role.rsplit('/', 1)[-1]}/states"


def _require(role: str, action: str, target: str, resource: str) -> None:
    if not is_allowed(role, action, target):
        message = f"User: {_session_of(role)} is not authorized to perform: {action} on resource: {target}"
        raise states._ExecutionError(_error_name(resource), message)


def _error_name(resource: str) -> str:
    match = _INTEGRATION.match(resource)
    if match is None:
        return _OPTIMIZED_ERRORS["lambda"]
    sdk, service, _operation = match.groups()
    if not sdk and service in _OPTIMIZED_ERRORS:
        return _OPTIMIZED_ERRORS[service]
    prefix = states._AWS_SDK_ERROR_PREFIX.get(service, service.capitalize())
    return f"{prefix}.{prefix}Exception"


CORRECTIONS: Final[tuple[Correction, ...]] = (state_machine_role,)
