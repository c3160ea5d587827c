"""True if a webhook was signed by who has the secret, and not long ago. Pure: no clock, no environment, no service.

Schemes: Stripe's (https://docs.stripe.com/webhooks#verify-manually), Paddle's, an HMAC in a header as most providers
have it, Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks) with a shared secret or a key pair,
Adyen's payment notifications, and a function of the user's. Whatever a request holds, the answer is a ``Signature`` and
never an exception: an attacker writes it. The scheme, with its algorithm, is the receiver's alone to choose.

Signatures are computed over the bytes as they arrived, and compared in constant time, each with each secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Final

from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import parse_json
from saga_runtime.protocol import PREVIOUS_SECONDS, SchemeField, SchemeKind
from saga_runtime.shared import telemetry

DEFAULT_TOLERANCE: Final = 300
"""Seconds; what Stripe and Standard Webhooks recommend."""
MAX_PREVIOUS_SECONDS: Final = 366 * 86_400
MAX_SKEW: Final = 60
"""A signed time may lie so many seconds in the future, or the tolerance if that is shorter: clocks differ a little."""
STRIPE_HEADER: Final = "Stripe-Signature"
PADDLE_HEADER: Final = "Paddle-Signature"
MAX_KEY_PAIR_SIGNATURES: Final = 8
"""Signatures by key pairs that are checked of one request: each takes milliseconds, and anybody may send them."""
ADYEN_ACCEPTED: Final = "[accepted]"
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # what secrets begin with; not one
_PUBLIC_PREFIX: Final = "whpk_"
_PRIVATE_PREFIX: Final = "whsk_"
_SHA256_BYTES: Final = 32
_ED25519_BYTES: Final = 64

_TIME: Final = re.compile(r"[0-9]{1,12}")
_TIME_MS: Final = re.compile(r"[0-9]{1,15}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
_ADYEN_VALUE: Final = re.compile(r"-?[0-9]{1,30}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
_BODY: Final = "{body}"
_TIMESTAMP: Final = "{timestamp}"
_PLACEHOLDER: Final = re.compile(r"\{\w*\}")
_DIGESTS: Final[Mapping[str, Callable[..., Any]]] = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}

Headers = Mapping[str, Sequence[str]]
"""Names in lower case; each with its values, in the order in which they came."""


class HeaderValues(Mapping[str, str]):
    """Headers by name, in whichever case it is asked for; several values of one name are joined by commas."""

    def __init__(self, headers: Headers) -> None:
        self._values = {name.lower(): ",".join(values) for name, values in headers.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


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
class Scheme:
    """Rules by which a provider signs; a subclass for each kind.

    Attributes:
        secrets: ARNs of the secrets in Secrets Manager.
        tolerance: seconds after which a signed time is too old.
        field: the field of each secret's JSON object that is the key; None: a secret is its text.
        previous: seconds for which a secret's previous version counts.
    """

    kind: ClassVar[SchemeKind]
    accepted: ClassVar[str | None] = None
    """Body of the response to events that were received; None: ours."""

    secrets: tuple[str, ...]
    tolerance: int = DEFAULT_TOLERANCE
    field: str | None = None
    previous: int = PREVIOUS_SECONDS

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.secrets or not all(secret.strip() for secret in self.secrets):
            raise ValueError(
                f"a scheme needs one secret or more, got {len(self.secrets)} with blank ones; give secrets=[…]"
            )
        if type(self.tolerance) is not int or not 1 <= self.tolerance <= 86_400:
            raise ValueError(f"tolerance must be 1 to 86400 seconds, got {self.tolerance!r}")
        if type(self.previous) is not int or not 0 <= self.previous <= MAX_PREVIOUS_SECONDS:
            raise ValueError(f"previous must be 0 to {MAX_PREVIOUS_SECONDS} seconds, got {self.previous!r}")
        if self.field is not None and not str(self.field).strip():
            raise ValueError(
                f"field must be the name of a JSON object's field, got {self.field!r}; leave it out if a "
                "secret is its text"
            )
        self._check_own()

    def _check_own(self) -> None:
        """Refuse what cannot work of this kind."""

    def fields(self) -> dict[SchemeField, Any]:
        """Fields in the environment."""
        given = {SchemeField(each.name): getattr(self, each.name) for each in fields(self)}
        known = {name: value for name, value in given.items() if value is not None}
        return {**known, SchemeField.KIND: self.kind, SchemeField.SECRETS: list(self.secrets)}

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is: its characters, without blanks and line breaks around it."""
        return secret.strip().encode("utf-8")

    def events(self, body: bytes) -> Sequence[bytes]:
        """The events in a genuine request: what was signed of each."""
        return [body]

    def check(self, headers: Headers, body: bytes, keys: Sequence[bytes], now_ms: int) -> Signature:
        """Check every signature of a request that has to be right."""
        claims = self.read(headers, body)
        if isinstance(claims, Signature):
            return claims
        for claimed in claims:
            # All are tried: the time taken reveals nothing about which key fits.
            fitting = [self.fits(key, claimed) for key in keys]
            if not any(fitting):
                return Signature.WRONG
        for claimed in claims:
            if claimed.time is not None and not _is_fresh(claimed.time, self.tolerance, now_ms):
                return Signature.STALE
        return Signature.GENUINE

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of a request, each of which must be right."""
        raise NotImplementedError

    def fits(self, key: bytes, claimed: Signed) -> bool:
        """True if one of the candidates is a signature of the content by a key."""
        digest = hmac.digest(key, claimed.content, self.digest)
        equal = [hmac.compare_digest(digest, candidate) for candidate in claimed.candidates]
        return any(equal)

    @property
    def digest(self) -> str:
        """The hash function of an HMAC."""
        return "sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsScheme(Scheme):
    """One header with a time and hex HMAC-SHA256 signatures, as pairs of names and values.

    Attributes:
        header: the header with the signature.
    """

    time_name: ClassVar[str]
    signature_name: ClassVar[str]
    separator: ClassVar[str]
    """Between the pairs."""
    joint: ClassVar[str]
    """Between time and body in what is signed."""

    header: str

    def _check_own(self) -> None:
        _check_header("header", self.header)

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of the header."""
        values = headers.get(self.header.lower(), ())
        if not values:
            return Signature.UNSIGNED
        pairs = [item.strip().partition("=") for item in self.separator.join(values).split(self.separator)]
        times = [value for name, _, value in pairs if name == self.time_name]
        signatures = (value for name, _, value in pairs if name == self.signature_name)
        candidates = _decoded(signatures, bytes.fromhex, _SHA256_BYTES)
        if len(times) != 1 or not _TIME.fullmatch(times[0]) or not candidates:
            return Signature.MALFORMED
        content = f"{times[0]}{self.joint}".encode("ascii") + body
        return [Signed(content=content, time=int(times[0]) * 1_000, candidates=candidates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeScheme(PairsScheme):
    """Stripe's: ``t=<seconds>,v1=<hex>[,v1=<hex>…]`` over ``<seconds>.<body>``; ``whsec_`` is part of the key."""

    kind = SchemeKind.STRIPE
    time_name, signature_name, separator, joint = "t", "v1", ",", "."

    header: str = STRIPE_HEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleScheme(PairsScheme):
    """Paddle's: ``ts=<seconds>;h1=<hex>[;h1=<hex>…]`` over ``<seconds>:<body>``.

    Source: https://developer.paddle.com/webhooks/signature-verification.
    """

    kind = SchemeKind.PADDLE
    time_name, signature_name, separator, joint = "ts", "h1", ";", ":"

    header: str = PADDLE_HEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacScheme(Scheme):
    """An HMAC in a header, perhaps with a prefix, perhaps over a text with a time in it.

    Several signatures in the header are separated by commas. Without ``timestamp_header``, a captured request can be
    replayed, and only the event's id prevents a second effect.

    Attributes:
        header: the header with the signature, e.g. ``X-Hub-Signature-256``.
        hash: ``sha256`` or ``sha512``.
        encoding: ``hex`` or ``base64``.
        prefix: text before the signature, e.g. ``sha256=``.
        timestamp_header: the header with the signed time, since the epoch.
        template: the text that is signed: ``{body}`` once, and ``{timestamp}`` once if there is a header with it.
        time_unit: ``s`` or ``ms``, of the signed time.
        key_encoding: ``text``, ``hex`` or ``base64``, in which a secret holds its key.
    """

    kind = SchemeKind.HMAC

    header: str
    hash: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    timestamp_header: str | None = None
    template: str = _BODY
    time_unit: str = "s"
    key_encoding: str = "text"

    def _check_own(self) -> None:
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
        if unknown := set(_PLACEHOLDER.findall(self.template)) - {_BODY, _TIMESTAMP}:
            raise ValueError(
                f"placeholders of template must be {_BODY} or {_TIMESTAMP}, got {', '.join(sorted(unknown))}; nothing "
                "fills in another one"
            )

    @property
    def digest(self) -> str:
        """The hash function."""
        return self.hash

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is, without a line break at the end; nothing if it cannot be decoded."""
        try:
            return _KEYS[self.key_encoding](secret.rstrip("\r\n"))
        except ValueError:  # binascii.Error and UnicodeEncodeError are ones
            return b""

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of the headers."""
        values = headers.get(self.header.lower(), ())
        if not values:
            return Signature.UNSIGNED
        listed = [item.strip() for item in ",".join(values).split(",")]
        texts = (item[len(self.prefix) :] for item in listed if item.startswith(self.prefix))
        candidates = _decoded(texts, _DECODERS[self.encoding], _DIGESTS[self.hash]().digest_size)
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
        return [Signed(content=body.join(ends), time=signed_at, candidates=candidates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooksScheme(Scheme):
    """Standard Webhooks: ``webhook-signature: <version>,<base64>[ …]`` over ``<id>.<seconds>.<body>``.

    Attributes:
        header_prefix: ``webhook`` or ``svix``, the first word of its headers.
    """

    version: ClassVar[str]
    signature_bytes: ClassVar[int]

    header_prefix: str = "webhook"

    def _check_own(self) -> None:
        if self.header_prefix not in _PREFIXES:
            raise ValueError(f"header_prefix must be one of {', '.join(_PREFIXES)}, got {self.header_prefix!r}")

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of the headers; signatures of the other version are ignored."""
        values = headers.get(f"{self.header_prefix}-signature", ())
        if not values:
            return Signature.UNSIGNED
        listed = [item.partition(",") for item in " ".join(values).split()]
        signatures = (text for version, _, text in listed if version == self.version)
        candidates = _decoded(signatures, _from_base64, self.signature_bytes)
        name, time = (_only(headers.get(f"{self.header_prefix}-{what}", ())) for what in ("id", "timestamp"))
        if not name or not name.isascii() or not _TIME.fullmatch(time) or not candidates:
            return Signature.MALFORMED
        content = f"{name}.{time}.".encode("ascii") + body
        return [Signed(content=content, time=int(time) * 1_000, candidates=candidates)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardScheme(StandardWebhooksScheme):
    """Standard Webhooks with a shared secret: ``v1``, an HMAC-SHA256."""

    kind = SchemeKind.STANDARD
    version, signature_bytes = "v1", _SHA256_BYTES

    def key_of(self, secret: str) -> bytes:
        """The key that a secret is: what follows ``whsec_``, decoded as the official library decodes it.

        That is, without regard to missing padding and to characters that are not of base64. Nothing if it cannot be,
        or if it is a key of a pair: a public key is known to others, who could sign with it.
        """
        text = secret.strip()
        if text.startswith((_PUBLIC_PREFIX, _PRIVATE_PREFIX)):
            return b""
        try:
            return base64.b64decode(text.removeprefix(_SECRET_PREFIX) + "==")
        except ValueError:  # binascii.Error is one
            return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPairScheme(StandardWebhooksScheme):
    """Standard Webhooks with a key pair: ``v1a``, Ed25519."""

    kind = SchemeKind.STANDARD_KEY_PAIR
    version, signature_bytes = "v1a", _ED25519_BYTES

    def key_of(self, secret: str) -> bytes:
        """The public key that follows ``whpk_``; nothing for another text, or a key under which anybody could sign."""
        from saga_runtime.webhooks import ed25519  # only functions of this kind import it

        text = secret.strip()
        try:
            key = _from_base64(text.removeprefix(_PUBLIC_PREFIX)) if text.startswith(_PUBLIC_PREFIX) else b""
        except ValueError:  # binascii.Error is one
            return b""
        return key if ed25519.is_public_key(key) else b""

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of the headers; too many signatures are malformed."""
        claims = StandardWebhooksScheme.read(self, headers, body)
        if not isinstance(claims, Signature) and len(claims[0].candidates) > MAX_KEY_PAIR_SIGNATURES:
            return Signature.MALFORMED
        return claims

    def fits(self, key: bytes, claimed: Signed) -> bool:
        """True if one of the candidates is a signature of the content by a public key's owner."""
        from saga_runtime.webhooks import ed25519  # as above

        return any(ed25519.is_genuine(key, claimed.content, candidate) for candidate in claimed.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdyenScheme(Scheme):
    """Adyen's payment notifications: in each item of the body an HMAC-SHA256 of eight of its fields, hex keys.

    No time is signed, so that a captured notification can be replayed. Nothing but the eight fields is the provider's
    word: an event has no others.

    Source: https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures.
    """

    kind = SchemeKind.ADYEN
    accepted = ADYEN_ACCEPTED

    def key_of(self, secret: str) -> bytes:
        """The key that a secret's hexadecimal digits are; nothing if there is another character."""
        try:
            return bytes.fromhex(secret.strip())
        except ValueError:
            return b""

    def events(self, body: bytes) -> Sequence[bytes]:
        """Each item as JSON, with the fields that are signed."""
        return [json.dumps(item.fields, separators=(",", ":")).encode("ascii") for item in _adyen_items(body)]

    def read(self, headers: Headers, body: bytes) -> Sequence[Signed] | Signature:
        """Read the claims of the items."""
        del headers
        try:
            items = _adyen_items(body)
        except Invalid:
            return Signature.MALFORMED
        if not all(item.signature for item in items):
            return Signature.UNSIGNED
        claims = [
            Signed(content=item.content, time=None, candidates=_decoded([item.signature], _from_base64, _SHA256_BYTES))
            for item in items
        ]
        return claims if all(claimed.candidates for claimed in claims) else Signature.MALFORMED


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdyenItem:
    fields: Mapping[str, Any]
    content: bytes
    signature: str


def _adyen_items(body: bytes) -> list[_AdyenItem]:
    """The items of a notification.

    Raises:
        Invalid: if it is something else, or has a field in which a colon would let what is signed be read in two ways.
    """
    try:
        document = parse_json(body.decode("utf-8"))
        listed = document["notificationItems"]
        found = [_adyen_item(entry["NotificationRequestItem"]) for entry in listed]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Invalid("not a notification of Adyen") from None
    if not found:
        raise Invalid("a notification of Adyen has one item or more")
    return found


def _adyen_item(item: Mapping[str, Any]) -> _AdyenItem:
    texts = {name: item.get(name) or "" for name in _ADYEN_TEXTS}
    amount = item["amount"]
    value, currency, signature = str(amount["value"]), amount["currency"], item["additionalData"].get("hmacSignature")
    if type(amount["value"]) not in {int, str} or not _ADYEN_VALUE.fullmatch(value):
        raise ValueError("an amount's value must be an integer")
    if not all(isinstance(text, str) for text in (*texts.values(), currency, signature or "")):
        raise TypeError("fields that are signed must be text")
    ordered = [*list(texts.values())[:4], value, currency, *list(texts.values())[4:]]
    if any(":" in text for text in (*ordered[:3], *ordered[4:])):
        raise ValueError("of what is signed only merchantReference may have a colon")
    return _AdyenItem(
        fields={**texts, "amount": {"value": int(value), "currency": currency}},
        content=":".join(ordered).encode("utf-8", errors="surrogatepass"),
        signature=signature or "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request of which nothing is known yet, for a function of the user's that checks its signature.

    Attributes:
        headers: by name, in any case; several values of one name are joined by commas.
        body: byte for byte as it was sent.
        keys: of each active secret the key, of 16 bytes or more.
        now_ms: time of the request, epoch milliseconds.
    """

    headers: Mapping[str, str]
    body: bytes
    keys: Sequence[bytes] = dataclass_field(repr=False)
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnScheme(Scheme):
    """A function of the user's, in the folder of the webhook's handler.

    Attributes:
        function: ``module.function``; given a ``SignedRequest``, it returns True if the request is genuine.
    """

    kind = SchemeKind.OWN

    function: str

    def _check_own(self) -> None:
        if not _FUNCTION.fullmatch(self.function):
            raise ValueError(
                f"function must be module.function, got {self.function!r}; name one in the handler's folder"
            )

    def check(self, headers: Headers, body: bytes, keys: Sequence[bytes], now_ms: int) -> Signature:
        """Ask the function. Whatever it raises or returns but True, the request is refused."""
        verify = _function(self.function)
        try:
            found = verify(SignedRequest(headers=HeaderValues(headers), body=body, keys=keys, now_ms=now_ms))
        except Exception as error:  # noqa: BLE001  # an attacker writes what it reads
            telemetry.event("signature_check_raised", function=self.function, error=type(error).__name__)
            return Signature.WRONG
        return Signature.GENUINE if found is True else Signature.WRONG


@lru_cache(maxsize=1)
def _function(name: str) -> Callable[[SignedRequest], object]:
    module, _, attribute = name.rpartition(".")
    found: Callable[[SignedRequest], object] = getattr(import_module(module), attribute)
    return found


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
    return scheme.check(headers, body, list(keys), now_ms)


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
_ADYEN_TEXTS: Final = (
    "pspReference",
    "originalReference",
    "merchantAccountCode",
    "merchantReference",
    "eventCode",
    "success",
)
"""Signed fields in their order; value and currency of the amount are before the last two."""


def _decoded(texts: Iterable[str], decode: Callable[[str], bytes], size: int) -> list[bytes]:
    """Possible signatures: decodable, and as long as one."""
    found: list[bytes] = []
    for text in texts:
        try:
            candidate = decode(text)
        except ValueError:  # binascii.Error and UnicodeEncodeError are ones
            continue
        if len(candidate) == size:
            found.append(candidate)
    return found


def _check_header(what: str, name: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{what} must be the name of an HTTP header, got {name!r}")


_KINDS: Final[Mapping[SchemeKind, Callable[..., Scheme]]] = {
    each.kind: each
    for each in (StripeScheme, PaddleScheme, HmacScheme, StandardScheme, KeyPairScheme, AdyenScheme, OwnScheme)
}
