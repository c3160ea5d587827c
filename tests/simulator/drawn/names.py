"""Names in a stack of drawn sagas, which its clients know without the CDK."""

from __future__ import annotations

from typing import Final

from constructs_lib.testing.invariants import Item
from saga_runtime.protocol import RecordAttribute

DIRECT: Final = "direct"
"""The operation without a saga."""
OPEN: Final = "open"
"""The same, with refusals that are not stored."""
LEDGER: Final = "LedgerTableName"
"""The output with the ledger's table, of a stack whose sagas post."""
CONSUMED: Final = "ConsumedTableName"
"""The output with the table of what was consumed, of a stack that publishes."""
PUBLISHED_BY: Final = ("drawn.outbox", "drawn")
"""Sources of events: of the outbox, and of state machines."""


def operation_of(number: int) -> str:
    """The operation of a saga, by its number in the stack."""
    return f"saga{number}"


def number_of(record: Item) -> int:
    """Number of the saga whose operation a record has."""
    return int(record[RecordAttribute.OPERATION]["S"].removeprefix("saga"))


def second_of(number: int) -> str:
    """Id of the saga that replaces another one."""
    return f"{number}V2"


def queue_of(number: int) -> str:
    """The output with the URL of the queue whose messages begin a saga."""
    return f"Queue{number}Url"


def aside_of(number: int) -> tuple[str, str]:
    """The outputs with the URLs of the queues of messages that were parked, and that failed too often."""
    return f"Parked{number}Url", f"Dead{number}Url"
