"""Compliance: logs under a key, and reasons for findings of cdk-nag's packs for regulations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from aws_cdk import Acknowledgment, CfnResource, Validations
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from constructs_lib.callbacks.approval_page import ApprovalPage
from constructs_lib.callbacks.receivers import Webhook
from constructs_lib.functions.function_options import let_logs_use
from constructs_lib.shared.accepted import AnyKey
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.stacks import root_of
from constructs_lib.shared.types import checked

_SERVERLESS: Final = "Serverless"
_NIST: Final = "NIST.800.53.R5"
_PCI: Final = "PCI.DSS.321"
_HIPAA: Final = "HIPAA.Security"
_REGULATIONS: Final = (_NIST, _PCI, _HIPAA)
_OURS: Final = "constructs_lib"


@dataclass(frozen=True, slots=True)
class _Finding:
    rule: str
    packs: tuple[str, ...]
    reason: str


_ROLE: Final = _Finding(
    "IAMNoInlinePolicy",
    _REGULATIONS,
    "The policy belongs to one role of one function or state machine, and is deleted with it. It names the "
    "actions and resources of that one; a managed policy could be attached to another principal.",
)
_OUTSIDE_VPC: Final = _Finding(
    "LambdaInsideVPC",
    _REGULATIONS,
    "The function accepts no network connection: Lambda invokes it by IAM. It calls AWS's public endpoints, and "
    "providers, over TLS with signed requests; it reaches nothing inside a VPC.",
)
_UNRESERVED: Final = _Finding(
    "LambdaConcurrency",
    (_NIST, _HIPAA),
    "Concurrency is limited where work enters: by the throttle of the API's stage, the concurrency of queues, "
    "and the account's quota. A reservation would refuse work that others leave room for; throttles of the "
    "functions that answer clients have an alarm.",
)
_DEAD_LETTERS: Final = "LambdaDLQ"
_AWAITED: Final = _Finding(
    _DEAD_LETTERS,
    (_SERVERLESS, _NIST, _HIPAA),
    "A dead-letter target receives asynchronous events only, and nothing invokes this function asynchronously: API "
    "Gateway, Step Functions and event source mappings await its response and handle its failure.",
)
_DESTINATION: Final = _Finding(
    _DEAD_LETTERS,
    (_SERVERLESS, _NIST, _HIPAA),
    "Events of asynchronous invocations that fail go to the function's on-failure destination: a queue of "
    "dead letters with an alarm. Such a record holds the event and the error; a dead-letter target gets the event.",
)
_REPEATED: Final = _Finding(
    _DEAD_LETTERS,
    (_SERVERLESS, _NIST, _HIPAA),
    "Only schedules invoke the function asynchronously. Their events are always the same: the next run does the same "
    "work, and an alarm fires when the function's runs fail or are missing.",
)
_QUEUE_OR_SWEEP: Final = _Finding(
    "LambdaEventSourceMappingDestination",
    (_SERVERLESS,),
    "Lambda takes no failure destination for a queue: its redrive policy moves the message to a dead-letter "
    "queue. Records of an outbox's stream that fail stay in the table, and a schedule publishes "
    "them.",
)
_NEXT_RUN: Final = _Finding(
    "LambdaAsyncFailureDestination",
    (_SERVERLESS,),
    "The event is a schedule's and always the same: the next run does the same work, and an alarm fires when the "
    "function's runs fail or are missing.",
)
_NEXT_EVENT: Final = _Finding(
    "EventBusDLQ",
    (_SERVERLESS,),
    "The rule is a schedule: the next event replaces one that was not delivered, and an alarm fires when the "
    "function's runs fail or are missing.",
)
_LAST_QUEUE: Final = _Finding(
    "SQSRedrivePolicy",
    (_SERVERLESS,),
    "The queue is the last destination of messages that need an operator: nothing receives from it "
    "automatically, so no message in it can fail. An alarm fires when it is not empty.",
)
_NO_CACHE: Final = _Finding(
    "APIGWCacheEnabledAndEncrypted",
    _REGULATIONS,
    "Responses are of one caller and one key, and change while a saga runs. A cache would return an outdated "
    "status, or keep personal data for longer.",
)
_NO_CLIENT_CERTIFICATE: Final = _Finding(
    "APIGWSSLEnabled",
    _REGULATIONS,
    "A client certificate proves API Gateway to an HTTP backend. Every integration is a Lambda function, which "
    "API Gateway invokes by IAM; clients connect over TLS.",
)
_SIGNED: Final = _Finding(
    "APIGWAssociatedWithWAF",
    (_NIST, _PCI),
    "One provider calls this stage, and each request is refused before it is read unless the provider's "
    "signature is genuine and recent. The stage is throttled; web_acl_arn takes a web ACL.",
)
_LINKS_UNTRACED: Final = _Finding(
    "APIGWXrayEnabled",
    (_SERVERLESS, _HIPAA),
    "A trace of the stage holds the address of each request, and the address of an approval page is a credential: "
    "a reader of it can decide. The page's function is traced, and the stage has an access log without queries.",
)
_LINKS_SECRET: Final = _Finding(
    "SecretsManagerRotationEnabled",
    (_NIST, _HIPAA),
    "The secret is generated, no person and no other system has it, and it signs links that expire; changing it "
    "on a schedule would void links that people still hold. It can be rotated at any time: the previous version "
    "is valid for previous_for.",
)
_AWS_KEY: Final = _Finding(
    "SecretsManagerUsingKMSKey",
    _REGULATIONS,
    "The secret is encrypted with the key of AWS Secrets Manager in this account, and read by the functions "
    "that policies name. It signs links, and is neither card nor health data.",
)
_FINDINGS: Final[tuple[tuple[type[CfnResource], tuple[_Finding, ...]], ...]] = (
    (lambda_.CfnFunction, (_UNRESERVED,)),
    (iam.CfnPolicy, (_ROLE,)),
    (apigateway.CfnStage, (_NO_CACHE, _NO_CLIENT_CERTIFICATE)),
    (secretsmanager.CfnSecret, (_LINKS_SECRET, _AWS_KEY)),
)
"""Findings in every resource of a type, if this library made it."""


class Compliance(Construct):
    """Logs under your key, and a reason per resource for what cdk-nag's packs for regulations find.

    Encrypts every log group of its parent's tree with your key, nested stacks included, and lets CloudWatch Logs of
    this account and region use it. Acknowledges, on each resource of this library alone, findings of the packs
    ``Serverless``, ``NIST80053R5``, ``PCIDSS321`` and ``HIPAASecurity`` for the reasons of this module. Read them: what
    a regulation demands of you is for your auditor. A finding that is not listed is not acknowledged.

    Declare it last: a log group that is declared after it ends the synth, and so does one without a key that is below
    its parent, but in a stack of its own.

    Example::

        Compliance(self, "Compliance", log_key=kms.Key(self, "LogKey", enable_key_rotation=True))

    Args:
        scope: parent construct: whose tree is covered.
        id: construct id.
        log_key: a KMS key of your own. Of an imported one, its policy must let CloudWatch Logs use it.

    Attributes:
        log_key: as given.
    """

    @checked
    def __init__(self, scope: Construct, id: str, *, log_key: AnyKey) -> None:
        super().__init__(scope, id)
        self.log_key = log_key
        self._scope = scope
        let_logs_use(log_key)
        self._root = root_of(self)
        for resource in list(self._resources()):
            if root_of(resource) is self._root:
                if isinstance(resource, logs.CfnLogGroup):
                    resource.kms_key_id = log_key.key_arn
                _acknowledge(resource, _findings_of(resource))
        self.node.add_validation(WhenAllIsKnown(self._refuse_plain_logs))

    def _resources(self) -> Iterator[CfnResource]:
        return (each for each in self._scope.node.find_all() if isinstance(each, CfnResource))

    def _refuse_plain_logs(self) -> None:
        for resource in self._resources():
            if isinstance(resource, logs.CfnLogGroup) and resource.kms_key_id is None:
                found, path = resource.node.path, self.node.path
                Validations.of(self).add_error(
                    "cdk-sagas-log-without-key",
                    f"{path} must be declared after every log group, got {found} later; declare it last"
                    if root_of(resource) is self._root
                    else f"log groups below the parent of {path} must be in its stack or in a nested one, got {found} "
                    "without a key in another stack; declare a Compliance there, too",
                )


def _findings_of(resource: CfnResource) -> Iterator[_Finding]:
    """Findings in a resource of this library, with their reasons."""
    if not any(type(each).__module__.partition(".")[0] == _OURS for each in _above(resource)):
        return
    for type_, findings in _FINDINGS:
        if isinstance(resource, type_):
            yield from findings
    if isinstance(resource, lambda_.CfnFunction):
        yield _dead_letters_of(resource)
        if resource.vpc_config is None:
            yield _OUTSIDE_VPC
    if isinstance(resource, sqs.CfnQueue) and resource.redrive_policy is None:
        yield _LAST_QUEUE
    if isinstance(resource, lambda_.CfnEventSourceMapping) and resource.destination_config is None:
        yield _QUEUE_OR_SWEEP
    if isinstance(resource, lambda_.CfnEventInvokeConfig) and resource.destination_config is None:
        yield _NEXT_RUN
    if isinstance(resource, events.CfnRule) and resource.schedule_expression is not None:
        yield _NEXT_EVENT
    if isinstance(resource, apigateway.CfnStage):
        webhooks = [each for each in _above(resource) if isinstance(each, Webhook)]
        if any(webhook.association is None for webhook in webhooks):
            yield _SIGNED
        if any(isinstance(each, ApprovalPage) for each in _above(resource)):
            yield _LINKS_UNTRACED


def _dead_letters_of(function: lambda_.CfnFunction) -> _Finding:
    """Why a function needs no dead-letter target: by how it is invoked."""
    above = function.node.scope
    settings = None if above is None else above.node.try_find_child("EventInvokeConfig")
    if settings is None:
        return _AWAITED
    resource = settings.node.default_child
    if isinstance(resource, lambda_.CfnEventInvokeConfig) and resource.destination_config is not None:
        return _DESTINATION
    return _REPEATED


def _acknowledge(resource: CfnResource, findings: Iterable[_Finding]) -> None:
    acknowledged = [
        Acknowledgment(id=f"{pack}-{finding.rule}", reason=finding.reason)
        for finding in findings
        for pack in finding.packs
    ]
    if acknowledged:
        Validations.of(resource).acknowledge(*acknowledged)


def _above(resource: IConstruct) -> Iterator[IConstruct]:
    above = resource.node.scope
    while above is not None:
        yield above
        above = above.node.scope
