"""Providers of a user's stack in the simulator: one that answers, and one that reports later by a webhook."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from aws_cdk import App

from constructs_lib.testing import ProviderAction, audit_provider
from constructs_lib.testing.invariants import Invariant
from constructs_lib.testing.proof import NotProvenError, Proof
from constructs_lib.testing.simulator import Intent, Provider, Report, Result, SimulatedProvider, Workload, World
from constructs_lib.testing.simulator.deployment.deployment import Deployment

from .ticket_sales.stack import GATEWAY, VENUE, TicketStack


class Sales(Workload):
    def providers(self, world: World, random: Random) -> Mapping[str, Provider]:
        self.gateway = SimulatedProvider(world, {"charge": "/charges", "refund": "/refunds"})
        self.venue = SimulatedProvider(
            world,
            {"order": "/tickets", "return": "/returns"},
            refuses=lambda operation, body: body.get("show") == "closed",
            reports=lambda action: self.report(world, action),
        )
        return {GATEWAY: self.gateway, VENUE: self.venue}

    def report(self, world: World, action: ProviderAction) -> Report | None:
        if action.operation != "order":
            return None
        number = str(action.number)
        body = json.dumps({"id": number, "reference": action.body["reference"], "ticket": f"order-{number}"})

        def sign(now: int) -> dict[str, str]:
            secret = world.secrets.signing(world.output("SecretArn"))
            text = hmac.new(secret.encode(), f"{now}.{body}".encode(), hashlib.sha256).hexdigest()
            return {"X-Time": str(now), "X-Signature": text}

        return Report(url=world.output("WebhookUrl"), body=body, sign=sign)

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="tickets", body={"show": random.choice(("hamlet", "hamlet", "closed")), "amount": 4200})

    def audit(self, world: World) -> Iterable[Invariant]:
        rows = world.table(world.output("LogName"))
        yield from audit_provider(rows, self.gateway.effects(), steps=["Charge"])
        yield from audit_provider(rows, self.venue.effects(), steps=["Ticket"])

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        requests = {(one.intent.user, one.key): one for one in results}.values()
        wanted = sum(bool(one.completed) for one in requests)
        shows: list[Any] = world.table(world.output("ShowsName"))
        sold = sum(int(show["sold"]["N"]) for show in shows)
        paid = len(self.gateway.actions("charge")) - len(self.gateway.actions("refund"))
        told = () if (sold, paid) == (wanted, wanted) else (f"{wanted} were bought, {sold} counted, {paid} paid",)
        yield Invariant(name="each ticket is paid and counted", checked=len(results), violations=told)


@pytest.fixture(scope="module")
def tickets() -> Iterable[Deployment]:
    with Deployment.of_stack(TicketStack(App(), "Tickets")) as deployment:
        yield deployment


def test_sales_with_providers_are_proven(tickets: Deployment) -> None:
    with Proof(tickets, Sales(), seeds=(0, 2)) as proof:
        proof.survives_crashes(at_most=12)
        proof.duplicates_are_one()
        check = proof.survives_random_faults(requests=20)

    assert {case.status for case in proof.checks[0].cases} >= {200, 422}
    assert check.invariants["each ticket is paid and counted"] >= 40


class _Paid(Sales):
    """An audit that expects no sale at all."""

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        return super().audit_results(world, results[:0])


def test_payments_without_a_request_are_found(tickets: Deployment) -> None:
    with (
        Proof(tickets, _Paid(), seeds=(0, 2)) as proof,
        pytest.raises(NotProvenError, match="0 were bought, 1 counted"),
    ):
        proof.duplicates_are_one()
