"""Finds, from a request alone, which operation of which service it calls."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

_CREDENTIAL: Final = re.compile(r"Credential=([^/,\s]+)/\d{8}/[^/]+/([^/]+)/aws4_request")
_SMITHY_PATH: Final = re.compile(r"/service/[^/]+/operation/([A-Za-z0-9]+)")
#: Names under which a service signs, where IAM calls it by another.
_IAM_NAMES: Final = {"monitoring": "cloudwatch", "email": "ses"}
_UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Signer of a request, and the service.

    Attributes:
        access_key_id: The signer's access key.
        service: The service, as it signs.
    """

    access_key_id: str
    service: str


def signer_of(headers: dict[str, str], query: str) -> Signer | None:
    """Return who signed a request; None for an unsigned one.

    Args:
        headers: The headers, names in lower case.
        query: The query string, for presigned requests.
    """
    found = _CREDENTIAL.search(headers.get("authorization", ""))
    if found:
        return Signer(access_key_id=found[1], service=found[2])
    if "X-Amz-Credential=" in query:
        parts = parse_qs(query).get("X-Amz-Credential", [""])[0].split("/")
        if len(parts) == 5:
            return Signer(access_key_id=parts[0], service=parts[3])
    return None


def call_of(service: str, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> str:
    """Return service and operation, as `dynamodb:PutItem`; `service:Unknown` if the request does not identify it."""
    return f"{_IAM_NAMES.get(service, service)}:{_operation(service, method, path, query, headers, body)}"


def _operation(service: str, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> str:
    target = headers.get("x-amz-target")
    if target:
        return target.rpartition(".")[2]
    smithy = _SMITHY_PATH.search(path)
    if smithy:
        return smithy[1]
    form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    action = parse_qs(body.decode("utf-8", "replace") if form else query).get("Action")
    if action:
        return action[0]
    return _rest_operation(service, method, path, query, headers)


def _rest_operation(service: str, method: str, path: str, query: str, headers: dict[str, str]) -> str:
    given = set(parse_qs(query, keep_blank_values=True))
    fitting = [
        route
        for route in _routes(service)
        if route.method == method
        and route.query <= given
        and route.headers <= headers.keys()
        and route.path.fullmatch(path)
    ]
    # The most specific route: the one that requires the most, then the one with the most fixed text.
    best = max(fitting, key=lambda route: (len(route.query) + len(route.headers), route.fixed), default=None)
    return _UNKNOWN if best is None else best.operation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    operation: str
    method: str
    path: re.Pattern[str]
    fixed: int
    query: frozenset[str]
    headers: frozenset[str]


@functools.cache
def _routes(service: str) -> tuple[_Route, ...]:
    """The REST routes of a service, from the SDK's own description of it."""
    # Imported here: it takes a third of a second, and sagas seldom ask such a service.
    import botocore.exceptions
    import botocore.session

    loader = botocore.session.get_session().get_component("data_loader")
    try:
        model: dict[str, Any] = loader.load_service_model(service, "service-2")
    except botocore.exceptions.BotoCoreError:
        return ()
    return tuple(_route(name, operation, model["shapes"]) for name, operation in model["operations"].items())


def _route(name: str, operation: dict[str, Any], shapes: dict[str, Any]) -> _Route:
    http = operation["http"]
    template, _, query = str(http.get("requestUri", "/")).partition("?")
    pattern, fixed, position = "", 0, 0
    for placeholder in re.finditer(r"\{([^}]+)\}", template):
        literal = template[position : placeholder.start()]
        # A greedy label ({Key+}) takes slashes too.
        pattern += re.escape(literal) + (".+" if placeholder[1].endswith("+") else "[^/]+")
        fixed += len(literal)
        position = placeholder.end()
    rest = template[position:].rstrip("/")
    return _Route(
        operation=name,
        method=http.get("method", "POST"),
        path=re.compile(pattern + re.escape(rest) + "/?"),
        fixed=fixed + len(rest),
        query=frozenset(parse_qs(query, keep_blank_values=True)) | _required(operation, shapes, "querystring"),
        headers=frozenset(header.lower() for header in _required(operation, shapes, "header")),
    )


def _required(operation: dict[str, Any], shapes: dict[str, Any], location: str) -> frozenset[str]:
    """Return the names that every request of the operation has there: operations that share a path differ in them."""
    shape = shapes[operation["input"]["shape"]] if "input" in operation else {}
    members = [shape["members"][name] for name in shape.get("required", ())]
    return frozenset(member["locationName"] for member in members if member.get("location") == location)
