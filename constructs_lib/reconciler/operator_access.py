"""OperatorAccess: operators ask a function, and need no right on what it changes."""

from __future__ import annotations

from typing import Final, cast

import jsii
from aws_cdk import Duration, IStableStringProducer, Lazy, RemovalPolicy, Token, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct

from constructs_lib.functions.function_options import FunctionOptions
from constructs_lib.functions.runtime_function import RuntimeFunction, name_role, own_code
from constructs_lib.reconciler.grants import allow, grant_repairing, machines_of
from constructs_lib.reconciler.sagas import require_room, steps_told
from constructs_lib.reconciler.timeout_reconciler import TimeoutReconciler
from constructs_lib.shared.arguments import require_seconds
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.manifest import Manifest
from constructs_lib.shared.manifest_format import Part
from constructs_lib.shared.stacks import require_same_place, require_same_stack
from constructs_lib.shared.types import checked
from saga_runtime.protocol import Env, SecondPerson

_SECONDS: Final = 50
_OPERATED: Final = "Operated"
_SHORTEST, _LONGEST = 300, 14 * 86_400


class OperatorAccess(Construct):
    """Lets operators act by asking a function: ``cdk-sagas resolve``, ``confirm``, ``cancel`` and ``doctor --repair``.

    Without it, an operator's own credentials read and write tables, queues and executions. With it, they need
    ``lambda:InvokeFunction`` on this one function; the commands find it by the stack's manifest.

    Guaranteed: who decided is whom AWS identifies: each request carries a ``GetCallerIdentity`` that its caller signed
    for this request alone, and the function sends it to STS. The content of an event cannot name another caller, and
    only roles and users of ``grant_operate`` are accepted, even if others may invoke the function. With
    ``second_person``, what ``resolve`` decides is written as a proposal, and executed once another principal
    confirms it: exactly as it was proposed, if the record and the row are as they were then. ``cdk-sagas resume``
    proposes a list likewise, which is confirmed once.
    Not guaranteed: that two principals are two people; nor anything about writes without the function:
    a principal that may write the tables needs no second one. ``cancel`` and repairs need no second person.

    Example::

        access = OperatorAccess(self, "Operators", reconciler=reconciler, second_person=SecondPerson.OTHER_ROLE)
        access.grant_operate(proposer)
        access.grant_operate(confirmer)

    Args:
        scope: parent construct.
        id: construct id.
        reconciler: whose sagas operators decide about.
        second_person: who confirms what ``resolve`` and ``resume`` decide; None, the default: no second person.
        proposals_expire_after: how long a proposal can be confirmed; 5 minutes to 14 days, 1 day by default.
        function_options: ``FunctionOptions`` for the function and its log group.
        removal_policy: of the log group; retained by default.

    Attributes:
        function: the function. It needs the internet or an endpoint of STS, if it is in a VPC.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        reconciler: TimeoutReconciler,
        second_person: SecondPerson | None = None,
        proposals_expire_after: Duration | None = None,
        function_options: FunctionOptions | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        if function_options is not None:
            function_options.apply_to(self)
        seconds = require_seconds(
            "proposals_expire_after",
            proposals_expire_after or Duration.days(1),
            at_least=_SHORTEST,
            at_most=_LONGEST,
        )
        if reconciler.node.try_find_child(_OPERATED) is not None:
            raise ValueError(
                f"reconciler must have one OperatorAccess, got {self.node.path} for {reconciler.node.path}, which has "
                "one; use that"
            )
        require_same_place(self, f"reconciler of {id}", reconciler, "make the OperatorAccess where the reconciler is")
        Construct(reconciler, _OPERATED)
        self._operators: list[str] = []
        self._second_person = second_person
        self.node.add_validation(WhenAllIsKnown(self._require_enough))
        steps = steps_told(reconciler.sagas)
        require_room(self, reconciler.sagas, steps)
        self.function = RuntimeFunction(
            self,
            "Function",
            code=own_code(),
            handler="handlers.operators.handler",
            description="Acts for operators who decide about sagas",
            timeout=Duration.seconds(_SECONDS),
            longest_timeout=Duration.seconds(_SECONDS),
            environment={
                **reconciler.environment,
                Env.OPERATED: steps,
                Env.OPERATORS: Lazy.string(cast("IStableStringProducer", _Operators(self._operators))),
                Env.HOLD_TABLE: reconciler.hold.table_name,
                Env.PROPOSAL_SECONDS: str(seconds),
                **({Env.SECOND_PERSON: second_person.value} if second_person is not None else {}),
            },
            removal_policy=removal_policy,
        )
        name_role(self.function, "the operators' function")
        reconciler.hold.grant_look(self.function)
        for saga in reconciler.sagas:
            grant_repairing(self.function, saga)
            saga.log.grant_resolve(self.function)
            allow(self.function, ["dynamodb:BatchGetItem"], [saga.requests.table_arn])
            allow(self.function, ["states:DescribeStateMachine"], machines_of(saga))
        Manifest.of(self).add(
            Part.OPERATORS,
            function=self.function.function.function_arn,
            second=second_person.value if second_person is not None else None,
        )

    @checked
    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Make a role or a user an operator: it may read the manifest, and ask the function.

        Of a role the function compares account and name, of a user the ARN. A role of another stack, or of IAM Identity
        Center: ``iam.Role.from_role_arn``.

        Args:
            grantee: a role, a user, or what has a role.

        Raises:
            ValueError: for anything else, whose requests would not be known; for a role or a user that another stack
                creates: each stack would depend on the other.
        """
        principal: object = grantee.grant_principal
        arn = getattr(principal, "role_arn", None) or getattr(principal, "user_arn", None)
        if arn is None:
            raise ValueError(
                f"grantee must be a role or a user, got {type(principal).__name__}; name each operator's role, of IAM "
                "Identity Center too, with iam.Role.from_role_arn"
            )
        if isinstance(principal, Construct) and Token.is_unresolved(arn):
            require_same_stack(
                self,
                "grantee",
                principal,
                "each stack would depend on the other; give it a name and pass iam.Role.from_role_arn with its ARN",
            )
        if arn not in self._operators:
            self._operators.append(arn)
        Manifest.of(self).grant_read(grantee)
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["lambda:InvokeFunction"],
            resource_arns=[self.function.function.function_arn],
        )

    def _require_enough(self) -> None:
        if not self._operators:
            Validations.of(self).add_error(
                "cdk-sagas-operators",
                f"{self.node.path} must have an operator, got none: the function refuses every caller; "
                "call grant_operate",
            )
        elif self._second_person is SecondPerson.OTHER_ROLE and len(self._operators) == 1:
            Validations.of(self).add_error(
                "cdk-sagas-second-operator",
                f"{self.node.path} must have two operators for SecondPerson.OTHER_ROLE, got one, whose proposals "
                "only another may confirm; call grant_operate for another user or role, or choose OTHER_SESSION",
            )


@jsii.implements(IStableStringProducer)
class _Operators:
    """ARNs of the operators, known when the app is synthesized: those that are granted later are, too."""

    def __init__(self, arns: list[str]) -> None:
        self._arns = arns

    def produce(self) -> str:
        """The value of ``Env.OPERATORS``."""
        return " ".join(self._arns)
