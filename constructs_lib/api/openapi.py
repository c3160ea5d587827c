"""OpenAPI 3.1 document of a ``TransactionApi``: operations, keys, every answer, problems by code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.rest.problem_documents import GATEWAY_PROBLEMS
from constructs_lib.saga.description.assembly import metadata_in
from saga_runtime.http.key_source import KeySource, KeySourceKind
from saga_runtime.http.response import FUNCTION_PROBLEMS, JSON, PROBLEM, Problem
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    MAX_KEY_LENGTH,
    PROBLEM_TYPES,
    REPLAYED_HEADER,
    InProgressResponse,
    KeyPolicy,
    RecordStatus,
)

if TYPE_CHECKING:
    from constructs_lib.api.operations import Operation

METADATA_TYPE: Final = "cdk-sagas:openapi"
_HOST: Final = "api.example.com"
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_REFUSED: Final = 422
_OF_REQUESTS: Final = frozenset(
    {
        Problem.BAD_KEY,
        Problem.MISSING_KEY,
        Problem.KEY_REUSED,
        Problem.KEY_EXPIRED,
        Problem.IN_PROGRESS,
        Problem.BAD_BODY,
        Problem.TOO_LARGE,
        Problem.NO_IDENTITY,
        Problem.UNAVAILABLE,
        Problem.NOT_STARTED,
        Problem.UNSENDABLE,
    }
)
_OF_READS: Final = frozenset({Problem.NOT_FOUND, Problem.NO_IDENTITY, Problem.UNAVAILABLE, Problem.UNSENDABLE})
_TEXT: Final = {"type": "string"}
_SAGA_ID: Final = {"type": "string", "description": "id of the saga, or of the direct operation"}
_LOCATION: Final = {"description": "address of the status", "schema": _TEXT}
_RETRY_AFTER: Final = {"description": "seconds until the request should be repeated", "schema": {"type": "integer"}}
_LINK: Final = {"description": 'address of the page about the problem, with rel="describedby"', "schema": _TEXT}
_REPLAYED: Final = {
    "description": "true: this is the stored response of a settled request; its absence states nothing about earlier "
    "attempts",
    "schema": {"type": "string", "enum": ["true"]},
}


def openapi_of(
    title: str,
    operations: Mapping[str, Operation | DirectOperation],
    *,
    identity: str,
    stage: str,
    docs_url: str | None = None,
) -> dict[str, Any]:
    """Describe an API.

    Args:
        title: of the document.
        operations: by name.
        identity: where callers are known from: ``iam``, ``jwt`` or ``context:<key>``.
        stage: name of the stage.
        docs_url: address that documents problems; their codes follow it.

    Returns:
        The document, as JSON has it. The server's host is a variable: it is known once the API is deployed.
    """
    paths: dict[str, Any] = {}
    for name, operation in operations.items():
        paths[f"/{name}"] = {"post": _post(name, operation)}
        paths[f"/{name}/{{saga_id}}"] = {"get": _get(name)}
    if docs_url is not None:
        for path in paths.values():
            for method in path.values():
                _link_problems(method["responses"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": stage,
            "description": "Each request takes effect at most once per caller and idempotency key. A 5xx, or no "
            "answer, states nothing: repeat the request under the same key.",
        },
        "servers": [{"url": f"https://{{host}}/{stage}", "variables": {"host": {"default": _HOST}}}],
        "security": [{"caller": []}],
        "paths": paths,
        "components": {"securitySchemes": {"caller": _security(identity)}, "schemas": _schemas(docs_url)},
    }


def documents_in(assembly: Path) -> dict[str, dict[str, Any]]:
    """The documents of all APIs of an assembly, by construct path.

    Raises:
        ValueError: the folder is not an assembly.
    """
    return {path: json.loads(text) for path, text in metadata_in(assembly, METADATA_TYPE)}


def _post(name: str, operation: Operation | DirectOperation) -> dict[str, Any]:
    waits = not isinstance(operation, DirectOperation) and operation.max_wait is not None
    responses: dict[int, dict[str, Any]] = {}
    for status, codes in _codes(_OF_REQUESTS - _unheard_of(operation)).items():
        responses[status] = _problem(codes)
    for status in _refusals(operation):
        codes = [*_codes_of(responses.get(status)), "saga-refused"]
        responses[status] = _problem(codes, replayed=True)
    responses[500] = _problem([*_codes_of(responses.get(500)), "saga-failed"], replayed=True)
    responses[200] = _settled(waits=waits)
    if _starts(operation):
        responses[202] = _accepted()
    return {
        "operationId": f"request_{_word(name)}",
        "summary": f"Request {name}",
        "parameters": [*_key_parameters(operation.key_source, operation.key_policy), *([_prefer()] if waits else [])],
        "requestBody": {"required": True, "content": {JSON: {"schema": _body(_schema_of(operation))}}},
        "responses": _with_gateway(responses),
    }


def _get(name: str) -> dict[str, Any]:
    responses = {status: _problem(codes) for status, codes in _codes(_OF_READS).items()}
    responses[200] = {
        "description": "the status; once settled, with the stored response, unless it has expired",
        "headers": {"Retry-After": _RETRY_AFTER},
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Status"}}},
    }
    return {
        "operationId": f"status_of_{_word(name)}",
        "summary": f"Read the status of a request of {name}",
        "parameters": [{"name": "saga_id", "in": "path", "required": True, "schema": _SAGA_ID}],
        "responses": _with_gateway(responses),
    }


def _starts(operation: Operation | DirectOperation) -> bool:
    """True if the operation answers 202: it starts sagas, or meets those that it started before."""
    return not isinstance(operation, DirectOperation) or operation.in_progress_response is InProgressResponse.ACCEPTED


def _unheard_of(operation: Operation | DirectOperation) -> set[Problem]:
    """Problems that the operation never answers."""
    unheard = set()
    if operation.key_policy is KeyPolicy.OPTIONAL:
        unheard.add(Problem.MISSING_KEY)
    if isinstance(operation, DirectOperation):
        unheard.add(Problem.NOT_STARTED)
    return unheard


def _refusals(operation: Operation | DirectOperation) -> set[int]:
    if isinstance(operation, DirectOperation):
        return {_REFUSED, *(operation.http_status_by_error or {}).values()}
    return set(operation.saga.refusal_statuses)


def _schema_of(operation: Operation | DirectOperation) -> Mapping[str, Any] | None:
    return operation.fn.schema if isinstance(operation, DirectOperation) else operation.schema


def _body(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Schema of a new request's body: JSON schema draft 7, which OpenAPI 3.1 takes by its ``$schema``."""
    return {"$schema": _DRAFT, **schema} if schema is not None else {}


