"""The words of a picture: headings, hints, and the whole saga in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from constructs_lib.saga.description.description import SagaDescription, StepDescription
from constructs_lib.saga.graph.looks import look_of
from constructs_lib.saga.graph.structure import goes_back
from constructs_lib.saga.graph.timeline import duration
from saga_runtime.protocol import Side

GO_ON: Final = "continue"
"""Route of an error that does not end the saga."""


def heading(saga: SagaDescription) -> str:
    """The saga's own name, without those of the constructs around it."""
    return saga.name.rpartition("/")[2]


def file_name(saga: SagaDescription) -> str:
    """Name of the saga's files, without the extension.

    >>> file_name(SagaDescription(name="Shop/OrderProcessing", steps=(), timeout=60, fingerprint=""))
    'order-processing'
    """
    return _kebab(heading(saga))


def long_file_name(saga: SagaDescription) -> str:
    """Likewise, with the names of the constructs around it."""
    return _kebab(saga.name)


def subtitle(saga: SagaDescription) -> str:
    """Number of steps and groups."""
    steps, undone = len(list(saga.leaves)), len(list(goes_back(saga)))
    return f"{_count(steps, 'step')}, {_count(undone, 'compensation')}, at most {duration(saga.timeout * 1_000)}"


def route_note(error: str, route: str) -> str:
    """Route of an error."""
    return f"{error}: continue without it" if route == GO_ON else f"{error}: compensate, then {route}"


def hint(step: StepDescription) -> str:
    """Everything about a step that the picture has no room for."""
    said = [look_of(step).caption]
    if step.when is not None:
        said.append(f"when {step.when}")
    if step.side == Side.PIVOT:
        said.append("the pivot")
    if step.function is not None:
        said.append(f"its function may take {duration(step.function.timeout * 1_000)}")
    if step.compensated:
        said.append("compensated")
    said += [route_note(error, route) for error, route in sorted(step.routes.items())]
    return f"{step.name}: {'; '.join(said)}"


def described(saga: SagaDescription) -> str:
    """The picture in sentences."""
    sentences = [f"Forward: {'; '.join(_told(saga.steps))}."]
    undone = [step.name for step in goes_back(saga)]
    if undone:
        sentences.append(f"Compensation, when a step before the pivot fails: {', '.join(undone)}.")
    told = " and a notice sent" if saga.tells_of_failure else ""
    sentences.append(f"It ends completed; failed, with every effect compensated{told}; or parked for an operator.")
    return " ".join(sentences)


def _kebab(name: str) -> str:
    return "-".join(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name))


def _told(steps: tuple[StepDescription, ...]) -> Iterator[str]:
    for step in steps:
        text = hint(step)
        if step.branches:
            text += f" ({' | '.join('; '.join(_told(branch)) for branch in step.branches)})"
        yield text


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
