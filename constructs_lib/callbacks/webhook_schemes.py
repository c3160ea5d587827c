"""Schemes of signed webhooks, declared with the secrets that sign."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Duration, Token
from aws_cdk import aws_secretsmanager as secretsmanager

from constructs_lib.functions.handlers import find_handler
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnySecret
from constructs_lib.shared.arguments import require_seconds
from constructs_lib.shared.types import check_fields
from saga_runtime.protocol import MIN_KEY_BYTES, PREVIOUS_SECONDS
from saga_runtime.webhooks.signatures import (
    MAX_PREVIOUS_SECONDS,
    STRIPE_HEADER,
    AdyenScheme,
    HmacScheme,
    KeyPairScheme,
    OwnScheme,
    PaddleScheme,
    Scheme,
    StandardScheme,
    StripeScheme,
)

_TOLERANCE: Final = Duration.minutes(5)
_PREVIOUS_FOR: Final = Duration.seconds(PREVIOUS_SECONDS)
_MAX_SECRETS: Final = 8
_VERSIONS: Final = {"v1": StandardScheme, "v1a": KeyPairScheme}
_DEFAULT_LENGTH: Final = 32
"""Characters that Secrets Manager generates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signature:
    """Arguments of all schemes."""

    secrets: Sequence[AnySecret]
    field: str | None = None
    previous_for: Duration = dataclasses.field(default=_PREVIOUS_FOR)

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_fields(self)
        scheme = self._scheme()
        for secret in self.secrets:
            _check_value(scheme, secret)

    def to_json(self) -> str:
        """As the webhook's function reads it."""
        return json.dumps(dict(self._scheme().fields()), separators=(",", ":"), sort_keys=True)

    def _scheme(self) -> Scheme:
        raise NotImplementedError

    def _common(self) -> dict[str, Any]:
        previous = require_seconds("previous_for", self.previous_for, at_least=0, at_most=MAX_PREVIOUS_SECONDS)
        return {"secrets": _arns(self.secrets), "field": self.field, "previous": previous, **self._of_its_kind()}

    def _of_its_kind(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedSignature(_Signature):
    """Arguments of schemes whose signatures may have a time."""

    tolerance: Duration = dataclasses.field(default=_TOLERANCE)

    def _of_its_kind(self) -> dict[str, Any]:
        return {"tolerance": require_seconds("tolerance", self.tolerance, at_least=1, at_most=86_400)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeSignature(_TimedSignature):
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

    header: str = STRIPE_HEADER

    def _scheme(self) -> Scheme:
        return StripeScheme(**self._common(), header=self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddleSignature(_TimedSignature):
    """Paddle's: ``Paddle-Signature: ts=<seconds>;h1=<hex>[;h1=<hex>…]``, an HMAC-SHA256 of time and body.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    def _scheme(self) -> Scheme:
        return PaddleScheme(**self._common())


@dataclass(frozen=True, slots=True, kw_only=True)
class HmacSignature(_TimedSignature):
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

    header: str
    hash: str = "sha256"
    encoding: str = "hex"
    prefix: str = ""
    timestamp_header: str | None = None
    template: str = "{body}"
    time_unit: str = "s"
    key_encoding: str = "text"

    def _scheme(self) -> Scheme:
        return HmacScheme(
            **self._common(),
            header=self.header,
            hash=self.hash,
            encoding=self.encoding,
            prefix=self.prefix,
            timestamp_header=self.timestamp_header,
            template=self.template,
            time_unit=self.time_unit,
            key_encoding=self.key_encoding,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardWebhooks(_TimedSignature):
    """Standard Webhooks: headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature: v1,<base64>[ …]``.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``; base64, with or without ``whsec_``. With ``v1a``
            each is a public key, base64 after ``whpk_``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        tolerance: how old a signed time may be; 1 second to 1 day, 5 minutes by default.
        header_prefix: ``webhook`` (default), or ``svix`` for headers such as ``svix-id``.
        version: ``v1`` (default), an HMAC-SHA256 by a shared secret, or ``v1a``, Ed25519 by a key pair. Signatures of
            the other version are ignored.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    header_prefix: str = "webhook"
    version: str = "v1"

    def _scheme(self) -> Scheme:
        if self.version not in _VERSIONS:
            raise ValueError(
                f"version must be one of {', '.join(_VERSIONS)}, got {self.version!r}; v1a is for public keys (whpk_…)"
            )
        return _VERSIONS[self.version](**self._common(), header_prefix=self.header_prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdyenSignature(_Signature):
    """Adyen's payment notifications: in each item of the body, an HMAC-SHA256 of eight of its fields.

    The function is called once for each item. ``event.json`` has the fields that are signed, and no others:
    ``pspReference``, ``originalReference``, ``merchantAccountCode``, ``merchantReference``, ``amount`` (``value`` and
    ``currency``), ``eventCode`` and ``success``. The response to Adyen is ``[accepted]``.

    No time is signed: a captured notification can be replayed indefinitely, and only its event's id prevents a second
    effect.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``; hexadecimal, as Adyen shows them.
        field: as for ``StripeSignature``.
        previous_for: likewise.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    def _scheme(self) -> Scheme:
        return AdyenScheme(**self._common())


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSignature(_Signature):
    """A function of yours that checks signatures, in the folder of the webhook's function.

    It is given a ``saga_runtime.SignedRequest`` and returns True if the request is genuine. If it returns anything
    else, or raises, the response is 401 and nothing is read of the request.

    Not guaranteed: what the function must do itself. Compare by ``hmac.compare_digest``, let the sender choose no
    algorithm, and refuse times that are too old, if there is one.

    Attributes:
        secrets: the secrets that count, as for ``StripeSignature``; their text, in bytes, is in ``keys``.
        field: as for ``StripeSignature``.
        previous_for: likewise.
        function: ``module.function``.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    function: str

    def _scheme(self) -> Scheme:
        return OwnScheme(**self._common(), function=self.function)


WebhookScheme = StripeSignature | PaddleSignature | HmacSignature | StandardWebhooks | AdyenSignature | OwnSignature
"""How a provider signs."""


def require_function(of: str, scheme: WebhookScheme, fn: object) -> None:
    """Refuse a scheme of the user's own whose function is not in the folder of the webhook's function.

    Args:
        of: what has the scheme, for errors.
        scheme: how the provider signs.
        fn: the webhook's function; of one that is not a ``StepFunction`` nothing is known.

    Raises:
        ValueError: if there is no such function.
    """
    folder = fn.code_folder if isinstance(fn, RuntimeFunction) else None
    if isinstance(scheme, OwnSignature) and folder is not None:
        find_handler(of, folder, scheme.function, argument="function")


def _arns(secrets: Sequence[AnySecret]) -> tuple[str, ...]:
    if not 1 <= len(secrets) <= _MAX_SECRETS:
        raise ValueError(
            f"secrets must be 1 to {_MAX_SECRETS}, got {len(secrets)}; name those that may sign: without one, anybody "
            "could"
        )
    return tuple(secret.secret_arn for secret in secrets)


def _check_value(scheme: Scheme, secret: AnySecret) -> None:
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
        as_text = scheme.key_of("kk") == b"kk"
        remedy = "give it a longer value" if as_text else "put the provider's key into it, as the provider shows it"
        raise ValueError(f"the key in secret {path} must have {MIN_KEY_BYTES} bytes or more, got {length}; {remedy}")
