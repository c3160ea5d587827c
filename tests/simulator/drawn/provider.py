"""The provider of drawn sagas: it acts, undoes and works at jobs, as far as its modes guarantee."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from constructs_lib.testing import ProviderEffect
from constructs_lib.testing.simulator import Event, Future, ProviderAnswer, ProviderRequest, World
from constructs_lib.testing.simulator.engine.kernel import SECOND
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.protocol import RecordAttribute

from .habits import Habit, habit_of
from .names import number_of
from .texts import told_text

URL: Final = "http://provider.example.com"
_WINDOW: Final = 86_400 * SECOND
_LONGEST_JOB: Final = 3_000
_REFUSES: Final = 0.1
_TOLD_AGAIN: Final = 4
"""So often a report is sent again that was not received."""
_NO_ROOM: Final = "Invalid"
"""Error of a receiver whose saga has no room for what is reported."""
_ALWAYS: Final = 1_000
"""So often one is that no question finds out: a refusal, or what contradicts an earlier one."""
_DONE_FIRST: Final = 0.5
"""Share of contradicting reports of a wait of which the first one is a success."""
_REFUSED_ONCE: Final = 0.5
"""Share of the refused jobs, of those that are needed, which are done only when they are begun again."""
_LAST_BEATS: Final = 2
"""Heartbeats after a job's end."""
_EVENTS: Final = 2
"""Of a job, at most, each time that it is begun."""
_SAME_EVENT: Final = 0.1
"""Share of events whose id another job's event may have."""


