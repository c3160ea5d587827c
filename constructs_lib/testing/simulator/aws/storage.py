"""S3 and Secrets Manager: objects and secrets."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError


class Buckets:
    """Every bucket of a run."""

    def __init__(self, names: list[str]) -> None:
        self.objects: dict[str, dict[str, bytes]] = {name: {} for name in names}

    def call(self, operation: str, params: Mapping[str, Any], _actor: Actor | None) -> dict[str, Any]:
        """The API."""
        objects = self.objects.get(str(params.get("Bucket")))
        if objects is None:
            raise ServiceError("NoSuchBucket", "The specified bucket does not exist", status=404)
        key = str(params.get("Key", ""))
        match operation:
            case "PutObject":
                return self._put(objects, key, params)
            case "GetObject":
                if key not in objects:
                    raise ServiceError("NoSuchKey", "The specified key does not exist.", status=404)
                body = objects[key]
                return {"Body": io.BytesIO(body), "ContentLength": len(body), "ETag": _tag(body)}
            case "HeadObject":
                if key not in objects:
                    raise ServiceError("404", "Not Found", status=404)
                return {"ContentLength": len(objects[key]), "ETag": _tag(objects[key])}
            case "DeleteObject":
                objects.pop(key, None)
                return {}
            case "ListObjectsV2":
                prefix = str(params.get("Prefix", ""))
                found = [
                    {"Key": name, "Size": len(objects[name])} for name in sorted(objects) if name.startswith(prefix)
                ]
                return {"Contents": found, "KeyCount": len(found), "IsTruncated": False}
        raise NotSimulatedError(f"s3:{operation} is not simulated")

    def _put(self, objects: dict[str, bytes], key: str, params: Mapping[str, Any]) -> dict[str, Any]:
        given = params.get("Body", b"")
        body = given if isinstance(given, bytes) else given.encode() if isinstance(given, str) else given.read()
        if params.get("IfNoneMatch") == "*" and key in objects:
            raise ServiceError("PreconditionFailed", "At least one of the pre-conditions did not hold", status=412)
        told = params.get("ChecksumSHA256")
        if told is not None and told != base64.b64encode(hashlib.sha256(body).digest()).decode():
            raise ServiceError("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        objects[key] = bytes(body)
        return {"ETag": _tag(body)}


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class SecretVersion:
    """A version of a secret.

    Attributes:
        text: its value.
        created_at: virtual time in microseconds.
    """

    text: str
    created_at: int


class Secrets:
    """Every secret of a run: versions by stage."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.versions: dict[str, dict[str, SecretVersion]] = {}
        self._signing: dict[str, SecretVersion] = {}

    def rotate(self, secret_arn: str, value: str, *, lag: int) -> None:
        """Put a new value, with which a provider signs some time later, unless it signs with a later one by then.

        Args:
            secret_arn: the secret.
            value: its new value.
            lag: microseconds until the provider uses it.
        """
        self._signing.setdefault(secret_arn, self.versions[secret_arn]["AWSCURRENT"])
        self.put(secret_arn, value)
        version = self.versions[secret_arn]["AWSCURRENT"]

        def learn() -> None:
            self._signing[secret_arn] = max(version, self._signing[secret_arn], key=lambda one: one.created_at)

        self._kernel.after(lag, learn)

    def signing(self, secret_arn: str) -> str:
        """The value with which a provider signs."""
        return (self._signing.get(secret_arn) or self.versions[secret_arn]["AWSCURRENT"]).text

    def put(self, secret_arn: str, value: str) -> None:
        """Put a new value: the former one is ``AWSPREVIOUS`` now."""
        stages = self.versions.setdefault(secret_arn, {})
        if "AWSCURRENT" in stages:
            stages["AWSPREVIOUS"] = stages["AWSCURRENT"]
        stages["AWSCURRENT"] = SecretVersion(value, self._kernel.now)

    def call(self, operation: str, params: Mapping[str, Any], _actor: Actor | None) -> dict[str, Any]:
        """The API: ``GetSecretValue`` and ``PutSecretValue``."""
        name = str(params["SecretId"])
        secret_arn = next((known for known in self.versions if name in (known, known.rpartition(":secret:")[2])), None)
        if secret_arn is None:
            raise ServiceError("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
        if operation == "PutSecretValue":
            self.put(secret_arn, str(params["SecretString"]))
            return {"ARN": secret_arn}
        if operation != "GetSecretValue":
            raise NotSimulatedError(f"secretsmanager:{operation} is not simulated")
        stage = str(params.get("VersionStage", "AWSCURRENT"))
        version = self.versions[secret_arn].get(stage)
        if version is None:
            raise ServiceError(
                "ResourceNotFoundException", f"Secrets Manager can't find the value for staging label: {stage}"
            )
        return {
            "ARN": secret_arn,
            "Name": name,
            "SecretString": version.text,
            "VersionStages": [stage],
            "CreatedDate": datetime.fromtimestamp(version.created_at / SECOND, UTC),
        }
