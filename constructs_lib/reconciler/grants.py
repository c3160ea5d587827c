"""Rights of the functions that reconcile sagas."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn

from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.reconciler.sagas import late_tokens_of
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.saga.synthesis.permissions import grant_send, queues_of
from constructs_lib.shared.nag_ids import executions_id
from constructs_lib.tables.interfaces import ITokenTable
from saga_runtime.protocol import DUE_INDEX, RESPONSE_INDEX, TokenAttribute

_INDEXES: Final = (DUE_INDEX, RESPONSE_INDEX)


def grant_repairing(function: RuntimeFunction, saga: SagaStateMachine) -> None:
    """Take over one saga that is named, start or stop it; and nothing else."""
    saga.requests.grant_settle(function)
    saga.log.grant_query(function)
    allow(function, ["dynamodb:UpdateItem"], [saga.log.table_arn])
    for tokens in late_tokens_of(saga):
        _allow_late_jobs(function, tokens)
    grant_send(queues_of([saga.operators]), function)
    allow(
        function,
        ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"],
        [saga.operators.queue_arn],
    )
    allow(function, ["states:StartExecution"], machines_of(saga))
    executions = [_executions_of(function, machine) for machine in (saga.state_machine, saga.recovery_machine)]
    allow(function, ["states:DescribeExecution"], executions)
    allow(function, ["states:StopExecution"], executions[:1])


def grant_reconciling(function: RuntimeFunction, saga: SagaStateMachine) -> None:
    """Find what is due, and do for it what ``grant_repairing`` allows."""
    grant_repairing(function, saga)
    allow(function, ["dynamodb:Query"], [f"{saga.requests.table_arn}/index/{name}" for name in _INDEXES])
    for tokens in late_tokens_of(saga):
        allow(function, ["dynamodb:Query"], [f"{tokens.table_arn}/index/{DUE_INDEX}"])
    allow(function, ["states:ListExecutions"], machines_of(saga))


def machines_of(saga: SagaStateMachine) -> list[str]:
    """ARNs of a saga's two state machines."""
    return [machine.state_machine_arn for machine in (saga.state_machine, saga.recovery_machine)]


def allow(grantee: iam.IGrantable, actions: list[str], resources: list[str]) -> None:
    """Allow actions on resources."""
    iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=resources)


def _executions_of(function: RuntimeFunction, machine: sfn.StateMachine) -> str:
    stack, there = Stack.of(function), Stack.of(machine)
    name = machine.state_machine_name
    named = f"<{there.resolve(name)['Fn::GetAtt'][0]}.Name>"
    if there is not stack:
        # It crosses as an export. Made here, the export's own name is known, by which the finding below goes.
        name = there.export_value(name)
        named = str(stack.resolve(name)["Fn::ImportValue"])
    Validations.of(function.role).acknowledge(
        Acknowledgment(
            id=executions_id(stack, named),
            reason="Executions of this one state machine: their names are made when they start, and whether one "
            "of them still runs is what the reconciler asks.",
        )
    )
    return stack.format_arn(
        service="states",
        resource="execution",
        resource_name=f"{name}:*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def _allow_late_jobs(grantee: iam.IGrantable, tokens: ITokenTable) -> None:
    """Read jobs with late effects: never a token, with which any wait could be ended."""
    if tokens.encryption_key is not None:
        tokens.encryption_key.grant_decrypt(grantee)
    read = [TokenAttribute.ID, TokenAttribute.LOG_TABLE, TokenAttribute.APPLIED_LATE_AT]
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=["dynamodb:GetItem"],
        resource_arns=[tokens.table_arn],
        conditions={
            "ForAllValues:StringEquals": {"dynamodb:Attributes": read},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
        },
    )