def _key_parameters(source: KeySource, policy: KeyPolicy) -> Iterator[dict[str, Any]]:
    if source.kind in {KeySourceKind.HEADER, KeySourceKind.COMPOSITE}:
        yield {
            "name": IDEMPOTENCY_KEY_HEADER,
            "in": "header",
            "required": policy is KeyPolicy.REQUIRED,
            "description": "one per intent, the same for every retry; printable ASCII",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_LENGTH},
        }


def _prefer() -> dict[str, Any]:
    return {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "wait=N (RFC 7240): wait up to N seconds for the settled response",
        "schema": _TEXT,
    }


def _codes(problems: Iterable[Problem]) -> dict[int, list[str]]:
    """Codes of problems by status, in the order of the statuses."""
    found: dict[int, list[str]] = {}
    for kind in sorted(problems):
        found.setdefault(FUNCTION_PROBLEMS[kind][0], []).append(kind)
    return dict(sorted(found.items()))


def _with_gateway(responses: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """All responses as text of their status, and the gateway's own."""
    documented = dict(responses)
    for _, status, code, _ in GATEWAY_PROBLEMS:
        known = documented.get(int(status))
        codes = [*_codes_of(known), *([] if code in _codes_of(known) else [code])]
        documented[int(status)] = _problem(codes, replayed=known is not None and REPLAYED_HEADER in known["headers"])
    named = {str(status): documented[status] for status in sorted(documented)}
    return {**named, "4XX": _problem(["request-rejected"]), "5XX": _problem(["gateway-error"])}


def _codes_of(response: Mapping[str, Any] | None) -> list[str]:
    return list(response["x-problems"]) if response is not None else []


def _problem(codes: Iterable[str], *, replayed: bool = False) -> dict[str, Any]:
    listed = list(codes)
    return {
        "description": "; ".join(listed),
        "headers": {
            "Retry-After": _RETRY_AFTER,
            "Location": _LOCATION,
            **({REPLAYED_HEADER: _REPLAYED} if replayed else {}),
        },
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        "x-problems": listed,
    }


def _link_problems(responses: Mapping[str, dict[str, Any]]) -> None:
    for response in responses.values():
        if "x-problems" in response:
            response["headers"]["Link"] = _LINK


def _settled(*, waits: bool) -> dict[str, Any]:
    applied = {"Preference-Applied": {"schema": _TEXT}} if waits else {}
    return {
        "description": "completed",
        "headers": {"Location": _LOCATION, REPLAYED_HEADER: _REPLAYED, **applied},
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Completed"}}},
    }


def _accepted() -> dict[str, Any]:
    return {
        "description": "recorded; it will be processed",
        "headers": {"Location": _LOCATION, "Retry-After": _RETRY_AFTER},
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/InProgress"}}},
    }


def _security(identity: str) -> dict[str, Any]:
    if identity == "jwt":
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    header = {"type": "apiKey", "name": "Authorization", "in": "header"}
    return {**header, "x-amazon-apigateway-authtype": "awsSigv4"} if identity == "iam" else header


def _schemas(docs_url: str | None) -> dict[str, Any]:
    statuses = [RecordStatus.IN_PROGRESS, RecordStatus.COMPLETED, RecordStatus.FAILED]
    return {
        "Problem": {
            "type": "object",
            "description": "RFC 9457",
            "required": ["type", "title"],
            "properties": {
                "type": {
                    "type": "string",
                    "format": "uri",
                    "description": f"{docs_url or PROBLEM_TYPES} and the code",
                },
                "title": _TEXT,
                "status": {"type": "integer"},
                "detail": _TEXT,
                "saga_id": _SAGA_ID,
                "error": {"type": "string", "description": "name of the error of a refused or failed saga"},
                "step": {"type": "string", "description": "the step that it came from"},
            },
        },
        "InProgress": {
            "type": "object",
            "required": ["saga_id", "status"],
            "properties": {"saga_id": _SAGA_ID, "status": {"const": RecordStatus.IN_PROGRESS}},
        },
        "Completed": {
            "type": "object",
            "required": ["saga_id", "status", "result"],
            "properties": {"saga_id": _SAGA_ID, "status": {"const": RecordStatus.COMPLETED}, "result": {}},
        },
        "Status": {
            "type": "object",
            "required": ["saga_id", "status", "steps"],
            "properties": {
                "saga_id": _SAGA_ID,
                "status": {"type": "string", "enum": statuses},
                "steps": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["step", "status", "at_ms"],
                        "properties": {"step": _TEXT, "status": _TEXT, "at_ms": {"type": "integer"}},
                    },
                },
                "http_status": {"type": "integer", "description": "of the stored response"},
                "answer": {"description": "the stored response"},
            },
        },
    }


def _word(name: str) -> str:
    return name.replace("-", "_")
