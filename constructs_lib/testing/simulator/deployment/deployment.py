"""Parts that stay from run to run: a blueprint, and its functions' code."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from constructs_lib.testing.simulator.aws.assumed import demands_of_creation
from constructs_lib.testing.simulator.aws.roles import Roles
from constructs_lib.testing.simulator.deployment.blueprint import Blueprint
from constructs_lib.testing.simulator.deployment.images import Bundle, Image, Switch
from constructs_lib.testing.simulator.deployment.parts import Parts, parts_of
from constructs_lib.testing.simulator.deployment.renaming import renamed
from constructs_lib.testing.simulator.deployment.template import blueprint_of


class Deployment:
    """A stack, ready to be simulated any number of times. Close it, or use it as a context.

    Args:
        blueprint: what is deployed.

    Attributes:
        blueprint: as given.
        parts: which table plays which part.
        images: modules of each function.
        switch: puts a function's modules in place.
        roles: policies of each role, and what calls of all runs needed of them.
        demands: what AWS requires of roles before it creates a resource: the resource's name, the role, the demand.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.roles = Roles(blueprint.roles)
        self.demands = tuple(demands_of_creation(blueprint))
        self.parts: Parts = parts_of(blueprint)
        self._workspace = tempfile.TemporaryDirectory(prefix="cdk-sagas-simulator-")
        self._renamed: dict[tuple[tuple[str, str], ...], Deployment] = {}
        bundles: dict[Path | str, Bundle] = {}
        self.images: dict[str, Image] = {}
        for spec in blueprint.functions.values():
            if spec.code not in bundles:
                bundles[spec.code] = Bundle(spec.code, Path(self._workspace.name))
            self.images[spec.name] = Image(spec, bundles[spec.code])
        self.switch = Switch(tuple(bundles.values()))

    @classmethod
    def of_assembly(cls, folder: Path, stacks: Collection[str] | None = None) -> Deployment:
        """Deploy stacks of a synthesized assembly, by name; None: all of them."""
        return cls(blueprint_of(folder, stacks))

    @classmethod
    def of_stack(cls, stack: Any) -> Deployment:
        """Synthesize and deploy a CDK stack, with what it depends on; or an app, or a stage, with all of its stacks."""
        assembly = stack.node.root.synth()
        stage = next(scope for scope in reversed(stack.node.scopes) if hasattr(scope, "synth"))
        if stage.node.scope is not None:
            assembly = assembly.get_nested_assembly(stage.artifact_id)
        if stage is stack:
            return cls.of_assembly(Path(assembly.directory))
        needed, left = set[str](), [stack]
        while left:
            one = left.pop()
            if one.stack_name not in needed:
                needed.add(one.stack_name)
                left += one.dependencies
        return cls.of_assembly(Path(assembly.directory), needed)

    def renamed(self, names: Mapping[str, str]) -> Deployment:
        """The same deployment with other names of state machines, by name; it is closed with this one."""
        key = tuple(sorted(names.items()))
        if not key:
            return self
        if key not in self._renamed:
            self._renamed[key] = Deployment(renamed(self.blueprint, names))
        return self._renamed[key]

    def reset(self) -> None:
        """Forget what a run left in the functions' modules."""
        self.switch.to(None)
        for image in self.images.values():
            image.reset()
        for other in self._renamed.values():
            other.reset()

    def close(self) -> None:
        """Remove unpacked code."""
        for other in self._renamed.values():
            other.close()
        self._workspace.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