class DrawnProvider:
    """A provider.

    Args:
        world: whose time and trouble it has.
        random: what jobs and refusals are drawn from.
        undone: steps whose jobs it may do after it has refused them: each saga compensates them.
        needed: steps whose jobs, or waits, their sagas cannot continue without: a job that it refuses is done after
            all, or when it is begun again; what a saga waits for happens.

    Attributes:
        unreported: number of jobs whose contradicting report was not received yet.
    """

    def __init__(
        self, world: World, random: Random, undone: Collection[str] = (), needed: Collection[str] = ()
    ) -> None:
        self.unreported = 0
        self._undone = undone
        self._needed = needed
        self._world = world
        drawn = random.getrandbits(64)
        self._random = Random(drawn)
        self._foresees = Random(f"{drawn}:foresees")
        self._says = Random(f"{drawn}:says")
        self._salt = drawn
        self._queried: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._first: dict[str, int] = {}
        self._in_work: Counter[str] = Counter()
        self._jobs: dict[str, str] = {}
        self._asked: Counter[str] = Counter()

    def effects(self) -> list[ProviderEffect]:
        """Everything that it did."""
        return [ProviderEffect(key=key) for key, times in self._done.items() for _ in range(times)]

    def state_of(self, key: str) -> str:
        """Outcome of a key: ``done``, ``in work`` or ``nothing``."""
        if self._done[key]:
            return "done"
        return "in work" if self._in_work[key] or self._jobs.get(key) == "at work" else "nothing"

    def handle(self, request: ProviderRequest) -> ProviderAnswer | Future[ProviderAnswer]:
        """Act, compensate, begin a job, or report the outcome of a key."""
        _, mode, operation = request.path.split("/")
        key = request.query["key"]
        if operation == "found":
            state = self.state_of(key) if mode != "job" else self._reported(key)
            return ProviderAnswer(document={"state": state, "id": self._habit(key).own_id})
        if operation == "begin":
            return self._begin(mode, key, request.query)
        if mode != "asked":
            if self._in_work[key]:
                return ProviderAnswer(status=409)
            if key in self._first and self._world.kernel.now < self._first[key] + _WINDOW:
                return ProviderAnswer()
        if request.query.get("declined"):
            return ProviderAnswer(status=402)
        if not self._world.weather.happens(Event.PROVIDER_LATE, "provider"):
            return self._act(key)
        later: Future[ProviderAnswer] = Future(self._world.kernel)
        self._in_work[key] += 1

        def act() -> None:
            self._in_work[key] -= 1
            later.set(self._act(key))

        self._world.kernel.after(self._world.weather.travel(), act)
        return later

    def _act(self, key: str) -> ProviderAnswer:
        self._first.setdefault(key, self._world.kernel.now)
        self._done[key] += 1
        return ProviderAnswer()

    def foresee(self, step_key: str) -> None:
        """Perhaps report what a saga that has just begun will wait for, before it does."""
        weather, key = self._world.weather, provider_key_of(step_key)
        if not weather.happens(Event.PROVIDER_EARLY, "provider"):
            return

        def end() -> None:
            if key not in self._jobs:
                self._jobs[key] = "at work"
                self._end("wait", key, step_key)

        self._world.kernel.after(self._foresees.choice((0, weather.travel())), end)

    def _habit(self, key: str) -> Habit:
        return habit_of(self._salt, key)

    def _reported(self, key: str) -> str:
        """State of a job as a query is answered."""
        self._queried[key] += 1
        return "unknown" if self._queried[key] <= self._habit(key).unknown else self.state_of(key)

    def _begin(self, mode: str, key: str, query: Mapping[str, str]) -> ProviderAnswer:
        habit, reference, weather = self._habit(key), query["reference"], self._world.weather
        document = {"id": habit.own_id}
        if query.get("declined"):
            self._decline(mode, key, reference)
            return ProviderAnswer(status=402, document=document)
        if self._jobs.get(key, "forgotten") != "forgotten":
            return ProviderAnswer(document=document)
        self._jobs[key] = "at work"
        self._asked[key] += 1
        early = weather.happens(Event.PROVIDER_EARLY, "provider")
        seconds = 0 if early else int(_LONGEST_JOB * self._random.random() ** 4)
        if habit.seconds is not None and mode == "job" and not early:
            seconds = habit.seconds
        size = int(query.get("large", 0))
        self._world.kernel.after(seconds * SECOND, lambda: self._end(mode, key, reference, size))
        if habit.beats is not None:
            self._beat(mode, key, reference, habit.beats, seconds // habit.beats + _LAST_BEATS)
        return ProviderAnswer(document=document)

    def _decline(self, mode: str, key: str, reference: str) -> None:
        """Refuse a job at once, and perhaps do it after all."""
        if key in self._jobs:
            return
        self._jobs[key] = "refused"
        step = reference.partition("#")[2].partition("[")[0]
        if step in self._undone and self._world.weather.happens(Event.PROVIDER_CONTRADICTS, "provider"):
            self.unreported += 1
            done = {"ok": True, "output": {"of": reference.partition("#")[2]}}
            self._do_after_all(mode, key, reference, self._event(key, 0), done)

    def _beat(self, mode: str, key: str, reference: str, every: int, left: int) -> None:
        """Send heartbeats, for a while after the job's end, too."""

        def beat() -> None:
            self._tell(mode, reference, {"job_id": self._name(key, reference), "outcome": {"heartbeat": True}}, 0)
            if left > 1:
                self._beat(mode, key, reference, every, left - 1)

        self._world.kernel.after(every * SECOND, beat)

    def _name(self, key: str, reference: str) -> str:
        """The id by which a job is reported: the provider's own one, or the one that it was given."""
        own = self._habit(key).own_id
        return reference if own is None else self._says.choice((own, own, reference))

    def _end(self, mode: str, key: str, reference: str, size: int = 0) -> None:
        """End a job, and perhaps report it to the waiting task."""
        weather = self._world.weather
        row = reference.partition("#")[2]
        text = None if size else told_text(self._says)
        done = {"ok": True, "output": {"of": row, **({} if text is None else {"note": text}), "pad": "x" * size}}
        refused = {"ok": False, "error": "SoldOut", "detail": "no" if text is None else text}
        step = row.partition("[")[0]
        needed = step in self._needed
        may_contradict = mode == "wait" or needed or step in self._undone
        if may_contradict and weather.happens(Event.PROVIDER_CONTRADICTS, "provider"):
            first_done = mode == "wait" and (self._foresees.random() < _DONE_FIRST or needed)
            if needed and mode == "job" and self._foresees.random() < _REFUSED_ONCE:
                self._jobs[key] = "forgotten"
                told = {"job_id": self._name(key, reference), "event_id": self._event(key, 0), "outcome": refused}
                self._tell(mode, reference, told, _ALWAYS)
                return
            outcomes = (done, refused) if first_done else (refused, done)
            self._contradict(mode, key, reference, *outcomes, needed=needed)
            return
        is_refused = self._random.random() < _REFUSES and not needed
        self._jobs[key] = "refused" if is_refused else "done"
        if not is_refused and mode == "job":
            self._done[key] += 1  # a wait without a job has no effect
        expected = needed and mode == "wait"  # a wait cannot be asked for
        if not expected and weather.happens(Event.PROVIDER_NEVER, "provider"):
            if is_refused and mode == "job":
                self._jobs[key] = "forgotten"  # asked again, it works at the job
            return
        times = 2 if weather.happens(Event.PROVIDER_TWICE, "provider") else 1
        outcome, again = (refused, _ALWAYS) if is_refused else (done, _ALWAYS if expected else _TOLD_AGAIN)
        for number in range(times):
            told = {"job_id": self._name(key, reference), "event_id": self._event(key, number), "outcome": outcome}
            self._world.kernel.after(number * weather.long(), partial(self._tell, mode, reference, told, again))

    def _contradict(self, mode: str, key: str, reference: str, first: object, later: object, *, needed: bool) -> None:
        """Report one outcome, and much later the other one: a job is refused, and done after all."""
        self._jobs[key] = "refused"
        self.unreported += 1
        event = self._event(key, 0)
        again = _ALWAYS if mode == "wait" else _TOLD_AGAIN
        told = {"job_id": self._name(key, reference), "event_id": event, "outcome": first}
        contradict = partial(self._do_after_all, mode, key, reference, event, later)
        if needed and mode == "wait":
            # In the other order the saga is refused, and an operator who has it wait again waits for ever.
            self._tell(mode, reference, told, again, then=contradict)
            return
        self._tell(mode, reference, told, again)
        contradict()

    def _do_after_all(self, mode: str, key: str, reference: str, event: str, outcome: object) -> None:
        """Do a job that was refused, unless it was done by hand under its key, and report that it is done.

        Its saga may have asked before it knew the provider's own id: so it is reported under the other one, too.
        """

        def act_after_all() -> None:
            self._jobs[key] = "done"
            self._done[key] += mode == "job" and not self._done[key]
            other = self._random.choice((event, self._event(key, 1)))
            own = self._habit(key).own_id
            if own is not None:
                self._tell(mode, reference, {"job_id": own, "event_id": other, "outcome": outcome}, _TOLD_AGAIN)
            told = {"job_id": reference, "event_id": other, "outcome": outcome}
            self._tell(mode, reference, told, _ALWAYS, counted=True)

        self._world.kernel.after(self._world.weather.long(), act_after_all)

    def _event(self, key: str, number: int) -> str:
        """Id of an event; some are the same for several jobs. A job that is begun again has others."""
        number += _EVENTS * max(0, self._asked[key] - 1)
        return f"event-{number}" if self._random.random() < _SAME_EVENT else f"{key}-{number}"

    def _tell(
        self,
        mode: str,
        reference: str,
        event: Mapping[str, Any],
        times: int,
        *,
        counted: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Send an event to every receiver: each of several stacks has one, and none knows whose job it is.

        Args:
            mode: of the job, or the wait.
            reference: its step key.
            event: what is sent.
            times: how often it is sent again to the saga's receiver, and not as often to another one.
            counted: whether it is one of those that were not received yet.
            then: what follows when it was.
        """
        own, others = self._receivers(mode, reference)
        for other in others:
            self._say(other, event, min(times, _TOLD_AGAIN))
        self._say(own, event, times, counted=counted, then=then)

    def _receivers(self, mode: str, reference: str) -> tuple[str, list[str]]:
        """The receiver in the stack of a job's saga, and those in other stacks."""
        name = f"{mode.title()}ReceiverName"
        found = {stack: outputs[name] for stack, outputs in self._world.outputs.items() if name in outputs}
        home = next(iter(found)) if len(found) == 1 else self._stack_of(reference.partition("#")[0])
        return found.pop(home), list(found.values())

    def _stack_of(self, saga_id: str) -> str:
        """The stack that has the saga's log."""
        (requests,) = self._world.parts.requests
        records = self._world.records(requests)
        record = next(one for one in records if one[RecordAttribute.SAGA_ID]["S"] == saga_id)
        log = f"Log{number_of(record)}"
        return next(stack for stack, outputs in self._world.outputs.items() if log in outputs)

    def _say(
        self,
        receiver: str,
        event: Mapping[str, Any],
        times: int,
        *,
        counted: bool = False,
        then: Callable[[], None] | None = None,
    ) -> None:
        """Invoke a receiver; again, as long as it fails, with less if it was too much; then do what follows."""
        told = self._world.functions.invoke(receiver, json.dumps(event))

        def look() -> None:
            if told.value().error is not None and times:
                said = _shorter(event) if told.value().error == _NO_ROOM else event
                again = partial(self._say, receiver, said, times - 1, counted=counted, then=then)
                self._world.kernel.after(600 * SECOND, again)
            elif counted:
                self.unreported -= 1
            elif then is not None:
                then()

        told.then(look)


def _shorter(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The report with the least output: its saga had no room for a text, or a large one."""
    outcome = event["outcome"]
    return {**event, "outcome": {**outcome, "output": {"of": outcome["output"]["of"]}}}
