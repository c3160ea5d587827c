"""Key sources of operations, checked at synth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constructs_lib.api.schema_paths import may_lead_to
from saga_runtime.http.key_source import KeySource, KeySourceKind
from saga_runtime.idempotency.amounts import tokens_of
from saga_runtime.protocol import Env, KeyPolicy


def require_key_policy(source: KeySource, policy: KeyPolicy) -> None:
    """Refuse natural keys that are optional.

    Raises:
        ValueError: if a request without its natural key would get a generated one.
    """
    if policy is KeyPolicy.OPTIONAL and source.kind in (KeySourceKind.NATURAL, KeySourceKind.COMPOSITE):
        raise ValueError(
            f"key_policy must be REQUIRED with a {source.kind.lower()} key, got OPTIONAL; leave it out: without "
            "its ids a request would happen as often as it is sent"
        )


def require_key_members(operation: str, source: KeySource, schema: Mapping[str, Any] | None) -> None:
    """Refuse pointers to what no body can hold.

    Raises:
        ValueError: naming the pointer that leads nowhere.
    """
    kinds = ["string"] if source.kind is KeySourceKind.BODY else ["string", "integer"]
    for member in source.members:
        if schema is not None and not may_lead_to(schema, tokens_of(member), kinds):
            raise ValueError(
                f"key_source of operation {operation} must point to {' or '.join(kinds)} in a body that the schema "
                f"allows, got {member!r}; correct the pointer, or the schema"
            )


def key_environment(source: KeySource) -> dict[str, str]:
    """Variables of a function that reads keys from this source; none for the header."""
    return {Env.KEY_SOURCE: source.to_json()} if source.reads_body else {}
