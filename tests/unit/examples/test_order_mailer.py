"""Notices of orders become rows of an outbox: each once, in its group's order, whatever else is in the batch."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import pytest
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

from saga_runtime.shared import aws
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import Context, World

ADA, BOB = "order-ada", "order-bob"
BAD: Final[dict[str, Any]] = {
    "no JSON": "Hello Ada,",
    "no object": ["COMPLETED"],
    "without a customer": {"status": "DECLINED", "order": ADA, "detail": "declined"},
    "of a customer without a name": {"status": "DECLINED", "order": ADA, "customer": ""},
    "about no order": {"status": "DECLINED", "customer": "ada"},
    "of no known status": {"status": "PENDING", "order": ADA, "customer": "ada"},
    "of a payment without an amount": {"status": "COMPLETED", "order": ADA, "customer": "ada", "currency": "EUR"},
    "of a failure nowhere": {"status": "FAILED", "order": ADA, "customer": "ada"},
}


class LambdaContext(Context):
    """The members of a context that Powertools reads."""

    function_name = "mailer"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:111122223333:function:mailer"
    aws_request_id = "request-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """The mailer, deployed with the shop's table."""

    world: World
    module: ModuleType

    def deliver(self, *messages: dict[str, Any]) -> list[str]:
        """Deliver a batch, and return the messages that are reported."""
        answer = self.module.handler({"Records": list(messages)}, LambdaContext())
        return [item["itemIdentifier"] for item in answer["batchItemFailures"]]

    def outbox(self) -> dict[tuple[str, str], str]:
        """The id of the message that each row was made of."""
        return {(row["id"]["S"], row["entry"]["S"]): row["message_id"]["S"] for row in self.world.items("shop")}

    def filed(self) -> set[str]:
        """The messages that rows were made of."""
        return set(self.outbox().values())


@pytest.fixture
def mail(world: World, monkeypatch: pytest.MonkeyPatch) -> Mail:
    monkeypatch.setenv("SHOP_TABLE", "shop")
    from examples.order_processing.functions.steps import mailer

    keys = {"id": "HASH", "entry": "RANGE"}
    client: Any = aws.dynamodb()
    client.create_table(
        TableName="shop",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, role in keys.items()],
    )
    world.wire.forget()
    return Mail(world=world, module=mailer)


def completed(order: str = ADA, customer: str = "ada") -> dict[str, str]:
    return {"status": "COMPLETED", "customer": customer, "order": order, "amount": "1250", "currency": "EUR"}


def declined(order: str = ADA, customer: str = "ada") -> dict[str, str]:
    return {"status": "DECLINED", "customer": customer, "order": order, "detail": "your card was declined"}


def failed(order: str = ADA, customer: str = "ada") -> dict[str, str]:
    return {"status": "FAILED", "customer": customer, "order": order, "step": "S", "error": "E", "detail": "d"}


def message(id: str, body: Any, *, group: str = ADA) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    return {"messageId": id, "body": text, "eventSource": "aws:sqs", "attributes": {"MessageGroupId": group}}


def bad_in_the_middle() -> list[dict[str, Any]]:
    """Two groups, and between two notices of the first an invalid message."""
    return [
        message("ada-1", declined()),
        message("bob-1", declined(BOB, "bob"), group=BOB),
        message("ada-2", "Hello Ada,"),
        message("ada-3", completed()),
        message("bob-2", completed(BOB, "bob"), group=BOB),
    ]


def only_the_rest_of_its_group_waits_for_a_bad_message(mail: Mail) -> None:
    assert mail.deliver(*bad_in_the_middle()) == ["ada-2", "ada-3"]
    assert mail.filed() == {"ada-1", "bob-1", "bob-2"}


def a_notice_that_comes_again_is_one_row_and_the_first_one(mail: Mail) -> None:
    assert mail.deliver(message("first", completed()), message("again", completed())) == []
    assert mail.deliver(message("later", completed())) == []
    assert mail.outbox() == {("mail#ada", f"{ADA}#COMPLETED"): "first"}


def every_notice_has_a_row_of_its_own(mail: Mail) -> None:
    notices = [completed(), declined(), failed(), completed(BOB), completed(BOB, "bob")]
    mail.deliver(*(message(str(number), notice) for number, notice in enumerate(notices)))

    assert set(mail.outbox()) == {
        ("mail#ada", f"{ADA}#COMPLETED"),
        ("mail#ada", f"{ADA}#DECLINED"),
        ("mail#ada", f"{ADA}#FAILED"),
        ("mail#ada", f"{BOB}#COMPLETED"),
        ("mail#bob", f"{BOB}#COMPLETED"),
    }


