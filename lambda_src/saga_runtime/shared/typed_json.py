"""Transactions as the JSON that they are: botocore neither walks their entries nor the items of their refusals.

Entries have DynamoDB's typed attribute values, which are the request's JSON; so has the item that refuses one. botocore
compares each member of either with the service's model, which is a third of a refused transaction's processor time.
What it adds (the token of a call, the signature, retries, errors) it adds as ever.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from botocore.hooks import BaseEventHooks

_ENTRIES: Final = "cdk_sagas_entries"
_MEMBER: Final = "TransactItems"
_REASONS: Final = "CancellationReasons"


def register(events: BaseEventHooks) -> None:
    """Make a DynamoDB client send and receive transactions so."""
    operation = "dynamodb.TransactWriteItems"
    handlers: dict[str, Any] = {
        "provide-client-params": _take_entries,
        "before-call": _put_entries,
        "before-parse": _take_reasons,
    }
    for event, handler in handlers.items():
        # A client that is registered twice must not have its entries taken twice: the second call finds no entries.
        events.register(f"{event}.{operation}", handler, unique_id=f"cdk-sagas-{event}")


def _take_entries(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    context[_ENTRIES] = params[_MEMBER]
    return {**params, _MEMBER: ()}


def _put_entries(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    request = {**json.loads(params["body"]), _MEMBER: context[_ENTRIES]}
    params["body"] = _encode(request).encode("utf-8")


def _take_reasons(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    body = response_dict["body"]
    if response_dict["status_code"] != 400 or b'"B"' in body or b'"BS"' in body:  # botocore decodes binary values
        return
    answer = json.loads(body)
    if isinstance(answer, dict) and _REASONS in answer:
        customized_response_dict[_REASONS] = answer.pop(_REASONS)
        response_dict["body"] = json.dumps(answer).encode("utf-8")


def _base64(value: Any) -> str:
    """A binary value, as it travels."""
    return base64.b64encode(value).decode("ascii")


_encode: Final = json.JSONEncoder(separators=(",", ":"), default=_base64).encode
