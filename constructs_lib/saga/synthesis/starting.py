"""Grants of starting a saga: at its operations, which reserve each request first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import jsii
from aws_cdk import ArnFormat, IStableListProducer, Lazy, Stack, Token, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from constructs_lib.shared.arguments import require_match
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.types import checked
from saga_runtime.protocol import OPERATION_PATTERN

INVOKE: Final = "execute-api:Invoke"
ROUTES: Final = (("POST", ""), ("GET", "/*"))
"""Methods and paths of an operation."""
_API_ID: Final = r"^[A-Za-z0-9]+$"
_STAGE: Final = r"^([A-Za-z0-9_-]+|\$default)$"
_PATH: Final = r"^([^/?#*\s]+(/[^/?#*\s]+)*)?$"


class ISagaStateMachine(IConstruct, Protocol):
    """A saga that others start: of this app (``SagaStateMachine``), or of another one (``from_operation``)."""

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start sagas, each once per key: call the operations that start this saga."""
        ...


@jsii.implements(IStableListProducer)
class Entrances:
    """The operations that start a saga, those that are declared later included."""

    def __init__(self, saga: Construct) -> None:
        self._saga = saga
        self._found: list[Callable[[], Sequence[str]]] = []
        self._granted = False

    def add(self, arns: Callable[[], Sequence[str]]) -> None:
        """Add an operation, with the ARNs of its methods."""
        self._found.append(arns)

    def grant(self, grantee: iam.IGrantable) -> iam.Grant:
        """Call each operation."""
        if not self._granted:
            self._granted = True
            self._saga.node.add_validation(WhenAllIsKnown(self._require_one))
        # The type of the CDK's stub has no constructor that Python's protocol accepts.
        arns = Lazy.list(cast("IStableListProducer", self))
        return iam.Grant.add_to_principal(grantee=grantee, actions=[INVOKE], resource_arns=arns)

    def produce(self) -> list[str]:
        """Called by the CDK."""
        return [arn for of in self._found for arn in of()]

    def _require_one(self) -> None:
        if not self._found:
            path = self._saga.node.path
            Validations.of(self._saga).add_error(
                "cdk-sagas-nothing-starts",
                f"{path} must have an operation with IAM for grant_start, got none; name the saga in a TransactionApi "
                "or HttpTransactionApi without an authorizer, or begin it by an EventIntake and call its grant_send",
            )


class ImportedSaga(Construct):
    """A saga of another app, known by an operation of its API."""

    def __init__(
        self, scope: Construct, id: str, *, operation: str, api_id: str, stage_name: str, resource_path: str
    ) -> None:
        require_match("operation", operation, OPERATION_PATTERN, "give the operation's name in its TransactionApi")
        _require("api_id", api_id, _API_ID, "give the API's id, api.rest_api_id or api.api_id")
        _require("stage_name", stage_name, _STAGE, "give the name of the API's stage, v1 for example")
        below = resource_path.strip("/")
        _require("resource_path", below, _PATH, "give the path of the resource below which the operations are")
        super().__init__(scope, id)
        stack, path = Stack.of(self), "/".join(filter(None, (below, operation)))
        self._arns = [
            stack.format_arn(
                service="execute-api",
                resource=api_id,
                resource_name=f"{stage_name}/{method}/{path}{suffix}",
                arn_format=ArnFormat.SLASH_RESOURCE_NAME,
            )
            for method, suffix in ROUTES
        ]

    @checked
    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Start sagas, each once per key: call the operation, and read what came of it."""
        return iam.Grant.add_to_principal(grantee=grantee, actions=[INVOKE], resource_arns=self._arns)


def _require(name: str, value: str, pattern: str, remedy: str) -> None:
    """Refuse a text of another form, unless only the deployment knows it."""
    if not Token.is_unresolved(value):
        require_match(name, value, pattern, remedy)
