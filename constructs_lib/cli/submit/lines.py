"""The file of requests: one JSON object per line, and the member of each that is its key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.cli.shared.errors import CommandError
from saga_runtime.errors import SagaError
from saga_runtime.idempotency.identity import canonical_json, parse_json
from saga_runtime.protocol import MAX_KEY_LENGTH

_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One request.

    Attributes:
        number: of the line, from 1.
        key: its idempotency key.
        body: its text, byte for byte as in the file.
    """

    number: int
    key: str
    body: str


def read_lines(path: Path, pointer: str) -> list[Line]:
    """Read and check the whole file, before anything is sent. Blank lines are skipped.

    Args:
        path: the file.
        pointer: JSON Pointer (RFC 6901) to the member that is the key: text, or an integer.

    Raises:
        CommandError: the file cannot be read; a line is not a JSON object, or has no key; two lines of one key differ.
    """
    members = _members(pointer)
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from None
    lines: list[Line] = []
    first: dict[str, tuple[int, str]] = {}
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        where = f"line {number} of {path}"
        try:
            document = parse_json(text)
            canonical = canonical_json(document)
        except (SagaError, ValueError) as error:
            raise CommandError(f"{where} must be a JSON object: {error}") from None
        if not isinstance(document, dict):
            raise CommandError(f"{where} must be a JSON object, got {type(document).__name__}")
        key = _key(document, members, pointer, where)
        seen, before = first.setdefault(key, (number, canonical))
        if before != canonical:
            raise CommandError(f"lines {seen} and {number} must be equal under key {key}, or have keys of their own")
        lines.append(Line(number=number, key=key, body=text.strip()))
    return lines


def _members(pointer: str) -> list[str]:
    if not pointer.startswith("/") or not pointer[1:]:
        raise CommandError(f"--key must be a JSON Pointer to a member, like /id, got {pointer!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _key(document: Any, members: list[str], pointer: str, where: str) -> str:
    found = document
    for member in members:
        found = found.get(member) if isinstance(found, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise CommandError(f"{where} must have text or an integer at {pointer}, got {type(found).__name__}")
    key = str(found)
    if not (key.isascii() and key.isprintable() and key.strip() and len(key) <= MAX_KEY_LENGTH):
        raise CommandError(
            f"{where} must have 1 to {MAX_KEY_LENGTH} printable ASCII characters at {pointer}, got {key[:_SHOWN]!r}"
        )
    return key
