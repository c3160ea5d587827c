"""Refusals of versioned items."""

from __future__ import annotations

from saga_runtime.errors import PermanentError


class VersionConflict(PermanentError):
    """The item's version is another one: it was changed since it was read.

    Attributes:
        current_version: its version; 0 if it has none, since another writer put it; None if it does not exist.
        current_state: its state, if it has one.
    """

    code = "VERSION_CONFLICT"

    def __init__(self, message: str, *, current_version: int | None = None, current_state: str | None = None) -> None:
        super().__init__(message)
        self.current_version = current_version
        self.current_state = current_state


class HeldByAnother(PermanentError):
    """The item is in the expected state, and another holder has it. To read it again does not help.

    Attributes:
        current_holder: who holds it; None if nothing does.
    """

    code = "HELD_BY_ANOTHER"

    def __init__(self, message: str, *, current_holder: str | None = None) -> None:
        super().__init__(message)
        self.current_holder = current_holder


class InvalidTransition(PermanentError):
    """No such transition is declared; nothing was sent."""

    code = "INVALID_TRANSITION"


class ItemExists(PermanentError):
    """An item that was to be created exists."""

    code = "ITEM_EXISTS"


class OperationReused(PermanentError):
    """The id of an operation was used for another one."""

    code = "OPERATION_REUSED"
