"""Schemes of signed webhooks, declared with the secrets that sign."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Duration, Token
from aws_cdk import aws_secretsmanager as secretsmanager

from constructs_lib.shared.arguments import require_seconds
from constructs_lib.shared.types import check_fields
from saga_runtime.protocol import MIN_KEY_BYTES, PREVIOUS_SECONDS
from saga_runtime.webhooks.signatures import (
    MAX_PREVIOUS_SECONDS,
    STRIPE_HEADER,
    HmacScheme,
    PaddleScheme,
    Scheme,
    StandardScheme,
    StripeScheme,
)

_TOLERANCE: Final = Duration.minutes(5)
_PREVIOUS_FOR: Final = Duration.seconds(PREVIOUS_SECONDS)
_MAX_SECRETS: Final = 8
_DEFAULT_LENGTH: Final = 32
"""Characters that Secrets Manager generates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeSignature:
    """Stripe's: ``Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…]``, an HMAC-SHA256 of time and body.

    Attributes:
        secrets: the secrets that count, each as the provider shows it (``whsec_`` included), of 16 bytes or more; 1 to
            8. Name the old and the new one while you change them, or rotate one in Secrets Manager.
        field: the field of the JSON object that each secret is; by default a secret is its text, and one that is JSON
            signs nothing.
        previous_for: for how long after a rotation the previous version counts, too: from when the current one was
            created; 24 hours by default, 0 to 366 days.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.
        header: ``Stripe-Signature`` by default; other providers sign likewise under other names.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    tolerance: Duration = dataclasses.field(default=_TOLERANCE)
    header: str = STRIPE_HEADER
    field: str | None = None
    previous_for: Duration = dataclasses.field(default=_PREVIOUS_FOR)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        return _json(StripeScheme(**_common(self), header=self.header), self.secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleSignature:
    """Paddle's: ``Paddle-Signature: ts=<seconds>;h1=<hex>[;h1=<hex>…]``, an HMAC-SHA256 of time and body.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    tolerance: Duration = dataclasses.field(default=_TOLERANCE)
    field: str | None = None
    previous_for: Duration = dataclasses.field(default=_PREVIOUS_FOR)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        return _json(PaddleScheme(**_common(self)), self.secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacSignature:
    """An HMAC of the body in a header, perhaps with a prefix, perhaps over a text with a time in it.

    Without ``timestamp_header``, a captured webhook can be replayed
    indefinitely, and only its event's id prevents a second effect.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        header: the header with the signature, e.g. ``X-Hub-Signature-256``.
        hash: ``sha256`` (default) or ``sha512``.
        encoding: ``hex`` (default) or ``base64``.
        prefix: text before the signature, e.g. ``sha256=``.
        timestamp_header: the header with the signed time, if there is one.
        time_unit: ``s`` (default) or ``ms`` since the epoch, of the signed time.
        key_encoding: ``text`` (default), ``hex`` or ``base64``: how a secret holds its key. Adyen's keys are ``hex``.
        template: the text that is signed, ``{body}`` by default; e.g. ``v0:{timestamp}:{body}``.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    header: str
    hash: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    timestamp_header: str | None = None
    template: str = "{body}"
    tolerance: Duration = dataclasses.field(default=_TOLERANCE)
    field: str | None = None
    previous_for: Duration = dataclasses.field(default=_PREVIOUS_FOR)
    time_unit: str = "s"
    key_encoding: str = "text"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        scheme = HmacScheme(
            **_common(self),
            header=self.header,
            hash=self.hash,
            encoding=self.encoding,
            prefix=self.prefix,
            timestamp_header=self.timestamp_header,
            template=self.template,
            time_unit=self.time_unit,
            key_encoding=self.key_encoding,
        )
        return _json(scheme, self.secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """Standard Webhooks: headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature: v1,<base64>[ …]``.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``; base64, with or without ``whsec_``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.
        header_prefix: ``webhook`` (default), or ``svix`` for headers such as ``svix-id``.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    tolerance: Duration = dataclasses.field(default=_TOLERANCE)
    field: str | None = None
    previous_for: Duration = dataclasses.field(default=_PREVIOUS_FOR)
    header_prefix: str = "webhook"

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        return _json(StandardScheme(**_common(self), header_prefix=self.header_prefix), self.secrets)


WebhookScheme = StripeSignature | PaddleSignature | HmacSignature | StandardWebhooks
"""How a provider signs."""


def _arns(secrets: Sequence[secretsmanager.ISecret]) -> tuple[str, ...]:
    if not 1 <= len(secrets) <= _MAX_SECRETS:
        raise ValueError(
            f"secrets must be 1 to {_MAX_SECRETS}, got {len(secrets)}; name those that may sign: without one, anybody "
            "could"
        )
    return tuple(secret.secret_arn for secret in secrets)


def _common(scheme: WebhookScheme) -> dict[str, Any]:
    return {
        "secrets": _arns(scheme.secrets),
        "tolerance": require_seconds("tolerance", scheme.tolerance, at_least=1, at_most=86_400),
        "field": scheme.field,
        "previous": require_seconds("previous_for", scheme.previous_for, at_least=0, at_most=MAX_PREVIOUS_SECONDS),
    }


def _json(scheme: Scheme, secrets: Sequence[secretsmanager.ISecret]) -> str:
    for secret in secrets:
        _check_value(scheme, secret)
    fields = dict(scheme.fields())
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)


def _check_value(scheme: Scheme, secret: secretsmanager.ISecret) -> None:
    """Refuse a secret whose value is known here, and can sign nothing.

    Raises:
        ValueError: naming the secret and the remedy.
    """
    made = secret.node.default_child
    if not isinstance(made, secretsmanager.CfnSecret):
        return
    generated, text = made.generate_secret_string, made.secret_string
    path = secret.node.path
    if isinstance(generated, secretsmanager.CfnSecret.GenerateSecretStringProperty):
        named = generated.generate_string_key
        if named is not None and scheme.field is None:
            raise ValueError(f"field must name the key in secret {path}, which is JSON, got None; give field={named!r}")
        if named != scheme.field:
            return
        text = "k" * int(generated.password_length or _DEFAULT_LENGTH)
    elif text is None or Token.is_unresolved(text) or scheme.field is not None:
        return
    length = len(scheme.key_of(text))
    if length < MIN_KEY_BYTES:
        encoded = isinstance(scheme, HmacScheme) and scheme.key_encoding != "text"
        remedy = "put the provider's key into it, in key_encoding" if encoded else "give it a longer value"
        raise ValueError(f"the key in secret {path} must have {MIN_KEY_BYTES} bytes or more, got {length}; {remedy}")
