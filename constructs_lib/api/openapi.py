"""OpenAPI 3.1 document of an API: operations, keys, every answer, problems by code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from constructs_lib.api.direct_operation import DirectOperation
from constructs_lib.rest.problem_documents import GATEWAY_PROBLEMS, problem_type
from constructs_lib.saga.description.assembly import metadata_in
from saga_runtime.http.key_source import KeySourceKind
from saga_runtime.http.response import FUNCTION_PROBLEMS, JSON, PROBLEM, Problem
from saga_runtime.idempotency.amounts import index_of, tokens_of
from saga_runtime.protocol import (
    IDEMPOTENCY_KEY_HEADER,
    MAX_KEY_LENGTH,
    PREFERENCE_APPLIED_HEADER,
    REPLAYED_HEADER,
    SAGA_ID_PATTERN,
    InProgressResponse,
    KeyPolicy,
    RecordStatus,
    RefusalPolicy,
)

if TYPE_CHECKING:
    from constructs_lib.api.operations import Operation

METADATA_TYPE: Final = "cdk-sagas:openapi"
DEFAULT_STAGE: Final = "$default"
"""Stage of an HTTP API whose path has no stage in it."""
_HOST: Final = "api.example.com"
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_SCHEMAS: Final = "#/components/schemas/"
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords of a schema whose values are not schemas."""
_REFUSED: Final = 422
_SAGA_REFUSED: Final = "saga-refused"
_SAGA_FAILED: Final = "saga-failed"
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
_LOCATED: Final = frozenset(
    {Problem.IN_PROGRESS, Problem.KEY_EXPIRED, Problem.NOT_STARTED, _SAGA_REFUSED, _SAGA_FAILED}
)
"""Problems of a recorded request, which have its ``Location`` and its id."""
_OPENLY_LOCATED: Final = _LOCATED - {_SAGA_REFUSED}
"""The same, where refusals are not recorded."""
_GATEWAY_STATUSES: Final = frozenset({*(int(status) for _, status, _, _ in GATEWAY_PROBLEMS), 503})
_REJECTED: Final = "request-rejected"
_FAILED: Final = "gateway-error"
_TEXT: Final = {"type": "string"}
_SAGA_ID: Final = {
    "type": "string",
    "pattern": SAGA_ID_PATTERN,
    "description": "id of the saga, or of the direct operation",
}
_LOCATION: Final = {"description": "address of the status", "schema": _TEXT}
_RETRY_AFTER: Final = {"description": "seconds until the request should be repeated", "schema": {"type": "integer"}}
_LINK: Final = {"description": 'address of the page about the problem, with rel="describedby"', "schema": _TEXT}
_REPLAYED: Final = {
    "description": "true: this is the stored response of a settled request; its absence states nothing about earlier "
    "attempts",
    "schema": {"type": "string", "enum": ["true"]},
}
_KEY: Final = {"type": "string", "pattern": "^[ -~]*[!-~][ -~]*$", "maxLength": MAX_KEY_LENGTH}
_ID_OF_KEY: Final = {"type": ["string", "integer"], "minLength": 1, "maxLength": MAX_KEY_LENGTH}
_QUOTED_KEY: Final = rf'"(?! *"$)(?:[ !#-\[\]-~]|\\["\\]){{1,{MAX_KEY_LENGTH}}}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The API before the operations, as far as its document has it.

    Attributes:
        stage: name of the stage; ``$default`` has no part in the address.
        below: path below which the operations are, without a slash at its end.
        problems: whether the gateway's own answers are the problem documents of this package; otherwise they are the
            gateway's, JSON with a message.
        waf: whether a web ACL limits the rate of addresses.
        joins_headers: whether headers of one name come as one, joined by commas.
    """

    stage: str
    below: str = ""
    problems: bool = False
    waf: bool = False
    joins_headers: bool = False


def openapi_of(
    title: str,
    operations: Mapping[str, Operation | DirectOperation],
    *,
    identity: str,
    front: Front,
    docs_url: str | None = None,
) -> dict[str, Any]:
    """Describe an API.

    Args:
        title: of the document.
        operations: by name.
        identity: where callers are known from: ``iam``, ``jwt`` or ``context:<key>``.
        front: the API.
        docs_url: address that documents problems; their codes follow it.

    Returns:
        The document, as JSON has it. The server's host is a variable: it is known once the API is deployed.
    """
    responses = _Responses(front=front, docs_url=docs_url)
    paths: dict[str, Any] = {}
    for name, operation in operations.items():
        paths[f"{front.below}/{name}"] = {"post": _post(name, operation, responses)}
        paths[f"{front.below}/{name}/{{saga_id}}"] = {"get": _get(name, operation, responses)}
    bodies = {name: _body(name, operation) for name, operation in operations.items()}
    stage = "" if front.stage == DEFAULT_STAGE else f"/{front.stage}"
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": front.stage,
            "description": "Each request takes effect at most once per caller and idempotency key. Repeat it, with the "
            "same body and key, until its response is a 200, 410 or 507, has Idempotent-Replayed or "
            "Preference-Applied, or is idempotency-key-reused. Before that, no answer, a 5xx, and a 4xx to a "
            "repetition state nothing about an earlier attempt. A new key is a new request, and takes effect again.",
        },
        "servers": [{"url": f"https://{{host}}{stage}", "variables": {"host": {"default": _HOST}}}],
        "security": [{"caller": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"caller": _security(identity)},
            "schemas": {**bodies, **_schemas(docs_url), **({} if front.problems else {"Message": _message()})},
        },
    }


def documents_in(assembly: Path) -> dict[str, dict[str, Any]]:
    """The documents of all APIs of an assembly, by construct path.

    Raises:
        ValueError: the folder is not an assembly.
    """
    return {path: json.loads(text) for path, text in metadata_in(assembly, METADATA_TYPE)}


def _post(name: str, operation: Operation | DirectOperation, responses: _Responses) -> dict[str, Any]:
    waits = not isinstance(operation, DirectOperation) and operation.max_wait is not None
    problems: dict[int, list[str]] = _codes(_OF_REQUESTS - _unheard_of(operation))
    settled = {500: _SAGA_FAILED, **dict.fromkeys(_refusals(operation), _SAGA_REFUSED)}
    for status, code in settled.items():
        problems.setdefault(status, []).append(code)
    successes = {200: _settled(waits=waits)}
    if _starts(operation):
        successes[202] = _accepted()
    return {
        "operationId": f"request_{_word(name)}",
        "summary": f"Request {name}",
        "description": _windows(operation),
        "parameters": [*_key_parameters(operation, responses.front), *([_prefer()] if waits else [])],
        "requestBody": {"required": True, "content": {JSON: {"schema": _reference(name)}}},
        "responses": _with_links(
            name,
            operation,
            responses.of(successes, problems, replayed=settled, waits=waits, located=_located(operation)),
        ),
    }


def _windows(operation: Operation | DirectOperation) -> str:
    """Time within which a client may repeat its request."""
    requests = operation.requests if isinstance(operation, DirectOperation) else operation.saga.requests
    replayed, known = requests.replay_for.to_human_string(), requests.remember_for.to_human_string()
    return (
        f"A settled response is replayed for {replayed}, then the key is refused with 410, until {known} after the "
        "request settled. Later the same request is new, and takes effect again."
    )


def _located(operation: Operation | DirectOperation) -> frozenset[str]:
    """Problems that the operation answers for recorded requests alone."""
    is_open = isinstance(operation, DirectOperation) and operation.refusal_policy is RefusalPolicy.OPEN
    return _OPENLY_LOCATED if is_open else _LOCATED


def _get(name: str, operation: Operation | DirectOperation, responses: _Responses) -> dict[str, Any]:
    steps = {} if isinstance(operation, DirectOperation) else {"required": ["steps"]}
    status = {
        "description": "the status; once settled, with the stored response, unless it has expired",
        "headers": {"Retry-After": _RETRY_AFTER},
        "content": {JSON: {"schema": {**_reference("Status"), **steps}}},
    }
    return {
        "operationId": f"status_of_{_word(name)}",
        "summary": f"Read the status of a request of {name}",
        "parameters": [{"name": "saga_id", "in": "path", "required": True, "schema": _SAGA_ID}],
        "responses": responses.of({200: status}, _codes(_OF_READS)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Responses:
    """Responses of an API, with those of its gateway."""

    front: Front
    docs_url: str | None

    def of(
        self,
        successes: Mapping[int, dict[str, Any]],
        problems: Mapping[int, list[str]],
        *,
        replayed: Iterable[int] = (),
        waits: bool = False,
        located: frozenset[str] = _LOCATED,
    ) -> dict[str, Any]:
        """All responses, by status.

        Args:
            successes: responses other than problems.
            problems: codes of the function's problems.
            replayed: statuses of stored responses.
            waits: whether a client may prefer to wait for these.
            located: codes of problems of recorded requests.
        """
        found = {status: list(codes) for status, codes in problems.items()}
        if self.front.problems:
            for _, status, code, _ in GATEWAY_PROBLEMS:
                _add(found.setdefault(int(status), []), code)
            for number in _GATEWAY_STATUSES & found.keys():
                _add(found[number], _REJECTED if number < 500 else _FAILED)
        stored = set(replayed)
        answers = {
            str(number): self._problem(
                number, codes, _of_stored(waits=waits) if number in stored else {}, located.issuperset(codes)
            )
            for number, codes in found.items()
        }
        answers |= {str(number): answer for number, answer in successes.items()}
        answers = dict(sorted(answers.items()))
        for others, code in (("4XX", _REJECTED), ("5XX", _FAILED)):
            answers[others] = self._problem(None, [code], {}, False) if self.front.problems else _of_gateway()
        return answers

    def _problem(self, status: int | None, codes: list[str], more: Mapping[str, Any], located: bool) -> dict[str, Any]:
        own = self.front.problems or status not in _GATEWAY_STATUSES
        waits = codes == [Problem.IN_PROGRESS]
        headers = {
            "Retry-After": {**_RETRY_AFTER, "required": True} if waits else _RETRY_AFTER,
            "Location": {**_LOCATION, "required": True} if own and located else _LOCATION,
            **more,
            **({"Link": _LINK} if self.docs_url is not None else {}),
        }
        types = [problem_type(code, self.docs_url) for code in codes]
        schema = {**_reference("Problem"), "properties": {"type": {"enum": types}}}
        content = {PROBLEM: {"schema": schema}}
        if not own:
            content[JSON] = {"schema": _reference("Message")}
        if self.front.waf and status == 429:  # a web ACL cannot send another type
            content[JSON] = {"schema": schema}
        return {"description": "; ".join(codes), "headers": headers, "content": content, "x-problems": codes}


def _add(codes: list[str], code: str) -> None:
    if code not in codes:
        codes.append(code)


def _with_links(name: str, operation: Operation | DirectOperation, responses: dict[str, Any]) -> dict[str, Any]:
    """The responses; those of a recorded request lead to its status, and under a key to its duplicate."""
    status = {"operationId": f"status_of_{_word(name)}", "parameters": {"saga_id": "$response.body#/saga_id"}}
    again: dict[str, Any] = {
        "operationId": f"request_{_word(name)}",
        "requestBody": "$request.body",
        "description": "a duplicate: it gets the stored response once the request is settled",
    }
    if _has_key_header(operation):
        again["parameters"] = {
            f"header.{IDEMPOTENCY_KEY_HEADER}": f"$request.header.{IDEMPOTENCY_KEY_HEADER}",
        }
    for code, response in responses.items():
        if response.get("headers", {}).get("Location", {}).get("required"):
            # Without a key, the same request is a new one. An expired response does not come back.
            repeats = operation.key_policy is KeyPolicy.REQUIRED and int(code) != HTTPStatus.GONE
            response["links"] = {"status": status, **({"again": again} if repeats else {})}
    return responses


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


def _body(name: str, operation: Operation | DirectOperation) -> dict[str, Any]:
    """Schema of a new request's body: JSON schema draft 7, which OpenAPI 3.1 takes by its ``$schema``."""
    found: dict[str, Any] = {"$schema": _DRAFT, **_moved(_schema_of(operation) or {}, f"{_SCHEMAS}{name}")}
    found.pop("$id", None)
    if operation.key_policy is KeyPolicy.REQUIRED:
        of_key = [_holding(tokens_of(member), operation.key_source.kind) for member in operation.key_source.members]
        if of_key:
            found["allOf"] = [*found.get("allOf", ()), *of_key]
    return found


