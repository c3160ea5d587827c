"""Time to synthesize declared sagas, compared with the same resources written by hand with the CDK's own constructs.

One app with many sagas of ten steps each, synthesized in a process of its own; both sides take turns. By hand, a
definition is a text into which names and ARNs are put, which is the cheapest way there is: nothing is generated,
checked or budgeted. That both sides make the same resources is checked.

    python -m benchmarks.synth
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

# jsii starts the first `node` on the PATH: the pinned one, next to this interpreter.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")

from aws_cdk import App, Duration, Stack  # after the PATH: importing starts node
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from benchmarks.report import write_report
from constructs_lib import IdempotencyTable, SagaStateMachine, Step

STEPS: Final = 10
SAGAS_PER_STACK: Final = 10
"""A stack holds 500 resources."""
NUMBERS: Final = (10, 50, 100)
ROUNDS: Final = 3
OURS: Final = "SagaStateMachine"
THEIRS: Final = "by hand"


class Declared(Stack):
    """Sagas as this library declares them."""

    def __init__(self, scope: App, id: str, number: int) -> None:
        super().__init__(scope, id)
        self.requests = IdempotencyTable(self, "Requests")
        self.sagas = [self._saga(n) for n in range(number)]

    def _saga(self, number: int) -> SagaStateMachine:
        *runs, undo = functions(self, number)
        steps = [Step.atomic(f"Step{n}", fn=run, compensate=undo) for n, run in enumerate(runs)]
        return SagaStateMachine(self, f"Saga{number}", requests=self.requests, steps=steps)


class ByHand(Stack):
    """The same resources."""

    def __init__(self, scope: App, id: str, number: int, texts: tuple[str, str]) -> None:
        super().__init__(scope, id)
        self.requests = IdempotencyTable(self, "Requests")
        self._texts = texts
        for n in range(number):
            self._saga(n)

    def _saga(self, number: int) -> None:
        *runs, undo = functions(self, number)
        log = dynamodb.TableV2(
            self,
            f"Log{number}",
            partition_key=dynamodb.Attribute(name="saga_id", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="step", type=dynamodb.AttributeType.STRING),
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.aws_managed_key(),
            time_to_live_attribute="expiration",
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=True,
        )
        operators = sqs.Queue(
            self,
            f"Operators{number}",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        cloudwatch.Alarm(
            self,
            f"Alarm{number}",
            metric=operators.metric_approximate_number_of_messages_visible(
                period=Duration.minutes(1), statistic="Maximum"
            ),
            threshold=0,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        group = logs.LogGroup(self, f"Logs{number}", retention=logs.RetentionDays.THREE_MONTHS)
        names = {
            "<requests>": self.requests.table.table_name,
            "<log>": log.table_name,
            "<operators>": operators.queue_url,
            "<undo>": undo.function_arn,
            **{f"<step {n}>": run.function_arn for n, run in enumerate(runs)},
        }
        forward = self._machine(f"Forward{number}", self._texts[0], names, group)
        recovery = self._machine(
            f"Recovery{number}", self._texts[1], names | {"<forward>": forward.state_machine_arn}, group
        )
        for machine in (forward, recovery):
            for actions, arn in (
                (["dynamodb:UpdateItem", "dynamodb:GetItem"], self.requests.table.table_arn),
                (["dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:Query"], log.table_arn),
                (["sqs:SendMessage"], operators.queue_arn),
                (["lambda:InvokeFunction"], undo.function_arn),
            ):
                machine.add_to_role_policy(iam.PolicyStatement(actions=actions, resources=[arn]))
        forward.add_to_role_policy(
            iam.PolicyStatement(
                actions=["lambda:InvokeFunction"], resources=[function.function_arn for function in runs]
            )
        )
        recovery.add_to_role_policy(
            iam.PolicyStatement(actions=["states:StartExecution"], resources=[forward.state_machine_arn])
        )
        for function in (*runs, undo):
            writes = ["dynamodb:PutItem", "dynamodb:GetItem", *(["dynamodb:UpdateItem"] if function is undo else [])]
            function.add_to_role_policy(iam.PolicyStatement(actions=writes, resources=[log.table_arn]))

    def _machine(self, id: str, text: str, names: dict[str, str], group: logs.LogGroup) -> sfn.StateMachine:
        for placeholder, name in names.items():
            text = text.replace(placeholder, name)
        return sfn.StateMachine(
            self,
            id,
            definition_body=sfn.DefinitionBody.from_string(text),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False),
        )


def functions(stack: Stack, number: int) -> list[lambda_.Function]:
    """The functions of one saga: one for each step, and one for all compensations."""
    return [
        lambda_.Function(
            stack,
            f"{name}Of{number}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline("def handler(event, context): ..."),
            timeout=Duration.seconds(15),
        )
        for name in (*(f"Step{n}" for n in range(STEPS)), "Undo")
    ]


def texts() -> tuple[str, str]:
    """Return a saga's two definitions, as a developer would write them by hand."""
    stack = Declared(App(analytics_reporting=False), "Template", 1)
    (saga,) = stack.sagas
    declared = [step for step in saga.steps if isinstance(step, Step) and step.fn and step.compensate]
    names = {
        saga.requests.table.table_name: "<requests>",
        saga.log.table.table_name: "<log>",
        saga.operators.queue_url: "<operators>",
        **{step.fn.function_arn: f"<step {n}>" for n, step in enumerate(declared) if step.fn},
        **{step.compensate.function_arn: "<undo>" for step in declared if step.compensate},
        saga.state_machine.state_machine_arn: "<forward>",
        stack.partition: "aws",
    }
    found = []
    for definition in (saga.definition, saga.recovery_definition):
        text = json.dumps(definition)
        for token, placeholder in names.items():
            text = text.replace(token, placeholder)
        found.append(text)
    return found[0], found[1]


