"""Secrets from Secrets Manager: kept for five minutes, and looked up anew when a signature fits none of them.

A secret that is rotated has two versions for a while, ``AWSCURRENT`` and ``AWSPREVIOUS``; both count, so that what was
signed just before the rotation, or just after it, is accepted. What a version holds is one secret, as it is; or JSON:
a list of secrets, or an object whose values are secrets. Nothing else may stand in it: whoever knows one of the values
can sign.

Nothing here is logged, and no error holds more than a secret's ARN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import boto3
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.base import ExpirableValue
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from botocore.exceptions import ClientError

from saga_runtime import aws, clock, telemetry
from saga_runtime.errors import TransientError

MAX_AGE_SECONDS: Final = 300
"""So long a secret is kept; a version that was revoked fits for that long at most."""
FORCED_SECONDS: Final = 30
"""A forced look-up happens once in so many seconds at most: whoever sends wrong signatures causes them."""

_STAGES: Final = ("AWSCURRENT", "AWSPREVIOUS")


class SecretsUnavailable(TransientError):
    """Secrets Manager did not answer, or has no secret there that could sign; nothing was checked."""

    code = "SECRETS_UNAVAILABLE"


class SecretUnusable(SecretsUnavailable):
    """A secret's current value holds nothing that could sign: it stays so until an operator changes it."""


class _Versions(SecretsProvider):
    """Both versions of a secret as one value: Powertools keeps one value per name, whatever the version."""

    def _get(self, name: str, **sdk_options: Any) -> str:
        return json.dumps([value for stage in _STAGES for value in self._version(name, stage, sdk_options)])

    def _version(self, name: str, stage: str, sdk_options: dict[str, Any]) -> list[str]:
        try:
            found = super()._get(name, **{**sdk_options, "VersionStage": stage})
        except ClientError as error:
            if stage != _STAGES[0] and aws.error_code(error) == "ResourceNotFoundException":
                return []  # it was never rotated
            raise
        return [found if isinstance(found, str) else found.decode("utf-8")]

    # By the one clock, so that time that a test moves, or an emulator hurries, moves here, too.

    def has_not_expired_in_cache(self, key: tuple[Any, ...]) -> bool:
        return key in self.store and self.store[key].ttl > _now()

    def add_to_cache(self, key: tuple[Any, ...], value: Any, max_age: int) -> None:
        self.store[key] = ExpirableValue(value, _now() + timedelta(seconds=max_age))


def _now() -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)


class Secrets:
    """The secrets of this container; ``secrets()`` is the one that there is."""

    def __init__(self) -> None:
        self._provider = _Versions(boto3_client=boto3.client("secretsmanager", config=aws.CONFIG))
        self._forced_at: int | None = None

    def active(self, names: Iterable[str], *, anew: bool = False) -> list[str]:
        """All active secrets behind these ARNs or names; of each, those of the current version first.

        Args:
            names: the secrets in Secrets Manager.
            anew: look them up even if they are kept.

        Raises:
            SecretsUnavailable: if Secrets Manager did not answer, or one of them has nothing that could sign.
        """
        return [secret for name in names for secret in self._of(name, anew=anew)]

    def may_look_anew(self) -> bool:
        """Whether a forced look-up is allowed now; asking uses it up."""
        now_ms = clock.now_ms()
        if self._forced_at is not None and now_ms < self._forced_at + FORCED_SECONDS * 1_000:
            return False
        self._forced_at = now_ms
        return True

    def _of(self, name: str, *, anew: bool) -> list[str]:
        try:
            versions = self._provider.get(name, max_age=MAX_AGE_SECONDS, force_fetch=anew)
        except GetParameterError as error:
            # Powertools keeps the message only; what it says of AWS's is behind it.
            cause = error.__context__
            telemetry.event(
                "secret_not_read",
                error=type(cause or error).__name__,
                code=aws.error_code(cause) if cause is not None else None,
            )
            raise SecretsUnavailable(f"the secret {name} could not be read") from None
        found = [secret for version in json.loads(str(versions)) for secret in secrets_in(version)]
        if not found:
            telemetry.event("secret_empty")
            raise SecretUnusable(f"the secret {name} holds nothing that could sign; put a secret value into it")
        return found


def secrets_in(text: str) -> list[str]:
    """The secrets in a version: the text itself, or those in it if it is a JSON list or object. Blank ones are none."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, dict):
        value = list(value.values())
    listed = value if isinstance(value, list) else [text]
    return [secret for secret in listed if isinstance(secret, str) and secret.strip()]


@lru_cache(maxsize=1)
def secrets() -> Secrets:
    """The one cache of this process."""
    return Secrets()
