"""S3 and Secrets Manager: objects and secrets."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from constructs_lib.testing.simulator.aws.roles import Demand
from constructs_lib.testing.simulator.deployment.blueprint import BucketSpec
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
_DAY: Final = 86_400 * SECOND
_MOST_VERSIONS: Final = 100
"""Of a secret."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a bucket.

    Attributes:
        body: its bytes.
        written_at: virtual time in microseconds.
    """

    body: bytes
    written_at: int


class Buckets:
    """Every bucket of a run.

    Args:
        kernel: keeps the time.
        may: tests whether an actor may do something.
        is_busy: tests whether another conditional write of the same object is under way.

    Attributes:
        objects: by bucket and key.
    """

    def __init__(
        self, kernel: Kernel, may: Callable[[Actor | None, Demand], bool], is_busy: Callable[[], bool]
    ) -> None:
        self.objects: dict[str, dict[str, StoredObject]] = {}
        self._specs: dict[str, BucketSpec] = {}
        self._kernel = kernel
        self._may = may
        self._is_busy = is_busy

    def add(self, spec: BucketSpec) -> None:
        """Create a bucket, or give one that exists another lifecycle."""
        self.objects.setdefault(spec.name, {})
        self._specs[spec.name] = spec

    def expired(self) -> list[tuple[str, str]]:
        """Bucket and key of each object that has expired, though it is still there.

        It expires with the midnight, in UTC, that its days end at or before.
        """
        return list(self._expired(self._kernel.now // _DAY * _DAY))

    def _expired(self, midnight: int) -> Iterator[tuple[str, str]]:
        for name, spec in self._specs.items():
            for key, stored in self.objects[name].items() if spec.expirations else ():
                days = (rule.days for rule in spec.expirations if key.startswith(rule.prefix))
                if any(stored.written_at + each * _DAY <= midnight for each in days):
                    yield name, key

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
                if (reason := self._specs[bucket].refused) is not None:
                    raise NotSimulatedError(reason)
                return self._put(objects, key, params)
            case "GetObject":
                body = objects[key].body
                return {"Body": io.BytesIO(body), "ContentLength": len(body), "ETag": _tag(body)}
            case "HeadObject":
                return {"ContentLength": len(objects[key].body), "ETag": _tag(objects[key].body)}
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

    def _put(self, objects: dict[str, StoredObject], key: str, params: Mapping[str, Any]) -> dict[str, Any]:
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
        objects[key] = StoredObject(bytes(body), self._kernel.now)
        return {"ETag": _tag(body)}


def _listed(objects: Mapping[str, StoredObject], params: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the objects under a prefix."""
    prefix, after = str(params.get("Prefix", "")), str(params.get("ContinuationToken", ""))
    names = sorted(name for name in objects if name.startswith(prefix) and name > after)
    page = names[: min(int(params.get("MaxKeys", _PAGE)), _PAGE)]
    more = {"NextContinuationToken": page[-1]} if page and len(page) < len(names) else {}
    found = [{"Key": name, "Size": len(objects[name].body)} for name in page]
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
    """Every secret of a run: versions by stage. All its operations are eventually consistent.

    Args:
        kernel: keeps the time.
        lag: draws for how many microseconds a stage is read as it was before a new value was put.

    Attributes:
        versions: as they were put, by secret and stage.
    """

    def __init__(self, kernel: Kernel, lag: Callable[[], int]) -> None:
        self._kernel = kernel
        self._lag = lag
        self.versions: dict[str, dict[str, SecretVersion]] = {}
        self._behind: dict[tuple[str, str], tuple[int, SecretVersion | None]] = {}
        self._put_at: dict[str, list[int]] = {}
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
            for stage in ("AWSCURRENT", "AWSPREVIOUS"):
                self._behind[secret_arn, stage] = (self._kernel.now + self._lag(), self._seen(secret_arn, stage))
            stages["AWSPREVIOUS"] = stages["AWSCURRENT"]
        stages["AWSCURRENT"] = SecretVersion(value, self._kernel.now)
        self._put_at.setdefault(secret_arn, []).append(self._kernel.now)

    def _seen(self, secret_arn: str, stage: str) -> SecretVersion | None:
        """The version that a read of a stage finds."""
        until, former = self._behind.get((secret_arn, stage), (0, None))
        return former if self._kernel.now < until else self.versions[secret_arn].get(stage)

    def _check_quota(self, secret_arn: str) -> None:
        """Refuse one version more than a secret may have. Those of a day and more go, and so make room.

        A stage keeps a version. After two new values no version that is older than these has one.

        Raises:
            ServiceError: LimitExceededException.
        """
        since = self._kernel.now - _DAY
        self._put_at[secret_arn] = [moment for moment in self._put_at[secret_arn] if moment > since]
        if len(self._put_at[secret_arn]) >= _MOST_VERSIONS:
            raise ServiceError("LimitExceededException", f"A secret has at most {_MOST_VERSIONS} versions.")

    def call(self, operation: str, params: Mapping[str, Any], _actor: Actor | None) -> dict[str, Any]:
        """The API: ``GetSecretValue`` and ``PutSecretValue``."""
        if unknown := params.keys() - {"SecretId", "SecretString", "VersionStage"}:
            raise NotSimulatedError(f"{', '.join(sorted(unknown))} of secretsmanager:{operation} is not simulated")
        name = str(params["SecretId"])
        secret_arn = next((known for known in self.versions if name in (known, known.rpartition(":secret:")[2])), None)
        if secret_arn is None:
            raise ServiceError("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
        if operation == "PutSecretValue":
            self._check_quota(secret_arn)
            self.put(secret_arn, str(params["SecretString"]))
            return {"ARN": secret_arn}
        if operation != "GetSecretValue":
            raise NotSimulatedError(f"secretsmanager:{operation} is not simulated")
        stage = str(params.get("VersionStage", "AWSCURRENT"))
        version = self._seen(secret_arn, stage)
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
