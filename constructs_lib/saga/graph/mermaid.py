"""A saga as a Mermaid flowchart, for pages that draw one themselves."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.graph.cards import PIVOT_TEXT
from constructs_lib.saga.graph.looks import look_of
from constructs_lib.saga.graph.structure import Guarded, Part, goes_back, parts_of
from constructs_lib.saga.graph.text import wrap_code
from constructs_lib.saga.graph.words import route_note
from saga_runtime.protocol import Side

# Only strokes: the page's own theme fills the shapes, light or dark. Names of colours, since `#` begins an entity.
_CLASSES: Final = {
    "pivot": "stroke:mediumseagreen,stroke-width:4px",
    "undo": "stroke:chocolate,stroke-dasharray:5 4",
    "completed": "stroke:mediumseagreen,stroke-width:2px",
    "failed": "stroke:indianred,stroke-width:2px",
    "parked": "stroke:goldenrod,stroke-width:2px",
}
_ESCAPED: Final = re.compile(r"[\"#;<>&`%\\]")
_CODE_SIZE: Final = 10
_CODE_WIDTH: Final = 40 * 6.3
_MOST_CODE: Final = 8

_Exits = tuple[tuple[str, str], ...]
"""Nodes that the way forward leaves, each with the word on its arrow."""


def to_mermaid(saga: SagaDescription) -> str:
    """A saga as a Mermaid flowchart. The same description gives the same text."""
    return _Chart(saga).text()


class _Chart:
    def __init__(self, saga: SagaDescription) -> None:
        self._saga = saga
        self._lines: list[str] = ["flowchart TD"]
        self._edges: list[str] = []
        self._depth = 1
        self._conditions = 0
        self._groups = 0
        leaves = list(saga.leaves)
        self._nodes = {step.name: f"s{number}" for number, step in enumerate(leaves, 1)}
        self._undo = {step.name: f"u{self._nodes[step.name][1:]}" for step in goes_back(saga)}

    def text(self) -> str:
        saga = self._saga
        self._say('start(["Request"])')
        exits = self._flow(parts_of(saga.steps), (("start", ""),))
        told = "compensated, notified" if saga.tells_of_failure else "all compensated"
        self._say('completed(["Completed: every effect applied"])')
        self._enter(exits, "completed")
        self._back(saga.steps)
        after = [self._nodes[step.name] for step in saga.leaves if step.side == Side.AFTER]
        self._say(f'failed(["Failed: {told}"])')
        self._say('parked(["Parked: operator needed"])')
        pivots = [self._nodes[step.name] for step in saga.leaves if step.side == Side.PIVOT]
        in_doubt = after or pivots
        self._edges += [f"{node} -.-> parked" for node in in_doubt]
        members = {
            "pivot": pivots,
            "undo": list(self._undo.values()),
            **{end: [end] for end in ("completed", "failed", "parked")},
        }
        for line in self._edges:
            self._say(line)
        for name, nodes in members.items():
            if nodes:
                self._say(f"classDef {name} {_CLASSES[name]}")
                self._say(f"class {','.join(nodes)} {name}")
        return "\n".join(self._lines) + "\n"

    def _say(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _enter(self, exits: _Exits, node: str) -> None:
        self._edges += [f"{leaving} -->{f'|{word}|' if word else ''} {node}" for leaving, word in exits]

    def _flow(self, parts: Sequence[Part], exits: _Exits) -> _Exits:
        for part in parts:
            exits = self._part(part, exits)
        return exits

    def _part(self, part: Part, exits: _Exits) -> _Exits:
        if isinstance(part, StepDescription):
            return self._group(part, exits) if part.branches else self._step(part, exits)
        self._conditions += 1
        node = f"c{self._conditions}"
        shown = wrap_code(part.when, _CODE_WIDTH, _CODE_SIZE, most=_MOST_CODE)
        self._say(f'{node}{{{{"{_lines(shown)}"}}}}')
        self._enter(exits, node)
        if isinstance(part, Guarded):
            return (*self._flow(parts_of(_unconditional(part.steps)), ((node, "yes"),)), (node, "no"))
        yes = self._flow(parts_of(_unconditional(part.yes)), ((node, "yes"),))
        return (*yes, *self._flow(parts_of(_unconditional(part.no)), ((node, "no"),)))

    def _step(self, step: StepDescription, exits: _Exits) -> _Exits:
        node = self._nodes[step.name]
        said = [step.name, look_of(step).caption]
        said += [route_note(error, route) for error, route in sorted(step.routes.items())]
        if step.side == Side.PIVOT:
            said.append(f"pivot: {PIVOT_TEXT}")
        self._say(f'{node}["{_lines(said)}"]')
        self._enter(exits, node)
        return ((node, ""),)

    def _group(self, group: StepDescription, exits: _Exits) -> _Exits:
        self._groups += 1
        self._say(f'subgraph g{self._groups}["{_lines([f"{group.name}: {look_of(group).caption}"])}"]')
        self._depth += 1
        left: _Exits = ()
        for branch in group.branches:
            left += self._flow(parts_of(branch), exits)
        self._depth -= 1
        self._say("end")
        return left

    def _back(self, steps: Sequence[StepDescription]) -> None:
        """The chain of compensations, with the entry of each step that can fail."""
        chain = "failed"
        for step in steps:
            leaves = [leaf for leaf in step.leaves if leaf.side != Side.AFTER]
            together = len(step.branches) > 1
            for leaf in leaves:
                undo = self._undo.get(leaf.name)
                if undo is not None:
                    self._say(f'{undo}["{_lines([f"Compensate {leaf.name}"])}"]')
                    self._edges.append(f"{undo} -.-> {chain}")
                    chain = undo
                if not together:
                    self._edges.append(f"{self._nodes[leaf.name]} -.-> {chain}")
            if together:
                self._edges += [f"{self._nodes[leaf.name]} -.-> {chain}" for leaf in leaves]


def _lines(texts: Sequence[str]) -> str:
    return "<br/>".join(_escaped(text) for text in texts)


def _escaped(text: str) -> str:
    """A label's text: what has a meaning in Mermaid is written as an entity, in Mermaid's own spelling."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return _ESCAPED.sub(lambda match: f"#{ord(match[0])};", plain)


def _unconditional(steps: Sequence[StepDescription]) -> list[StepDescription]:
    return [dataclasses.replace(step, when=None) for step in steps]