def a_write_that_fails_is_reported(mail: Mail) -> None:
    mail.world.wire.plan(Fault(operation="PutItem", action=Action.THROTTLE, on=2))
    batch = [message("ada-1", declined()), message("ada-2", completed()), message("bob-1", completed(BOB), group=BOB)]
    assert mail.deliver(*batch) == ["ada-2"]
    assert mail.filed() == {"ada-1", "bob-1"}


def what_is_no_notice_is_not_filed(mail: Mail) -> None:
    for name, body in BAD.items():
        reported = mail.deliver(message("bad", body), message("good", completed(BOB, "bob"), group=BOB))
        assert reported == ["bad"], name
    assert mail.filed() == {"good"}


def logs_say_nothing_of_what_a_notice_holds(mail: Mail) -> None:
    lines = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mail.module, "logger", Logger(service="mailer-test", stream=lines))
        mail.deliver(message("1", completed(customer="secret")), message("2", {"customer": "secret"}))
        with pytest.raises(BatchProcessingError) as caught:
            mail.deliver(message("3", {"customer": "secret"}))
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(line["message"], line["message_id"]) for line in told] == [
        ("notice filed", "1"), ("notice not filed", "2"), ("notice not filed", "3"),
    ]  # fmt: skip
    assert told[0]["saga_id"] == ADA
    assert "secret" not in lines.getvalue()
    assert "secret" not in str(caught.value)


SENTENCES: Final[list[Callable[[Mail], None]]] = [
    only_the_rest_of_its_group_waits_for_a_bad_message,
    a_notice_that_comes_again_is_one_row_and_the_first_one,
    every_notice_has_a_row_of_its_own,
    a_write_that_fails_is_reported,
    what_is_no_notice_is_not_filed,
    logs_say_nothing_of_what_a_notice_holds,
]


@pytest.mark.parametrize("holds", SENTENCES, ids=lambda sentence: sentence.__name__)
def test_mailer(mail: Mail, holds: Callable[[Mail], None]) -> None:
    holds(mail)


def test_a_row_holds_the_notice(mail: Mail) -> None:
    mail.deliver(message("m-1", {**completed(), "further": "field"}))

    (row,) = mail.world.items("shop")
    assert json.loads(row["notice"]["S"]) == {**completed(), "further": "field"}


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("on", [1, 2, 3])
def test_an_interrupted_batch_is_finished_by_its_redelivery(mail: Mail, on: int, moment: Moment) -> None:
    batch = [message("1", declined()), message("2", completed()), message("3", completed(BOB), group=BOB)]
    mail.world.wire.plan(Fault(operation="PutItem", action=Action.KILL, moment=moment, on=on))
    with pytest.raises(Killed):
        mail.deliver(*batch)
    assert len(mail.filed()) == on - (moment is Moment.BEFORE)
    mail.world.wire.forget()

    assert mail.deliver(*batch) == []

    assert sorted(mail.outbox().values()) == ["1", "2", "3"]


def test_a_lost_response_causes_no_second_row_and_no_failure(mail: Mail) -> None:
    mail.world.wire.plan(Fault(operation="PutItem", action=Action.DROP, moment=Moment.AFTER, times=1))

    assert mail.deliver(message("1", completed())) == []

    assert mail.world.wire.sent == ["PutItem", "PutItem"]
    assert mail.filed() == {"1"}


def test_a_failed_group_continues_where_it_stopped(mail: Mail) -> None:
    batch = bad_in_the_middle()
    mail.deliver(*batch)

    mended = [message("ada-2", failed()) if item["messageId"] == "ada-2" else item for item in batch]
    assert mail.deliver(*(item for item in mended if item["messageId"] in {"ada-2", "ada-3"})) == []

    assert mail.filed() == {"ada-1", "ada-2", "ada-3", "bob-1", "bob-2"}


def test_a_batch_of_nothing_but_bad_messages_fails_as_a_whole_and_shows_in_the_function_s_errors(mail: Mail) -> None:
    with pytest.raises(BatchProcessingError):
        mail.deliver(message("1", "Hello Ada,"), message("2", completed()))

    assert mail.filed() == set()
    assert mail.deliver(message("2", completed())) == []


def test_a_processor_that_stops_at_the_first_failure_would_keep_other_groups_waiting(
    mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail.module, "processor", SqsFifoPartialProcessor())

    with pytest.raises(AssertionError):
        only_the_rest_of_its_group_waits_for_a_bad_message(mail)
