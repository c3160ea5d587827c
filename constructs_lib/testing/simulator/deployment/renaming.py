"""State machines under other names: as CloudFormation creates them again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from constructs_lib.testing.simulator.deployment.blueprint import Blueprint


def renamed(blueprint: Blueprint, names: Mapping[str, str]) -> Blueprint:
    """The same resources, where state machines, and whatever refers to them, have other names.

    Args:
        blueprint: the resources.
        names: new names of state machines, by name.
    """
    former = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # In an ARN, or as a whole text, also in JSON: never within another name.
    pattern = re.compile(rf'(:(?:stateMachine|execution|express):|"|\A)({former})(?=[:"\\]|\Z)')

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda match: match[1] + names[match[2]], value)
        if isinstance(value, Mapping):
            return {key: change(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(change(one) for one in value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [part.name for part in dataclasses.fields(value)]
            return replace(value, **{part: change(getattr(value, part)) for part in parts})
        return value

    functions = {
        name: replace(spec, environment=change(spec.environment)) for name, spec in blueprint.functions.items()
    }
    machines = [
        replace(machine, name=names.get(machine.name, machine.name), definition=change(machine.definition))
        for machine in blueprint.machines.values()
    ]
    return replace(
        blueprint,
        functions=functions,
        machines={machine.name: machine for machine in machines},
        published={change(arn): number for arn, number in blueprint.published.items()},
        aliases=change(blueprint.aliases),
        rules=change(blueprint.rules),
        roles=change(blueprint.roles),
        outputs=change(blueprint.outputs),
        resources=[replace(one, physical_id=change(one.physical_id)) for one in blueprint.resources],
    )
