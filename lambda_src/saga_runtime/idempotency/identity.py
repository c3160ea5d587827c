"""Names: request id, saga id, step key, provider key, fingerprint. All but a reservation's time are derived by hash.

A process that crashes and restarts derives the same names. A key contains nothing personal.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring as _quoted
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.protocol import (
    ITEM_KEY_PATTERN,
    MAX_JSON_DEPTH,
    REQUEST_ID_LENGTH,
    SAGA_ID_PATTERN,
    STEP_NAME_PATTERN,
)

_SAGA_ID: Final = re.compile(SAGA_ID_PATTERN)
_STEP_NAME: Final = re.compile(STEP_NAME_PATTERN)
_ITEM_KEY: Final = re.compile(ITEM_KEY_PATTERN)
_PROVIDER_NAMESPACE: Final = uuid.UUID("6d0f1a1e-5a3c-5f0b-9a5e-0c1f6f1d7a42")
_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TABLE_LENGTH: Final = 4
"""With 9 characters of milliseconds, until the year 5188, the longest saga id has ``MAX_SAGA_ID`` characters."""
_MAX_EXPONENT: Final = 300
"""Of a number in scientific notation, integers included. Whatever is beyond has no fingerprint."""
_TOO_LARGE_INTEGER: Final = 10 ** (_MAX_EXPONENT + 1)


class TooLarge(Exception):
    """A JSON value that takes more room than it may."""


def scope_of(operation: str, caller: tuple[str, ...]) -> str:
    """Digest of an operation and the identity of its caller: one caller never meets another's records.

    Args:
        operation: name of the operation, e.g. ``transfers``.
        caller: kind of identity and its parts, e.g. ``("iam", account, principal)``. No part may be blank.

    Raises:
        ValueError: if the operation or a part of the identity is blank.
    """
    parts = (operation, *caller)
    if len(caller) < 2 or any(not part.strip() for part in parts):
        raise ValueError(f"a scope needs an operation and a caller without blank parts, got {parts!r}")
    return _digest(*parts)


def request_id_of(scope: str, idempotency_key: str) -> str:
    """Partition key of a request record: 26 base32 characters (130 bits) of SHA-256 over scope and key.

    Raises:
        ValueError: if scope or key is blank.
    """
    if not scope.strip() or not idempotency_key.strip():
        raise ValueError("a request id needs a scope and an idempotency key that are not blank")
    return _base32_digest(REQUEST_ID_LENGTH, scope, idempotency_key)


def saga_id_of(request_id: str, reserved_at_ms: int, table: str) -> str:
    """Name of one run for one request, at most 40 characters; it is the name of the first execution, too.

    Args:
        request_id: of the request.
        reserved_at_ms: time of the reservation.
        table: name of the request table. One caller may send one key to operations of one name in two stacks, as an
            event that both receive: at the same moment, too, these are two sagas, with two keys at a provider.
    """
    if len(request_id) != REQUEST_ID_LENGTH:
        raise ValueError(f"a request id has {REQUEST_ID_LENGTH} characters, got {len(request_id)}: {request_id!r}")
    if reserved_at_ms <= 0:
        raise ValueError(f"the time of a reservation must be positive, got {reserved_at_ms}")
    if not table.strip():
        raise ValueError("a saga id needs the name of a request table that is not blank")
    return f"{request_id}-{_base36(reserved_at_ms)}{_base32_digest(_TABLE_LENGTH, table)}"


def request_id_from(saga_id: str) -> str:
    """The request id in a saga id.

    Raises:
        ValueError: if ``saga_id`` does not have the form of one.
    """
    if not _SAGA_ID.fullmatch(saga_id):
        raise ValueError(f"not a saga id: {saga_id!r}")
    return saga_id[:REQUEST_ID_LENGTH]


def due_shard_of(request_id: str, shards: int) -> str:
    """Partition of the sparse index in which a record is found while it is to be checked."""
    if not 1 <= shards <= 100:
        raise ValueError(f"the number of shards must be 1 to 100, got {shards}")
    digest = hashlib.sha256(request_id.encode("ascii")).digest()
    return f"{int.from_bytes(digest[:4], 'big') % shards:02d}"


def is_saga_id(text: str) -> bool:
    """Test whether ``text`` has the form of a saga id."""
    return bool(_SAGA_ID.fullmatch(text))


def is_item_key(text: str) -> bool:
    """Test whether ``text`` can be the key of an item of a map."""
    return bool(_ITEM_KEY.fullmatch(text))


def row_name_of(step: str, item_key: str | None = None) -> str:
    """Sort key of a step's row in the saga log: ``{step}``, or ``{step}[{item key}]`` for an item of a map.

    Raises:
        ValueError: if the step's name or the item's key has characters or a length that it must not have.
    """
    if not _STEP_NAME.fullmatch(step):
        raise ValueError(f"a step's name must match {STEP_NAME_PATTERN}, got {step!r}")
    if item_key is None:
        return step
    if not is_item_key(item_key):
        raise ValueError(f"an item's key must match {ITEM_KEY_PATTERN}, got {item_key!r}")
    return f"{step}[{item_key}]"


def step_key_of(saga_id: str, step: str, *, item_key: str | None = None, undo: bool = False) -> str:
    """``{saga id}#{step}``, ``{saga id}#{step}[{item key}]`` in a map, with ``#undo`` for the step's compensation."""
    if not is_saga_id(saga_id):
        raise ValueError(f"not a saga id: {saga_id!r}")
    name = row_name_of(step, item_key)
    return f"{saga_id}#{name}#undo" if undo else f"{saga_id}#{name}"


