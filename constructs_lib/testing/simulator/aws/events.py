"""EventBridge: rules, schedules and targets; events come late, twice or not at all."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from constructs_lib.testing.simulator.aws.functions import Functions, function_name
from constructs_lib.testing.simulator.aws.queues import Queues
from constructs_lib.testing.simulator.checks.trace import Trace
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, REGION, RuleSpec, TargetSpec
from constructs_lib.testing.simulator.deployment.schedules import Cron
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, invalid, json_of
from constructs_lib.testing.simulator.faults.climate import Event
from constructs_lib.testing.simulator.faults.weather import Weather

_MOST_IDLE: Final = 3_600 * SECOND
"""Longest pause of a schedule that finds nothing to do."""
_IN_CALM: Final = 5
"""Once the faults are over, a schedule skips all events but each fifth: what is left needs time, not more sweeps."""
_MOST_SKIPPED: Final = 3_000
"""Seconds that a ``cron(…)`` schedule that finds nothing to do skips at most: each hour has its events."""
INERT: Final = (":sns:", ":logs:")
"""Services whose targets do nothing in a run; the reader of templates refuses a topic behind which something acts."""
_OF_EXECUTIONS: Final = "aws.states"
"""Source of events of Step Functions itself: a run may end before the last of them arrives."""
_MOST_ENTRIES: Final = 10
_MOST_BYTES: Final = 262_144
"""Of the entries of a request: the smaller of the limits that AWS has documented."""
_PLACE: Final = re.compile(r"<([^<>\s]+)>")


class Events:
    """Every rule of a run.

    Args:
        kernel: keeps the time.
        functions: targets.
        queues: targets.
        weather: what goes wrong.
        trace: hears of events.
        busyness: a number that grows with everything that happens; a schedule that changed nothing slows down.

    Attributes:
        put: source, type and detail of every event that was put, in order; services' own are left out.
    """

    def __init__(
        self,
        kernel: Kernel,
        functions: Functions,
        queues: Queues,
        weather: Weather,
        trace: Trace,
        busyness: Callable[[], int],
    ) -> None:
        self.rules: dict[str, RuleSpec] = {}
        self.put: list[tuple[str, str, dict[str, Any]]] = []
        self._kernel = kernel
        self._functions = functions
        self._queues = queues
        self._weather = weather
        self._trace = trace
        self._busyness = busyness
        self._number = 0
        self._under_way: Counter[str] = Counter()
        self._ticking: set[str] = set()

    def change(self, rules: Iterable[RuleSpec]) -> None:
        """Replace the rules; the schedule of one that was not there before begins at once."""
        known = self._ticking
        self.rules = {rule.name: rule for rule in rules}
        self._ticking = {rule.name for rule in self.rules.values() if self._ticks(rule)}
        for rule in self.rules.values():
            if rule.name in known or rule.name not in self._ticking:
                continue
            if rule.every is not None:
                first = int(self._weather.share() * rule.every * SECOND)
                self._kernel.after(first, partial(self._tick, rule.name, rule.every, self._busyness()))
            elif rule.cron is not None:
                self._await(rule, rule.cron, 0, self._busyness())

    def call(self, operation: str, params: Mapping[str, Any], _actor: Actor | None) -> dict[str, Any]:
        """The API: ``PutEvents``."""
        if operation != "PutEvents":
            raise NotSimulatedError(f"events:{operation} is not simulated")
        asked = params["Entries"]
        if not 1 <= len(asked) <= _MOST_ENTRIES:
            raise invalid(f"Value at 'entries' failed to satisfy constraint: 1 to {_MOST_ENTRIES}, got {len(asked)}")
        if sum(map(_size, asked)) > _MOST_BYTES:
            raise invalid(f"Total size of the entries in the request is over the limit of {_MOST_BYTES} bytes")
        refused = self._weather.unprocessed()
        entries = [self._put(entry, busy=self._weather.share() < refused if refused else False) for entry in asked]
        return {"Entries": entries, "FailedEntryCount": sum("ErrorCode" in entry for entry in entries)}

    def _put(self, entry: Mapping[str, Any], *, busy: bool) -> dict[str, str]:
        """Publish an entry, or refuse it: others of its request are published all the same."""
        for member in ("Source", "DetailType", "Detail"):
            if not entry.get(member):
                return _refused("InvalidArgument", f"Parameter {member} is not valid. Reason: {member} is required.")
        if str(entry["Source"]).startswith("aws."):
            return _refused("NotAuthorizedForSourceException", "Not authorized for the source.")
        try:
            detail = json_of(entry["Detail"])
        except ValueError:
            detail = None
        if not isinstance(detail, dict):
            return _refused("MalformedDetail", "Detail is malformed.")
        if busy:
            return _refused("ThrottlingException", "Rate exceeded")
        bus = str(entry.get("EventBusName", "default")).rpartition("/")[2]
        self.put.append((entry["Source"], entry["DetailType"], detail))
        return {"EventId": self.publish(bus, entry["Source"], entry["DetailType"], detail)}

    def waiting(self) -> dict[str, int]:
        """Number of events that a function has put and that are on their way to a target, by rule."""
        return {rule: count for rule, count in self._under_way.items() if count}

    def publish(self, bus: str, source: str, kind: str, detail: Mapping[str, Any]) -> str:
        """Publish an event; every rule that matches sends it, sooner or later.

        Returns:
            The event's id.
        """
        self._number += 1
        event = {
            "version": "0",
            "id": f"{self._number:08x}-0000-4000-8000-000000000000",
            "detail-type": kind,
            "source": source,
            "account": ACCOUNT,
            "time": datetime.fromtimestamp(self._kernel.now // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [],
            "detail": dict(detail),
        }
        for rule in self.rules.values():
            if rule.bus == bus and rule.pattern is not None and matches(rule.pattern, event):
                for target in rule.targets:
                    self._deliver(rule, target, event)
        return str(event["id"])

    def _deliver(self, rule: RuleSpec, target: TargetSpec, event: Mapping[str, Any]) -> None:
        if target.refused is not None:
            raise NotSimulatedError(f"an event matches rule {rule.name}, and {target.refused}")
        if _is_inert(target):
            return
        weather, counted = self._weather, str(event["source"]) != _OF_EXECUTIONS
        # EventBridge delivers what was put at least once; what comes of executions is sent on a best-effort basis.
        if not (counted and ":sqs:" in target.arn) and weather.happens(Event.EVENT_LOST, rule.name):
            self._trace.note(rule.name, "event lost")
            return
        delay = self._weather.latency()
        if weather.happens(Event.EVENT_LATE, rule.name):
            delay += weather.long()
        text = _sent(target, event)
        self._send_later(delay, rule, target, text, counted=counted)
        if weather.happens(Event.EVENT_TWICE, rule.name):
            self._send_later(delay + weather.long(), rule, target, text, counted=counted)

    def _send_later(self, delay: int, rule: RuleSpec, target: TargetSpec, text: str, *, counted: bool) -> None:
        self._under_way[rule.name] += counted

        def arrive() -> None:
            self._under_way[rule.name] -= counted
            self._send(target, text)

        self._kernel.after(delay, arrive)

    def _send(self, target: TargetSpec, text: str, *, scheduled: bool = False) -> None:
        if ":lambda:" in target.arn:
            self._functions.invoke_later(target.arn, text, scheduled=scheduled)
        elif ":sqs:" in target.arn:
            self._queues.send(target.arn, text, group=target.group)
        else:
            raise NotSimulatedError(f"the target {target.arn} of a rule is not simulated")

    def _tick(self, name: str, pause: int, busy: int) -> None:
        """Send a schedule's event. While nothing happens, the next one may come later: it would find the same."""
        rule = self.rules.get(name)
        if rule is None or not self._ticks(rule):
            return  # a release has removed it
        now_busy = self._busyness()
        every = (rule.every or 60) * (_IN_CALM if self._weather.is_over else 1)
        following = every if now_busy != busy else min(max(2 * pause, every), max(every, _MOST_IDLE // SECOND))
        if self._weather.happens(Event.SCHEDULE_LOST, rule.name):
            self._trace.note(rule.name, "not sent")
        else:
            event = {
                "version": "0",
                "id": "00000000-0000-4000-8000-000000000000",
                "detail-type": "Scheduled Event",
                "source": "aws.events",
                "account": ACCOUNT,
                "time": datetime.fromtimestamp(self._kernel.now // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "region": REGION,
                "resources": [],
                "detail": {},
            }
            for target in rule.targets:
                if self._acts(target):
                    self._send(target, _sent(target, event), scheduled=True)
        if rule.cron is not None:
            self._await(rule, rule.cron, 0 if now_busy != busy else min(max(2 * pause, 60), _MOST_SKIPPED), now_busy)
            return
        self._kernel.after(following * SECOND, partial(self._tick, name, following, now_busy))

    def _ticks(self, rule: RuleSpec) -> bool:
        """Test whether a rule has a schedule that does something here."""
        return rule.is_scheduled and any(map(self._acts, rule.targets))

    def _acts(self, target: TargetSpec) -> bool:
        """Test whether a schedule's target is there; reports list what it leaves out."""
        refused = target.refused is not None or function_name(target.arn) in self._functions.refused
        return not refused and not _is_inert(target)

    def _await(self, rule: RuleSpec, cron: Cron, pause: int, busy: int) -> None:
        """Await the next moment of a schedule that is some seconds away; its event comes within that minute."""
        moment = cron.following(self._kernel.now // SECOND + pause)
        if moment is not None:
            late = int(self._weather.share() * 60 * SECOND)
            self._kernel.at(moment * SECOND + late, partial(self._tick, rule.name, pause, busy))


def _refused(code: str, message: str) -> dict[str, str]:
    return {"ErrorCode": code, "ErrorMessage": message}


def _size(entry: Mapping[str, Any]) -> int:
    """Bytes that an entry counts for (user guide, "Calculating PutEvents event entry size")."""
    texts = [str(entry.get(member, "")) for member in ("Source", "DetailType", "Detail")]
    texts += map(str, entry.get("Resources", ()))
    return sum(len(text.encode()) for text in texts) + (14 if "Time" in entry else 0)


def _is_inert(target: TargetSpec) -> bool:
    return any(service in target.arn for service in INERT)


def _sent(target: TargetSpec, event: Mapping[str, Any]) -> str:
    """Render an event as a target receives it."""
    if target.constant is not None:
        return target.constant
    if target.template is None:
        return json.dumps(event)

    def value(place: re.Match[str]) -> str:
        path = target.paths.get(place[1])
        if path is None:
            raise NotSimulatedError(f"the variable {place[1]} of a rule's template is not simulated")
        found: Any = event
        for name in path.removeprefix("$.").split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return json.dumps(found)

    return _PLACE.sub(value, target.template)


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Test whether an event fits a pattern.

    Raises:
        NotSimulatedError: for a comparison that is not known here.
    """
    for name, wanted in pattern.items():
        found = event.get(name)
        if isinstance(wanted, Mapping):
            if not isinstance(found, Mapping) or not matches(wanted, found):
                return False
        elif not any(_fits(one, found, name in event) for one in wanted):
            return False
    return True


def _fits(wanted: Any, found: Any, present: bool) -> bool:
    if not isinstance(wanted, Mapping):
        return bool(wanted == found or (isinstance(found, list) and wanted in found))
    ((comparison, value),) = wanted.items()
    match comparison:
        case "prefix":
            return isinstance(found, str) and found.startswith(value)
        case "suffix":
            return isinstance(found, str) and found.endswith(value)
        case "exists":
            return present is value
        case "anything-but" if isinstance(value, list | str):
            return present and found not in ([value] if isinstance(value, str) else value)
        case "equals-ignore-case":
            return isinstance(found, str) and found.lower() == value.lower()
    raise NotSimulatedError(f"the comparison {comparison} of an event pattern is not simulated")
