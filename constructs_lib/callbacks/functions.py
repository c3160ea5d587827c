"""Functions of one integration: their environments, and their permissions for each saga that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

from aws_cdk import Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from constructs_lib.callbacks.subscriptions import MAX_SERVED_BYTES, ServedSaga, served_bytes, served_text
from constructs_lib.functions.access import policy_elsewhere
from constructs_lib.functions.environment_room import require_environment_room
from constructs_lib.functions.policy_room import take_room
from constructs_lib.functions.properties import check_at_synth
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.operator_actions import MACHINE_ACTIONS, REQUEST_TABLE_ACTIONS
from constructs_lib.shared.service_names import service_of
from constructs_lib.shared.stacks import require_same_stack
from constructs_lib.tables.interfaces import ITokenTable
from constructs_lib.tables.token_table import ITEM_ACTIONS
from saga_runtime.protocol import Env

CallbackCode = RuntimeFunction | AnyFunction
"""What dispatches or receives: a ``StepFunction``, or a function of the app that runs ``saga_runtime``."""

_taken: Final[WeakKeyDictionary[lambda_.Function, str]] = WeakKeyDictionary()
"""Paths of the integrations that functions work for: an environment has room for one."""


class CallbackWorkers(Construct):
    """Keeps environments and permissions of an integration's functions alike, whichever is added first.

    A function's permissions for a saga are in a policy of their own, never in its role's default one: CloudFormation
    makes a function after its role's default policy, a state machine after the functions that it invokes, and this
    policy names the state machine.
    """

    def __init__(self, scope: Construct, id: str, *, integration: str, tokens: ITokenTable) -> None:
        super().__init__(scope, id)
        self._integration = integration
        self._owner = scope
        self._tokens = tokens
        self._stack = Stack.of(self)
        self._served: dict[str, ServedSaga] = {}
        self._policies: list[iam.Policy] = []
        self._heartbeats: list[iam.Policy] = []
        self._functions: list[lambda_.Function] = []
        self._receivers: list[lambda_.Function] = []
        self._machines: dict[str, Sequence[str]] = {}
        self._operators: list[iam.IGrantable] = []

    def adopt(self, name: str, code: CallbackCode, *, heartbeats: bool = False) -> lambda_.Function:
        """Let a function work for the integration.

        Args:
            name: of the argument, for errors.
            code: the function.
            heartbeats: whether it may report that a provider is still working.

        Raises:
            ValueError: if it is not of this app and stack, or works for another integration.
        """
        function = code.function if isinstance(code, RuntimeFunction) else code
        if not isinstance(function, lambda_.Function):
            raise ValueError(
                f"{name} must be a function of this app, got {function.node.path}, which is imported, or a version or "
                "an alias: its environment cannot be set from here; give a StepFunction or a lambda Function"
            )
        require_same_stack(
            self._owner, name, function, "its environment names the token table, and the integration names the function"
        )
        owner = _taken.setdefault(function, self._integration)
        if owner != self._integration:
            raise ValueError(
                f"{name} must work for one integration, got {function.node.path} for {owner} and {self._integration}; "
                "make a function for each: they may share their code"
            )
        if function not in self._functions:
            self._functions.append(function)
            if function is code:
                check_at_synth(function, require_environment_room)
            function.node.add_validation(WhenAllIsKnown(lambda: self._require_policy_room(function)))
            function.add_environment(Env.TOKEN_TABLE, self._tokens.table_name)
            function.add_environment(Env.INTEGRATION, self._integration)
            function.add_environment(Env.SERVICE, service_of(self._owner))
            self._tell(function)
            self._tokens.grant_receive(function)
            for policy in self._policies:
                _attach(policy, function)
        if heartbeats and function not in self._receivers:
            self._receivers.append(function)
            for policy in self._heartbeats:
                _attach(policy, function)
        return function

    def serve(self, name: str, saga: ServedSaga, machines: Sequence[str]) -> None:
        """Let every function receive a saga's callbacks.

        Raises:
            ValueError: for a saga of another stack, or one that the functions' environment has no room for.
        """
        if Stack.of(saga.log) is not self._stack:
            raise ValueError(
                f"saga {name} must be in the stack of {self._integration}, got {Stack.of(saga.log).node.path} and "
                f"{self._stack.node.path}: each needs names of the other; put both into one stack"
            )
        length = served_bytes(self._stack, [*self._served.values(), saga])
        if length > MAX_SERVED_BYTES:
            raise ValueError(
                f"{self._integration} must serve sagas that its functions' environment has room for, got {length} "
                f"bytes of {MAX_SERVED_BYTES} with saga number {len(self._served) + 1}, {name}; make another "
                "CallbackIntegration for some of them: both may share one TokenTable"
            )
        self._served[name] = saga
        self._machines[name] = machines
        for grantee in self._operators:
            _let_operate(grantee, saga, machines)
        for function in self._functions:
            self._tell(function)
        self._allow(name.replace("/", "-"), saga, machines)

    def let_operate(self, grantee: iam.IGrantable) -> None:
        """Let an operator deliver outcomes of each saga, those that come later included."""
        self._operators.append(grantee)
        for name, saga in self._served.items():
            _let_operate(grantee, saga, self._machines[name])

    def _allow(self, id: str, saga: ServedSaga, machines: Sequence[str]) -> None:
        receipts = iam.Policy(self, id, statements=_receipts(saga, machines))
        for function in self._functions:
            _attach(receipts, function)
        self._policies.append(receipts)
        heartbeats = iam.Policy(receipts, "Heartbeats", statements=[_tasks(machines, "SendTaskHeartbeat")])
        for function in self._receivers:
            _attach(heartbeats, function)
        self._heartbeats.append(heartbeats)
        let_sweeper(receipts, "Sweeps", self._tokens, _sweeps(saga, machines))

    def _require_policy_room(self, function: lambda_.Function) -> None:
        """Refuse policies that IAM would refuse, when all of the function's are known."""
        if function.role is None:
            return
        try:
            for policy in (*self._policies, *(self._heartbeats if function in self._receivers else ())):
                take_room(function, function.role, policy, "make another CallbackIntegration for some of the sagas")
        except ValueError as error:
            Validations.of(function).add_error("cdk-sagas-policy-room", str(error))

    def _tell(self, function: lambda_.Function) -> None:
        """Setting a variable again replaces its value."""
        function.add_environment(Env.CALLBACKS, served_text(list(self._served.values())))


