"""Reads a request of API Gateway (REST and HTTP APIs) or a function URL. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import TooLarge


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request.

    Attributes:
        method: in capitals.
        headers: names in lower case, each with its values. HTTP APIs join the values of a header by commas.
        query: the parameters in the address; of one that is there more than once, what the gateway makes of it.
        body: byte for byte as it was sent.
    """

    method: str
    headers: Mapping[str, tuple[str, ...]]
    query: Mapping[str, str]
    body: bytes

    @classmethod
    def from_event(cls, event: object, *, max_bytes: int) -> HttpRequest:
        """Read an event, payload format 1.0 or 2.0.

        Raises:
            TooLarge: if the body has more than ``max_bytes`` bytes.
            Invalid: if it is not a request, or its body is not base64 although marked as such.
        """
        if not isinstance(event, Mapping):
            raise Invalid("not an HTTP request")
        body = _body_of(event)
        if len(body) > max_bytes:
            raise TooLarge(f"the body may have {max_bytes} bytes, got {len(body)}")
        http = _mapping(_mapping(event.get("requestContext")).get("http"))
        return cls(
            method=str(event.get("httpMethod") or http.get("method") or "").upper(),
            headers=_headers_of(event),
            query={str(k): str(v) for k, v in _mapping(event.get("queryStringParameters")).items() if v is not None},
            body=body,
        )


def _body_of(event: Mapping[str, Any]) -> bytes:
    raw = event.get("body")
    text = raw if isinstance(raw, str) else ""
    if not event.get("isBase64Encoded"):
        return text.encode("utf-8", errors="surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid("the body is not the base64 that it is marked as") from None


def _headers_of(event: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, values in _mapping(event.get("multiValueHeaders")).items():
        listed = values if isinstance(values, list | tuple) else ()
        key = str(name).lower()
        found[key] = (*found.get(key, ()), *(str(value) for value in listed if value is not None))
    several = {name: values for name, values in found.items() if values}
    single: dict[str, tuple[str, ...]] = {}
    for name, value in _mapping(event.get("headers")).items():
        key = str(name).lower()
        if value is not None and key not in several:
            single[key] = (*single.get(key, ()), str(value))
    return {**single, **several}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
