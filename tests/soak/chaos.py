"""What goes wrong: which calls of AWS fail and how, where executions end, what providers do, which events are lost.

Everything is drawn from a seed, and decided per call: whether the n-th call of an operation by a function is hit, and
how, is the same in each run with this seed, and so are the n-th time that a state is reached, and the n-th request to a
provider. Which saga makes the n-th call depends on how the machine interleaves them, and is not.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from constructs_lib.testing import Fault, Share, StopAt
from constructs_lib.testing.fault_plan import CONFLICTING_CALLS, Action, Attempts, Moment, Planned, StopStatus
from constructs_lib.testing.faults import FaultReport
from examples import payment_gateway as gateway
from examples.cart_fulfilment import providers

from .wishes import DECLINED_CARD
from .world import World

T = TypeVar("T")

SHARE: Final = 0.05
"""Of all AWS calls."""
CONFLICT_SHARE: Final = 0.01
"""Of writes, beside."""
STOP_SHARE: Final = 0.004
"""Of the times that a state is reached, and of the times that it is left."""
SUPPRESSED_LETTERS: Final = 10
"""Of the 32 that a saga's id may begin with: status events of these sagas are lost."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_AT_ONCE: Final = 200
"""Troubles that a provider is told of in one request."""
_HELD_SECONDS: Final = 3.0
_DELAY_OF_STATES: Final = 0.002