def _holding(tokens: Sequence[str], kind: KeySourceKind) -> dict[str, Any]:
    """Schema of a body that has a member of its key. Array elements are left to the operation's own schema."""
    if not tokens:
        return _KEY if kind is KeySourceKind.BODY else _ID_OF_KEY
    if index_of(tokens[0]) is not None:
        return {}
    return {"type": "object", "required": [tokens[0]], "properties": {tokens[0]: _holding(tokens[1:], kind)}}


def _moved(value: Any, root: str) -> Any:
    """A part of a schema whose references lead to the schema's place in the document."""
    if isinstance(value, list):
        return [_moved(item, root) for item in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: item if key in _DATA else _moved(item, root) for key, item in value.items()}
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        found["$ref"] = root + reference.removeprefix("#")
    return found


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"{_SCHEMAS}{name}"}


def _has_key_header(operation: Operation | DirectOperation) -> bool:
    return operation.key_source.kind in {KeySourceKind.HEADER, KeySourceKind.COMPOSITE}


def _key_parameters(operation: Operation | DirectOperation, front: Front) -> Iterator[dict[str, Any]]:
    if _has_key_header(operation):
        yield {
            "name": IDEMPOTENCY_KEY_HEADER,
            "in": "header",
            "required": operation.key_policy is KeyPolicy.REQUIRED,
            "description": "one per intent, the same for every retry; printable ASCII, bare or quoted",
            "schema": {"type": "string", "pattern": _key_pattern(front)},
        }


