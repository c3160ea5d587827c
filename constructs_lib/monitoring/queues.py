"""Status events on their way to a reconciler: of which executions, as what, and where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jsii
from aws_cdk import Duration, Stack, Validations
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.interfaces.aws_events import IRuleRef
from constructs import Construct

from constructs_lib.functions.access import poll
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part, QueueRole
from saga_runtime.protocol import FailedStatus

_RECEIVES: Final = 5
_DELIVERIES: Final = 185
"""EventBridge's most: over a day, ever more slowly."""
_AT_ONCE: Final = 10
"""Invocations for status events: Step Functions answers some ten questions a second for long."""
_DAY: Final = Duration.days(1)
MOST_MACHINES: Final = 12
"""Of a rule, whatever their names are: by default a pattern has 2,048 characters
(https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html), of which the rest has some 180."""
_EVENT_BRIDGE: Final = "events.amazonaws.com"
IMPORTED_KEY: Final = "cdk-sagas-imported-key"
"""Id of the warning that a key's policy has to be changed by hand."""


def dead_letters_of(scope: Construct, key: AnyKey | None) -> sqs.Queue:
    """Create the queue of status events that could not be delivered (whole) or handled."""
    return _queue(scope, "DeadLetters", key, retention=Duration.days(14))


def queue_for(
    function: RuntimeFunction,
    scope: Construct,
    key: AnyKey | None,
    *,
    dead_letters: sqs.Queue,
    role: QueueRole,
    visible_after: Duration,
    batch_size: int = 10,
) -> sqs.Queue:
    """Create the queue of status events for the function."""
    queue = _queue(
        scope,
        "Queue",
        key,
        retention=Duration.days(4),
        visible_after=visible_after,
        dead_letters=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=_RECEIVES),
    )
    source = poll(queue, function.function, batch_size=batch_size, max_concurrency=_AT_ONCE)
    Manifest.of(scope).add(
        Part.SOURCES,
        uuid=source.event_source_mapping_id,
        queue=queue.queue_name,
        function=function.function.function_name,
    )
    Manifest.of(scope).add(Part.QUEUES, url=dead_letters.queue_url, role=role, queue=queue.queue_name)
    if key is not None:
        let_event_bridge_use(key, scope)
    return queue


def rule_for(
    scope: Construct,
    machines: Sequence[sfn.IStateMachine],
    *,
    queue: sqs.Queue,
    dead_letters: sqs.Queue,
    id: str = "Ended",
    description: str = "Executions of sagas that failed, timed out or were aborted",
    ends: Sequence[FailedStatus] = (FailedStatus.TIMED_OUT, FailedStatus.ABORTED, FailedStatus.FAILED),
) -> events.Rule:
    """Create the rule for executions of these state machines that failed, timed out or were aborted.

    Raises:
        ValueError: for more of them than a pattern takes.
    """
    if len(machines) > MOST_MACHINES:
        raise ValueError(
            f"state machines of {scope.node.path}/{id} must be at most {MOST_MACHINES}, got {len(machines)}: "
            "EventBridge takes no longer pattern; divide them"
        )
    rule = events.Rule(
        scope,
        id,
        description=description,
        event_pattern=events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={
                "status": list(ends),
                "stateMachineArn": [machine.state_machine_arn for machine in machines],
            },
        ),
        targets=[_Names(queue, dead_letters)],
    )
    Manifest.of(scope).add(Part.RULES, name=rule.rule_name, queue=queue.queue_name)
    return rule


@jsii.implements(events.IRuleTarget)
class _Names:
    """Only names of the event are sent to the queue: the event holds the execution's input, too.

    The CDK's own target lets every rule of every account send to a queue that has a key.
    """

    def __init__(self, queue: sqs.Queue, dead_letters: sqs.Queue) -> None:
        self._queue = queue
        self._dead_letters = dead_letters

    def bind(self, rule: IRuleRef, id: str | None = None) -> events.RuleTargetConfig:
        """Let this rule, and no other, send to both queues."""
        del id
        for queue in (self._queue, self._dead_letters):
            queue.add_to_resource_policy(
                iam.PolicyStatement(
                    actions=["sqs:SendMessage"],
                    principals=[iam.ServicePrincipal(_EVENT_BRIDGE)],
                    resources=[queue.queue_arn],
                    conditions={"ArnEquals": {"aws:SourceArn": rule.rule_ref.rule_arn}},
                )
            )
        names = ("name", "status", "stateMachineArn")
        detail = {name: events.EventField.from_path(f"$.detail.{name}") for name in names}
        return events.RuleTargetConfig(
            arn=self._queue.queue_arn,
            input=events.RuleTargetInput.from_object({"detail": detail}),
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self._dead_letters.queue_arn),
            retry_policy=events.CfnRule.RetryPolicyProperty(
                maximum_retry_attempts=_DELIVERIES, maximum_event_age_in_seconds=int(_DAY.to_seconds())
            ),
        )


def _queue(
    scope: Construct,
    id: str,
    key: AnyKey | None,
    *,
    retention: Duration,
    visible_after: Duration | None = None,
    dead_letters: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        id,
        encryption=sqs.QueueEncryption.SQS_MANAGED if key is None else sqs.QueueEncryption.KMS,
        encryption_master_key=key,
        enforce_ssl=True,
        retention_period=retention,
        visibility_timeout=visible_after,
        dead_letter_queue=dead_letters,
    )


def let_event_bridge_use(key: AnyKey, scope: Construct, lost: str = "no status event arrives") -> None:
    """EventBridge writes to the queues as itself, and only the key's own policy can let it.

    For this account's rules: naming the one rule would make a circle, from key to rule to queue to key.

    Args:
        key: of the queues.
        scope: whose queues they are.
        lost: what happens where an imported key's policy does not let it, as a clause.
    """
    added = key.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            principals=[iam.ServicePrincipal(_EVENT_BRIDGE)],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}},
        ),
        True,
    )
    if not added.statement_added:
        Validations.of(scope).add_warning(
            IMPORTED_KEY,
            f"encryption_key of {scope.node.path} is imported, so its policy is yours to change; let "
            f"{_EVENT_BRIDGE} use kms:Decrypt and kms:GenerateDataKey, with aws:SourceAccount of this account, or "
            f"{lost}",
        )
