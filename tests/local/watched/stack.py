"""A hand-written state machine that takes a lock, and what gives it back when no state of it can."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from constructs_lib import ExecutionWatch, StepFunction, WatchedMachine

_FUNCTIONS: Final = Path(__file__).parent / "functions"
FUNCTION_SECONDS: Final = 600
"""In the emulator's time: long enough for a process to start on a busy machine."""
GRACE: Final = Duration.minutes(2)
TIMEOUT: Final = Duration.minutes(5)


class ImportStack(Stack):
    """One import per supplier at a time: it takes a lock, imports for a while, and gives the lock back."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        locks = dynamodb.TableV2(
            self,
            "Locks",
            partition_key=dynamodb.Attribute(name="supplier", type=dynamodb.AttributeType.STRING),
            removal_policy=RemovalPolicy.DESTROY,
        )
        machine = sfn.StateMachine(
            self,
            "Import",
            definition_body=sfn.DefinitionBody.from_chainable(_import_under_a_lock(self, locks)),
            timeout=TIMEOUT,
        )
        release = StepFunction(
            self,
            "Release",
            code=_FUNCTIONS,
            handler="release.handler",
            environment={"LOCKS": locks.table_name},
            timeout=Duration.seconds(FUNCTION_SECONDS),
        )
        locks.grant(release, "dynamodb:DeleteItem")
        watch = ExecutionWatch(
            self,
            "Watch",
            machines=[WatchedMachine(machine=machine, on_timeout=release, grace=GRACE)],
            removal_policy=RemovalPolicy.DESTROY,
        )
        outputs = {
            "MachineArn": machine.state_machine_arn,
            "LocksTable": locks.table_name,
            "EndsTable": watch.table.table_name,
            "WatchName": watch.function.function.function_name,
            "ScheduleRule": watch.schedule.rule_name,
            "AbortedRule": next(rule.rule_name for rule in watch.ended if rule.node.id == "EndedAborted"),
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)


def _import_under_a_lock(scope: Construct, locks: dynamodb.TableV2) -> sfn.Chain:
    supplier = tasks.DynamoAttributeValue.from_string("{% $states.input.supplier %}")
    take = tasks.DynamoPutItem.jsonata(
        scope,
        "TakeLock",
        table=locks,
        item={
            "supplier": supplier,
            "holder": tasks.DynamoAttributeValue.from_string("{% $states.context.Execution.Id %}"),
        },
        # A redriven execution takes its own lock again if it was stopped before the answer arrived.
        condition_expression="attribute_not_exists(supplier) OR holder = :execution",
        expression_attribute_values={
            ":execution": tasks.DynamoAttributeValue.from_string("{% $states.context.Execution.Id %}")
        },
        outputs="{% $states.input %}",
    )
    work = sfn.Wait.jsonata(scope, "Work", time=sfn.WaitTime.seconds("{% $states.input.seconds %}"))
    give_back = tasks.DynamoDeleteItem.jsonata(scope, "GiveBack", table=locks, key={"supplier": supplier})
    return sfn.Chain.start(take).next(work).next(give_back)


def synthesize(folder: Path) -> Path:
    """The assembly."""
    app = App(outdir=str(folder))
    ImportStack(app, "Imports")
    app.synth()
    return folder
