"""The functions' configuration of sagas, and its length when CloudFormation has made the names."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import IdempotencyTable
from constructs_lib.callbacks.subscriptions import ServedSaga, served_bytes, served_text
from constructs_lib.tables.saga_log import SagaLog
from tests.constructs.support.factories import AppFactory

SUFFIX = "-ABCDEF123456"
LONGEST_URL = "https://sqs.ap-northeast-1.amazonaws.com/111111111111/" + "q" * 80
STEPS = {"Pick": {"side": "pivot", "job": True, "undo": False}}


def _served(log: dynamodb.ITableV2, requests: dynamodb.ITableV2, queue: sqs.IQueue) -> ServedSaga:
    return ServedSaga(log=log, requests=requests, days=400, operators=queue, steps=STEPS)


def _named(text: str, name: str, made: str) -> str:
    """The text with a token replaced by the name that CloudFormation makes of it."""
    assert name in text
    return text.replace(name, made)


def test_the_length_is_that_of_the_longest_text_that_a_deployment_makes(stack: Stack) -> None:
    log, requests, queue = SagaLog(stack, "Log").table, IdempotencyTable(stack, "Requests").table, sqs.Queue(stack, "Q")
    served = _served(log, requests, queue)
    text = served_text([served])
    for table in (log, requests):
        logical_id = stack.resolve(table.table_name)["Ref"]
        text = _named(text, table.table_name, f"{stack.stack_name}-{logical_id}{SUFFIX}")
    text = _named(text, queue.queue_url, LONGEST_URL)

    assert 0 <= served_bytes(stack, [served]) - len(text) <= 8


def test_known_names_are_measured_by_their_length(stack: Stack) -> None:
    log, requests = (dynamodb.TableV2.from_table_name(stack, name, f"my-{name}") for name in ("log", "requests"))
    served = _served(log, requests, sqs.Queue(stack, "Queue"))
    text = _named(served_text([served]), served.operators.queue_url, LONGEST_URL)

    assert 0 <= served_bytes(stack, [served]) - len(text) <= 8


def test_a_name_is_never_longer_than_a_name_can_be(new_app: AppFactory) -> None:
    stack = Stack(new_app(), "S" * 128)
    log = SagaLog(Construct(stack, "L" * 200), "Log").table
    length = served_bytes(stack, [_served(log, log, sqs.Queue(stack, "Queue"))])

    assert 2 * 255 < length < 2 * 255 + 400


def test_sagas_add_up(stack: Stack) -> None:
    table, queue = SagaLog(stack, "Log").table, sqs.Queue(stack, "Queue")
    one = _served(table, table, queue)

    # Two brackets, and a comma between each two.
    assert served_bytes(stack, [one] * 3) == 3 * (served_bytes(stack, [one]) - 2) + 2 + 2
