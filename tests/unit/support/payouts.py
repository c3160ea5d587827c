"""The functions of the agentic payout on the runtime's surroundings, and a saga's worth of events for them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from examples.agentic_payout.functions.payout import controls, model
from examples.agentic_payout.functions.payout.intent import Intent, request_of
from examples.agentic_payout.functions.payout.model import Answer
from examples.agentic_payout.functions.payout.prompt import Prompt
from saga_runtime import Money
from saga_runtime.idempotency.identity import saga_id_of
from saga_runtime.protocol import OUTPUT_FIELD, CallField
from saga_runtime.shared import aws
from tests.unit.support.samples import NOW_MS, REQUEST_ID, SAGA_ID, step_event
from tests.unit.support.world import Context, World

AGENT: Final = "procurement"
CAP: Final = 1_000
FACTS: Final = {"day": "2023-11-14", "agent_spent_today": "0", "agent_cap": str(CAP), "payee_state": "OPEN"}
OTHER_SAGA: Final = saga_id_of(REQUEST_ID, NOW_MS + 1, "requests")


def intent(**changes: Any) -> Intent:
    """An intent."""
    parts = {"payer": "alice", "payee": "bob", "purpose": "invoice:4711", "period": "2026-11", **changes}
    amount = Money(parts.pop("minor_units", 200), parts.pop("currency", "EUR"))
    return Intent(amount=amount, **parts)


class ScriptedModel:
    """A model with prepared responses, which counts its calls."""

    def __init__(self, *contents: Any) -> None:
        self._contents = list(contents)
        self.asked: list[Prompt] = []

    def ask(self, prompt: Prompt) -> Answer:
        """The next content; an exception is raised."""
        self.asked.append(prompt)
        content = self._contents[len(self.asked) - 1]
        if isinstance(content, Exception):
            raise content
        return Answer(content=content, version="scripted-1", call_id=f"call-{len(self.asked)}")


class Payouts:
    """The deployed functions, invoked one by one."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self._monkeypatch = monkeypatch

    def model(self, *contents: Any) -> ScriptedModel:
        """Put a scripted model in the place of the deployed one."""
        from examples.agentic_payout.functions.payout import recommend

        scripted = ScriptedModel(*contents)
        self._monkeypatch.setattr(recommend, "model_from_env", lambda: scripted)
        return scripted

    def analyze(self, wanted: Intent, *, agent: str = AGENT) -> Any:
        """Invoke the step's function."""
        from examples.agentic_payout.functions.payout.analyze import handler

        return handler(self._event("Analyze", wanted, agent), Context())[OUTPUT_FIELD]

    def claim(self, wanted: Intent, *, agent: str = AGENT, saga_id: str = SAGA_ID) -> Any:
        """Invoke the step's function."""
        from examples.agentic_payout.functions.payout.claim import handler

        return handler(self._event("Claim", wanted, agent, saga_id=saga_id), Context())[OUTPUT_FIELD]

    def release(self, wanted: Intent, *, saga_id: str = SAGA_ID) -> Any:
        """Invoke the compensation's function."""
        from examples.agentic_payout.functions.payout.claim import release

        return release(self._event("Claim", wanted, AGENT, saga_id=saga_id), Context())

    def recommend(self, wanted: Intent, *, saga_id: str = SAGA_ID) -> Any:
        """Invoke the step's function, recorded."""
        from examples.agentic_payout.functions.payout.recommend import handler

        event = self._event("Recommend", wanted, AGENT, saga_id=saga_id, outputs={"Analyze": FACTS})
        return handler({**event, CallField.RECORD: True}, Context())[OUTPUT_FIELD]

    def act(self, wanted: Intent, recommended: dict[str, Any], *, agent: str = AGENT, saga_id: str = SAGA_ID) -> Any:
        """Invoke the step's function."""
        from examples.agentic_payout.functions.payout.act import handler

        claims = {item["id"]["S"]: item for item in self.world.items("controls")}
        version = claims[f"claim#{wanted.obligation}"]["version"]["N"] if claims else "1"
        outputs = {"Claim": {"version": version}, "Recommend": {"reason": "fine", **recommended}}
        return handler(self._event("Act", wanted, agent, saga_id=saga_id, outputs=outputs), Context())[OUTPUT_FIELD]

    def pay(self, wanted: Intent, *, agent: str = AGENT, saga_id: str = SAGA_ID) -> Any:
        """Claim an intent and pay it in full."""
        self.claim(wanted, agent=agent, saga_id=saga_id)
        full = {"decision": "pay", "amount": str(wanted.amount.minor_units)}
        return self.act(wanted, full, agent=agent, saga_id=saga_id)

    def claim_state(self, wanted: Intent) -> str:
        """State of an intent's claim."""
        items = {item["id"]["S"]: item for item in self.world.items("controls")}
        return str(items[f"claim#{wanted.obligation}"]["state"]["S"])

    def spent(self) -> dict[str, int]:
        """Amounts that were spent, by agent and day."""
        return {
            item["id"]["S"].partition("#")[2]: int(item["spent"]["N"])
            for item in self.world.items("controls")
            if item["id"]["S"].startswith("spent#")
        }

    def _event(self, step: str, wanted: Intent, agent: str, *, saga_id: str = SAGA_ID, outputs: Any = None) -> Any:
        body = request_of(wanted, agent=agent)
        return step_event(step=step, body=body, saga_id=saga_id, outputs=outputs)


def deploy(world: World, monkeypatch: pytest.MonkeyPatch) -> Payouts:
    """Set the functions' environment, and create their tables."""
    variables = {
        controls.TABLE: "controls",
        controls.CAPS: json.dumps({AGENT: CAP}),
        controls.CURRENCY: "EUR",
        model.STAND_IN_BOOKS: "books",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for table in ("controls", "books"):
        aws.dynamodb().create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
    world.wire.forget()
    return Payouts(world, monkeypatch)