#: Of 100 faults in functions: action, moment, attempts, seconds of a delay (None: until the caller is gone).
_OF_FUNCTIONS: Final[Sequence[tuple[int, Action, Moment, Attempts, float | None]]] = (
    (8, Action.KILL, Moment.BEFORE, Attempts.FIRST, None),
    (8, Action.KILL, Moment.AFTER, Attempts.FIRST, None),
    (7, Action.DROP, Moment.BEFORE, Attempts.FIRST, None),
    (7, Action.DROP, Moment.AFTER, Attempts.FIRST, None),
    (5, Action.DROP, Moment.BEFORE, Attempts.ALL, None),
    (5, Action.DROP, Moment.AFTER, Attempts.ALL, None),
    (7, Action.DELAY, Moment.BEFORE, Attempts.FIRST, _HELD_SECONDS),
    (7, Action.DELAY, Moment.AFTER, Attempts.FIRST, _HELD_SECONDS),
    (2, Action.DELAY, Moment.BEFORE, Attempts.FIRST, None),
    (1, Action.DELAY, Moment.AFTER, Attempts.FIRST, None),
    (10, Action.THROTTLE, Moment.BEFORE, Attempts.FIRST, None),
    (8, Action.THROTTLE, Moment.BEFORE, Attempts.ALL, None),
    (7, Action.ERROR, Moment.BEFORE, Attempts.FIRST, None),
    (7, Action.ERROR, Moment.AFTER, Attempts.FIRST, None),
    (5, Action.ERROR, Moment.BEFORE, Attempts.ALL, None),
    (6, Action.ERROR, Moment.AFTER, Attempts.ALL, None),
)
#: Of 100 faults in the calls of state machines. Delays stand apart: they are planned for each machine.
_OF_STATES: Final[Sequence[tuple[int, Action, Moment]]] = (
    (22, Action.DROP, Moment.BEFORE),
    (22, Action.DROP, Moment.AFTER),
    (20, Action.ERROR, Moment.BEFORE),
    (20, Action.ERROR, Moment.AFTER),
    (16, Action.THROTTLE, Moment.BEFORE),
)
#: Of 100 requests to a provider: what happens to how many.
_OF_REQUESTS: Final[Sequence[tuple[float, str, str, float | None]]] = (
    (0.6, "error", "before", None),
    (0.8, "error", "after", None),
    (0.6, "drop", "before", None),
    (0.8, "drop", "after", None),
    (0.3, "hang", "before", None),
    (0.4, "hang", "after", None),
    (0.4, "kill", "before", None),
    (0.5, "kill", "after", None),
    (0.6, "slow", "before", 5.0),
)
_OF_EVENTS: Final[Sequence[tuple[float, str, str, float | None]]] = (
    (6.0, "silent", "before", None),
    (6.0, "double", "before", None),
    (3.0, "late", "before", 30.0),
    (2.0, "wrong", "before", 40.0),
    (2.0, "forged", "before", None),
    (1.0, "unknown", "before", None),
)
_OF_JOBS: Final[Sequence[tuple[float, str, str, float | None]]] = (
    (1.0, "refuse", "before", None),
    (1.5, "stall", "before", None),
    (3.0, "early", "before", None),
)
LONGEST_OF_PROVIDERS: Final = 60.0
"""In the emulator's time: so long after the last fault, nothing that a provider was made to do is still to come."""
_FAR: Final = {"often": 4_000, "seldom": 1_000}
"""As many requests or events of one kind are looked ahead."""
_READS: Final = frozenset({"error", "drop", "slow"})
"""What happens to a request that only asks."""
_ASKS: Final = frozenset({"find-payment", "find-pick", "find-label", "find-effects"})
_SELDOM: Final = frozenset({"refund", "cancel", "void", *_ASKS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One thing that went wrong.

    Attributes:
        at: when, in the emulator's time.
        kind: what happened: `kill before`, `stopped`, …
        caller: function or state machine, by its physical name.
        call: which call, or which state.
    """

    at: datetime
    kind: str
    caller: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Everything that went wrong.

    Attributes:
        calls: AWS calls that functions and state machines made while faults were planned, retries by SDKs left out.
        faults: calls that were hit, by what happened.
        stops: executions that were ended, by how.
        hits: of both, as far as they are told one by one.
        troubles: requests, jobs and events of providers that were hit, by provider and action.
        suppressed: first letters of the sagas whose status events were lost.
    """

    calls: Mapping[str, int]
    faults: Mapping[str, int]
    stops: Mapping[str, int]
    hits: Sequence[Hit]
    troubles: Mapping[str, Mapping[str, int]]
    suppressed: str

    @property
    def share(self) -> float:
        """Of all calls, how many were hit."""
        return sum(self.faults.values()) / max(1, sum(self.calls.values()))


class Chaos:
    """Lets things go wrong in a world, from `begin` to `end`.

    Args:
        world: where.
        seed: decides everything.
        share: of all AWS calls that are hit.
        stops: of the states that are reached or left, those where the execution ends.
    """

    def __init__(self, world: World, *, seed: int, share: float = SHARE, stops: float = STOP_SHARE) -> None:
        self._world = world
        self._seed = seed
        self._share = share
        self._stops = stops
        self._rules: dict[str, tuple[str, list[Any]]] = {}

    def begin(self) -> None:
        """From now on, things go wrong."""
        self._plan_troubles()
        self._lose_events()
        self._world.aws.faults.plan(*planned(self._world, self._seed, self._share, self._stops))

    def end(self) -> Damage:
        """From now on, nothing goes wrong any more. What was held back is let go."""
        world = self._world
        troubles = self._troubles()
        world.clear_troubles()
        self._restore_events()
        report = world.aws.faults.report()
        now = world.aws.now()
        world.aws.faults.clear()
        self._stop_what_was_held(report, now)
        return Damage(
            calls=_calls(report),
            faults=_faults(report),
            stops=_stops(report),
            hits=tuple(_hits(report)),
            troubles=troubles,
            suppressed=self.suppressed,
        )

    @property
    def suppressed(self) -> str:
        """First letters of the sagas whose status events are lost."""
        return "".join(sorted(random.Random(f"{self._seed}/events").sample(_ALPHABET, SUPPRESSED_LETTERS)))

    # --- Status events

    def _lose_events(self) -> None:
        """Some are lost, the others come twice."""
        events = self._world.aws.client("events")
        heard = [{"prefix": letter} for letter in _ALPHABET if letter not in self.suppressed]
        for system in self._world.systems.values():
            name = system.outputs["ReconcilerEndedRule"]
            pattern = events.describe_rule(Name=name)["EventPattern"]
            targets = events.list_targets_by_rule(Rule=name)["Targets"]
            self._rules[name] = (pattern, targets)
            narrowed = json.loads(pattern)
            narrowed["detail"]["name"] = heard
            events.put_rule(Name=name, EventPattern=json.dumps(narrowed))
            again = [{**target, "Id": f"{target['Id']}Again"} for target in targets]
            assert not events.put_targets(Rule=name, Targets=again)["FailedEntryCount"]

    def _restore_events(self) -> None:
        events = self._world.aws.client("events")
        for name, (pattern, targets) in self._rules.items():
            events.put_rule(Name=name, EventPattern=pattern)
            events.remove_targets(Rule=name, Ids=[f"{target['Id']}Again" for target in targets])

    # --- Providers

    def _plan_troubles(self) -> None:
        # Cards that are declined are declined whatever else goes wrong.
        declined = gateway.Trouble(
            on=gateway.Operation.CHARGE, action=gateway.Action.DECLINE, containing=DECLINED_CARD, times=None
        )
        self._world.gateway.plan(declined)
        for ours in batched(_gateway_troubles(self._seed), _AT_ONCE):
            self._world.gateway.plan(*ours)
        for kind, provider in self._world.providers.items():
            for theirs in batched(_provider_troubles(self._seed, kind), _AT_ONCE):
                provider.plan(*theirs)

    def _troubles(self) -> dict[str, dict[str, int]]:
        found: dict[str, Counter[str]] = {"gateway": Counter()}
        for ours in self._world.gateway.report():
            if ours.trouble.action is not gateway.Action.DECLINE:
                found["gateway"][f"{ours.trouble.action} {ours.trouble.moment}"] += ours.fired
        for kind, provider in self._world.providers.items():
            counted = found.setdefault(kind, Counter())
            for theirs in provider.report():
                moment = f" {theirs.trouble.moment}" if theirs.trouble.action.value in _MOMENTOUS else ""
                counted[f"{theirs.trouble.action}{moment}"] += theirs.fired
        return {
            kind: {name: count for name, count in sorted(counts.items()) if count} for kind, counts in found.items()
        }

    # --- The end

    def _stop_what_was_held(self, report: FaultReport, now: datetime) -> None:
        """Whoever is held back when the plan is cleared never goes on in the emulator: somebody stops it."""
        since = now - timedelta(seconds=2 * _HELD_SECONDS)
        machines = {machine.arn.rpartition(":")[2]: machine.arn for machine in self._world.machines}
        states = self._world.aws.client("stepfunctions")
        for outcome in report.outcomes:
            fault = outcome.planned
            if not isinstance(fault, Fault) or fault.action != Action.DELAY or not fault.is_of_state_machine:
                continue
            for firing in outcome.firings:
                if firing.at < since or firing.execution is None:
                    continue
                arn = machines[firing.caller.removeprefix("states:")].replace(":stateMachine:", ":execution:")
                found = states.describe_execution(executionArn=f"{arn}:{firing.execution}")
                if found["status"] == "RUNNING":
                    states.stop_execution(executionArn=found["executionArn"])


def batched(many: Iterable[T], size: int) -> Iterator[list[T]]:
    """Some at a time."""
    rest = iter(many)
    while some := list(itertools.islice(rest, size)):
        yield some


_MOMENTOUS: Final = frozenset({"error", "drop", "hang", "kill"})


def planned(world: World, seed: int, share: float, stops: float) -> list[Planned]:
    """The faults in AWS: of functions, of state machines, and where executions end."""
    faults: list[Planned] = []
    standard = [machine for machine in world.machines if not machine.express]
    for machine in standard:
        faults += [
            Fault(
                function=f"states:{machine.name}", call="*", action=Action.DELAY, moment=moment, seconds=_HELD_SECONDS,
                on=Share(_DELAY_OF_STATES, seed * 1_000 + number),
            )
            for number, moment in enumerate(Moment)
        ]  # fmt: skip
    for number, (part, action, moment, attempts, seconds) in enumerate(_OF_FUNCTIONS):
        spent = sum(one[0] for one in _OF_FUNCTIONS[:number]) / 100
        faults.append(
            Fault(
                function="*", call="*", action=action, moment=moment, attempts=attempts, seconds=seconds,
                on=Share(_alone(share, part / 100, spent), seed * 1_000 + 100 + number),
            )
        )  # fmt: skip
    for number, (part, action, moment) in enumerate(_OF_STATES):
        spent = sum(one[0] for one in _OF_STATES[:number]) / 100
        faults.append(
            Fault(
                function="states:*", call="*", action=action, moment=moment,
                on=Share(_alone(share, part / 100, spent), seed * 1_000 + 200 + number),
            )
        )  # fmt: skip
    for number, call in enumerate(sorted(CONFLICTING_CALLS)):
        faults += [
            Fault(
                function=caller,
                call=call,
                action=Action.CONFLICT,
                on=Share(CONFLICT_SHARE, seed * 1_000 + 300 + number),
            )
            for caller in ("*", "states:*")
        ]
    return [*faults, *_planned_stops(world, seed, stops)]


def _planned_stops(world: World, seed: int, share: float) -> Iterator[StopAt]:
    """At the door of every state: ended as if by a person, or because it took too long."""
    ways = ((Moment.BEFORE, StopStatus.ABORTED), (Moment.BEFORE, StopStatus.TIMED_OUT),
            (Moment.AFTER, StopStatus.ABORTED), (Moment.AFTER, StopStatus.TIMED_OUT))  # fmt: skip
    for machine in world.machines:
        if machine.express:
            continue
        for state in machine.states:
            draw = random.Random(f"{seed}/{machine.name}/{state}")
            for moment, status in draw.sample(ways, 2):
                on = Share(share, draw.getrandbits(48))
                yield StopAt(machine=machine.name, state=state, moment=moment, status=status, on=on)


def _alone(share: float, part: float, spent: float) -> float:
    """The probability that makes a fault hit its part of a share, when those before it have taken theirs."""
    return share * part / (1 - share * spent)


def _gateway_troubles(seed: int) -> Iterator[gateway.Trouble]:
    for operation in gateway.Operation:
        far = _FAR["often" if operation is gateway.Operation.CHARGE else "seldom"]
        for nth, action, moment, seconds in _drawn(f"{seed}/gateway/{operation}", _OF_REQUESTS, far):
            if operation.moves_money or action in _READS:
                yield gateway.Trouble(
                    on=operation, action=gateway.Action(action), moment=gateway.Moment(moment), nth=nth, seconds=seconds
                )


def _provider_troubles(seed: int, kind: str) -> Iterator[providers.Trouble]:
    for name, shares in _asked_of(kind):
        far = _FAR["seldom" if name in _SELDOM else "often"]
        for nth, action, moment, seconds in _drawn(f"{seed}/{kind}/{name}", shares, far):
            if name not in _ASKS or action in _READS:
                yield providers.Trouble(
                    on=name,
                    action=providers.Action(action),
                    moment=providers.Moment(moment),
                    nth=nth,
                    seconds=seconds,
                )


def _asked_of(kind: str) -> Iterator[tuple[str, Sequence[tuple[float, str, str, float | None]]]]:
    from examples.cart_fulfilment.providers import carrier, payments, warehouse

    opposites = {"payments": payments.Payments.events, "warehouse": warehouse.Warehouse.events}.get(
        kind, carrier.Carrier.events
    )
    for event, opposite in opposites.items():
        yield event, [one for one in _OF_EVENTS if opposite or one[1] != "wrong"]
    operations = {
        "payments": ("authorize", "capture", "cancel", "refund", "find-payment", "find-effects"),
        "warehouse": ("pick", "cancel", "find-pick", "find-effects"),
        "carrier": ("label", "void", "handover", "find-label", "find-effects"),
    }[kind]
    for name in operations:
        # Parcels are handed over by the warehouse, which is no function: nobody starts it again.
        requests = [one for one in _OF_REQUESTS if (name, one[1]) != ("handover", "kill")]
        yield name, [*requests, *(_OF_JOBS if name in {"authorize", "pick", "handover"} else ())]


def _drawn(
    seed: str, shares: Sequence[tuple[float, str, str, float | None]], far: int
) -> Iterator[tuple[int, str, str, float | None]]:
    """What happens to the n-th request or event, as far as anything does."""
    draw = random.Random(seed)
    for nth in range(1, far + 1):
        left = draw.random() * 100
        for share, action, moment, seconds in shares:
            left -= share
            if left < 0:
                yield nth, action, moment, seconds
                break


# --- What the emulator says of it


def _name(fault: Fault) -> str:
    if fault.action in {Action.THROTTLE, Action.CONFLICT}:
        return str(fault.action)
    return f"{fault.action} {fault.moment}"


def _calls(report: FaultReport) -> dict[str, int]:
    """Of functions and of state machines: a fault that matches every call counts them."""
    found = {"functions": 0, "state machines": 0}
    for outcome in report.outcomes:
        fault = outcome.planned
        if isinstance(fault, Fault) and fault.call == "*" and fault.function in {"*", "states:*"}:
            kind = "state machines" if fault.is_of_state_machine else "functions"
            found[kind] = max(found[kind], outcome.matched)
    return found


def _faults(report: FaultReport) -> dict[str, int]:
    found: Counter[str] = Counter()
    for outcome in report.outcomes:
        if isinstance(outcome.planned, Fault):
            found[_name(outcome.planned)] += outcome.fired
    return {name: count for name, count in sorted(found.items()) if count}


def _stops(report: FaultReport) -> dict[str, int]:
    found: Counter[str] = Counter()
    for outcome in report.outcomes:
        if isinstance(outcome.planned, StopAt):
            found[_how(outcome.planned)] += outcome.fired
    return {name: count for name, count in sorted(found.items()) if count}


def _how(stop: StopAt) -> str:
    return "timed out" if stop.status == StopStatus.TIMED_OUT else "stopped"


def _hits(report: FaultReport) -> Iterator[Hit]:
    for outcome in report.outcomes:
        fault = outcome.planned
        kind = _name(fault) if isinstance(fault, Fault) else _how(fault)
        for firing in outcome.firings:
            yield Hit(at=firing.at, kind=kind, caller=firing.caller, call=firing.call)
