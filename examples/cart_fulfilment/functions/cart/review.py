"""A person approves expensive carts: the reviewers get a link to approve or reject."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from saga_runtime import CallbackCall, Money, approval_link, callback_step
from saga_runtime.shared import aws


@callback_step
def ask(call: CallbackCall) -> None:
    """Notify the reviewers of a waiting cart. At least once: a second link to one decision does no harm."""
    price = call.outputs["PriceCart"]
    amount = str(Money(int(price["amount"]), price["currency"]))
    goods = ", ".join(f"{item['quantity']} of {item['sku']}" for item in call.request["items"])
    link = approval_link(
        call,
        reviewer="fraud desk",
        expires=timedelta(seconds=int(os.environ["REVIEW_SECONDS"])),
        title="Sell this cart?",
        # A cart may be long, and a link must fit into a mail.
        details={"Amount": amount, "Customer": call.request["customer"][:80], "Goods": goods[:300]},
    )
    told = {
        "order": call.saga_id,
        "customer": call.request["customer"],
        "amount": price["amount"],
        "currency": price["currency"],
        "link": link,
    }
    aws.sqs().send_message(QueueUrl=os.environ["REVIEWERS_QUEUE_URL"], MessageBody=json.dumps(told))
