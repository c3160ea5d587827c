"""Releases: later versions of a stack, deployed over it resource by resource while sagas run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from constructs_lib.testing.simulator.aws.roles import Roles
from constructs_lib.testing.simulator.deployment.deployment import Deployment

if TYPE_CHECKING:
    from constructs_lib.testing.simulator.world import World


class Rollout:
    """Deploys releases one after another, as CloudFormation updates one stack.

    New tables, queues and the policies of roles come first, then functions, state machines, functions that know the
    state machines, rules, and the API. What a release leaves out stays until it is complete. State machines and their
    roles, tables and queues are retained.

    Args:
        world: where they are deployed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._deployed = [world.deployment]
        self._waiting: deque[tuple[Deployment, Iterator[int]]] = deque()
        self._active = False
        self._planned = 0

    @property
    def done(self) -> bool:
        """True once every release is complete, also those that are planned."""
        return not self._active and not self._planned

    def plan(self, release: Deployment, delay: int, pauses: Iterator[int]) -> None:
        """Deploy a release after some microseconds."""
        self._planned += 1

        def begin() -> None:
            self._planned -= 1
            self.add(release, pauses)

        self._world.kernel.after(delay, begin)

    def add(self, release: Deployment, pauses: Iterator[int]) -> None:
        """Deploy a release as soon as the former one is complete.

        Args:
            release: the other version.
            pauses: microseconds between two resources.
        """
        self._world.deployment.switch.include([image.bundle for image in release.images.values()])
        self._waiting.append((release, pauses))
        if not self._active:
            self._next()

    def _next(self) -> None:
        self._active = bool(self._waiting)
        if self._active:
            release, pauses = self._waiting.popleft()
            self._begin(release, pauses)

    def _begin(self, release: Deployment, pauses: Iterator[int]) -> None:
        world, blueprint, former = self._world, release.blueprint, self._deployed[-1].blueprint
        self._deployed.append(release)
        world.trace.note("CloudFormation", "a release begins")
        world.provide(release)
        # A policy is updated in place, before the functions that depend on it: it refuses at once what it leaves out.
        world.calls.change(Roles({**former.roles, **self._retained(), **blueprint.roles}))
        machines = {machine.arn: machine for machine in blueprint.machines.values()}
        early: list[Callable[[], None]] = []
        late: list[Callable[[], None]] = []
        for image in release.images.values():
            knows = any(arn in text for text in image.spec.environment.values() for arn in machines)
            (late if knows else early).append(partial(world.functions.update, image))
        changes: list[Callable[[], None]] = [
            *early,
            *(partial(world.machines.machines.__setitem__, arn, machine) for arn, machine in machines.items()),
            *late,
            partial(world.connect_services, release),
            partial(world.gateway.change, blueprint.apis),
            partial(self._complete, release),
        ]
        moment = world.kernel.now
        for change in changes:
            moment += next(pauses)
            world.kernel.at(moment, change)

    def _retained(self) -> dict[str, list[Mapping[str, Any]]]:
        """Roles of state machines of every version so far."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for version in self._deployed:
            roles = {machine.role for machine in version.blueprint.machines.values()}
            found |= {name: list(given) for name, given in version.blueprint.roles.items() if name in roles}
        return found

    def _complete(self, release: Deployment) -> None:
        self._world.calls.change(Roles({**self._retained(), **release.blueprint.roles}))
        self._world.trace.note("CloudFormation", "a release is complete")
        self._next()
