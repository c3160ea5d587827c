"""A direct operation, of a request or of an event, that writes outside of its commit is found."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Final

import pytest
from aws_cdk import App, CfnOutput, Duration, Stack
from aws_cdk import aws_sqs as sqs

from constructs_lib import DirectFunction, DirectOperation, EventIntake, IdempotencyTable, StepFunction, TransactionApi
from constructs_lib.testing.simulator import Intent, PromiseBrokenError, Workload, World, simulate
from constructs_lib.testing.simulator.faults.climate import CALM

pytestmark = pytest.mark.proof

_MODULE: Final = """
import os

import boto3

from saga_runtime import Begin, Commit, DirectCall, Write, direct_operation, event_operation


def put(key):
    return {"TableName": os.environ["PAID"], "Item": {"id": {"S": f"paid {key}"}}}


def planned(call, inside):
    if inside:
        return Commit(writes=[Write(action={"Put": put(call.key)})])
    boto3.client("dynamodb").put_item(**put(call.key))
    return Commit()


@direct_operation
def pay(call: DirectCall) -> Commit:
    return planned(call, INSIDE["pay"])


def read(event):
    return Begin(key=event["id"], request={})


@event_operation(read)
def collect(call: DirectCall) -> Commit:
    return planned(call, INSIDE["collect"])


INSIDE = {"pay": True, "collect": True}
"""


class _Payments(Workload):
    """One payment by a request, and one by an event."""

    def prepare(self, world: World, random: Random) -> None:
        message = {"QueueUrl": world.output("QueueUrl"), "MessageBody": json.dumps({"id": "one"})}
        world.call("sqs", "SendMessage", message)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="payments", body={})


def _stack(folder: Path, module: str) -> Stack:
    (folder / "payments.py").write_text(module, encoding="utf-8")
    stack = Stack(App(), "Payments")
    requests, paid = IdempotencyTable(stack, "Requests"), IdempotencyTable(stack, "Paid")
    environment = {"PAID": paid.table.table_name}
    pay = DirectFunction(stack, "Pay", code=folder, handler="payments.pay", environment=environment)
    collect = StepFunction(stack, "Collect", code=folder, handler="payments.collect", environment=environment)
    for function in (pay, collect):
        paid.table.grant_write_data(function)
    operation = DirectOperation(fn=pay, requests=requests, previous=None)
    TransactionApi(stack, "Api", operations={"payments": operation}, cloud_watch_role=False)
    dead = sqs.DeadLetterQueue(queue=sqs.Queue(stack, "Dead"), max_receive_count=10)
    queue = sqs.Queue(stack, "Queue", visibility_timeout=Duration.seconds(90), dead_letter_queue=dead)
    EventIntake(stack, "Collected", operation="collected", fn=collect, requests=requests).add_queue(queue)
    CfnOutput(stack, "QueueUrl", value=queue.queue_url)
    return stack


@pytest.mark.parametrize("outside", [None, "pay", "collect"])
def test_direct_operation_that_writes_outside_of_its_commit_is_found(outside: str | None, tmp_path: Path) -> None:
    module = _MODULE.replace(f'"{outside}": True', f'"{outside}": False')
    report = simulate(_stack(tmp_path, module), _Payments(), sagas=1, climate=CALM)

    if outside is None:
        report.require_kept()
        return
    told = rf"functions write in their commits only: .*{outside.title()}.* makes dynamodb:PutItem outside of its commit"
    with pytest.raises(PromiseBrokenError, match=told):
        report.require_kept()
