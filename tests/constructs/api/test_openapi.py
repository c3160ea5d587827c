"""The OpenAPI document of an API: valid, complete, and the same from the assembly as from the construct."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from openapi_spec_validator import validate

from constructs_lib import (
    DirectFunction,
    DirectOperation,
    IdempotencyTable,
    InProgressResponse,
    KeyPolicy,
    KeySource,
    Operation,
    TransactionApi,
)
from constructs_lib.api.openapi import documents_in
from constructs_lib.cli.main import main
from saga_runtime.http.response import Problem
from tests.constructs.support.sagas import FUNCTIONS, saga

SCHEMA = {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}}
WEBHOOKS = {
    Problem.NO_SIGNATURE,
    Problem.MALFORMED_SIGNATURE,
    Problem.SIGNATURE_MISMATCH,
    Problem.STALE_SIGNATURE,
}


def _api(stack: Stack, **settings: Any) -> TransactionApi:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler", schema=SCHEMA)
    operations: dict[str, Operation | DirectOperation] = {
        "transfers": Operation(saga=saga(stack), schema=SCHEMA, max_wait=Duration.seconds(5)),
        "pay-now": DirectOperation(
            fn=fn,
            previous=None,
            requests=IdempotencyTable(stack, "Direct"),
            http_status_by_error={"InsufficientFunds": 402},
        ),
    }
    return TransactionApi(stack, "Api", operations=operations, **settings)


def _codes(document: Any, path: str, method: str) -> set[str]:
    responses = document["paths"][path][method]["responses"].values()
    return {code for response in responses for code in response.get("x-problems", ())}


def test_it_is_valid_and_has_every_operation(stack: Stack) -> None:
    document = _api(stack).openapi

    validate(document)
    assert set(document["paths"]) == {"/transfers", "/transfers/{saga_id}", "/pay-now", "/pay-now/{saga_id}"}


def test_it_has_every_problem_of_requests_and_reads(stack: Stack) -> None:
    document = _api(stack).openapi

    post, get = _codes(document, "/transfers", "post"), _codes(document, "/transfers/{saga_id}", "get")
    assert post | get >= set(Problem) - WEBHOOKS
    assert {"saga-refused", "saga-failed"} <= post
    assert "saga-not-started" not in _codes(document, "/pay-now", "post")


def test_a_response_names_the_statuses_of_refusals(stack: Stack) -> None:
    document = _api(stack).openapi

    assert "402" in document["paths"]["/pay-now"]["post"]["responses"]
    assert "402" not in document["paths"]["/transfers"]["post"]["responses"]


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({}, True),
        ({"key_policy": KeyPolicy.OPTIONAL}, False),
        ({"key_source": KeySource.composite("/amount")}, True),
        ({"key_source": KeySource.natural("/amount")}, None),
    ],
)
def test_the_key_is_a_header_where_it_is_one(stack: Stack, settings: dict[str, Any], required: bool | None) -> None:
    operation = Operation(saga=saga(stack), schema=SCHEMA, **settings)
    document = TransactionApi(stack, "Api", operations={"transfers": operation}).openapi

    parameters = document["paths"]["/transfers"]["post"]["parameters"]
    assert [one["required"] for one in parameters] == ([] if required is None else [required])


@pytest.mark.parametrize(
    ("answer", "accepts"), [(InProgressResponse.CONFLICT, False), (InProgressResponse.ACCEPTED, True)]
)
def test_a_direct_operation_accepts_where_a_saga_of_its_keys_may_run(
    stack: Stack, answer: InProgressResponse, accepts: bool
) -> None:
    fn = DirectFunction(stack, "Pay", code=FUNCTIONS, handler="direct.handler")
    operation = DirectOperation(
        fn=fn, previous=None, requests=IdempotencyTable(stack, "Direct"), in_progress_response=answer
    )
    document = TransactionApi(stack, "Api", operations={"pay": operation}).openapi

    assert ("202" in document["paths"]["/pay"]["post"]["responses"]) is accepts


def test_the_command_prints_what_the_construct_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Shop")
    wanted = _api(stack).openapi
    app.synth()

    assert documents_in(tmp_path) == {"Shop/Api": wanted}
    assert main(["openapi", str(tmp_path), "--api", "Api", "--url", "https://shop/v1/"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {**wanted, "servers": [{"url": "https://shop/v1"}]}

    assert main(["openapi", str(tmp_path), "--api", "Other"]) == 1
    assert "there are: Shop/Api" in capsys.readouterr().err
    assert main(["openapi", str(tmp_path / "none")]) == 1
