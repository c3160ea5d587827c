"""How providers sign their webhooks, declared with the secrets that sign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_secretsmanager as secretsmanager

from constructs_lib._arguments import require_seconds
from saga_runtime.signatures import STRIPE_HEADER, HmacScheme, Scheme, StandardScheme, StripeScheme

_TOLERANCE: Final = Duration.minutes(5)
_MAX_SECRETS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeSignature:
    """Stripe's: ``Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…]``, an HMAC-SHA256 of time and body.

    Attributes:
        secrets: the secrets that count, each as the provider shows it (``whsec_`` included); 1 to 8. Name the old and
            the new one while you change them, or rotate one in Secrets Manager: its previous version counts, too.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.
        header: ``Stripe-Signature`` by default; other providers sign likewise under other names.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    tolerance: Duration = field(default=_TOLERANCE)
    header: str = STRIPE_HEADER

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        scheme = StripeScheme(secrets=_arns(self.secrets), tolerance=_tolerance(self.tolerance), header=self.header)
        return _json(scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacSignature:
    """An HMAC of the body in a header, perhaps with a prefix, perhaps over a text with a time in it.

    Without ``timestamp_header``, nothing in a signature says when it was made: whoever saw a webhook once can send it
    again, for ever, and only its event's id keeps it from counting twice.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``.
        header: the header with the signature, e.g. ``X-Hub-Signature-256``.
        hash: ``sha256`` (default) or ``sha512``.
        encoding: ``hex`` (default) or ``base64``.
        prefix: what stands before the signature, e.g. ``sha256=``.
        timestamp_header: the header with the signed time in seconds since the epoch, if there is one.
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
    tolerance: Duration = field(default=_TOLERANCE)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        scheme = HmacScheme(
            secrets=_arns(self.secrets),
            header=self.header,
            hash=self.hash,
            encoding=self.encoding,
            prefix=self.prefix,
            timestamp_header=self.timestamp_header,
            template=self.template,
            tolerance=_tolerance(self.tolerance),
        )
        return _json(scheme)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks:
    """Standard Webhooks: headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature: v1,<base64>[ …]``.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``; base64, with or without ``whsec_``.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    secrets: Sequence[secretsmanager.ISecret]
    tolerance: Duration = field(default=_TOLERANCE)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        self.to_json()

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        return _json(StandardScheme(secrets=_arns(self.secrets), tolerance=_tolerance(self.tolerance)))


WebhookScheme = StripeSignature | HmacSignature | StandardWebhooks
"""How a provider signs."""


def _arns(secrets: Sequence[secretsmanager.ISecret]) -> tuple[str, ...]:
    if not 1 <= len(secrets) <= _MAX_SECRETS:
        raise ValueError(
            f"secrets must be 1 to {_MAX_SECRETS}, got {len(secrets)}; name those that may sign: without one, anybody "
            "could"
        )
    return tuple(secret.secret_arn for secret in secrets)


def _tolerance(tolerance: Duration) -> int:
    return require_seconds("tolerance", tolerance, at_least=1, at_most=86_400)


def _json(scheme: Scheme) -> str:
    fields = {name.value: value for name, value in scheme.fields().items()}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)
