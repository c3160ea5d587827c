"""Answers of a deployed API, held against its OpenAPI document."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from constructs_lib.testing import HttpResponse
from saga_runtime.protocol import REPLAYED_HEADER


@functools.cache
def _documents(assembly: Path) -> dict[str, dict[str, Any]]:
    from constructs_lib.api.openapi import documents_in  # the CDK takes seconds

    return documents_in(assembly)


def require_documented(assembly: Path, api: str, path: str, method: str, answer: HttpResponse) -> None:
    """Fail if the API's document does not have an answer: its status, its headers, its body, its problem code.

    Args:
        assembly: what was deployed.
        api: construct path of the API.
        path: path in the document.
        method: in lower case.
        answer: what came.
    """
    from jsonschema import Draft202012Validator

    document = _documents(assembly)[api]
    responses = document["paths"][path][method]["responses"]
    response = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX")
    where = f"{method} {path}: {answer.status} {answer.text}"
    assert response is not None, where
    content_type = answer.headers["content-type"].partition(";")[0]
    assert content_type in response["content"], where
    if REPLAYED_HEADER.lower() in answer.headers:
        assert REPLAYED_HEADER in response["headers"], where
    schema = {**response["content"][content_type]["schema"], "components": document["components"]}
    Draft202012Validator(schema).validate(answer.json())
