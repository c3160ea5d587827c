"""A provider to test external steps against."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from constructs_lib.testing.faults import FaultsNotFiredError
from constructs_lib.testing.provider_audit import ProviderEffect
from constructs_lib.testing.providers.control import ProviderProcess
from constructs_lib.testing.providers.plain import (
    ProviderAction,
    ProviderFault,
    effects_of,
    operations_of,
    read_actions,
)
from constructs_lib.testing.providers.troubles import TroubleReport


class FakeProvider(ProviderProcess[ProviderFault]):
    """A provider with an HTTP API, in a process of its own, for as long as the ``with`` block lasts.

    It does whatever it is asked for, and answers 201; a second key is a second action. So a mistake of the caller shows
    in its books. A request that acts needs the header ``Idempotency-Key``. The same key and body again: the first
    response. The same key, another body: 422. A key in use: 409.

    ``GET`` of an operation's path with ``?key=…`` answers ``{"found": […], "in_work": false}``, also when the key is
    forgotten.

    Example:
        ```python
        with FakeProvider({"charge": "/charges", "refund": "/refunds"}) as provider:
            provider.plan(ProviderFault(on="charge", action="hang", moment="after"))
            ...  # functions that send requests to provider.url
            assert len(provider.actions("charge")) == 1
        ```

    Args:
        operations: by name, the path to which a request is posted: ``"/charges"``, ``"/charges/{id}/refunds"``.
        idempotent_for: seconds that a key is remembered, in the provider's time; 0: it has no keys.
        speed: how many times faster than real time its time passes: that of `LocalAws`.
        books: file of the books; a temporary one by default.

    Raises:
        ValueError: for an argument that cannot be.
    """

    TROUBLE: ClassVar[Any] = ProviderFault
    ROOT: ClassVar[Path] = Path(__file__).resolve().parents[3]

    def __init__(
        self,
        operations: Mapping[str, str],
        *,
        idempotent_for: float = 86_400.0,
        speed: float = 1.0,
        books: Path | None = None,
    ) -> None:
        self._operations = {str(operation) for operation in operations_of(operations)}
        self._planned: list[ProviderFault] = []
        self._ended: list[TroubleReport[ProviderFault]] = []
        _check_number("idempotent_for", idempotent_for, least=0)
        _check_number("speed", speed, least=0.001)
        settings = ("--operations", json.dumps(dict(operations)), "--idempotent-for", str(idempotent_for))
        super().__init__("provider", "constructs_lib.testing.providers", *settings, "--speed", str(speed), books=books)

    def plan(self, *troubles: ProviderFault) -> None:
        """Plan faults, in addition to those that are planned already.

        Raises:
            ValueError: if one is on an operation that this provider does not have.
        """
        for one in troubles:
            if one.on not in self._operations:
                raise ValueError(f"on must be one of {', '.join(sorted(self._operations))}, got {one.on!r}")
            if one.action in {"refuse", "slow", "duplicate"} and one.on.startswith("find-"):
                raise ValueError(f"on of {one.action} must be an operation that acts, got {one.on!r}")
        super().plan(*troubles)
        self._planned += troubles

    def stop(self) -> None:
        """End the process, and with it what is planned. Does nothing the second time."""
        if self._process is not None and self._planned:
            try:
                self._ended += self.report()
            except OSError:  # it has crashed, and no count is left
                self._ended += [TroubleReport(trouble=one) for one in self._planned]
            self._planned = []
        super().stop()

    def reset(self) -> None:
        """Forget every planned fault, empty the books, and drop requests that are on their way."""
        super().reset()
        self._planned, self._ended = [], []

    def require_all_fired(self) -> None:
        """Fail unless every planned fault hit a request, before a ``stop``, too: one that hits nothing proves nothing.

        Raises:
            FaultsNotFiredError: if one did not.
        """
        reports = [*self._ended, *(self.report() if self._process is not None else ())]
        idle = [report for report in reports if not report.fired]
        if idle:
            lines = "\n".join(f"  {report.trouble}: {report.matched} requests matched" for report in idle)
            raise FaultsNotFiredError(f"{len(idle)} planned faults did not fire:\n{lines}")

    def actions(self, operation: str | None = None) -> list[ProviderAction]:
        """Return what it did, in order; also when it is stopped. None: all operations.

        Raises:
            ValueError: for an operation that this provider does not have.
        """
        if operation is not None and operation not in self._operations:
            raise ValueError(f"operation must be one of {', '.join(sorted(self._operations))}, got {operation!r}")
        return [one for one in read_actions(self.books_file()) if operation in (None, one.operation)]

    def effects(self, amount: Callable[[Mapping[str, Any]], int] | None = None) -> list[ProviderEffect]:
        """Return what it did, for `audit_provider`.

        Args:
            amount: reads the amount in minor units from a request's body; by default its member ``amount``, 0 without.

        Raises:
            ValueError: if an amount is not an integer.
        """
        return effects_of(self.actions(), amount)


def _check_number(name: str, value: object, *, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise ValueError(f"{name} must be a number of {least:g} or more, got {value!r}")
