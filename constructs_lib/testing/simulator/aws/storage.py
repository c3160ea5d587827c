"""S3 and Secrets Manager: objects and secrets."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from constructs_lib.testing.simulator.aws.roles import Demand
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Kernel
from constructs_lib.testing.simulator.errors import NotSimulatedError, ServiceError

_TAKEN: Final = {
    "PutObject": frozenset({"Bucket", "Key", "Body", "ContentType", "ChecksumSHA256", "IfNoneMatch", "Metadata"}),
    "GetObject": frozenset({"Bucket", "Key"}),
    "HeadObject": frozenset({"Bucket", "Key"}),
    "DeleteObject": frozenset({"Bucket", "Key"}),
    "ListObjectsV2": frozenset({"Bucket", "Prefix", "MaxKeys", "ContinuationToken"}),
}
_PAGE: Final = 1_000
_MOST_KEY_BYTES: Final = 1_024


class Buckets:
    """Every bucket of a run.

    Args:
        names: of the buckets.
        may: tests whether an actor may do something.
        is_busy: tests whether another conditional write of the same object is under way.
    """

    def __init__(
        self, names: list[str], may: Callable[[Actor | None, Demand], bool], is_busy: Callable[[], bool]
    ) -> None:
        self.objects: dict[str, dict[str, bytes]] = {name: {} for name in names}
        self._may = may
        self._is_busy = is_busy

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any]:
        """The API."""
        taken = _TAKEN.get(operation)
        if taken is None:
            raise NotSimulatedError(f"s3:{operation} is not simulated")
        if not params.keys() <= taken:
            raise NotSimulatedError(f"{', '.join(sorted(params.keys() - taken))} of s3:{operation} is not simulated")
        bucket, key = str(params["Bucket"]), str(params.get("Key", ""))
        objects = self.objects.get(bucket)
        if objects is None:
            raise ServiceError("NoSuchBucket", "The specified bucket does not exist", status=404)
        if len(key.encode()) > _MOST_KEY_BYTES:
            raise ServiceError("KeyTooLongError", "Your key is too long")
        if key not in objects and operation in ("GetObject", "HeadObject"):
            raise self._missing(operation, Demand("s3:ListBucket", f"arn:aws:s3:::{bucket}"), actor)
        match operation:
            case "PutObject":
                return self._put(objects, key, params)
            case "GetObject":
                body = objects[key]
                return {"Body": io.BytesIO(body), "ContentLength": len(body), "ETag": _tag(body)}
            case "HeadObject":
                return {"ContentLength": len(objects[key]), "ETag": _tag(objects[key])}
            case "DeleteObject":
                objects.pop(key, None)
                return {}
        return _listed(objects, params)

    def _missing(self, operation: str, lists: Demand, actor: Actor | None) -> ServiceError:
        """The error of an object that is not there: who may not list the bucket does not learn that."""
        known = self._may(actor, lists)
        if operation == "HeadObject":
            return (
                ServiceError("404", "Not Found", status=404) if known else ServiceError("403", "Forbidden", status=403)
            )
        if known:
            return ServiceError("NoSuchKey", "The specified key does not exist.", status=404)
        return ServiceError("AccessDenied", "Access Denied", status=403)

    def _put(self, objects: dict[str, bytes], key: str, params: Mapping[str, Any]) -> dict[str, Any]:
        given = params.get("Body", b"")
        body = given if isinstance(given, bytes) else given.encode() if isinstance(given, str) else given.read()
        told = params.get("ChecksumSHA256")
        if told is not None and told != base64.b64encode(hashlib.sha256(body).digest()).decode():
            raise ServiceError("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        if "IfNoneMatch" in params:
            if params["IfNoneMatch"] != "*":
                raise NotSimulatedError("IfNoneMatch of s3:PutObject is simulated with * only, as S3 has it")
            if key in objects:
                raise ServiceError("PreconditionFailed", "At least one of the pre-conditions did not hold", status=412)
            if self._is_busy():
                raise ServiceError("ConditionalRequestConflict", "A conflicting operation is under way", status=409)
        objects[key] = bytes(body)
        return {"ETag": _tag(body)}


def _listed(objects: Mapping[str, bytes], params: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the objects under a prefix."""
    prefix, after = str(params.get("Prefix", "")), str(params.get("ContinuationToken", ""))
    names = sorted(name for name in objects if name.startswith(prefix) and name > after)
    page = names[: min(int(params.get("MaxKeys", _PAGE)), _PAGE)]
    more = {"NextContinuationToken": page[-1]} if page and len(page) < len(names) else {}
    found = [{"Key": name, "Size": len(objects[name])} for name in page]
    contents = {"Contents": found} if found else {}  # S3 leaves the member out
    return {**contents, "KeyCount": len(found), "IsTruncated": bool(more), **more}


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
        if unknown := params.keys() - {"SecretId", "SecretString", "VersionStage"}:
            raise NotSimulatedError(f"{', '.join(sorted(unknown))} of secretsmanager:{operation} is not simulated")
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
