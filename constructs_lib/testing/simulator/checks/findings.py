"""Findings of a run."""

from __future__ import annotations

from dataclasses import dataclass

_MOST: int = 50


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be.

    Attributes:
        kind: what it breaks: ``promise``, ``permission``, ``in flight`` …
        text: a sentence.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Findings:
    """Everything that was found, each once, in order.

    Attributes:
        found: the findings, up to a number after which more of them add nothing.
    """

    def __init__(self) -> None:
        self.found: list[Finding] = []
        self._known: set[Finding] = set()

    def add(self, kind: str, text: str) -> None:
        """Add a finding."""
        finding = Finding(kind, text)
        if finding not in self._known and len(self.found) < _MOST:
            self._known.add(finding)
            self.found.append(finding)
