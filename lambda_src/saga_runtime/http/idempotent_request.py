"""Reading an API Gateway proxy event: who calls, under which key, with which body. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_runtime.errors import Invalid
from saga_runtime.idempotency.identity import TooLarge, canonical_json, parse_json
from saga_runtime.payloads.references import has_reserved_member
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER, MAX_KEY_LENGTH, PREFER_HEADER, REFERENCE_FIELD

JOINED: Final = "headersAreJoined"
"""Member of an event whose values of one header are one text, joined by commas."""
_GENERATED: Final = ".execute-api."
"""In the domain that API Gateway gives to each API."""
_BARE: Final = re.compile(r"^[\x20-\x7e]+$")
_SECONDS: Final = re.compile(r'"?([0-9]{1,6})"?')
_QUOTED: Final = re.compile(r'^"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$')


class NoIdentity(Exception):
    """The authorizer returned no caller identity."""


class BadKey(Exception):
    """The Idempotency-Key is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A body, parsed, and its canonical JSON text."""

    value: Any
    canonical: str


def proxy_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event in payload format 1.0; one of an HTTP API (2.0) is rewritten.

    https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html

    The identity comes from the gateway's authorizer: IAM, JWT, or the context of a Lambda authorizer, which cannot pass
    as one of the others.
    """
    if event.get("version") != "2.0":
        return event
    context = _mapping(event.get("requestContext"))
    authorizer = _mapping(context.get("authorizer"))
    iam = _mapping(authorizer.get("iam"))
    return {
        JOINED: True,
        "httpMethod": _mapping(context.get("http")).get("method"),
        "path": event.get("rawPath"),
        "pathParameters": event.get("pathParameters"),
        "headers": event.get("headers"),
        "body": event.get("body"),
        "isBase64Encoded": event.get("isBase64Encoded"),
        "requestContext": {
            "path": _path_as_sent(event),
            "identity": {
                "accountId": iam.get("accountId"),
                "caller": iam.get("callerId"),
                "cognitoIdentityId": _mapping(iam.get("cognitoIdentity")).get("identityId"),
            },
            "authorizer": {**_mapping(authorizer.get("lambda")), "claims": None, "jwt": authorizer.get("jwt")},
        },
    }


