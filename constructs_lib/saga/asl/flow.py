"""A sequence of steps: what is known before each of them, and which one follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from constructs_lib.saga.asl.items import ITEM_KEY, item_fields
from constructs_lib.saga.asl.plan import CompiledGroup, CompiledStep, Node, State
from constructs_lib.saga.asl.states import REQUEST
from constructs_lib.saga.steps.jsonata import expression
from saga_runtime.protocol import CallField, ShareField


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Steps in order: those of the saga, of a phase, or of a branch.

    Attributes:
        nodes: the steps.
        end: name of the state behind the last one.
        first: name of the choice before the first one.
        variable: what keeps the outputs. A branch has one of its own: it may read the saga's variables, not set them.
        base: expression of what is known in addition to the variable; None for the saga itself.
        of_map: the map whose item the steps work on.
        shares: items or branches that share the room for outputs; 0 if nothing runs concurrently.
        last_pivot: index of the last node with a pivot; -1 if no pivot decides about these steps.
    """

    nodes: Sequence[Node]
    end: str
    first: str = "Select first step"
    variable: str = "outputs"
    base: str | None = None
    of_map: CompiledGroup | None = None
    shares: int = 0
    last_pivot: int = -1

    @property
    def inner(self) -> bool:
        """True if these steps are in an inner scope, which may not assign a name that the saga assigns."""
        return self.base is not None

    @property
    def row(self) -> str:
        """Name of the variable that keeps a row that was read."""
        return "own_row" if self.inner else "row"

    @property
    def canceled(self) -> str:
        """Name of the variable that keeps why a transaction was canceled."""
        return "own_canceled" if self.inner else "canceled"

    @property
    def failure(self) -> str:
        """Name of the variable that keeps what gave a step up."""
        return "stopped" if self.inner else "failure"

    def tells(self, stuck: State) -> State:
        """Assignment of the operators' fields: the saga's own; a branch only reports that it stopped."""
        return {} if self.inner else stuck

    def following(self, index: int) -> str:
        """Name of the state that follows node ``index`` (-1: the start).

        A condition costs a state only where it is open: a step without one, or with the one under which this step ran
        (a condition over the request alone cannot change in between), follows at once.
        """
        if index + 1 >= len(self.nodes):
            return self.end
        node = self.nodes[index + 1]
        if node.when is None or self._settled_by(index, node.when):
            return node.name
        return self._choice_name(index)

    def choice(self, index: int, undecided: Callable[[Node], State]) -> dict[str, State]:
        """ONE state for all conditions that are open behind node ``index``: nothing runs between them.

        A condition that is neither true nor false, JSONata's missing value included, skips nothing: it stops the saga
        before the step. A Choice state catches no errors, so each condition has a rule for that case.

        Args:
            index: number of the node, -1 for the start.
            undecided: where a node leads whose condition is neither, and what is assigned: ``Next`` and ``Assign``.
        """
        name = self._choice_name(index)
        if self.following(index) != name:
            return {}
        first: State = {} if index >= 0 else {"Assign": {self.variable: {}}}
        known = self.known(index + 1) if index >= 0 else self.base or "{}"
        bound = "" if known == "$outputs" else f" $outputs := {known};"
        choices: list[State] = []
        default, known_false = self.end, set[str]()
        for ahead, node in enumerate(self.nodes[index + 1 :], index + 1):
            if node.when is None:
                default = self._entry(index, ahead)
                break
            if node.when in known_false:
                continue
            known_false.add(node.when)
            # Comparisons are booleans whatever they compare: a missing value, or one of another type, equals neither.
            names = f"$request := $parse({REQUEST});{bound}"
            stopped = undecided(node)
            choices += [
                {
                    "Condition": expression(f"({names} ({node.when}) = true)"),
                    "Next": self._entry(index, ahead),
                    **first,
                },
                {
                    "Condition": expression(f"({names} $not(({node.when}) = false))"),
                    "Next": stopped["Next"],
                    "Assign": {**first.get("Assign", {}), **stopped["Assign"]},
                },
            ]
        return {name: {"Type": "Choice", "Choices": choices, "Default": default, **first}}

    def _entry(self, index: int, ahead: int) -> str:
        """Name of the state that leads from behind node ``index`` to node ``ahead``, with none between them.

        After the last pivot a saga only goes forward. The row of a pivot that ran records that; on a path around the
        last one, the record has to.
        """
        node = self.nodes[ahead]
        ran = index >= 0 and self.nodes[index].pivot
        return only_forward_name(node) if index < self.last_pivot < ahead and not ran else node.name

    def known(self, index: int) -> str:
        """Expression of every output that is known when node ``index`` begins."""
        own = None if self._unassigned(index) else f"${self.variable}"
        if self.base in (None, "{}"):
            return own or "{}"
        return f"$merge([{self.base}, {own}])" if own else str(self.base)

    def with_output(self, index: int, output: str) -> str:
        """Expression of what the variable becomes when node ``index`` answers this object (step name: output)."""
        return output if self._unassigned(index) else f"$merge([${self.variable}, {output}])"

    def assigned(self, index: int, output: str) -> State:
        """Assignment of what node ``index`` answers."""
        return {self.variable: expression(self.with_output(index, output))}

    def own_outputs(self) -> str:
        """Expression of the outputs of these steps alone, behind the last one."""
        return f"${self.variable}"

    def _settled_by(self, index: int, when: str) -> bool:
        return index >= 0 and self.nodes[index].when == when and "$outputs" not in when

    def _choice_name(self, index: int) -> str:
        return f"Select step after {self.nodes[index].name}" if index >= 0 else self.first

    def _unassigned(self, index: int) -> bool:
        """Test whether the variable is still unassigned when this node begins."""
        return index <= 0 and not self.nodes[0].when


def only_forward_name(node: Node) -> str:
    """Name of the state through which a path around all pivots leads to a node behind them."""
    return f"Only forward to {node.name}"


def item_of(flow: Flow) -> State:
    """Fields of a call with the item that a map's step works on; empty elsewhere."""
    return item_fields(flow.of_map) if flow.of_map is not None else {}


def share_of(flow: Flow, step: CompiledStep) -> State:
    """Fields of a call with the step's part of the room for outputs; empty if nothing runs concurrently."""
    if not flow.shares:
        return {}
    index = flow.nodes.index(step)
    own = [node.name for node in flow.nodes[:index]]
    share = {ShareField.OF: flow.shares, ShareField.OWN: own, ShareField.LEFT: len(flow.nodes) - index}
    return {CallField.SHARE: dict(share)}


def row_text(flow: Flow, step: CompiledStep) -> str:
    """JSONata expression of the sort key of a step's row: the item's key is part of it."""
    return f'"{step.name}"' if flow.of_map is None else f'"{step.name}[" & {ITEM_KEY} & "]"'


def row_name(flow: Flow, step: CompiledStep) -> str:
    """Sort key of a step's row."""
    return step.name if flow.of_map is None else expression(row_text(flow, step))
