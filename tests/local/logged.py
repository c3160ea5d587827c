"""Lines that deployed functions logged, held against the masking of personal data and secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from constructs_lib.testing import LocalAws
from saga_runtime.shared.masking import masked

LOGGING_EXAMPLES: Final = frozenset(
    {
        "test_agentic_payout",
        "test_cart_fulfilment",
        "test_order_mailer",
        "test_order_processing",
        "test_saga",
        "test_wallet",
    }
)
"""Files of tests in which an example's functions run."""
OF_ONE_RUN: Final = frozenset({"test_cart_fulfilment", "test_order_processing"})
"""Those whose tests examine one run, which no test empties: the lines are checked after the last of them."""
_MADE_BY_POWERTOOLS: Final = frozenset({"_aws", "level", "location", "timestamp", "service", "xray_trace_id"})


def local_aws_of(item: pytest.Item) -> list[LocalAws]:
    """The local AWS of a test's fixtures, each once."""
    values: list[Any] = list(getattr(item, "funcargs", {}).values())
    values += [system for value in values if isinstance(value, dict) for system in value.values()]
    found = [value for value in (*values, *(getattr(v, "aws", None) for v in values)) if isinstance(value, LocalAws)]
    return list({id(aws): aws for aws in found}.values())


def unmasked_lines(aws: LocalAws) -> Iterator[str]:
    """Lines of functions' logs in which masking finds something."""
    for function in aws.functions():
        for log in aws.function_logs(function.physical_id):
            for line in log.lines:
                if _is_unmasked(line):
                    yield f"{function.logical_id}: {line}"


def _is_unmasked(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return bool(masked(line) != line)
    if not isinstance(entry, dict):
        return bool(masked(line) != line)
    logged = {key: value for key, value in entry.items() if key not in _MADE_BY_POWERTOOLS}
    return bool(masked(logged) != logged)
