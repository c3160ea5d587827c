"""Actions of the examples' alarms: they send to a topic that a context names."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

TOPIC_CONTEXT: Final = "on-call-topic"


def on_call(scope: Construct) -> list[cloudwatch.IAlarmAction]:
    """The action that sends to the topic whose ARN is in the context (``cdk deploy -c on-call-topic=…``), if any."""
    arn = scope.node.try_get_context(TOPIC_CONTEXT)
    return [actions.SnsAction(sns.Topic.from_topic_arn(scope, "OnCall", arn))] if arn else []
