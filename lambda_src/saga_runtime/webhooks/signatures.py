"""True if a webhook was signed by who has the secret, and not long ago. Pure: no clock, no environment, no service.

Four schemes: Stripe's (https://docs.stripe.com/webhooks#verify-manually), Paddle's, an HMAC in a header as most
providers have it, and Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks). Whatever a header
holds, the answer is a ``Signature`` and never an exception: an attacker writes the headers.

Signatures are computed over the body's bytes as they arrived, and compared in constant time, each with each secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from saga_runtime.protocol import PREVIOUS_SECONDS, SchemeField, SchemeKind

DEFAULT_TOLERANCE: Final = 300
"""Seconds; what Stripe and Standard Webhooks recommend."""
MAX_PREVIOUS_SECONDS: Final = 366 * 86_400
MAX_SKEW: Final = 60
"""A signed time may lie so many seconds in the future, or the tolerance if that is shorter: clocks differ a little."""
STRIPE_HEADER: Final = "Stripe-Signature"
PADDLE_HEADER: Final = "Paddle-Signature"
STANDARD_SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # what secrets begin with; not one

_TIME: Final = re.compile(r"[0-9]{1,12}")
_TIME_MS: Final = re.compile(r"[0-9]{1,15}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_BODY: Final = "{body}"
_TIMESTAMP: Final = "{timestamp}"
_DIGESTS: Final[Mapping[str, Callable[..., Any]]] = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}

Headers = Mapping[str, Sequence[str]]
"""Names in lower case; each with its values, in the order in which they came."""


class Signature(StrEnum):
    """Results of verifying a signature."""

    GENUINE = "GENUINE"
    UNSIGNED = "UNSIGNED"
    """The header that would hold the signature is not there."""
    MALFORMED = "MALFORMED"
    """The headers hold nothing that could be a signature of this scheme."""
    WRONG = "WRONG"
    """Made with another secret, or of another body."""
    STALE = "STALE"
    """Genuine, and signed too long ago or in the future: perhaps a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """Claims of the headers.

    Attributes:
        content: the bytes that were signed.
        time: when, in milliseconds since the epoch; None if the scheme has no time.
        candidates: digests, one of which must be right.
    """

    content: bytes
    time: int | None
    candidates: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeScheme:
    """Stripe's: ``t=<seconds>,v1=<hex>[,v1=<hex>…]`` over ``<seconds>.<body>``.

    Attributes:
        secrets: ARNs of the secrets in Secrets Manager.
        tolerance: seconds after which a signed time is too old.
        header: the header with the signature.
    """

    secrets: tuple[str, ...]
    tolerance: int = DEFAULT_TOLERANCE
    header: str = STRIPE_HEADER
    field: str | None = None
    previous: int = PREVIOUS_SECONDS

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_common(self)
        _check_header("header", self.header)

    @property
    def digest(self) -> str:
        """The hash function."""
        return "sha256"

    def fields(self) -> dict[SchemeField, Any]:
        """Fields in the environment."""
        return {**_common(SchemeKind.STRIPE, self), SchemeField.HEADER: self.header}

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is: its characters, ``whsec_`` included, without blanks and line breaks around it."""
        return secret.strip().encode("utf-8")

    def read(self, headers: Headers, body: bytes) -> Signed | Signature:
        """Read the claims of the headers."""
        values = headers.get(self.header.lower(), ())
        if not values:
            return Signature.UNSIGNED
        items = [item.strip().partition("=") for item in ",".join(values).split(",")]
        times = [value for name, _, value in items if name == "t"]
        candidates = _decoded((value for name, _, value in items if name == "v1"), bytes.fromhex, "sha256")
        if len(times) != 1 or not _TIME.fullmatch(times[0]) or not candidates:
            return Signature.MALFORMED
        content = times[0].encode("ascii") + b"." + body
        return Signed(content=content, time=int(times[0]) * 1_000, candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleScheme:
    """Paddle's: ``ts=<seconds>;h1=<hex>[;h1=<hex>…]`` over ``<seconds>:<body>``.

    Source: https://developer.paddle.com/webhooks/signature-verification.

    Attributes:
        secrets: ARNs of the secrets in Secrets Manager.
        tolerance: seconds after which a signed time is too old.
    """

    secrets: tuple[str, ...]
    tolerance: int = DEFAULT_TOLERANCE
    field: str | None = None
    previous: int = PREVIOUS_SECONDS

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_common(self)

    @property
    def digest(self) -> str:
        """The hash function."""
        return "sha256"

    def fields(self) -> dict[SchemeField, Any]:
        """Fields in the environment."""
        return _common(SchemeKind.PADDLE, self)

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is: its characters, without blanks and line breaks around it."""
        return secret.strip().encode("utf-8")

    def read(self, headers: Headers, body: bytes) -> Signed | Signature:
        """Read the claims of the headers."""
        values = headers.get(PADDLE_HEADER.lower(), ())
        if not values:
            return Signature.UNSIGNED
        items = [item.strip().partition("=") for item in ";".join(values).split(";")]
        times = [value for name, _, value in items if name == "ts"]
        candidates = _decoded((value for name, _, value in items if name == "h1"), bytes.fromhex, "sha256")
        if len(times) != 1 or not _TIME.fullmatch(times[0]) or not candidates:
            return Signature.MALFORMED
        content = times[0].encode("ascii") + b":" + body
        return Signed(content=content, time=int(times[0]) * 1_000, candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacScheme:
    """An HMAC in a header, perhaps with a prefix, perhaps over a text with a time in it.

    Several signatures in the header are separated by commas. Without ``timestamp_header``, a captured request can be
    replayed, and only the event's id prevents a second effect.

    Attributes:
        secrets: ARNs of the secrets in Secrets Manager.
        header: the header with the signature, e.g. ``X-Hub-Signature-256``.
        hash: ``sha256`` or ``sha512``.
        encoding: ``hex`` or ``base64``.
        prefix: text before the signature, e.g. ``sha256=``.
        timestamp_header: the header with the signed time, since the epoch.
        template: the text that is signed: ``{body}`` once, and ``{timestamp}`` once if there is a header with it.
        tolerance: seconds after which a signed time is too old.
        time_unit: ``s`` or ``ms``, of the signed time.
        key_encoding: ``text``, ``hex`` or ``base64``, in which a secret holds its key.
    """

    secrets: tuple[str, ...]
    header: str
    hash: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    timestamp_header: str | None = None
    template: str = _BODY
    tolerance: int = DEFAULT_TOLERANCE
    field: str | None = None
    previous: int = PREVIOUS_SECONDS
    time_unit: str = "s"
    key_encoding: str = "text"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_common(self)
        _check_header("header", self.header)
        if self.hash not in _DIGESTS:
            raise ValueError(f"hash must be one of {', '.join(_DIGESTS)}, got {self.hash!r}")
        if self.encoding not in _DECODERS:
            raise ValueError(f"encoding must be one of {', '.join(_DECODERS)}, got {self.encoding!r}")
        if self.key_encoding not in _KEYS:
            raise ValueError(f"key_encoding must be one of {', '.join(_KEYS)}, got {self.key_encoding!r}")
        if self.time_unit not in _UNITS:
            raise ValueError(f"time_unit must be one of {', '.join(_UNITS)}, got {self.time_unit!r}")
        if self.time_unit != "s" and self.timestamp_header is None:
            raise ValueError(
                f"time_unit must be s without a timestamp_header, got {self.time_unit!r}; name the header with the time"
            )
        if self.template.count(_BODY) != 1:
            raise ValueError(f"template must have {_BODY} once, got {self.template!r}")
        if self.timestamp_header is not None:
            _check_header("timestamp_header", self.timestamp_header)
        wanted = 0 if self.timestamp_header is None else 1
        if self.template.count(_TIMESTAMP) != wanted:
            # A time that is not signed is the attacker's to choose.
            raise ValueError(
                f"template must have {_TIMESTAMP} once with a timestamp_header and never without, got "
                f"template={self.template!r} timestamp_header={self.timestamp_header!r}"
            )

    @property
    def digest(self) -> str:
        """The hash function."""
        return self.hash

    def fields(self) -> dict[SchemeField, Any]:
        """Fields in the environment."""
        f = SchemeField
        fields = {
            **_common(SchemeKind.HMAC, self),
            f.HEADER: self.header,
            f.HASH: self.hash,
            f.ENCODING: self.encoding,
            f.PREFIX: self.prefix,
            f.TEMPLATE: self.template,
            f.TIME_UNIT: self.time_unit,
            f.KEY_ENCODING: self.key_encoding,
        }
        return fields if self.timestamp_header is None else {**fields, f.TIMESTAMP_HEADER: self.timestamp_header}

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is, without a line break at the end; nothing if it cannot be decoded."""
        try:
            return _KEYS[self.key_encoding](secret.rstrip("\r\n"))
        except ValueError:  # binascii.Error and UnicodeEncodeError are ones
            return b""

    def read(self, headers: Headers, body: bytes) -> Signed | Signature:
        """Read the claims of the headers."""
        values = headers.get(self.header.lower(), ())
        if not values:
            return Signature.UNSIGNED
        listed = [item.strip() for item in ",".join(values).split(",")]
        texts = (item[len(self.prefix) :] for item in listed if item.startswith(self.prefix))
        candidates = _decoded(texts, _DECODERS[self.encoding], self.hash)
        time = ""
        if self.timestamp_header is not None:
            time = _only(headers.get(self.timestamp_header.lower(), ())).strip()
            if not _UNITS[self.time_unit][0].fullmatch(time):
                return Signature.MALFORMED
        if not candidates:
            return Signature.MALFORMED
        before, _, after = self.template.partition(_BODY)  # before the body is in it, which may hold anything
        ends = [part.replace(_TIMESTAMP, time).encode("utf-8") for part in (before, after)]
        signed_at = int(time) * _UNITS[self.time_unit][1] if time else None
        return Signed(content=body.join(ends), time=signed_at, candidates=candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardScheme:
    """Standard Webhooks: ``webhook-signature: v1,<base64>[ v1,<base64>…]`` over ``<id>.<seconds>.<body>``.

    Attributes:
        secrets: ARNs of the secrets in Secrets Manager.
        tolerance: seconds after which a signed time is too old.
        header_prefix: ``webhook`` or ``svix``, the first word of its headers.
    """

    secrets: tuple[str, ...]
    tolerance: int = DEFAULT_TOLERANCE
    field: str | None = None
    previous: int = PREVIOUS_SECONDS
    header_prefix: str = "webhook"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _check_common(self)
        if self.header_prefix not in _PREFIXES:
            raise ValueError(f"header_prefix must be one of {', '.join(_PREFIXES)}, got {self.header_prefix!r}")

    @property
    def digest(self) -> str:
        """The hash function."""
        return "sha256"

    def fields(self) -> dict[SchemeField, Any]:
        """Fields in the environment."""
        return {**_common(SchemeKind.STANDARD, self), SchemeField.HEADER_PREFIX: self.header_prefix}

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is: what follows ``whsec_``, decoded as the official library decodes it.

        That is, without regard to missing padding and to characters that are not of base64. Nothing if it cannot be.
        """
        try:
            return base64.b64decode(secret.strip().removeprefix(STANDARD_SECRET_PREFIX) + "==")
        except ValueError:  # binascii.Error is one
            return b""

    def read(self, headers: Headers, body: bytes) -> Signed | Signature:
        """Read the claims of the headers."""
        values = headers.get(f"{self.header_prefix}-signature", ())
        if not values:
            return Signature.UNSIGNED
        listed = [item.partition(",") for item in " ".join(values).split()]
        candidates = _decoded((text for version, _, text in listed if version == "v1"), _from_base64, "sha256")
        name, time = (_only(headers.get(f"{self.header_prefix}-{what}", ())) for what in ("id", "timestamp"))
        if not name or not name.isascii() or not _TIME.fullmatch(time) or not candidates:
            return Signature.MALFORMED
        content = f"{name}.{time}.".encode("ascii") + body
        return Signed(content=content, time=int(time) * 1_000, candidates=candidates)


Scheme = StripeScheme | PaddleScheme | HmacScheme | StandardScheme


def check_signature(scheme: Scheme, *, headers: Headers, body: bytes, keys: Iterable[bytes], now_ms: int) -> Signature:
    """Check a request's signature.

    Args:
        scheme: how the provider signs.
        headers: the request's headers.
        body: its body, byte for byte.
        keys: the active keys, as ``scheme.key_of`` makes them of secrets.
        now_ms: the time, epoch milliseconds.

    Returns:
        ``GENUINE``, or the reason. ``STALE`` is returned for genuine signatures only.
    """
    claimed = scheme.read(headers, body)
    if isinstance(claimed, Signature):
        return claimed
    digests = [hmac.digest(key, claimed.content, scheme.digest) for key in keys]
    # All of them are tried: the time taken reveals nothing about which key fits.
    fitting = [hmac.compare_digest(digest, found) for digest in digests for found in claimed.candidates]
    if not any(fitting):
        return Signature.WRONG
    if claimed.time is not None and not _is_fresh(claimed.time, scheme.tolerance, now_ms):
        return Signature.STALE
    return Signature.GENUINE


def scheme_of(text: str) -> Scheme:
    """Read ``Env.WEBHOOK_SCHEME``.

    Raises:
        ValueError: if it is not a scheme.
    """
    fields: Any = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError(f"a webhook's scheme is a JSON object, got {type(fields).__name__}")
    given = {SchemeField(name): value for name, value in fields.items()}
    kind = SchemeKind(given.pop(SchemeField.KIND, ""))
    listed = given.pop(SchemeField.SECRETS, None)
    if not isinstance(listed, list) or not all(isinstance(secret, str) for secret in listed):
        raise ValueError(f"the secrets of a webhook's scheme are a list of ARNs, got {type(listed).__name__}")
    members = dict(given)
    try:
        return _KINDS[kind](secrets=tuple(listed), **members)
    except TypeError as error:
        raise ValueError(f"not a scheme of kind {kind}: {error}") from None


def _is_fresh(time_ms: int, tolerance: int, now_ms: int) -> bool:
    age_ms = now_ms - time_ms
    return -min(tolerance, MAX_SKEW) * 1_000 <= age_ms <= tolerance * 1_000


def _only(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else ""


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_DECODERS: Final[Mapping[str, Callable[[str], bytes]]] = {"hex": bytes.fromhex, "base64": _from_base64}
_KEYS: Final[Mapping[str, Callable[[str], bytes]]] = {"text": lambda text: text.encode("utf-8"), **_DECODERS}
_UNITS: Final = {"s": (_TIME, 1_000), "ms": (_TIME_MS, 1)}
"""By unit of a signed time: its digits, and milliseconds."""
_PREFIXES: Final = ("webhook", "svix")


def _decoded(texts: Iterable[str], decode: Callable[[str], bytes], digest: str) -> list[bytes]:
    """Possible digests: decodable, and as long as one."""
    size = _DIGESTS[digest]().digest_size
    found: list[bytes] = []
    for text in texts:
        try:
            candidate = decode(text)
        except ValueError:  # binascii.Error and UnicodeEncodeError are ones
            continue
        if len(candidate) == size:
            found.append(candidate)
    return found


def _common(kind: SchemeKind, scheme: Scheme) -> dict[SchemeField, Any]:
    f = SchemeField
    fields = {f.KIND: kind, f.SECRETS: list(scheme.secrets), f.TOLERANCE: scheme.tolerance}
    fields[f.PREVIOUS] = scheme.previous
    return fields if scheme.field is None else {**fields, f.FIELD: scheme.field}


def _check_common(scheme: Scheme) -> None:
    secrets, tolerance, previous = scheme.secrets, scheme.tolerance, scheme.previous
    if not secrets or not all(secret.strip() for secret in secrets):
        raise ValueError(f"a scheme needs one secret or more, got {len(secrets)} with blank ones; give secrets=[…]")
    if type(tolerance) is not int or not 1 <= tolerance <= 86_400:
        raise ValueError(f"tolerance must be 1 to 86400 seconds, got {tolerance!r}")
    if type(previous) is not int or not 0 <= previous <= MAX_PREVIOUS_SECONDS:
        raise ValueError(f"previous must be 0 to {MAX_PREVIOUS_SECONDS} seconds, got {previous!r}")
    if scheme.field is not None and not str(scheme.field).strip():
        raise ValueError(
            f"field must be the name of a JSON object's field, got {scheme.field!r}; leave it out if a "
            "secret is its text"
        )


def _check_header(what: str, name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{what} must be the name of an HTTP header, got {name!r}")


_KINDS: Final[Mapping[SchemeKind, Callable[..., Scheme]]] = {
    SchemeKind.STRIPE: StripeScheme,
    SchemeKind.HMAC: HmacScheme,
    SchemeKind.PADDLE: PaddleScheme,
    SchemeKind.STANDARD: StandardScheme,
}
