"""Secrets from Secrets Manager: kept for five minutes, and read again when a signature fits none of them.

A version of a secret holds one key: its text, or one field of the JSON object that it is. After a rotation the previous
version (``AWSPREVIOUS``) is valid with the current one for a while. Secrets Manager keeps it until the next rotation,
however long that takes.

Nothing here is logged but why a secret cannot be used, and no error holds more than its ARN.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import TransientError
from saga_runtime.protocol import MIN_KEY_BYTES
from saga_runtime.shared import aws, clock, telemetry

MAX_AGE_SECONDS: Final = 300
"""So long a secret is kept; a version that was revoked fits for that long at most."""
FORCED_SECONDS: Final = 30
"""Shortest time between forced reads: senders of wrong signatures cause them."""

_CURRENT: Final = "AWSCURRENT"
_PREVIOUS: Final = "AWSPREVIOUS"


class SecretsUnavailable(TransientError):
    """Secrets Manager did not answer, or has no secret there that could sign; nothing was checked."""

    code = "SECRETS_UNAVAILABLE"


class SecretUnusable(SecretsUnavailable):
    """A secret's current value holds no key: it stays so until an operator changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeys:
    """Keys of secrets.

    Attributes:
        names: ARNs or names of the secrets in Secrets Manager.
        key_of: the key in a secret's text; empty if it has none.
        field: the field of the JSON object that each secret is; None: a secret is its text.
        previous_seconds: for how long after a secret's current version was created its previous one counts.
    """

    names: tuple[str, ...]
    key_of: Callable[[str], bytes]
    field: str | None
    previous_seconds: int


@dataclass(frozen=True, slots=True)
class _Version:
    text: str = field(repr=False)
    created_at: int


class Secrets:
    """The secrets of this container; ``secrets()`` is the one that there is."""

    def __init__(self) -> None:
        self._client = aws.secrets_manager()
        self._kept: dict[str, tuple[int, list[_Version]]] = {}
        self._forced_at: int | None = None

    def keys(self, wanted: SecretKeys, *, anew: bool = False) -> list[bytes]:
        """All active keys; of each secret, that of the current version first.

        Args:
            wanted: of which secrets.
            anew: read the secrets even if they are kept.

        Raises:
            SecretUnusable: the current version of one of them holds no key.
            SecretsUnavailable: Secrets Manager did not answer.
        """
        return [key for name in wanted.names for key in self._keys_of(name, wanted, anew=anew)]

    def may_look_anew(self) -> bool:
        """Test whether a forced look-up is allowed now; asking uses it up."""
        now_ms = clock.now_ms()
        if self._forced_at is not None and now_ms < self._forced_at + FORCED_SECONDS * 1_000:
            return False
        self._forced_at = now_ms
        return True

    def _keys_of(self, name: str, wanted: SecretKeys, *, anew: bool) -> list[bytes]:
        current, *previous = self._versions(name, anew=anew)
        key, problem = _key_in(current.text, wanted)
        if problem:
            telemetry.event("secret_unusable", reason=problem)
            raise SecretUnusable(f"the secret {name} holds no key: {problem}")
        if not previous or clock.now_ms() >= current.created_at + wanted.previous_seconds * 1_000:
            return [key]
        former, problem = _key_in(previous[0].text, wanted)
        return [key] if problem else [key, former]

    def _versions(self, name: str, *, anew: bool) -> list[_Version]:
        """The current version, and the previous one if there is one."""
        now_ms = clock.now_ms()
        until, kept = self._kept.get(name, (0, []))
        if anew or now_ms >= until:
            kept = _completed(self._read(name), before=kept)
            self._kept[name] = (now_ms + MAX_AGE_SECONDS * 1_000, kept)
        return kept

    def _read(self, name: str) -> list[_Version]:
        versions = []
        try:
            for stage in (_CURRENT, _PREVIOUS):
                found: Any = self._client.get_secret_value(SecretId=name, VersionStage=stage)
                text = found.get("SecretString") or found.get("SecretBinary", b"").decode("utf-8", errors="replace")
                versions.append(_Version(text, int(found["CreatedDate"].timestamp() * 1_000)))
        except (ClientError, BotoCoreError) as error:
            if versions and aws.error_code(error) == "ResourceNotFoundException":
                return versions  # it was never rotated
            telemetry.event("secret_not_read", error=type(error).__name__, code=aws.error_code(error))
            raise SecretsUnavailable(f"the secret {name} could not be read") from None
        return versions


def _completed(read: list[_Version], *, before: list[_Version]) -> list[_Version]:
    """Versions as they were read, with the one that was current before as the previous one if what was read is older.

    Secrets Manager is eventually consistent: of a rotation, the new current version can be seen before its other stage
    has moved, and a request that was signed with the former key would be refused.
    """
    current, *previous = read
    if not before or before[0].created_at >= current.created_at:
        return read
    former = before[0]
    return read if previous and previous[0].created_at >= former.created_at else [current, former]


def _key_in(text: str, wanted: SecretKeys) -> tuple[bytes, str]:
    """The key in a version, and what is wrong with it; empty: nothing is."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if wanted.field is not None:
        text = value.get(wanted.field, "") if isinstance(value, dict) else ""
        if not isinstance(text, str) or not text.strip():
            return b"", f"it must be a JSON object with text in its field {wanted.field}"
    elif isinstance(value, dict | list):
        # Each of its values would have to be accepted as a key, whatever its purpose.
        return b"", "it is JSON; name the field that is the key: field=…"
    elif not text.strip():
        return b"", "it is blank; put a secret value into it"
    key = wanted.key_of(text)
    if len(key) < MIN_KEY_BYTES:
        return b"", f"a key must have {MIN_KEY_BYTES} bytes or more, got {len(key)}"
    return key, ""


@lru_cache(maxsize=1)
def secrets() -> Secrets:
    """The one cache of this process."""
    return Secrets()