def provider_key_of(step_key: str) -> str:
    """Deterministic 36-character UUID of a step key, for providers that refuse longer idempotency keys."""
    if not step_key.strip():
        raise ValueError("a provider key needs a step key that is not blank")
    return str(uuid.uuid5(_PROVIDER_NAMESPACE, step_key))


def fingerprint_of(operation: str, canonical_body: str) -> str:
    """SHA-256 over the operation and the canonical JSON of the body: the same key with another body is refused."""
    return _digest(operation, canonical_body)


def parse_json(text: str, *, max_bytes: int | None = None) -> Any:
    """Parse JSON without losing anything: integers stay exact, fractions become ``Decimal``.

    Args:
        text: the JSON text.
        max_bytes: size in canonical form above which parsing ends early; unlimited by default. What is returned may
            still be larger: only numbers with an exponent grow, and only these are counted.

    Raises:
        Invalid: if the text is not JSON (RFC 8259), names a member twice, has a number out of range, or nests too deep.
        TooLarge: if its numbers alone take more than ``max_bytes`` bytes when they are written out.
    """
    numbers = _Numbers(max_bytes)
    try:
        return json.loads(
            text,
            parse_int=_exact_integer,
            parse_float=numbers.fraction,
            parse_constant=_no_constant,
            object_pairs_hook=_unique_members,
        )
    except RecursionError:
        raise Invalid("the JSON text nests too deep") from None
    except ValueError as error:
        raise Invalid(f"not JSON: {error}") from None


def canonical_json(value: Any, *, max_bytes: int | None = None) -> str:
    """One text per JSON value: members sorted, no blanks, numbers in one spelling (1.0 and 1.00 are 1).

    Args:
        value: what ``parse_json`` returns, or the like.
        max_bytes: size in UTF-8 above which writing ends; unlimited by default.

    Raises:
        Invalid: if the value holds something that JSON cannot hold, a float, a number out of range, or a lone
            surrogate, or nests too deep.
        TooLarge: if the text has more than ``max_bytes`` bytes. No more characters than these were written.
    """
    text = _Text(max_bytes)
    text.write(value, "", MAX_JSON_DEPTH)
    return text.checked()


