"""Step Functions: published versions of state machines, and the aliases that point to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec
from constructs_lib.testing.simulator.errors import ServiceError

OPERATIONS: Final = frozenset({"DescribeStateMachineAlias", "ListStateMachineVersions", "UpdateStateMachineAlias"})


class Published:
    """Versions and aliases of every state machine.

    Args:
        machines: what is deployed, by ARN.
        share: draws a number from 0 to 1.
        note: records what aliases point to.

    Attributes:
        aliases: numbers of versions, and the percentage of new executions that each gets, by the alias's ARN.
    """

    def __init__(
        self, machines: Mapping[str, MachineSpec], share: Callable[[], float], note: Callable[[str, str], None]
    ) -> None:
        self.aliases: dict[str, dict[str, int]] = {}
        self._machines = machines
        self._versions: dict[str, MachineSpec] = {}
        self._share = share
        self._note = note

    def started(self, arn: str) -> MachineSpec | None:
        """The definition that an execution gets: the deployed one, a version's, or that of one of an alias's versions.

        Two versions of an alias get new executions by chance, also when one is started again by the same name.
        """
        weights = self.aliases.get(arn)
        if weights is not None:
            drawn = self._share() * 100 if len(weights) > 1 else 0
            for number, weight in weights.items():
                arn = _of(arn, number)
                drawn -= weight
                if drawn < 0:
                    break
        version = self._versions.get(arn)
        if version is not None:
            return version if version.arn in self._machines else None
        return self._machines.get(arn)

    def publish(self, machine_arn: str, number: str) -> None:
        """Publish what is deployed of a state machine as a version."""
        self._versions[f"{machine_arn}:{number}"] = self._machines[machine_arn]

    def point(self, alias: str, weights: Mapping[str, int]) -> None:
        """Point an alias to versions: the percentage of what it starts that each of these numbers gets."""
        self.aliases[alias] = dict(weights)
        machine, _, name = alias.rpartition(":")
        shares = ", ".join(f"version {number}: {weight} %" for number, weight in weights.items())
        self._note(machine.rpartition(":")[2], f"alias {name} points to {shares}")

    def forget(self, machine_arn: str) -> None:
        """Remove what was published of a state machine that is gone."""
        self._versions = {arn: spec for arn, spec in self._versions.items() if spec.arn != machine_arn}
        for alias in [alias for alias in self.aliases if alias.startswith(f"{machine_arn}:")]:
            del self.aliases[alias]

    def call(self, operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a request asks for.

        Raises:
            ServiceError: as Step Functions refuses it.
        """
        if operation == "ListStateMachineVersions":
            machine = params["stateMachineArn"]
            known = [arn for arn, version in reversed(self._versions.items()) if version.arn == machine]
            return {"stateMachineVersions": [{"stateMachineVersionArn": arn} for arn in known]}
        alias = str(params["stateMachineAliasArn"])
        if alias not in self.aliases:
            raise ServiceError("ResourceNotFound", f"Resource not found: '{alias}'")
        if operation == "UpdateStateMachineAlias":
            routes = {str(one["stateMachineVersionArn"]): int(one["weight"]) for one in params["routingConfiguration"]}
            for version in routes.keys() - self._versions.keys():
                raise ServiceError("ResourceNotFound", f"Resource not found: '{version}'")
            self.point(alias, {arn.rpartition(":")[2]: weight for arn, weight in routes.items()})
            return {}
        weights = self.aliases[alias].items()
        return {
            "routingConfiguration": [
                {"stateMachineVersionArn": _of(alias, number), "weight": weight} for number, weight in weights
            ]
        }


def _of(arn: str, number: str) -> str:
    """The version of a number, of the state machine of a version or an alias."""
    return f"{arn.rpartition(':')[0]}:{number}"
