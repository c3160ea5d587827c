"""The member of a request in which functions find the caller's identity, checked at synth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from constructs_lib.shared.arguments import require_match
from saga_runtime.http.key_source import KeySource
from saga_runtime.idempotency.amounts import tokens_of
from saga_runtime.protocol import REFERENCE_FIELD, Env

_MEMBER: Final = rf"^(?!{REFERENCE_FIELD}$)[A-Za-z_][A-Za-z0-9_]{{0,63}}$"


def require_caller_member(
    operation: str, member: str | None, source: KeySource, schema: Mapping[str, Any] | None
) -> None:
    """Refuse a member that no expression could name, and one that bodies have.

    Raises:
        ValueError: naming it.
    """
    if member is None:
        return
    name = f"caller_member of operation {operation}"
    require_match(name, member, _MEMBER, "use a name like customer_id")
    declared = schema.get("properties", {}) if schema is not None else {}
    if member in declared or member in (schema or {}).get("required", ()):
        raise ValueError(f"{name} must not be a member of the schema, got {member!r}; remove it there: it is added")
    if any(tokens_of(pointer)[0] == member for pointer in source.members):
        raise ValueError(f"{name} must not be in key_source, got {member!r}; leave it out: keys are a caller's anyway")


def caller_environment(member: str | None) -> dict[str, str]:
    """Variable of a function that adds the member to requests."""
    return {Env.CALLER_MEMBER: member} if member is not None else {}
