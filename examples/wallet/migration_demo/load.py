"""Constant load: payments, top-ups, refunds, transfers, profiles and births, by clients that repeat until they know."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from constructs_lib.testing.simulator.engine.kernel import SECOND
from examples.wallet.functions.wallet.operations import bonus_of
from examples.wallet.functions.wallet.split import legacy, operations
from examples.wallet.functions.wallet.split.layout import LAYOUT, store
from saga_runtime import direct_operation
from saga_runtime.errors import SagaError

from .checks import Checks
from .world import Context, World

CUSTOMERS: Final = tuple(f"c-{number:03d}" for number in range(36))
SHOPS: Final = ("s-000", "s-001", "s-002", "s-003")
_NAMES: Final = {
    "pay": "pay",
    "top-up": "top_up",
    "refund": "refund",
    "transfer": "transfer",
    "profile": "change_profile",
    "birth": "open_card",
}
_KINDS: Final = {"pay": 46, "top-up": 16, "refund": 8, "transfer": 18, "profile": 10, "birth": 2}
_TOO_MUCH: Final = 10**9
_TOO_MUCH_SHARE: Final = 0.03
_PATIENCE: Final = 400
Handler = Callable[[Any, Any], dict[str, Any]]
HANDLERS: Final[tuple[Mapping[str, Handler], ...]] = tuple(
    {kind: direct_operation(getattr(module, name)) for kind, name in _NAMES.items()} for module in (legacy, operations)
)
"""Handlers of release 0, and of every release since."""


@dataclass(slots=True)
class Outcomes:
    """Responses, and what they add up to.

    Attributes:
        requests: by kind.
        completed: with 200.
        wanted_refusals: refusals that every release gives: the amount is too high.
        refused: final responses that are neither; the migration's fault.
        unavailable: responses 503 that a client repeated.
        died: invocations without a response.
        lost: requests without a final response.
        expected: change of each balance by what was answered.
        by_second: completed requests by second.
    """

    requests: Counter[str] = field(default_factory=Counter)
    completed: int = 0
    wanted_refusals: int = 0
    refused: list[str] = field(default_factory=list)
    unavailable: int = 0
    died: int = 0
    lost: int = 0
    reads: int = 0
    expected: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_second: Counter[int] = field(default_factory=Counter)
    slowest_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class Load:
    """Clients of the wallet.

    Attributes:
        outcomes: what they saw.
        under_way: requests without a final response yet.
        share_new: share of invocations that the new release serves; between 0 and 1 while it is being deployed.
    """

    def __init__(self, world: World, checks: Checks, *, rate: float) -> None:
        self.outcomes = Outcomes()
        self.share_new = 0.0
        self._world = world
        self._checks = checks
        self._rate = rate
        self._number = 0
        self._stopped = False
        self.under_way = 0
        self._payments: deque[tuple[str, str, int]] = deque(maxlen=200)

    def start(self) -> None:
        """Let requests arrive, at random moments, at a constant rate."""
        self._world.start("load", self._arrive)

    def stop(self) -> None:
        """Let no more arrive."""
        self._stopped = True

    @property
    def quiet(self) -> bool:
        """True if every client has its response."""
        return self._stopped and not self.under_way

    def _arrive(self) -> None:
        while not self._stopped:
            self._world.sleep(self._world.entropy.expovariate(self._rate))
            self._number += 1
            self._world.start("client", self._client(self._number))

    def _client(self, number: int) -> Callable[[], None]:
        kind, body, effect = self._draw(number)
        event = _event(kind, body, f"key-{number}")

        def work() -> None:
            outcomes, began = self.outcomes, self._world.kernel.now
            outcomes.requests[kind] += 1
            self.under_way += 1
            for _ in range(_PATIENCE):
                answer = self._invoke(kind, event)
                if answer is not None and answer["statusCode"] != 503:
                    break
                if answer is None:
                    outcomes.died += 1
                else:
                    outcomes.unavailable += 1
                self._world.sleep(self._world.entropy.uniform(0.1, 0.6))
            else:
                outcomes.lost += 1
                self.under_way -= 1
                return
            self.under_way -= 1
            second = self._world.kernel.now // SECOND
            outcomes.by_second[second] += 1
            took = (self._world.kernel.now - began) // 1_000
            outcomes.slowest_ms[second] = max(outcomes.slowest_ms[second], took)
            self._settle(kind, body, effect, answer)

        return work

    def _settle(self, kind: str, body: Mapping[str, Any], effect: Mapping[tuple[str, str], int], answer: Any) -> None:
        outcomes, document = self.outcomes, json.loads(answer["body"])
        too_much = body.get("amount", 0) >= _TOO_MUCH
        if answer["statusCode"] == 200 and not too_much:
            outcomes.completed += 1
            outcomes.expected.update(effect)
            if kind == "pay":
                self._payments.append((body["card"], body["merchant"], body["amount"]))
        elif too_much and document.get("error") == "InsufficientFunds":
            outcomes.wanted_refusals += 1
        else:
            outcomes.refused.append(f"{kind}: {answer['statusCode']} {document.get('error', '')}")

    def _invoke(self, kind: str, event: Any) -> Any:
        release = 1 if self._world.entropy.random() < self.share_new else 0
        handler = HANDLERS[release][kind]
        return self._world.start("operation", lambda: handler(event, Context(self._world))).wait()

    def _draw(self, number: int) -> tuple[str, dict[str, Any], Counter[tuple[str, str]]]:
        entropy = self._world.entropy
        (kind,) = entropy.choices(list(_KINDS), weights=list(_KINDS.values()))
        card, other = entropy.sample(CUSTOMERS, 2)
        shop, amount = entropy.choice(SHOPS), entropy.randrange(1, 500)
        if kind == "refund" and not self._payments:
            kind = "top-up"
        effect: Counter[tuple[str, str]] = Counter()
        if kind in {"pay", "transfer"} and entropy.random() < _TOO_MUCH_SHARE:
            amount = _TOO_MUCH
        match kind:
            case "pay":
                points = entropy.choice((0, 0, 0, entropy.randrange(1, 20)))
                effect.update({(card, "ECOPAY"): -amount, (card, "POINT"): -points})
                effect.update({(shop, "ECOPAY"): amount, (shop, "POINT"): points})
                return kind, {"card": card, "merchant": shop, "amount": amount, "points": points}, effect
            case "top-up":
                effect[card, "ECOPAY"] = amount + bonus_of(amount)
                return kind, {"card": card, "amount": amount}, effect
            case "refund":
                card, shop, amount = self._payments.popleft()
                effect.update({(card, "ECOPAY"): amount, (shop, "ECOPAY"): -amount})
                return kind, {"card": card, "merchant": shop, "amount": amount}, effect
            case "transfer":
                effect.update({(card, "POINT"): -amount, (other, "POINT"): amount})
                return kind, {"card": card, "to": other, "amount": amount}, effect
            case "profile":
                email = entropy.choice([None, f"mail-{number}@example.com"])
                return kind, {"card": card, "email": email, "name": f"name {number}"}, effect
        return kind, {"card": f"n-{number:06d}", "name": f"new {number}"}, effect

    # -- readers ---------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read one concern of a customer, whichever item it is in."""
        entropy = self._world.entropy
        customer, concern = entropy.choice(CUSTOMERS + SHOPS), entropy.choice(LAYOUT.concerns)
        since = self._world.kernel.now
        try:
            values = store().read(customer, concern.name, new_first=entropy.random() < self.share_new)
        except SagaError as error:
            self.outcomes.refused.append(f"read: {type(error).__name__}")
            return
        self.outcomes.reads += 1
        self._checks.read(customer, concern, values, since)


def _event(kind: str, body: Mapping[str, Any], key: str) -> dict[str, Any]:
    headers = {"Idempotency-Key": key}
    return {
        "httpMethod": "POST",
        "path": f"/{kind}",
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "body": json.dumps({"kind": kind, **body}),
        "isBase64Encoded": False,
        "requestContext": {"path": f"/v1/{kind}", "identity": {"accountId": "111122223333", "caller": "AIDACLIENT"}},
    }
