"""Step Functions: versions of state machines, and aliases that point to them."""

from __future__ import annotations

import contextvars
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from ministack.core import iam_actions
from ministack.core.responses import json_response
from ministack.services import stepfunctions as states
from ministack.services.cloudformation import provisioners

from constructs_lib.testing.emulator.corrections import Correction, Emulator, replace

Properties = dict[str, Any]

_STARTED_BY: Final = "_startedBy"
"""In an execution: the ARNs of its version and alias."""
_version: Final[contextvars.ContextVar[dict[str, Any] | None]] = contextvars.ContextVar("version", default=None)


def started_version() -> dict[str, Any] | None:
    """The version that the execution of this thread was started as; None: what is deployed of its state machine."""
    return _version.get()


def version_definitions(_emulator: Emulator) -> None:
    """An execution that is started by a version, or by an alias, runs that version's definition, and is described so.

    The emulator runs the definition that is deployed, describes neither version nor alias, and StartSyncExecution knows
    no version. Of two versions of an alias, it starts the heavier one always; here each by its weight.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def start(data: dict[str, Any]) -> Any:
            named = str(data.get("stateMachineArn", "")).partition("#")[0]
            version = _version_of(named)
            if version is None:
                return original(data)
            token = _version.set(version)
            try:
                answer = original({**data, "stateMachineArn": version["stateMachineArn"]})
            finally:
                _version.reset(token)
            execution = states._executions.get(json.loads(answer[2]).get("executionArn"))
            if execution is not None:
                alias = {"stateMachineAliasArn": named} if named in states._state_machine_aliases else {}
                execution[_STARTED_BY] = {"stateMachineVersionArn": version["stateMachineVersionArn"], **alias}
            return answer

        return start

    def make_told(original: Callable[..., Any]) -> Callable[..., Any]:
        def tell(data: Any) -> Any:
            status, _headers, body = answer = original(data)
            if status != 200:
                return answer
            said = json.loads(body)
            for one in said.get("executions", [said]):
                one.update(_started_by(one["executionArn"]))
            return json_response(said)

        return tell

    for name in ("_start_execution", "_start_sync_execution"):
        replace(states, name, make)
    for name in ("_describe_execution", "_list_executions"):
        replace(states, name, make_told)


def _started_by(execution: str) -> dict[str, str]:
    found: dict[str, str] = (states._executions.get(execution) or {}).get(_STARTED_BY, {})
    return found


def _version_of(arn: str) -> dict[str, Any] | None:
    alias = states._state_machine_aliases.get(arn)
    if alias is not None:
        routes = alias["routingConfiguration"]
        (route,) = random.choices(routes, weights=[one["weight"] for one in routes])
        arn = route["stateMachineVersionArn"]
    found: dict[str, Any] | None = states._state_machine_versions.get(arn)
    return found


def unqualified(arn: str) -> str:
    """A state machine's ARN without the number of a version, or the name of an alias."""
    parts = arn.split(":")
    return ":".join(parts[:7]) if parts[5:6] == ["stateMachine"] else arn


def state_machine_rights(_emulator: Emulator) -> None:
    """A right to act on a version or an alias is a right on its state machine. The emulator asks for one on either.

    https://docs.aws.amazon.com/step-functions/latest/dg/auth-version-alias.html
    """

    def make(original: Callable[..., str]) -> Callable[..., str]:
        def extract(*args: Any, **kwargs: Any) -> str:
            return unqualified(original(*args, **kwargs))

        return extract

    replace(iam_actions, "extract_resource_arn", make)


def published_resources(_emulator: Emulator) -> None:
    """CloudFormation publishes versions, and points an alias to the one that its deployment preference names, at once.

    The emulator refuses the whole stack. A version of a revision that was published before is that one, as
    ``PublishStateMachineVersion`` answers; the emulator publishes another one. CloudFormation refuses a revision that
    the latest version holds (github.com/aws-cloudformation/aws-cloudformation-resource-providers-stepfunctions,
    ``statemachineversion/CreateHandler``). Here no alias moves step by step, and no alarm rolls a deployment back.
    """
    replace(states, "_publish_state_machine_version", _published_once)

    def create_version(_logical_id: str, properties: Properties, _stack: str) -> tuple[str, Properties]:
        machine, revision = properties["StateMachineArn"], properties.get("StateMachineRevisionId")
        if any(one["stateMachineRevisionId"] == _revision_of(machine) for one in _versions_of(machine)[-1:]):
            raise ValueError(f"the latest version of {machine} holds its current revision: AlreadyExists")
        published = states._publish_state_machine_version({"stateMachineArn": machine, "revisionId": revision})
        arn = _done(published)["stateMachineVersionArn"]
        return arn, {"Arn": arn}

    def update_version(_id: str, _old: Properties, new: Properties, stack: str) -> tuple[str, Properties]:
        return create_version("", new, stack)

    def delete_version(arn: str, _properties: Properties) -> None:
        states._delete_state_machine_version({"stateMachineVersionArn": arn})

    def create_alias(logical_id: str, properties: Properties, _stack: str) -> tuple[str, Properties]:
        data = {"name": properties.get("Name", logical_id), "routingConfiguration": _routes(properties)}
        arn = _done(states._create_state_machine_alias(data))["stateMachineAliasArn"]
        return arn, {"Arn": arn}

    def update_alias(arn: str, _old: Properties, new: Properties, _stack: str) -> tuple[str, Properties]:
        _done(states._update_state_machine_alias({"stateMachineAliasArn": arn, "routingConfiguration": _routes(new)}))
        return arn, {"Arn": arn}

    def delete_alias(arn: str, _properties: Properties) -> None:
        states._delete_state_machine_alias({"stateMachineAliasArn": arn})

    provisioners._RESOURCE_HANDLERS["AWS::StepFunctions::StateMachineVersion"] = {
        "create": create_version,
        "update": update_version,
        "delete": delete_version,
    }
    provisioners._RESOURCE_HANDLERS["AWS::StepFunctions::StateMachineAlias"] = {
        "create": create_alias,
        "update": update_alias,
        "delete": delete_alias,
    }


def _published_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def publish(data: dict[str, Any]) -> Any:
        arn = data.get("stateMachineArn")
        for known in _versions_of(arn):
            if known["stateMachineRevisionId"] == _revision_of(arn):
                return json_response({name: known[name] for name in ("stateMachineVersionArn", "creationDate")})
        return original(data)

    return publish


def _versions_of(machine: str | None) -> list[dict[str, Any]]:
    """In the order of their publication."""
    return [one for one in states._state_machine_versions.values() if one["stateMachineArn"] == machine]


def _revision_of(machine: str | None) -> Any:
    return (states._state_machines.get(machine) or {}).get("revisionId")


def _routes(properties: Mapping[str, Any]) -> list[dict[str, Any]]:
    preference = properties.get("DeploymentPreference")
    if preference is not None:
        return [{"stateMachineVersionArn": preference["StateMachineVersionArn"], "weight": 100}]
    return [
        {"stateMachineVersionArn": one["StateMachineVersionArn"], "weight": int(one["Weight"])}
        for one in properties["RoutingConfiguration"]
    ]


def _done(answer: Any) -> dict[str, Any]:
    status, _headers, body = answer
    if status >= 400:
        raise ValueError(f"Step Functions refuses it: {body!r}")
    found: dict[str, Any] = json.loads(body)
    return found


CORRECTIONS: Final[tuple[Correction, ...]] = (version_definitions, state_machine_rights, published_resources)
