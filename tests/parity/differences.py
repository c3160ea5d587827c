"""Differences between the fake DynamoDB and DynamoDB Local that are known, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answer = tuple[str | None, Mapping[str, Any]]
"""The error's code, if a request was refused, and the response."""


def known(operation: str, body: Mapping[str, Any], ours: Answer, theirs: Answer) -> str | None:
    """The reason why two responses need not be the same; None: they must be."""
    if operation == "Scan" and ({"Limit", "ExclusiveStartKey", "Segment"} & body.keys()):
        return "pages of a scan: DynamoDB orders partitions by a hash of its own"
    codes = (ours[0], theirs[0])
    if operation == "TransactWriteItems" and codes == ("ValidationException", "TransactionCanceledException"):
        return "an invalid transaction: DynamoDB Local tests conditions first; the fake refuses it, as AWS documents"
    if operation == "TransactWriteItems" and codes == ("TransactionCanceledException", "ValidationException"):
        reasons = {reason.get("Code") for reason in ours[1].get("CancellationReasons", ())}
        if reasons <= {"None", "ValidationError"}:
            return "an operand of another type in a transaction: the fake gives it as a reason, as AWS documents"
    return None
