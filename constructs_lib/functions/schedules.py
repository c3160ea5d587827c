"""Schedules of the library's own functions: an invocation that did not run in its minute is dropped."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from saga_runtime.protocol import LookField

_LATEST = Duration.minutes(1)


def run_every(
    scope: Construct,
    id: str,
    function: RuntimeFunction,
    interval: Duration,
    *,
    description: str,
    event: Mapping[str, str] | None = None,
) -> events.Rule:
    """Invoke a function on a schedule, and never later than a minute.

    The next invocation does what a dropped one would have done. EventBridge's delivery is not all: Lambda keeps
    asynchronous invocations in a queue of its own, throttled ones for six hours and failed ones for two retries, so
    that a function that was throttled for an hour would run sixty times at once.
    https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html

    Args:
        scope: parent construct of the rule.
        id: construct id of the rule.
        function: what is invoked; by nothing else asynchronously.
        interval: time between two invocations.
        description: of the rule.
        event: payload; EventBridge's own event by default.
    """
    if function.function.node.try_find_child("EventInvokeConfig") is None:
        function.function.configure_async_invoke(max_event_age=_LATEST, retry_attempts=0)
    target = targets.LambdaFunction(
        function.function,
        retry_attempts=0,
        max_event_age=_LATEST,
        event=None if event is None else events.RuleTargetInput.from_object(dict(event)),
    )
    rule = events.Rule(scope, id, description=description, schedule=events.Schedule.rate(interval), targets=[target])
    Manifest.of(scope).add(
        Part.RULES,
        name=rule.rule_name,
        scheduled=True,
        measures=LookField.LOOK in (event or {}) or None,
        function=function.function.function_name,
    )
    return rule
