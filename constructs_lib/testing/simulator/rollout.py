"""Releases: later versions of a stack, deployed over it resource by resource while sagas run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from constructs_lib.testing.simulator.aws.roles import Roles
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint, MachineSpec
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.errors import NotSimulatedError

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.world import World

Change = tuple[int, Callable[[], None]]
"""A change of a release, and the seconds that pass before it."""

_LAGGING: Final = 0.5
"""Share of the releases with other state machines in which policies refuse what they leave out at the end only."""


class _Planned(NamedTuple):
    """A release that waits for the former one; ``failing`` as ``Rollout.add`` has it."""

    release: Deployment
    pauses: Iterator[int]
    failing: float | None = None


class Names:
    """Names of state machines, from release to release: one that is created again has another name.

    Args:
        deployment: what is deployed first.

    Attributes:
        latest: name and type of each state machine of the latest release, by its name in the template.
    """

    def __init__(self, deployment: Deployment) -> None:
        machines = deployment.blueprint.machines.values()
        self.latest = {machine.name: (machine.name, machine.kind) for machine in machines}
        self._made = Counter(self.latest.keys())

    def may_fail(self, release: Deployment) -> bool:
        """False if a release creates a state machine to which the stack gives a name: it cannot be created again."""
        machines = release.blueprint.machines.values()
        return not any(machine.named and machine.name not in self.latest for machine in machines)

    def of(self, release: Deployment) -> Deployment:
        """A release that follows the latest one, with the names that its state machines get.

        Raises:
            NotSimulatedError: if it creates a state machine again to which the stack gives a name.
        """
        latest: dict[str, tuple[str, str]] = {}
        for machine in release.blueprint.machines.values():
            name, kind = self.latest.get(machine.name, ("", ""))
            if kind != machine.kind:
                if machine.named and machine.name in self._made:
                    raise NotSimulatedError(
                        f"a release that creates state machine {machine.name} again is not simulated: CloudFormation "
                        "cannot while the former one has its name; leave out stateMachineName"
                    )
                self._made[machine.name] += 1
                made = self._made[machine.name]
                name = machine.name if made == 1 else f"{machine.name}-{made}"
            latest[machine.name] = (name, machine.kind)
        self.latest = latest
        return release.renamed({former: name for former, (name, _) in latest.items() if name != former})


class Rollout:
    """Deploys releases one after another, as CloudFormation updates one stack.

    New tables, queues and the policies of roles come first, then functions, state machines with their versions and
    aliases, functions that know the state machines, rules, and the API; aliases that move step by step are done last.
    What a release leaves out stays until it is complete: then state machines are deleted, unless they are retained, and
    the role of each as soon as that is gone. Tables and queues stay.

    A release that fails is rolled back: what it has changed becomes what it was, in the same order, and aliases move at
    once. Then it is deployed once more.

    Args:
        world: where they are deployed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._deployed = [world.deployment]
        self._names = Names(world.deployment)
        self._leaving: Mapping[str, Any] = {}
        self._turned: set[str] = set()
        self._waiting: deque[_Planned] = deque()
        self._active = False
        self._planned = 0
        world.machines.gone = self._change_roles

    @property
    def done(self) -> bool:
        """True once every release is complete, also those that are planned."""
        return not self._active and not self._planned

    @property
    def latest(self) -> Deployment:
        """The release that began last."""
        return self._deployed[-1]

    @property
    def begun(self) -> bool:
        """True once a release has begun."""
        return len(self._deployed) > 1

    def plan(self, release: Deployment, delay: int, pauses: Iterator[int], *, failing: float | None = None) -> None:
        """Deploy a release after some microseconds, as ``add`` does."""
        self._planned += 1

        def begin() -> None:
            self._planned -= 1
            self.add(release, pauses, failing=failing)

        self._world.kernel.after(delay, begin)

    def add(self, release: Deployment, pauses: Iterator[int], *, failing: float | None = None) -> None:
        """Deploy a release as soon as the former one is complete.

        Args:
            release: the other version.
            pauses: microseconds between two resources.
            failing: share of its changes, below 1, after which it fails the first time. None: it does not, and neither
                does one that creates a state machine to which the stack gives a name.

        Raises:
            NotSimulatedError: if it creates a state machine again to which the stack gives a name.
        """
        self._waiting.append(_Planned(release, pauses, failing))
        if not self._active:
            self._next()

    def _next(self) -> None:
        self._active = bool(self._waiting)
        if not self._active:
            return
        planned, former, names = self._waiting.popleft(), self.latest, self._names.latest
        fails = planned.failing is not None and self._names.may_fail(planned.release)
        release = self._names.of(planned.release)
        self._world.deployment.switch.include([image.bundle for image in release.images.values()])
        self._world.trace.note("CloudFormation", "a release begins")
        changes = self._begin(release, self._moved(former.blueprint, release.blueprint), planned.pauses)
        if not fails or planned.failing is None:
            self._make(changes, planned.pauses)
            return

        def roll_back() -> None:
            self._world.trace.note("CloudFormation", "a release fails, and is rolled back")
            self._names.latest = names
            self._waiting.appendleft(_Planned(planned.release, planned.pauses))
            self._make(self._begin(former, (self._turned_back(former), []), planned.pauses), planned.pauses)

        self._make([*changes[: int(planned.failing * len(changes))], (0, roll_back)], planned.pauses)

    def _make(self, changes: Iterable[Change], pauses: Iterator[int]) -> None:
        """Make changes one after another."""
        moment = self._world.kernel.now
        for seconds, change in changes:
            moment += next(pauses) + seconds * SECOND
            self._world.kernel.at(moment, change)

    def _begin(
        self, release: Deployment, moves: tuple[list[Change], list[Change]], pauses: Iterator[int]
    ) -> list[Change]:
        """Deploy what a release needs first, and find the changes that follow.

        Args:
            release: what is deployed; the former release, if the latest one fails.
            moves: of its aliases, as ``_moved`` returns them.
            pauses: microseconds between two resources.
        """
        world, blueprint, former = self._world, release.blueprint, self.latest.blueprint
        self._deployed.append(release)
        self._turned = set()
        world.provide(release)
        machines = {machine.arn: machine for machine in blueprint.machines.values()}
        others = [machine for machine in former.machines.values() if machine.arn not in machines]
        # A policy is updated in place, before the functions that depend on it: it refuses at once what it leaves out.
        self._leaving = {role: given for role, given in former.roles.items() if role not in blueprint.roles}
        if others and Random(world.kernel.now).random() < _LAGGING:
            self._leaving = {role: [*given, *blueprint.roles.get(role, ())] for role, given in former.roles.items()}
        self._change_roles()
        left_out = deque(machine for machine in others if not machine.retained)
        early: list[Callable[[], None]] = []
        late: list[Callable[[], None]] = []
        for image in release.images.values():
            knows = any(arn in text for text in image.spec.environment.values() for arn in machines)
            (late if knows else early).append(partial(world.functions.update, image))
        first, later = moves
        published = world.machines.published
        return [
            *((0, change) for change in early),
            *((0, partial(world.machines.machines.__setitem__, arn, machine)) for arn, machine in machines.items()),
            *((0, partial(published.publish, arn, number)) for arn, number in blueprint.published.items()),
            *first,
            *((0, change) for change in late),
            (0, partial(world.connect_services, release)),
            (0, partial(world.gateway.change, blueprint.apis)),
            *later,
            (0, partial(self._complete, left_out, pauses)),
        ]

    def _moved(self, former: Blueprint, release: Blueprint) -> tuple[list[Change], list[Change]]:
        """Moves of a release's aliases: those that it begins with, and those before it is complete.

        Every alias of a state machine begins at once, as they depend on nothing else. CloudFormation moves one from the
        version that the former template names, wherever a person has turned it, step by step if the version is another
        one; and leaves one alone of which the template changes nothing.
        """
        first: list[Change] = []
        later: list[Change] = []
        known = {alias.arn: alias for alias in former.aliases}
        for alias in release.aliases:
            before = known.get(alias.arn)
            if alias == before:
                continue
            gradual = alias.steps if before is not None and before.version != alias.version else ()
            origin = before.version if before is not None else alias.version
            weights = [*({alias.version: percent, origin: 100 - percent} for percent in gradual), {alias.version: 100}]
            moves = [partial(self._turn, alias.arn, each) for each in weights]
            first.append((0, moves[0]))
            later += [(alias.pause, move) for move in moves[1:]]
        return first, later

    def _turned_back(self, former: Deployment) -> list[Change]:
        """Moves back of the aliases that a release has moved."""
        aliases = [alias for alias in former.blueprint.aliases if alias.arn in self._turned]
        return [(0, partial(self._turn, alias.arn, {alias.version: 100})) for alias in aliases]

    def _turn(self, alias: str, weights: Mapping[str, int]) -> None:
        self._turned.add(alias)
        self._world.machines.published.point(alias, weights)

    def _change_roles(self) -> None:
        """Let roles be those of the release, of state machines that exist, and of what it leaves out until then."""
        found: dict[str, Any] = {}
        for version in self._deployed:
            roles, machines = version.blueprint.roles, version.blueprint.machines.values()
            there = {one.role for one in machines if one.arn in self._world.machines.machines}
            found |= {name: roles[name] for name in there & roles.keys()}
        self._world.calls.change(Roles({**found, **self.latest.blueprint.roles, **self._leaving}))

    def _complete(self, left_out: deque[MachineSpec], pauses: Iterator[int]) -> None:
        self._leaving = {}
        self._change_roles()
        kept = {alias.arn for alias in self.latest.blueprint.aliases}
        former = {alias.arn for version in self._deployed for alias in version.blueprint.aliases}
        for alias in former - kept:
            self._world.machines.published.aliases.pop(alias, None)
        self._world.trace.note("CloudFormation", "a release is complete")
        self._clean_up(left_out, pauses)

    def _clean_up(self, left_out: deque[MachineSpec], pauses: Iterator[int]) -> None:
        """Delete state machines one after another; then begin the next release."""
        if not left_out:
            self._next()
            return
        self._world.machines.delete(left_out.popleft().arn)
        self._world.kernel.after(next(pauses), partial(self._clean_up, left_out, pauses))
