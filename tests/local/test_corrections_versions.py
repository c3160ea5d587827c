"""Versions and aliases of state machines are as on AWS where the bare emulator's are not."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from constructs_lib.testing import LocalAws

from .support import ALLOW_ALL, Emulators, await_end, create_machine, create_role, eventually


def passing(text: str) -> dict[str, Any]:
    """States that end with a text."""
    return {"Say": {"Type": "Pass", "Output": text, "End": True}}


def publish(aws: LocalAws, machine: str) -> str:
    """Publish what is deployed: the version's ARN."""
    return aws.client("stepfunctions").publish_state_machine_version(stateMachineArn=machine)["stateMachineVersionArn"]


def machine_with_alias(aws: LocalAws, *, express: bool = False) -> tuple[str, str]:
    """A state machine whose version has the output "one", its alias ``live``, and what is deployed since."""
    states = aws.client("stepfunctions")
    machine = create_machine(aws, passing("one"), express=express)
    route: Any = {"stateMachineVersionArn": publish(aws, machine), "weight": 100}
    alias = states.create_state_machine_alias(name="live", routingConfiguration=[route])["stateMachineAliasArn"]
    definition = {"QueryLanguage": "JSONata", "StartAt": "Say", "States": passing("two")}
    states.update_state_machine(stateMachineArn=machine, definition=json.dumps(definition))
    return machine, alias


@pytest.mark.parametrize("by", ["alias", "version"])
def test_execution_runs_the_definition_of_its_version(emulators: Emulators, by: str) -> None:
    def said(aws: LocalAws) -> str:
        machine, alias = machine_with_alias(aws)
        arn = alias if by == "alias" else f"{machine}:1"
        started = aws.client("stepfunctions").start_execution(stateMachineArn=arn)["executionArn"]
        ended = await_end(aws, started)
        assert ended["stateMachineArn"] == machine
        return str(ended["output"])

    assert said(emulators.corrected.aws) == "one"
    assert said(emulators.without("version-definitions").aws) == "two"


def test_execution_is_described_with_its_version_and_alias(emulators: Emulators) -> None:
    def told(aws: LocalAws, *, by_alias: bool) -> list[tuple[Any, Any]]:
        machine, alias = machine_with_alias(aws)
        states = aws.client("stepfunctions")
        started = states.start_execution(stateMachineArn=alias if by_alias else f"{machine}:1")["executionArn"]
        (listed,) = states.list_executions(stateMachineArn=machine)["executions"]
        both: list[Any] = [await_end(aws, started), listed]
        ends = [(one.get("stateMachineVersionArn", machine), one.get("stateMachineAliasArn", machine)) for one in both]
        return [(version.removeprefix(machine), named.removeprefix(machine)) for version, named in ends]

    assert told(emulators.corrected.aws, by_alias=True) == 2 * [(":1", ":live")]
    assert told(emulators.corrected.aws, by_alias=False) == 2 * [(":1", "")]
    assert told(emulators.without("version-definitions").aws, by_alias=True) == 2 * [("", "")]


def test_synchronous_execution_runs_the_definition_of_its_version(emulators: Emulators) -> None:
    def said(aws: LocalAws) -> str:
        machine, _alias = machine_with_alias(aws, express=True)
        try:
            ran = aws.client("stepfunctions").start_sync_execution(stateMachineArn=f"{machine}:1")
        except ClientError as error:
            return error.response["Error"]["Code"]
        return str(json.loads(ran["output"]))

    assert said(emulators.corrected.aws) == "one"
    assert said(emulators.without("version-definitions").aws) == "StateMachineDoesNotExist"


def test_execution_of_a_version_starts_once_by_its_name(emulators: Emulators) -> None:
    aws = emulators.corrected.aws
    machine, alias = machine_with_alias(aws)
    states = aws.client("stepfunctions")
    first = states.start_execution(stateMachineArn=alias, name="same", input="{}")["executionArn"]
    await_end(aws, first)
    for arn in (alias, machine):
        with pytest.raises(states.exceptions.ExecutionAlreadyExists):
            states.start_execution(stateMachineArn=arn, name="same", input="{}")


def test_two_versions_of_an_alias_are_started_by_their_weights(emulators: Emulators) -> None:
    aws = emulators.corrected.aws
    machine, alias = machine_with_alias(aws)
    routes: Any = [{"stateMachineVersionArn": arn, "weight": 50} for arn in (f"{machine}:1", publish(aws, machine))]
    states = aws.client("stepfunctions")
    states.update_state_machine_alias(stateMachineAliasArn=alias, routingConfiguration=routes)
    said: set[str] = set()

    def both() -> bool | None:
        started = states.start_execution(stateMachineArn=alias)["executionArn"]
        said.add(str(await_end(aws, started)["output"]))
        return len(said) == 2 or None

    eventually(both)


