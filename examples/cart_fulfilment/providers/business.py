"""The business of a provider, without HTTP, idempotency keys and trouble, which all of them share."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from examples.cart_fulfilment.providers.books import Answer, Job, Page
from examples.cart_fulfilment.providers.courier import Sign
from examples.cart_fulfilment.providers.troubles import Action, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request.

    Attributes:
        key: the idempotency key, or the one that is looked for.
        id: the value in the path.
        body: the request's body.
        refused: whether the job is to be refused when it is decided.
    """

    key: str
    id: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of a provider.

    Attributes:
        name: what troubles and the journal call it.
        method: of HTTP.
        path: its parts; ``{id}`` matches any one.
        run: what it does.
        fields: what the body has, exactly.
        acts: whether it has an effect, and so needs an idempotency key.
        job: whether it begins something that is done later.
    """

    name: str
    method: str
    path: str
    run: Callable[[Page, Asked], Answer]
    fields: Mapping[str, type] = field(default_factory=dict)
    acts: bool = True
    job: bool = False

    def __str__(self) -> str:
        return self.name

    def id_of(self, method: str, path: str) -> str | None:
        """Return the value of ``{id}``; None if a request is not for this operation."""
        own, asked = self.path.split("/"), path.split("/")
        if method != self.method or len(own) != len(asked):
            return None
        found = ""
        for part, given in zip(own, asked, strict=True):
            if part == "{id}" and given:
                found = given
            elif part != given:
                return None
        return found

    def wrong(self, body: Any) -> str | None:
        """Return the error in a body; None if it is valid."""
        if not isinstance(body, dict) or set(body) != set(self.fields):
            return f"the body has {', '.join(self.fields) or 'nothing'}, and nothing else"
        for name, kind in self.fields.items():
            if type(body[name]) is not kind or body[name] in ("", []) or (kind is int and body[name] < 1):
                return f"{name} is a {kind.__name__}, and not empty"
        return None


class Business(ABC):
    """One provider.

    Attributes:
        operations: what it can be asked.
        events: types of its events.
        sign: how it signs its events.

    Args:
        plan: what goes wrong.
        sign: as above.
    """

    operations: tuple[Operation, ...]
    events: ClassVar[Mapping[str, str]]
    """Type of an event, to the type of the opposite event ('' without one)."""

    def __init__(self, plan: Plan, *, sign: Sign) -> None:
        self._plan = plan
        self.sign = sign

    @abstractmethod
    def on_timer(self, page: Page, job: Job, name: str) -> None:
        """Handle a timer: work at a job, its end, or, by an event's type, the opposite of one."""

    @abstractmethod
    def document(self, type: str, job: Job, event: str, now_ms: int) -> Mapping[str, Any]:
        """Return the document of an event."""

    def find(self, page: Page, asked: Asked) -> Answer:
        """Return every job that was requested under a key, and whether a request is in progress."""
        found = [shown(job) for job in page.jobs_under(asked.key)]
        return Answer(status=200, document={"found": found, "in_work": page.in_work(asked.key)})

    def find_effects(self, page: Page, asked: Asked) -> Answer:
        """Return the effects under a key, and whether a request is in progress."""
        found = page.effects_under(asked.key)
        return Answer(status=200, document={"found": found, "in_work": page.in_work(asked.key)})

    def tell(self, page: Page, type: str, job: Job) -> None:
        """Have an event delivered, as far as no trouble is planned for it."""
        event = f"evt_{uuid.uuid4().hex}"
        body = self._text(type, job, event, page.now_ms)
        met = self._plan.meet(type, body)
        action = met.action if met else None
        if action is Action.UNKNOWN:
            nobody = f"nobody-{uuid.uuid4().hex}"
            self._send(page, type, replace(job, id=f"{job.id[:3]}{nobody}", reference=nobody))
        page.send(
            type, job, body, event=event, after=(met.seconds or 0) if met and action is Action.LATE else 0,
            forged=action is Action.FORGED, open=action is not Action.SILENT,
        )  # fmt: skip
        if action is Action.DOUBLE:
            page.send(type, job, body, event=event)
        if met is not None and action is Action.WRONG:
            page.wake(job, self.events[type], met.seconds or 0, key=job.key, ends=True)

    def _send(self, page: Page, type: str, job: Job) -> None:
        event = f"evt_{uuid.uuid4().hex}"
        page.send(type, job, self._text(type, job, event, page.now_ms), event=event)

    def _text(self, type: str, job: Job, event: str, now_ms: int) -> str:
        return json.dumps(self.document(type, job, event, now_ms))


def shown(job: Job) -> dict[str, Any]:
    """Return a job as a client sees it."""
    return {**job.body, "id": job.id, "status": job.status, "reference": job.reference}