def let_sweeper(
    scope: Construct, id: str, tokens: ITokenTable, statements: Sequence[iam.PolicyStatement]
) -> iam.Policy:
    """A policy of the sweeper's role, in the scope's stack: the sweeper may be in another one, or in another app.

    Raises:
        ValueError: if the role has no room for it.
    """
    role = tokens.sweeper_role
    if tokens.sweeper is None or Stack.of(tokens.sweeper) is not Stack.of(scope):
        policy = policy_elsewhere(scope, id, role, statements)
    else:
        policy = iam.Policy(scope, id, statements=list(statements), roles=[role])
    take_room(tokens, role, policy, "give further sagas and integrations a TokenTable of their own")
    return policy


def _attach(policy: iam.Policy, function: lambda_.Function) -> None:
    if function.role is not None:
        policy.attach_to_role(function.role)


def _let_operate(grantee: iam.IGrantable, saga: ServedSaga, machines: Sequence[str]) -> None:
    grant = iam.Grant.add_to_principal
    grant(grantee=grantee, actions=list(REQUEST_TABLE_ACTIONS), resource_arns=[saga.requests.table_arn])
    grant(grantee=grantee, actions=list(MACHINE_ACTIONS), resource_arns=list(machines))
    if (key := saga.requests.encryption_key) is not None:
        key.grant(grantee, "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey")


def _receipts(saga: ServedSaga, machines: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions to register a saga's tasks and to receive their outcomes, and nothing else."""
    return [
        iam.PolicyStatement(actions=list(ITEM_ACTIONS), resources=[saga.log.table_arn]),
        iam.PolicyStatement(actions=["dynamodb:GetItem", "dynamodb:UpdateItem"], resources=[saga.requests.table_arn]),
        _tasks(machines, "SendTaskSuccess", "SendTaskFailure"),
        *_use_of_keys(saga.log.encryption_key, saga.requests.encryption_key),
    ]


def _sweeps(saga: ServedSaga, machines: Sequence[str]) -> list[iam.PolicyStatement]:
    """Permissions to deliver stored outcomes, notify operators, find unreported jobs, and keep rows of late effects."""
    return [
        iam.PolicyStatement(
            actions=["dynamodb:GetItem", "dynamodb:UpdateItem"],
            resources=[saga.log.table_arn, saga.requests.table_arn],
        ),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[saga.operators.queue_arn]),
        _tasks(machines, "SendTaskSuccess", "SendTaskFailure"),
        *_use_of_keys(saga.log.encryption_key, saga.requests.encryption_key, saga.operators.encryption_master_key),
    ]


def _tasks(machines: Sequence[str], *actions: str) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=[f"states:{action}" for action in actions], resources=list(machines))


def _use_of_keys(*keys: kms.IKey | None) -> list[iam.PolicyStatement]:
    arns = list(dict.fromkeys(key.key_arn for key in keys if key is not None))
    actions = ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"]
    return [iam.PolicyStatement(actions=actions, resources=arns)] if arns else []