def measure(side: str, number: int) -> dict[str, Any]:
    """Declare and synthesize so many sagas; seconds, and resources by type. Imports and warming up do not count."""
    written = texts()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        app = App(outdir=folder, analytics_reporting=False)
        for index, first in enumerate(range(0, number, SAGAS_PER_STACK)):
            many = min(SAGAS_PER_STACK, number - first)
            if side == OURS:
                Declared(app, f"Stack{index}", many)
            else:
                ByHand(app, f"Stack{index}", many, written)
        assembly = app.synth()
        seconds = time.perf_counter() - began
        types = Counter(found["Type"] for stack in assembly.stacks for found in stack.template["Resources"].values())
    return {"seconds": seconds, "resources": dict(sorted(types.items()))}


def in_a_process(side: str, number: int) -> dict[str, Any]:
    """The same in an interpreter, and a node, of its own; and the processor time of both, imports included."""
    command = [sys.executable, "-m", "benchmarks.synth", "--side", side, "--sagas", str(number)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def compare(number: int, rounds: int) -> dict[str, Any]:
    """So many sagas on both sides, by turns. Processor time is that of an app without a saga taken off."""
    seconds: dict[str, list[float]] = {OURS: [], THEIRS: []}
    processor: dict[str, list[float]] = {OURS: [], THEIRS: []}
    resources: dict[str, Any] = {}
    for _ in range(rounds):
        for side in (OURS, THEIRS):
            nothing, result = in_a_process(side, 0), in_a_process(side, number)
            seconds[side].append(result["seconds"])
            processor[side].append(result["cpu"] - nothing["cpu"])
            resources[side] = result["resources"]
    if resources[OURS] != resources[THEIRS]:
        raise ValueError(f"the two sides make different resources: {resources}")
    return {
        "seconds": {side: round(statistics.median(found), 2) for side, found in seconds.items()},
        "processor_seconds": {side: round(statistics.median(found), 2) for side, found in processor.items()},
        "ratio": ratio(seconds),
        "processor_ratio": ratio(processor),
        "resources": sum(resources[OURS].values()),
    }


def ratio(sides: dict[str, list[float]]) -> float:
    """Return our time by theirs, round by round."""
    found = [ours / theirs for ours, theirs in zip(sides[OURS], sides[THEIRS], strict=True)]
    return round(statistics.median(found), 2)


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=[OURS, THEIRS])
    parser.add_argument("--sagas", type=int, default=NUMBERS[-1])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    if chosen.side:
        print(json.dumps(measure(chosen.side, chosen.sagas)))
        return
    report: dict[str, Any] = {}
    for number in NUMBERS:
        report[str(number)] = compare(number, chosen.rounds)
        print(number, report[str(number)])
    print(write_report("synth", {"steps": STEPS, "sagas": report}))


if __name__ == "__main__":
    main()