def _key_pattern(front: Front) -> str:
    """Regular expression of the header: a bare key, without blanks around it, or a quoted one."""
    first, last, any_of = (
        (r"[!#-+\--~]", r"[!-+\--~]", r"[ -+\--~]") if front.joins_headers else ("[!#-~]", "[!-~]", "[ -~]")
    )
    return f"^(?:{first}(?:{any_of}{{0,{MAX_KEY_LENGTH - 2}}}{last})?|{_QUOTED_KEY})$"


def _prefer() -> dict[str, Any]:
    return {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "wait=N (RFC 7240): wait up to N seconds for the settled response",
        "schema": _TEXT,
    }


def _codes(problems: Iterable[Problem]) -> dict[int, list[str]]:
    """Codes of problems by status."""
    found: dict[int, list[str]] = {}
    for kind in sorted(problems):
        found.setdefault(FUNCTION_PROBLEMS[kind][0], []).append(str(kind))
    return found


def _settled(*, waits: bool) -> dict[str, Any]:
    return {
        "description": "completed",
        "headers": {"Location": {**_LOCATION, "required": True}, **_of_stored(waits=waits)},
        "content": {JSON: {"schema": _reference("Completed")}},
    }


def _of_stored(*, waits: bool) -> dict[str, Any]:
    """Headers by which a client knows a stored response."""
    return {REPLAYED_HEADER: _REPLAYED, **({PREFERENCE_APPLIED_HEADER: {"schema": _TEXT}} if waits else {})}


def _accepted() -> dict[str, Any]:
    return {
        "description": "recorded; it will be processed",
        "headers": {"Location": {**_LOCATION, "required": True}, "Retry-After": _RETRY_AFTER},
        "content": {JSON: {"schema": _reference("InProgress")}},
    }


def _of_gateway() -> dict[str, Any]:
    return {"description": "an answer of the gateway itself", "content": {JSON: {"schema": _reference("Message")}}}


def _message() -> dict[str, Any]:
    return {"type": "object", "description": "of the gateway itself", "properties": {"message": _TEXT}}


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
                    "description": f"{problem_type('', docs_url)} and the code",
                },
                "title": _TEXT,
                "status": {"type": "integer"},
                "detail": _TEXT,
                "saga_id": _SAGA_ID,
                "error": {"type": "string", "description": "name of the error of a refused or failed saga"},
                "step": {"type": "string", "description": "the step that it came from"},
                "saga_status": {"type": "string", "enum": [RecordStatus.COMPLETED, RecordStatus.FAILED]},
                "http_status": {"type": "integer", "description": "of the settled response"},
                "request_id": {"type": "string", "description": "of the gateway"},
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
            "required": ["saga_id", "status"],
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
