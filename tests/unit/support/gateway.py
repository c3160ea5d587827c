"""A payment gateway outside, in memory, and the step and compensation that a user writes for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from saga_runtime import (
    Applied,
    Declined,
    ExternalCall,
    NotApplied,
    Verdict,
    external_compensation,
    external_step,
)
from saga_runtime.errors import ManualResolutionRequired, PermanentError, SagaFenced
from saga_runtime.protocol import OUTPUT_FIELD, CallField, CallMode, LogAttribute
from tests.unit.support.samples import SAGA_ID, step_event
from tests.unit.support.wire import Killed, Wire
from tests.unit.support.world import Context, World

STEP = "Charge"
GRACE_MS = 30_000
MARGIN_MS = 5_000
REMAINING_MS = 15_000
LIFE_MS = REMAINING_MS + MARGIN_MS
"""From an invocation's start to the moment at which it is certainly dead."""
WINDOW_MS = 86_400_000

ASKED: dict[str, Any] = {"window": 0, "verify": True}
IDEMPOTENT: dict[str, Any] = {"window": WINDOW_MS // 1_000, "verify": False}
UNDO_ASKED: dict[str, Any] = {"undo_window": 0, "verify_undo": True}
UNDO_IDEMPOTENT: dict[str, Any] = {"undo_window": WINDOW_MS // 1_000, "verify_undo": False}
UNDO_NEITHER: dict[str, Any] = {"undo_window": 0, "verify_undo": False}


@dataclass
class Gateway:
    """A provider with books of its own.

    Attributes:
        idempotent: whether it knows a key again, and answers as it did the first time, refusals included.
        refuses: why it refuses charges; None: it does not.
        charged, refunded: keys in its books, once for each time that money moved.
        meanwhile: what happens while a call of a kind is under way; once.
        afterwards: what happens between its effect and its answer; once.
        broken: what the client raises after a call of a kind took effect; once.
    """

    wire: Wire
    idempotent: bool = False
    undo_idempotent: bool = False
    refuses: str | None = None
    charged: list[str] = field(default_factory=list)
    refunded: list[str] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    afterwards: dict[str, Callable[[], object]] = field(default_factory=dict)
    broken: dict[str, BaseException] = field(default_factory=dict)
    seen: list[ExternalCall] = field(default_factory=list)
    _answers: dict[str, str | None] = field(default_factory=dict)

    def charge(self, key: str) -> dict[str, str]:
        """Take money, or refuse."""
        answer: dict[str, str] = self._call("charge", lambda: self._charge(key))
        return answer

    def _charge(self, key: str) -> dict[str, str]:
        if not (self.idempotent and key in self._answers):
            self._answers[key] = self.refuses
            if self.refuses is None:
                self.charged.append(key)
        refused = self._answers[key]
        if refused is not None:
            raise Declined(refused)
        return {"payment": f"payment of {key}"}

    def find(self, key: str) -> Verdict:
        """Outcome of a charge."""
        found = Applied(output={"payment": f"payment of {key}"})
        verdict: Verdict = self._call("find", lambda: found if key in self.charged else NotApplied())
        return verdict

    def refund(self, key: str, payment: str) -> None:
        """Give it back."""
        assert payment.startswith("payment of ")
        self._call("refund", lambda: self._refund(key))

    def _refund(self, key: str) -> None:
        if not (self.undo_idempotent and key in self.refunded):
            self.refunded.append(key)

    def find_refund(self, key: str) -> Verdict:
        """Outcome of a refund."""
        verdict: Verdict = self._call("find_refund", lambda: Applied() if key in self.refunded else NotApplied())
        return verdict

    def _call(self, kind: str, deliver: Callable[[], Any]) -> Any:
        if meanwhile := self.meanwhile.pop(kind, None):
            meanwhile()
        answer = self.wire.pass_by(f"gateway:{kind}", deliver)
        if afterwards := self.afterwards.pop(kind, None):
            afterwards()
        if broken := self.broken.pop(kind, None):
            raise broken
        return answer


class Shop:
    """The functions that a user writes for the gateway, and the saga's calls of them.

    Attributes:
        provider: what the saga declares; by default a provider that can be asked, and whose refund is idempotent.
    """

    def __init__(self, world: World, **provider: Any) -> None:
        self.world = world
        settings: dict[str, Any] = {
            "grace": GRACE_MS // 1_000,
            "clock_skew": MARGIN_MS // 1_000,
        }
        self.provider: dict[str, Any] = {**settings, **ASKED, **UNDO_IDEMPOTENT, **provider}
        self.gateway = Gateway(
            world.wire,
            idempotent=bool(self.provider["window"]),
            undo_idempotent=bool(self.provider["undo_window"]),
        )
        gateway = self.gateway

        def find(call: ExternalCall) -> Verdict:
            return gateway.find(call.provider_key)

        def find_refund(call: ExternalCall, _: Any) -> Verdict:
            return gateway.find_refund(call.provider_key)

        @external_step(verify=find)
        def charge(call: ExternalCall) -> dict[str, str]:
            gateway.seen.append(call)
            return gateway.charge(call.provider_key)

        @external_compensation(of=charge, verify_undo=find_refund)
        def refund(call: ExternalCall, output: Any) -> None:
            gateway.seen.append(call)
            gateway.refund(call.provider_key, output["payment"])

        self.charge, self.refund = charge, refund

    def event(self, **more: Any) -> dict[str, Any]:
        """Event of the state machine."""
        return {**step_event(step=STEP), CallField.PROVIDER: self.provider, **more}

    def run(self, **more: Any) -> Any:
        """Invoke the step once; its output."""
        return self.charge(self.event(**more), Context(remaining_ms=REMAINING_MS))[OUTPUT_FIELD]

    def ask(self) -> Any:
        """Invoke the step once, only to determine its outcome."""
        return self.run(**{CallField.MODE: CallMode.VERIFY})

    def undo(self, **more: Any) -> Any:
        """Invoke the compensation once."""
        return self.refund(self.event(**more), Context(remaining_ms=REMAINING_MS))

    def passes(self, ms: int) -> None:
        """Let time pass."""
        self.world.clock.ms += ms

    def pass_every_deadline(self) -> None:
        """Let so much time pass that no attempt is alive and no request in transit."""
        self.passes(LIFE_MS + GRACE_MS)

    def to_the_end(self, invoke: Callable[[], Any]) -> Any:
        """Invoke until there is an outcome, as a state machine does, later and later."""
        for _ in range(20):
            try:
                return invoke()
            except (PermanentError, SagaFenced, ManualResolutionRequired) as outcome:
                return outcome
            except (Exception, Killed):  # noqa: BLE001  # whatever it is, a state machine invokes again
                self.pass_every_deadline()
        raise AssertionError("the step never came to an outcome")

    @property
    def row(self) -> dict[str, Any]:
        """The step's row without types; empty without one."""
        items = [item for item in self.world.items("log") if item[LogAttribute.STEP]["S"] == STEP]
        return {name: next(iter(value.values())) for item in items for name, value in item.items()}

    @property
    def status(self) -> str | None:
        """The row's status."""
        found = self.row.get(LogAttribute.STATUS)
        return None if found is None else str(found)

    def check(self) -> None:
        """The gateway's books and the saga log agree, and nothing happened twice.

        Raises:
            AssertionError: if they do not.
        """
        books = (len(self.gateway.charged), len(self.gateway.refunded))
        wanted = {
            None: [(0, 0)],
            "DONE": [(1, 0)],
            "COMPENSATED": [(1, 1)],
            "TOMBSTONE": [(0, 0)],
            "REFUSED": [(0, 0)],
            "INTENT": [(0, 0), (1, 0)],
            "COMPENSATING": [(1, 0), (1, 1)],
        }
        assert books in wanted[self.status], f"{self.status}, and the gateway's books contain {books}"
        assert SAGA_ID not in "".join(self.gateway.charged), "a provider is given the short form of a key"
