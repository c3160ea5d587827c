"""Secrets that a provider makes, and that verify its signatures."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

_ROTATED_THERE: Final = (
    "The provider makes this secret, and needs a new one at the same time: it is rotated there, and the new value is "
    "stored here. The previous version is valid until the next change."
)
_VERIFIES_ONLY: Final = (
    "The secret verifies signatures of one provider, and is neither card nor health data. Secrets Manager encrypts it "
    "with its own key of this account, and policies name the functions that read it."
)
_ROTATION: Final = (
    "AwsSolutions-SMG4",
    "NIST.800.53.R5-SecretsManagerRotationEnabled",
    "HIPAA.Security-SecretsManagerRotationEnabled",
)
_KEY: Final = tuple(f"{pack}-SecretsManagerUsingKMSKey" for pack in ("NIST.800.53.R5", "PCI.DSS.321", "HIPAA.Security"))


def provider_secret(scope: Construct, id: str, description: str) -> secretsmanager.Secret:
    """Create a secret, whose value is replaced by the provider's: 64 letters and digits, which is base64, too."""
    secret = secretsmanager.Secret(
        scope,
        id,
        description=description,
        generate_secret_string=secretsmanager.SecretStringGenerator(password_length=64, exclude_punctuation=True),
    )
    Validations.of(secret).acknowledge(
        *(Acknowledgment(id=rule, reason=_ROTATED_THERE) for rule in _ROTATION),
        *(Acknowledgment(id=rule, reason=_VERIFIES_ONLY) for rule in _KEY),
    )
    return secret
