"""Providers that functions call over HTTP: what they are asked, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from constructs_lib.testing.simulator.engine.kernel import Future


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """A request as it reaches a provider.

    Attributes:
        method: HTTP method.
        path: behind the URL under which the provider is reached.
        query: parameters of the query, the last one of each name.
        headers: names in lower case.
        body: its text.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """Answer of a provider: a status and a JSON document."""

    status: int = 200
    document: Any = field(default_factory=dict)


class Provider(Protocol):
    """Third party, whose effects cannot be written together with a row."""

    def handle(self, request: ProviderRequest) -> ProviderAnswer | Future[ProviderAnswer]:
        """Handle a request: at once, or with an answer that comes later."""