def _path_as_sent(event: Mapping[str, Any]) -> str:
    """Path of the request as the client sent it, or of a domain of the user's the last segment of it.

    ``rawPath`` does not have the base path of such a domain, and no member of the event has it. The last segment is a
    reference that a client resolves against the address of its request (RFC 9110, 10.2.2).
    """
    path = str(event.get("rawPath") or "")
    domain = str(_mapping(event.get("requestContext")).get("domainName") or _GENERATED)
    return path if _GENERATED in domain else path.rpartition("/")[2] or "."


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def caller_of(event: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The caller, from the authorizer and never from the client.

    Args:
        event: the proxy event.
        source: ``iam``, ``jwt``, or ``context:<key>`` for one key of a Lambda authorizer's context.

    With IAM the caller is the account and the part of ``identity.caller`` before the colon: neither the session name
    nor the access key, so that a retry from another host is the same caller. All users of a Cognito identity pool share
    its roles: such a caller is the account and ``identity.cognitoIdentityId``, whichever role the pool chose. Before
    the colon of a federated user (``GetFederationToken``) is the account; its name is the choice of an IAM user, who
    could choose another's: it is refused.

    Raises:
        NoIdentity: if the authorizer gave no identity, a blank one, or a federated user's.
    """
    context = event.get("requestContext") or {}
    if source == "iam":
        identity = context.get("identity") or {}
        account = str(identity.get("accountId") or "")
        principal, colon, _ = str(identity.get("caller") or "").partition(":")
        if colon and principal == account:
            raise NoIdentity
        caller = _caller("iam", account, principal)
        user = identity.get("cognitoIdentityId")
        return _caller(*caller[:2], "cognito", str(user)) if user else caller
    authorizer = context.get("authorizer") or {}
    if source == "jwt":
        claims = authorizer.get("claims") or (authorizer.get("jwt") or {}).get("claims") or {}
        return _caller("jwt", str(claims.get("iss") or ""), str(claims.get("sub") or ""))
    kind, _, key = source.partition(":")
    if kind != "context" or not key.strip():
        raise ValueError(f"an identity source is iam, jwt or context:<key>, got {source!r}")
    value = authorizer.get(key)
    return _caller("context", key, value if isinstance(value, str) else "")


def _caller(*parts: str) -> tuple[str, ...]:
    if any(not part.strip() for part in parts):
        raise NoIdentity
    return parts


def idempotency_key_of(event: Mapping[str, Any]) -> str | None:
    """The request's Idempotency-Key, quoted (as draft-ietf-httpapi-idempotency-key-header has it) or bare.

    Returns:
        1 to 255 printable ASCII characters, without the quotes; None if there is no such header.

    Raises:
        BadKey: if the header is there and is no such key, or is there more than once.
    """
    values = _header_values(event, IDEMPOTENCY_KEY_HEADER.lower())
    if not values:
        return None
    if len(values) > 1:
        raise BadKey(f"{IDEMPOTENCY_KEY_HEADER} must be sent once, got it {len(values)} times")
    text = values[0].strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        key = re.sub(r"\\(.)", r"\1", quoted.group(1))
    elif '"' in text[:1] or not _BARE.fullmatch(text):
        raise BadKey(f"{IDEMPOTENCY_KEY_HEADER} must be printable ASCII, quoted or bare")
    elif event.get(JOINED) and "," in text:
        # Two headers are one text here: a copy of the header would be another key, and another request.
        raise BadKey(f"{IDEMPOTENCY_KEY_HEADER} must be quoted if it has a comma, and must be sent once")
    else:
        key = text
    if not key.strip() or len(key) > MAX_KEY_LENGTH:
        raise BadKey(f"{IDEMPOTENCY_KEY_HEADER} must have 1 to {MAX_KEY_LENGTH} characters that are not all blank")
    return key


def preferred_wait_of(event: Mapping[str, Any]) -> int | None:
    """Seconds that the client prefers to wait for its response: ``Prefer: wait=N`` (RFC 7240, section 4.3).

    The first such preference counts. A value that is not a number of seconds is ignored, as preferences are.

    Returns:
        1 or more; None if there is no such preference.
    """
    for preference in ",".join(_header_values(event, PREFER_HEADER.lower())).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            found = _SECONDS.fullmatch(value.strip())
            return int(found.group(1)) or None if found else None
    return None


def _header_values(event: Mapping[str, Any], name: str) -> list[str]:
    multi = event.get("multiValueHeaders") or {}
    values = [str(value) for key, items in multi.items() if key.lower() == name for value in items or ()]
    if values:
        return values
    single = event.get("headers") or {}
    return [str(value) for key, value in single.items() if key.lower() == name and value is not None]


def body_of(event: Mapping[str, Any], max_bytes: int) -> Body:
    """The request's body.

    Raises:
        TooLarge: if it has more than ``max_bytes`` bytes, as sent or in canonical form.
        Invalid: if it is not JSON in UTF-8, or has a member by the name that refers to stored payloads: a client must
            not make a saga read a payload that is not its own.
    """
    raw = event.get("body")
    text = raw if isinstance(raw, str) else ""
    if event.get("isBase64Encoded"):
        try:
            text = base64.b64decode(text, validate=True).decode("utf-8")
        except ValueError:  # not base64, text that is not ASCII, bytes that are not UTF-8
            raise Invalid("the body must be JSON in UTF-8") from None
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > max_bytes:
        raise TooLarge(f"the body may have {max_bytes} bytes, got {size}")
    value = parse_json(text, max_bytes=max_bytes)
    canonical = canonical_json(value, max_bytes=max_bytes)
    if has_reserved_member(canonical):
        raise Invalid(f"the body must not have a member {REFERENCE_FIELD}; rename it")
    return Body(value=value, canonical=canonical)
