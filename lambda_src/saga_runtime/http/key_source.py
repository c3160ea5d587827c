"""Sources of a request's idempotency key: the header, a member of the body, or the ids of the business. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.http.idempotent_request import BadKey, idempotency_key_of
from saga_runtime.idempotency.amounts import tokens_of, value_at
from saga_runtime.idempotency.identity import canonical_json
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, MAX_KEY_LENGTH

_MAX_MEMBERS: Final = 5


class KeySourceKind(StrEnum):
    """Kinds of sources."""

    HEADER = "HEADER"
    BODY = "BODY"
    NATURAL = "NATURAL"
    COMPOSITE = "COMPOSITE"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Source of an operation's idempotency keys; made by one of the four methods.

    A key is one caller's in any case, and another body under it is refused with 422. A change of the source makes every
    request new: a retry that arrives after the deploy is applied again.

    Attributes:
        kind: which of the four.
        members: JSON pointers (RFC 6901) into the body.

    Raises:
        TypeError: for a member that is not text.
        ValueError: for a member that is not a JSON pointer, or has a blank name, and for the wrong number of them.
    """

    kind: KeySourceKind
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.kind, KeySourceKind):
            raise TypeError(
                f"kind must be a KeySourceKind, got {type(self.kind).__name__}; use one of the four methods"
            )
        for member in self.members:
            if not isinstance(member, str):
                raise TypeError(
                    f"members of a key must be text, got {type(member).__name__}; write them like '/order_id'"
                )
        least, most = {KeySourceKind.HEADER: (0, 0), KeySourceKind.BODY: (1, 1)}.get(self.kind, (1, _MAX_MEMBERS))
        if not least <= len(self.members) <= most:
            raise ValueError(
                f"members of a {self.kind.lower()} key must be {least} to {most}, got {len(self.members)}; name "
                "the ids that identify what is to happen once"
            )
        if len(set(self.members)) != len(self.members):
            raise ValueError(f"members of a key must differ, got {', '.join(self.members)}; leave out the second one")
        for member in self.members:
            if not all(token.strip() for token in tokens_of(member)):
                raise ValueError(f"members of a key must have names, got {member!r}; write them like '/order_id'")

    @classmethod
    def header(cls) -> KeySource:
        """The ``Idempotency-Key`` header: one per intent of a client. The default."""
        return cls(kind=KeySourceKind.HEADER)

    @classmethod
    def body(cls, member: str) -> KeySource:
        """A member of the body, e.g. ``/idempotencyKey``, in the header's place. A header is ignored.

        Args:
            member: JSON pointer to a string of 1 to 255 printable ASCII characters.
        """
        return cls(kind=KeySourceKind.BODY, members=(member,))

    @classmethod
    def natural(cls, *members: str) -> KeySource:
        """Ids of the business, e.g. ``/order_id``: whatever is known by them happens once. A header is ignored.

        Two requests of one order are duplicates, also under two headers: a double click is one order. The same ids with
        other content are refused with 422. Never a customer's id: their second order would be a duplicate. A refusal or
        a failure settles the ids, too: add a number of the try if an order may be tried again.

        Args:
            members: JSON pointers to 1 to 5 strings or integers.
        """
        return cls(kind=KeySourceKind.NATURAL, members=members)

    @classmethod
    def composite(cls, *members: str) -> KeySource:
        """The header together with ids of the business: a client's key is free again for another order.

        Args:
            members: as of ``natural``.
        """
        return cls(kind=KeySourceKind.COMPOSITE, members=members)

    @classmethod
    def from_json(cls, text: str | None) -> KeySource:
        """Read ``Env.KEY_SOURCE``; the header without it."""
        if not text:
            return cls.header()
        kind, *members = json.loads(text)
        return cls(kind=KeySourceKind(kind), members=tuple(members))

    def to_json(self) -> str:
        """Value of ``Env.KEY_SOURCE``."""
        return json.dumps([self.kind, *self.members], separators=(",", ":"))

    @property
    def reads_body(self) -> bool:
        """True if the body has the key, or a part of it."""
        return self.kind is not KeySourceKind.HEADER

    @property
    def remedy(self) -> str:
        """Advice to a client that sent no key."""
        members = ", ".join(self.members)
        header = f"an {IDEMPOTENCY_KEY_HEADER} header, the same for every retry"
        match self.kind:
            case KeySourceKind.HEADER:
                return f"send {header}"
            case KeySourceKind.BODY:
                return f"send the key as {members}, the same for every retry"
            case KeySourceKind.NATURAL:
                return f"send {members}: the request is identified by it"
            case KeySourceKind.COMPOSITE:
                return f"send {header}, and {members}"

    def key_of(self, event: Mapping[str, Any], body: Any) -> str | None:
        """The request's key, 1 to 255 characters; None: it has none.

        Args:
            event: the proxy event.
            body: the parsed body; not read if the key is the header's.

        Raises:
            BadKey: if what should be the key is not one.
        """
        header = idempotency_key_of(event) if self.kind in (KeySourceKind.HEADER, KeySourceKind.COMPOSITE) else None
        if self.kind is KeySourceKind.HEADER:
            return header
        values = [value_at(body, tokens_of(member)) for member in self.members]
        if None in values or (self.kind is KeySourceKind.COMPOSITE and header is None):
            return None
        if self.kind is KeySourceKind.BODY:
            return _text(self.members[0], values[0])
        ids = [_id(member, value) for member, value in zip(self.members, values, strict=True)]
        parts = ids if header is None else [header, *ids]
        key = parts[0] if len(parts) == 1 else canonical_json(parts)
        if len(key) > MAX_KEY_LENGTH:
            raise BadKey(f"{', '.join(self.members)} must have {MAX_KEY_LENGTH} characters together, got {len(key)}")
        return key


def _text(member: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or not value.strip():
        raise BadKey(f"{member} must be a string of printable ASCII characters that are not all blank")
    if len(value) > MAX_KEY_LENGTH:
        raise BadKey(f"{member} must have 1 to {MAX_KEY_LENGTH} characters, got {len(value)}")
    return value


def _id(member: str, value: Any) -> str:
    """An id as text: 7 and "7" are one key, and two bodies, of which the second is refused."""
    if type(value) is not int and not (isinstance(value, str) and value.isprintable() and value.strip()):
        raise BadKey(f"{member} must be an integer, or a string of printable characters that are not all blank")
    return str(value)
