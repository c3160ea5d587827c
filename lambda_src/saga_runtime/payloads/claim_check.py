"""Payloads that are too large to travel: stored in a bucket under their content, and referred to.

Storing the same bytes twice makes one object, a reference can lead to no other bytes than those it was made for, and
one saga's references lead to nothing of another's.

The object is written before the record or row that names it. A crash in between leaves an object that no row
names, and the bucket's lifecycle collects it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from saga_runtime.errors import SagaError, TransientError
from saga_runtime.idempotency.identity import canonical_json, request_id_from
from saga_runtime.payloads.references import IN_TEXT, has_reserved_member, is_reference, reference_to
from saga_runtime.protocol import INLINE_OUTPUT_BYTES, MAX_OUTPUT_BYTES, MAX_PAYLOAD_BYTES, REFERENCE_FIELD
from saga_runtime.shared import aws


class PayloadLost(SagaError):
    """The object of a reference cannot be read any more, or is not what was stored. Treated as in doubt."""

    code = "PAYLOAD_LOST"


class Unsendable(Exception):
    """A settled answer that cannot be put together for its reader."""


def store(bucket: str, owner: str, text: str) -> dict[str, str]:
    """Store a text and return its reference. Again, after a lost response or a crash: the same.

    Raises:
        TransientError: if the bucket did not answer.
    """
    body = text.encode("utf-8")
    reference = reference_to(owner, text)
    checksum = base64.b64encode(hashlib.sha256(body).digest()).decode("ascii")
    try:
        aws.s3().put_object(
            Bucket=bucket,
            Key=reference[REFERENCE_FIELD],
            Body=body,
            ContentType="application/json",
            ChecksumSHA256=checksum,  # S3 refuses bytes that changed on their way
        )
    except (ClientError, BotoCoreError) as error:
        if aws.is_transient(error):
            raise TransientError("the payload bucket did not answer") from error
        raise
    return reference


def load(bucket: str | None, saga_id: str, reference: Mapping[str, Any]) -> str:
    """Load the text of a reference of this saga.

    Raises:
        PayloadLost: if it is not a reference of this saga, if the object cannot be read, or if its bytes are not those
            that were stored.
        TransientError: if the bucket did not answer.
    """
    key = str(reference.get(REFERENCE_FIELD))
    owner, _, digest = key.partition("/")
    if not is_reference(reference) or owner not in (saga_id, request_id_from(saga_id)):
        raise PayloadLost(f"{key!r} refers to no payload of saga {saga_id}")
    if bucket is None:
        raise PayloadLost(
            f"the payload {key} is in a bucket that the saga names no longer; "
            "give the saga its payloads=PayloadBucket(…) again"
        )
    try:
        body = aws.s3().get_object(Bucket=bucket, Key=key)["Body"].read()
    except (ClientError, BotoCoreError) as error:
        if aws.is_transient(error):
            raise TransientError("the payload bucket did not answer") from error
        # Without the right to list, an object that is not there is a refusal.
        raise PayloadLost(f"the payload {key} cannot be read ({aws.error_code(error)}); check the bucket") from error
    if hashlib.sha256(body).hexdigest() != digest:
        raise PayloadLost(f"the payload {key} is not what was stored under this key; look who writes to the bucket")
    return body.decode("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """Location of one saga's large payloads.

    Attributes:
        saga_id: the saga.
        bucket: name of its bucket; None if it has none.
        inline: whether an expression reads the output of the called step, so that it must travel inline.
    """

    saga_id: str
    bucket: str | None = None
    inline: bool = False

    @property
    def max_output_bytes(self) -> int:
        """Largest size of the step's output."""
        return MAX_PAYLOAD_BYTES if self.bucket is not None and not self.inline else MAX_OUTPUT_BYTES

    def travelling(self, output: str, *, at_most: int = INLINE_OUTPUT_BYTES) -> str:
        """The step's output as it travels: itself, or the reference under which it was stored.

        Args:
            output: the output.
            at_most: bytes that there is room for.

        Raises:
            TransientError: if the bucket did not answer.
        """
        inline = min(at_most, INLINE_OUTPUT_BYTES)
        if self.bucket is None or self.inline or len(output.encode("utf-8")) <= inline:
            return output
        return canonical_json(store(self.bucket, self.saga_id, output))

    def read(self, value: Any, parse: Callable[[str], Any] = json.loads) -> Any:
        """The value, or, of a reference, its payload.

        Raises:
            PayloadLost: if that cannot be read any more.
            TransientError: if the bucket did not answer.
        """
        return parse(load(self.bucket, self.saga_id, value)) if is_reference(value) else value

    def whole(self, value: Any) -> Any:
        """The value, or its payload. Outputs of a map are by item key, and each of them may be a reference.

        Raises: as ``read``.
        """
        if is_reference(value) or not isinstance(value, Mapping):
            return self.read(value)
        return {name: self.read(member) for name, member in value.items()}

    def later(self, value: Any, parse: Callable[[str], Any]) -> Any:
        """The value, or, of a reference, a promise to read it on access."""
        return Deferred(lambda: self.read(value, parse)) if is_reference(value) else value


