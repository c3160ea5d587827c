"""The cart's providers inside a simulation: their own rules and books, with time and trouble drawn from the seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from constructs_lib.testing import ProviderEffect
from constructs_lib.testing.simulator import ConnectionLostError, Event, ProviderAnswer, ProviderRequest, World
from examples.cart_fulfilment.providers.books import Answer, BookKeeper, Delivery, delivery_of, problem
from examples.cart_fulfilment.providers.business import Asked, Business, Operation
from examples.cart_fulfilment.providers.courier import WAITS
from examples.cart_fulfilment.providers.troubles import Action, Plan, Trouble
from saga_runtime.idempotency.identity import provider_key_of, step_key_of

_WINDOW_MS: Final = 24 * 3_600_000
_OF_EVENTS: Final = (
    (Event.PROVIDER_NEVER, Action.SILENT),
    (Event.PROVIDER_TWICE, Action.DOUBLE),
    (Event.PROVIDER_LATE, Action.LATE),
    (Event.PROVIDER_CONTRADICTS, Action.WRONG),
)
_OF_JOBS: Final = ((Event.PROVIDER_NEVER, Action.STALL), (Event.PROVIDER_EARLY, Action.EARLY))
_LASTING: Final = (Action.LATE, Action.WRONG)
_REFERENCE: Final = re.compile(r"[a-z2-7]{26}-[a-z0-9]+#\w+")


class DrawnPlan(Plan):
    """Troubles of a provider: drawn from the seed instead of planned."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__()
        self._world = world
        self._name = name
        self._contradicted: set[str] = set()

    def meet(self, name: str, text: str) -> Trouble | None:
        """Trouble of an event, or of a request that begins a job."""
        weather = self._world.weather
        for event, action in _OF_EVENTS if "." in name else _OF_JOBS:
            if action is Action.WRONG and not self._may_contradict(text):
                continue
            if weather.happens(event, self._name):
                seconds = min(86_400.0, weather.long() / 1_000_000) if action in _LASTING else None
                return Trouble(on=name, action=action, seconds=seconds)
        return None

    def _may_contradict(self, text: str) -> bool:
        """Once for a job: what is contradicted again and again happens again and again."""
        found = _REFERENCE.search(text)
        if found is None or found[0] in self._contradicted:
            return False
        self._contradicted.add(found[0])
        return True


class SimulatedProvider:
    """One provider.

    Args:
        world: its world, for the time.
        name: for traces.
        business: makes its rules.
        webhook: destination of its callbacks.
        secret: ARN of the secret that it signs with.
    """

    def __init__(
        self, world: World, name: str, business: Callable[[Plan], Business], *, webhook: str, secret: str
    ) -> None:
        self.name = name
        self._world = world
        self._plan = DrawnPlan(world, name)
        self.business = business(self._plan)
        self._keeper = BookKeeper(
            Path(":memory:"), window_ms=_WINDOW_MS, now_ms=lambda: world.kernel.now // 1_000, pace=1.0
        )
        self._api = urlsplit(webhook).netloc.partition(".")[0]
        self._secret = secret
        self._sending: set[int] = set()

    def handle(self, request: ProviderRequest) -> ProviderAnswer:
        """Do what is asked."""
        for operation in self.business.operations:
            named = operation.id_of(request.method, request.path)
            if named is not None:
                answer = self._operate(operation, named, request)
                self._keep_time()
                return ProviderAnswer(status=answer.status, document=dict(answer.document))
        return ProviderAnswer(status=404)

    def effects(self) -> list[ProviderEffect]:
        """Everything that it did."""
        rows = self._keeper._database.execute("SELECT key, amount FROM effects ORDER BY number")
        return [ProviderEffect(key=row["key"], amount=row["amount"]) for row in rows]

    def void_by_hand(self, saga_id: str) -> bool | None:
        """Have the label of a saga's parcel voided by the carrier's own staff; None: without one."""
        step_key = step_key_of(saga_id, "ShippingLabel")
        with self._keeper.page() as page:
            jobs = page.jobs_under(provider_key_of(step_key))
            undo = provider_key_of(step_key_of(saga_id, "ShippingLabel", undo=True))
            if not jobs:
                return None
            if not page.effects_under(undo):
                page.happened("voided", key=undo, job=jobs[0])
        return True

    def _operate(self, operation: Operation, named: str, request: ProviderRequest) -> Answer:
        if not operation.acts:
            with self._keeper.page() as page:
                return operation.run(page, Asked(key=request.query.get("key", "")))
        key, body = request.headers.get("idempotency-key", ""), request.json()
        wrong = operation.wrong(body) if key else "a request that acts needs an Idempotency-Key"
        if wrong:
            return problem(400, "invalid", wrong)
        known = self._keeper.claim(operation.name, key, body)
        if known is not None:
            return known
        met = self._plan.meet(operation.name, "") if operation.job else None
        with self._keeper.page() as page:
            answer = operation.run(page, Asked(key=key, id=named, body=body))
            page.remember(key, answer)
            if met is not None and met.action is Action.STALL:
                page.stall(key)
            if met is not None and met.action is Action.EARLY:
                page.hurry(key)
        if met is not None and met.action is Action.EARLY:
            self._work_off()
        return answer

    def _keep_time(self) -> None:
        """Wake when the next action is due."""
        with self._keeper.page() as page:
            (timer,) = page.execute("SELECT min(due_ms) FROM timers").fetchone()
            busy = ",".join(map(str, sorted(self._sending))) or "-1"
            (delivery,) = page.execute(
                f"SELECT min(due_ms) FROM deliveries WHERE open AND number NOT IN ({busy})"
            ).fetchone()
        due = min((moment for moment in (timer, delivery) if moment is not None), default=None)
        if due is not None:
            self._world.kernel.at(due * 1_000 + 1_000, self._work_off)

    def _work_off(self) -> None:
        """Run everything that is due, and send its callbacks."""
        errands = []
        with self._keeper.page() as page:
            for job, name in page.due():
                self.business.on_timer(page, job, name)
            errands = page.errands
            rows = page.execute("SELECT * FROM deliveries WHERE open AND due_ms <= ?", page.now_ms).fetchall()
        for delivery in map(delivery_of, rows):
            if delivery.number not in self._sending:
                self._sending.add(delivery.number)
                self._spawn(partial(self._deliver, delivery))
        for errand in errands:
            self._spawn(errand)
        self._keep_time()

    def _spawn(self, work: Callable[[], Any]) -> None:
        actor = self._world.actor(self.name)
        self._world.kernel.spawn(actor, work)

    def _deliver(self, delivery: Delivery) -> None:
        body, world = delivery.body.encode(), self._world
        secret = world.secrets.signing(self._secret)
        signed = self.business.sign(secret, delivery.event, body, world.kernel.now // 1_000_000)
        try:
            response = world.gateway.send(
                world.actor(self.name),
                "POST",
                "/",
                headers={"Content-Type": "application/json", **signed},
                body=delivery.body,
                api=self._api,
            )
            status = response.status
        except ConnectionLostError:
            status = 0
        accepted, attempts = 200 <= status < 300, delivery.attempts + 1
        # It does not give up: an outage may last for longer, and without this report an outcome that contradicts an
        # earlier one stays unknown.
        wait = 0 if accepted else WAITS[min(attempts, len(WAITS)) - 1]
        self._sending.discard(delivery.number)
        with self._keeper.page() as page:
            page.execute(
                "UPDATE deliveries SET attempts = ?, open = ?, due_ms = ? WHERE number = ?",
                attempts,
                not accepted,
                page.now_ms + wait * 1_000,
                delivery.number,
            )
        self._keep_time()
