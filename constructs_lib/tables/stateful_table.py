"""Tables that hold what must not be lost: the settings that all of ours share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import cast

import jsii
from aws_cdk import CfnDeletionPolicy, CfnResource, IStableAnyProducer, Lazy, RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.stacks import asked_once
from saga_runtime.protocol import DUE_INDEX


class StatefulTable(Construct):
    """A DynamoDB table, on demand: encrypted, point-in-time recovery, deletion protection, retained.

    Attributes:
        table: the table.
        encryption_key: the customer's key, if one was given.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        partition_key: str,
        sort_key: str | None = None,
        time_to_live: str | None = None,
        global_secondary_indexes: Sequence[dynamodb.GlobalSecondaryIndexPropsV2] | None = None,
        stream: dynamodb.StreamViewType | None = None,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if encryption_key is not None and Token.is_unresolved(Stack.of(self).region):
            # A global table names the key of each replica by region; the CDK reports that at synth only, and not
            # clearly.
            raise ValueError(
                f"encryption_key of {self.node.path} needs a stack whose region is known; "
                "give the stack env=Environment(account=…, region=…)"
            )
        self.encryption_key = encryption_key
        encryption = (
            dynamodb.TableEncryptionV2.customer_managed_key(encryption_key)
            if encryption_key is not None
            else _aws_managed_key()
        )
        self.table = dynamodb.TableV2(
            self,
            "Table",
            partition_key=_text_key(partition_key),
            sort_key=_text_key(sort_key) if sort_key else None,
            billing=_on_demand(),
            encryption=encryption,
            time_to_live_attribute=time_to_live,
            global_secondary_indexes=global_secondary_indexes,
            dynamo_stream=stream,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=removal_policy is RemovalPolicy.RETAIN,
            removal_policy=removal_policy,
        )
        _protect_what_is_retained(self.table)

    @property
    def table_arn(self) -> str:
        """The table's ARN."""
        return _arn_of(self.table)

    @property
    def table_name(self) -> str:
        """The table's name."""
        return _name_of(self.table)

    def _grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Exactly these actions on exactly this table, and the key when it is the customer's."""
        if self.encryption_key is not None:
            self.encryption_key.grant_encrypt_decrypt(grantee)
        return iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[self.table_arn])


@asked_once
def _arn_of(table: dynamodb.ITableV2) -> str:
    return table.table_arn


@asked_once
def _name_of(table: dynamodb.ITableV2) -> str:
    return table.table_name


def imported_table(
    scope: Construct, table_name: str, key: AnyKey | None, indexes: Sequence[str] = ()
) -> dynamodb.TableV2:
    """A table that another stack or app creates.

    Raises:
        ValueError: for what no table is called, such as an ARN.
    """
    if not Token.is_unresolved(table_name) and not re.fullmatch("[A-Za-z0-9_.-]{1,255}", table_name):
        raise ValueError(f"table_name of {scope.node.path} must be the name of a table, got {table_name!r}; pass it")
    found = dynamodb.TableV2.from_table_attributes(
        scope, "Table", table_name=table_name, encryption_key=key, global_indexes=list(indexes)
    )
    # The interface has all that this library uses of a table.
    return cast("dynamodb.TableV2", found)


def _protect_what_is_retained(table: dynamodb.TableV2) -> None:
    """Decide on deletion protection at synth: ``RemovalPolicies.of(stack).destroy()`` takes it off with the policy."""
    resource = table.node.default_child
    assert isinstance(resource, CfnResource)  # noqa: S101  # as every table's
    # The type of the CDK's stub has no constructor that Python's protocol accepts.
    producer = cast("IStableAnyProducer", _IsRetained(resource))
    resource.add_property_override("Replicas.0.DeletionProtectionEnabled", Lazy.any(producer))


@jsii.implements(IStableAnyProducer)
class _IsRetained:
    """A decision whether a resource outlives its stack, when everything has been declared."""

    def __init__(self, resource: CfnResource) -> None:
        self._resource = resource

    def produce(self) -> bool:
        """Called by the CDK."""
        return self._resource.cfn_options.deletion_policy is CfnDeletionPolicy.RETAIN


@cache
def _aws_managed_key() -> dynamodb.TableEncryptionV2:
    return dynamodb.TableEncryptionV2.aws_managed_key()


@cache
def _on_demand() -> dynamodb.Billing:
    return dynamodb.Billing.on_demand()


def sparse_index(
    shard: str, at: str, *, name: str = DUE_INDEX, include: Sequence[str] = ()
) -> dynamodb.GlobalSecondaryIndexPropsV2:
    """An index of the items that have a shard and a time, the earliest first.

    Args:
        shard: attribute of the shard.
        at: attribute of the time.
        name: of the index.
        include: attributes that it has besides the keys.
    """
    return dynamodb.GlobalSecondaryIndexPropsV2(
        index_name=name,
        partition_key=_text_key(shard),
        sort_key=dynamodb.Attribute(name=at, type=dynamodb.AttributeType.NUMBER),
        projection_type=dynamodb.ProjectionType.INCLUDE if include else dynamodb.ProjectionType.KEYS_ONLY,
        non_key_attributes=list(include) or None,
    )


def _text_key(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