class Deferred:
    """A value that is read on access, and once."""

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read: Callable[[], Any] | None = read
        self._value: Any = None

    @property
    def value(self) -> Any:
        """The value."""
        if self._read is not None:
            self._value, self._read = self._read(), None
        return self._value


def copied(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it that can change."""
    if isinstance(value, Mapping):
        return {name: copied(member) for name, member in value.items()}
    if isinstance(value, list):
        return [copied(element) for element in value]
    return tuple(map(copied, value)) if isinstance(value, tuple) else value


class Outputs(Mapping[str, Any]):
    """Outputs by step name. A large one is read from the bucket on access, and once; of a map those of all items."""

    __slots__ = ("_known", "_payloads", "_read", "raw")

    def __init__(self, raw: Mapping[str, Any], payloads: Payloads, read: dict[str, Any] | None = None) -> None:
        self.raw = raw
        """The outputs as they travel, with references."""
        self._payloads = payloads
        self._read: dict[str, Any] = {} if read is None else read
        self._known: dict[str, Any] = {}

    def __getitem__(self, step: str) -> Any:
        if step not in self._known:
            if step not in self._read:
                self._read[step] = self._payloads.whole(self.raw[step])
            self._known[step] = copied(self._read[step])
        return self._known[step]

    def anew(self) -> Outputs:
        """The same outputs, without what a function has changed in these."""
        return Outputs(self.raw, self._payloads, self._read)

    def __contains__(self, step: object) -> bool:
        return step in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"Outputs({dict(self.raw)!r})"


def put_in_place(body: str, bucket: str | None, saga_id: str) -> str:
    """Replace every reference in a settled response by its payload, byte for byte as it was stored.

    Raises:
        Unsendable: if the answer is larger than an answer may be, or if something in it cannot be replaced.
        TransientError: if the bucket did not answer.
    """
    if not has_reserved_member(body):
        return body
    texts: dict[str, str] = {}
    size = len(body.encode("utf-8"))
    for key in IN_TEXT.findall(body):
        try:
            if key not in texts:
                texts[key] = load(bucket, saga_id, {REFERENCE_FIELD: key})
        except PayloadLost as error:
            raise Unsendable("a payload that the answer refers to cannot be read any more") from error
        size += len(texts[key].encode("utf-8"))
        if size > MAX_PAYLOAD_BYTES:
            raise Unsendable(f"the answer has more than {MAX_PAYLOAD_BYTES} bytes, and cannot be sent")
    whole = IN_TEXT.sub(lambda found: texts[found.group(1)], body)
    if has_reserved_member(whole):
        raise Unsendable("the answer holds a part of a reference to a payload")
    return whole