def test_right_on_a_state_machine_is_one_on_its_alias(emulators: Emulators) -> None:
    def started(aws: LocalAws, name: str) -> str:
        machine, alias = machine_with_alias(aws)
        statement = {"Effect": "Allow", "Action": "states:StartExecution", "Resource": machine}
        iam = aws.client("iam")
        iam.create_user(UserName=name)
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="may", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        session = boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=aws.region)
        states = session.client("stepfunctions", endpoint_url=aws.endpoint_url)
        try:
            states.start_execution(stateMachineArn=alias)
        except ClientError as error:
            return error.response["Error"]["Code"]
        return "started"

    assert started(emulators.corrected.aws, "corrected") == "started"
    assert started(emulators.without("state-machine-rights").aws, "bare") == "AccessDeniedException"


def template(role: str, text: str, *, published: bool = True) -> str:
    """A stack with a state machine, its version and its alias, or the state machine alone."""
    definition = json.dumps({"QueryLanguage": "JSONata", "StartAt": "Say", "States": passing(text)})
    machine = {"RoleArn": role, "DefinitionString": definition}
    version = {
        "StateMachineArn": {"Ref": "Machine"},
        "StateMachineRevisionId": {"Fn::GetAtt": ["Machine", "StateMachineRevisionId"]},
    }
    preference = {"StateMachineVersionArn": {"Ref": "Version"}, "Type": "ALL_AT_ONCE"}
    alias = {"Name": "live", "DeploymentPreference": preference}
    return json.dumps(
        {
            "Resources": {
                "Machine": {"Type": "AWS::StepFunctions::StateMachine", "Properties": machine},
                "Version": {
                    "Type": "AWS::StepFunctions::StateMachineVersion",
                    "UpdateReplacePolicy": "Retain",
                    "DeletionPolicy": "Retain",
                    "Properties": version,
                },
                "Alias": {"Type": "AWS::StepFunctions::StateMachineAlias", "Properties": alias},
            }
            if published
            else {"Machine": {"Type": "AWS::StepFunctions::StateMachine", "Properties": machine}},
            "Outputs": {"Alias": {"Value": {"Ref": "Alias" if published else "Machine"}}},
        }
    )


def deployed(aws: LocalAws, name: str, text: str, *, published: bool = True) -> dict[str, Any]:
    """The stack after its deployment."""
    stacks = aws.client("cloudformation")
    body = template(create_role(aws, ALLOW_ALL, name="all"), text, published=published)
    known = any(stack["StackName"] == name for stack in stacks.describe_stacks()["Stacks"])
    (stacks.update_stack if known else stacks.create_stack)(StackName=name, TemplateBody=body)

    def ended() -> dict[str, Any] | None:
        (stack,) = stacks.describe_stacks(StackName=name)["Stacks"]
        return None if stack["StackStatus"].endswith("IN_PROGRESS") else dict(stack)

    return eventually(ended)


def test_deployment_publishes_a_version_and_moves_the_alias(emulators: Emulators) -> None:
    aws = emulators.corrected.aws
    states = aws.client("stepfunctions")
    for number, text in enumerate(("one", "two"), start=1):
        alias = str(deployed(aws, "versions", text)["Outputs"][0]["OutputValue"])
        machine = alias.removesuffix(":live")
        (route,) = states.describe_state_machine_alias(stateMachineAliasArn=alias)["routingConfiguration"]
        assert route["stateMachineVersionArn"] == f"{machine}:{number}"
        assert publish(aws, machine) == f"{machine}:{number}"
        started = states.start_execution(stateMachineArn=f"{machine}:1")["executionArn"]
        assert await_end(aws, started)["output"] == "one"
    with pytest.raises(ClientError, match="Unrecognized resource types"):
        deployed(emulators.without("published-resources").aws, "versions", "one")


def test_deployment_does_not_publish_what_the_latest_version_holds(emulators: Emulators) -> None:
    aws = emulators.corrected.aws
    for published, text, status in (
        (True, "one", "CREATE_COMPLETE"),
        (False, "one", "UPDATE_COMPLETE"),
        (True, "one", "UPDATE_ROLLBACK_COMPLETE"),
        (True, "two", "UPDATE_COMPLETE"),
    ):
        assert deployed(aws, "again", text, published=published)["StackStatus"] == status, (published, text)
