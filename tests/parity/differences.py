"""Differences between the fake DynamoDB and DynamoDB Local that are known, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Answer = tuple[str | None, Mapping[str, Any]]
"""The error's code, if a request was refused, and the response."""


def known(operation: str, body: Mapping[str, Any], ours: Answer, theirs: Answer) -> str | None:
    """The reason why two responses need not be the same; None: they must be."""
    paged = {"Limit", "ExclusiveStartKey", "Segment"} & body.keys() or "LastEvaluatedKey" in {*ours[1], *theirs[1]}
    if operation == "Scan" and paged:
        return "pages of a scan: DynamoDB orders partitions by a hash of its own"
    if "IndexName" in body and paged:
        return "pages of an index: entries with one sort key have no order, and DynamoDB Local counts whole items"
    codes = (ours[0], theirs[0])
    if operation == "TransactWriteItems" and codes == ("ValidationException", "TransactionCanceledException"):
        return "an invalid transaction: DynamoDB Local tests conditions first; the fake refuses it, as AWS documents"
    if operation == "TransactWriteItems" and codes == ("TransactionCanceledException", "ValidationException"):
        reasons = {reason.get("Code") for reason in ours[1].get("CancellationReasons", ())}
        if reasons <= {"None", "ValidationError"}:
            return "an operand of another type in a transaction: the fake gives it as a reason, as AWS documents"
    return None
