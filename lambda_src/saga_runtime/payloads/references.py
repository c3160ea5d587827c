"""References to stored payloads: what they look like, and how nothing else is taken for one. Pure.

A reference is an object with one member, ``{"cdk_sagas_ref": "<owner>/<sha256>"}``. The owner is a request id (for the
request) or a saga id (for an output); the hash is that of the payload's bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from saga_runtime.protocol import PAYLOAD_KEY_PATTERN, REFERENCE_FIELD

IN_TEXT: Final = re.compile(rf'\{{"{REFERENCE_FIELD}":"([^"\\]*)"\}}')
"""A reference in compact JSON; the group is its key. It matches nothing within a string: a quote there has a backslash
before it."""

_KEY: Final = re.compile(PAYLOAD_KEY_PATTERN)
_MEMBER: Final = f'"{REFERENCE_FIELD}":'


def reference_to(owner: str, text: str) -> dict[str, str]:
    """Build the reference to a text of this owner: a request id, or a saga id."""
    return {REFERENCE_FIELD: f"{owner}/{hashlib.sha256(text.encode('utf-8')).hexdigest()}"}


def is_reference(value: Any) -> bool:
    """Test whether a value is a reference."""
    return (
        isinstance(value, Mapping)
        and len(value) == 1
        and isinstance(key := value.get(REFERENCE_FIELD), str)
        and _KEY.fullmatch(key) is not None
    )


def has_reserved_member(compact_json: str) -> bool:
    """Test whether an object anywhere in this JSON text (without blanks) has the member that only references have.

    What comes from a client or a step must not have it: it would be taken for a reference. Within a string of JSON a
    quote follows a backslash, so the member's name with its quotes and its colon is always a member.
    """
    return _MEMBER in compact_json
