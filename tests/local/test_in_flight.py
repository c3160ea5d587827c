"""What is in flight, on local AWS: a request says what it moves, and a schedule adds it up until it is settled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from constructs_lib.testing import Fault
from saga_runtime.protocol import Metric

from .transfer_system import TransferSystem, deployed, transfer, until

SPEED = 30.0
"""A measuring every five minutes comes every ten seconds."""
EUROS = 700


@pytest.fixture(scope="module")
def system() -> Iterator[TransferSystem]:
    """Transfers that nobody looks after."""
    with deployed(speed=SPEED) as systems:
        yield systems["FundsTransfer"]


def told(system: TransferSystem) -> list[dict[str, Any]]:
    """Every metric line of the reconciler's function."""
    lines = [line for entry in system.aws.function_logs(system.outputs["ReconcilerName"]) for line in entry.lines]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [document for document in found if "_aws" in document]


def test_what_is_reserved_and_not_settled_is_added_up_by_the_schedule(system: TransferSystem) -> None:
    system.open("alice", "bob")
    system.aws.faults.plan(Fault(function=system.gatekeeper, call="states:StartExecution", action="kill"))
    system.post("in-flight", transfer("alice", "bob", EUROS))
    rule = system.outputs["ReconcilerMeasureRule"]
    system.aws.client("events").enable_rule(Name=rule)

    euros = until(lambda: [line for line in told(system) if line.get("currency") == "EUR"], "a measuring")
    system.aws.client("events").disable_rule(Name=rule)
    assert euros[0][Metric.MONEY_IN_FLIGHT] == [EUROS]
    assert euros[0]["service"] == "FundsTransfer-Reconciler-Function"
    (sagas, *_) = (line for line in told(system) if Metric.IN_FLIGHT in line)
    assert (sagas[Metric.IN_FLIGHT], sagas[Metric.PARKED]) == ([1], [0])
    assert sagas[Metric.OLDEST_IN_FLIGHT][0] >= 0