class _Text:
    """A canonical text as it is written: a piece for each scalar, with the name and the comma before it."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._room = sys.maxsize if max_bytes is None else max_bytes
        # Not a list of pieces: the text of many small ones would take twenty times its size.
        self._written = io.StringIO()
        self._append = self._written.write

    def write(self, value: Any, before: str, depth: int) -> None:
        scalar = _scalar(value)
        if scalar is not None:
            self._piece(before + scalar)
        elif isinstance(value, Mapping | list | tuple):
            if depth == 0:
                raise Invalid(f"the JSON value nests too deep; it may nest {MAX_JSON_DEPTH} levels")
            if isinstance(value, Mapping):
                self._piece(before + "{")
                between = ""
                for name in sorted(map(_member_name, value)):
                    self.write(value[name], f"{between}{_quoted(name)}:", depth - 1)
                    between = ","
                self._piece("}")
            else:
                self._piece(before + "[")
                between = ""
                for item in value:
                    self.write(item, between, depth - 1)
                    between = ","
                self._piece("]")
        elif isinstance(value, float):
            raise Invalid(f"floats lose money, got {value!r}; use an integer of minor units, a Decimal or a string")
        else:
            raise Invalid(f"JSON cannot hold {type(value).__name__}")

    def checked(self) -> str:
        """The whole text."""
        text = self._written.getvalue()
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise Invalid("the JSON value holds half of a surrogate pair, which is not a character") from None
        if self._max_bytes is not None and size > self._max_bytes:
            raise TooLarge(_TOO_LARGE.format(self._max_bytes))
        return text

    def _piece(self, text: str) -> None:
        self._append(text)
        self._room -= len(text)  # characters: a text has at least as many bytes
        if self._room < 0:
            raise TooLarge(_TOO_LARGE.format(self._max_bytes))


_TOO_LARGE: Final = "the JSON value may have {} bytes in canonical form, and has more"


def _scalar(value: Any) -> str | None:
    if isinstance(value, str):
        return _quoted(value)
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        if abs(value) >= _TOO_LARGE_INTEGER:
            raise Invalid("a number is out of range")
        return int.__repr__(value)  # a member of an enumeration, or another class's number, has a text of its own
    return _canonical_decimal(value) if isinstance(value, Decimal) else None


def _member_name(name: Any) -> str:
    if not isinstance(name, str):
        raise Invalid(f"a member's name must be a string, got {name!r}")
    return name


def _canonical_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Invalid(f"JSON cannot hold {value}")
    if value == 0:
        return "0"
    if abs(value.adjusted()) > _MAX_EXPONENT:
        raise Invalid("a number is out of range")
    # Not ``normalize``: it rounds to the context's 28 digits, and two bodies would become one.
    text = Decimal.__format__(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _exact_integer(text: str) -> int:
    # By its length first: Python takes quadratic time for its digits, and refuses more than 4,300 of them.
    if len(text.lstrip("-")) > _MAX_EXPONENT + 1:
        raise ValueError(f"a number is out of range: {text[:40]}")
    return int(text)


@dataclass(slots=True)
class _Numbers:
    """Fractions of one JSON text as they are parsed, and what those that may grow take when they are written out."""

    max_bytes: int | None
    size: int = 0

    def fraction(self, text: str) -> Decimal:
        try:
            number = Decimal(text)
        except InvalidOperation:  # an exponent that Decimal cannot hold
            raise ValueError(f"a number is out of range: {text[:40]}") from None
        if abs(number.adjusted()) > _MAX_EXPONENT:
            raise ValueError(f"a number is out of range: {text[:40]}")
        if self.max_bytes is not None and "e" in text.lower():
            self.size += len(_canonical_decimal(number))
            if self.size > self.max_bytes:
                raise TooLarge(_TOO_LARGE.format(self.max_bytes))
        return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object names a member twice")
    return members


def _digest(*parts: str) -> str:
    return hashlib.sha256(_length_prefixed(*parts)).hexdigest()


def _base32_digest(length: int, *parts: str) -> str:
    """Beginning of a digest in lower case letters and digits, 5 bits each."""
    return base64.b32encode(hashlib.sha256(_length_prefixed(*parts)).digest()).decode("ascii").lower()[:length]


def _length_prefixed(*parts: str) -> bytes:
    encoded = (part.encode("utf-8") for part in parts)
    return b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _BASE36[rest] + digits
    return digits
