"""Names in the template: none that blocks a replacement, none that ties stacks together."""

from __future__ import annotations

import json
import re

import pytest

import constructs_lib
from tests.constructs.support.cloud import Cloud

PHYSICAL = {
    "AWS::ApiGateway::Model": ("Name",),
    "AWS::CloudWatch::Alarm": ("AlarmName",),
    "AWS::DynamoDB::GlobalTable": ("TableName",),
    "AWS::DynamoDB::Table": ("TableName",),
    "AWS::Events::Rule": ("Name",),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName",),
    "AWS::IAM::Role": ("RoleName",),
    "AWS::KMS::Alias": ("AliasName",),
    "AWS::Lambda::Function": ("FunctionName",),
    "AWS::Logs::LogGroup": ("LogGroupName",),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::SecretsManager::Secret": ("Name",),
    "AWS::SNS::Topic": ("TopicName",),
    "AWS::SQS::Queue": ("QueueName",),
    "AWS::StepFunctions::StateMachine": ("StateMachineName",),
    "AWS::WAFv2::WebACL": ("Name",),
}
_MADE = re.compile(r"\$\{[\w/]+/(Log/Table|WebAcl/Acl\.Id)\}")
HARMLESS = {
    # Unique within the API only, and CloudFormation demands or derives it.
    "AWS::ApiGateway::Authorizer",
    "AWS::ApiGateway::RequestValidator",
    "AWS::ApiGateway::RestApi",
    "AWS::ApiGateway::Stage",
    # Inline, in its role.
    "AWS::IAM::Policy",
}


def fixed_names(cloud: Cloud) -> list[str]:
    """Physical names that block a replacement, or a resource that is made again while the former one was retained.

    One that holds the resource's logical id and a name or id that AWS makes again does neither, nor one that holds the
    id of its API.
    """
    return [
        resource.path
        for resource in cloud.resources.values()
        for name in PHYSICAL.get(resource.type, ())
        if name in resource.properties
        and not (resource.logical_id in str(resource.properties[name]) and _MADE.search(str(resource.properties[name])))
        and not re.fullmatch(r"API-Gateway-Execution-Logs_\$\{.+/RestApi\}/\w+", str(resource.properties[name]))
    ]


def test_nothing_has_a_physical_name_that_is_fixed(reference: Cloud) -> None:
    assert fixed_names(reference) == []


def test_every_property_that_might_be_a_name_was_thought_of(reference: Cloud) -> None:
    for resource in reference.resources.values():
        own = resource.type.rsplit("::", 1)[-1]
        if resource.type in HARMLESS:
            continue
        for name in ("Name", f"{own}Name", f"{own.removeprefix('Global')}Name"):
            assert name not in resource.properties or name in PHYSICAL.get(resource.type, ()), resource.path


def test_no_stack_depends_on_another_ones_exports(reference: Cloud) -> None:
    text = json.dumps(reference.template)
    assert "Fn::ImportValue" not in text
    assert not [name for name, output in reference.template["Outputs"].items() if "Export" in output]


def test_no_account_and_no_region_is_written_into_the_template(reference: Cloud) -> None:
    text = json.dumps(reference.template)
    for region in ("us-east-1", "eu-west-1", "eu-central-1"):
        assert region not in text


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in constructs_lib.__all__ if not hasattr(constructs_lib, name)] == []


def test_every_public_name_is_documented() -> None:
    for name in constructs_lib.__all__:
        assert (getattr(constructs_lib, name).__doc__ or "").strip(), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'constructs_lib' has no attribute 'Nothing'"):
        _ = constructs_lib.Nothing
