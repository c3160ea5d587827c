"""Deployed APIs against their OpenAPI documents: schemathesis sends what the documents allow, and what they do not.

Each run of the tests sends the same requests. ``CDK_SAGAS_SAMPLE=n`` draws others, and ``all`` draws many.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from constructs_lib.api.openapi import documents_in
from constructs_lib.testing import ApiUser, LocalAws
from constructs_lib.testing.invariants import Invariant, Item, assert_all_hold, read_table
from saga_runtime.http.idempotent_request import BadKey, idempotency_key_of
from saga_runtime.protocol import RecordAttribute, RecordStatus
from tests.sampling import seed_of, so_many

from .reconcilers import prepare_reconciler
from .support import eventually
from .transfer_system import TransferSystem

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIGURATION: Final = Path(__file__).parent / "fuzzed" / "schemathesis.toml"
SEED: Final = 1
FEW: Final = 6
MANY: Final = 200
RICH: Final = 10**12
TRANSFERS: Final = "FundsTransfer"
WAYS_IN: Final = "WaysIn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A deployed API.

    Attributes:
        document: its OpenAPI document.
        url: its address.
        user: a client that may call it.
        records: reads the records of its requests.
        audit: what must hold of its tables once all requests are settled.
        options: further options of schemathesis.
    """

    document: Mapping[str, Any]
    url: str
    user: ApiUser
    records: Callable[[], Sequence[Item]]
    audit: Callable[[], Sequence[Invariant]] = list
    options: Sequence[str] = ()


@pytest.fixture(scope="module")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Api]]:
    """APIs of every kind, by the path of their construct. At real speed: no function times out on a busy machine."""
    assembly = _synthesize(tmp_path_factory.mktemp("apis"))
    documents = documents_in(assembly)
    with LocalAws(concurrency=4) as aws:
        outputs = aws.deploy(assembly)
        ways = outputs[WAYS_IN]
        prepare_reconciler(aws, outputs[TRANSFERS], seconds=None, reconciled=False)
        transfers = TransferSystem(aws, outputs[TRANSFERS], 1.0)
        for ledger in ("main", "partner"):
            transfers.open("ada", "alan", balance=RICH, ledger=ledger)
        client = aws.create_api_user("client", api_id=[ways["RestId"], ways["HttpId"]])

        def records() -> Sequence[Item]:
            return read_table(aws.client("dynamodb"), ways["RequestTableName"])

        yield {
            f"{TRANSFERS}/Api": Api(
                document=documents[f"{TRANSFERS}/Api"],
                url=transfers.url.rpartition("/")[0],
                user=transfers.user(),
                records=transfers.records,
                audit=transfers.audit,
            ),
            f"{WAYS_IN}/OnRest": Api(
                document=documents[f"{WAYS_IN}/OnRest"],
                url=aws.local_url(ways["RestUrl"]).rstrip("/"),
                user=client,
                records=records,
            ),
            f"{WAYS_IN}/OnHttp": Api(
                document=documents[f"{WAYS_IN}/OnHttp"],
                url=aws.local_url(ways["HttpUrl"]).rstrip("/"),
                user=client,
                records=records,
                # It answers 404, never 405, to a method for which it has no route.
                options=("--exclude-checks", "unsupported_method"),
            ),
        }


def _synthesize(outdir: Path) -> Path:
    from aws_cdk import App  # here: the CDK takes seconds

    from examples.funds_transfer.stack import FundsTransferStack

    from .ways_in.stack import WaysInStack

    app = App(outdir=str(outdir), analytics_reporting=False)
    FundsTransferStack(app, TRANSFERS)
    WaysInStack(app)
    app.synth()
    return outdir


@pytest.mark.proof
@pytest.mark.parametrize("path", [f"{TRANSFERS}/Api", f"{WAYS_IN}/OnRest", f"{WAYS_IN}/OnHttp"])
def test_an_api_answers_as_documented_and_serves_each_request_once(
    apis: Mapping[str, Api], path: str, tmp_path: Path
) -> None:
    api = apis[path]
    before = {_saga_id(record) for record in api.records()}

    status, output = _schemathesis(api, tmp_path)

    assert status == 0, output
    eventually(lambda: True if all(map(_is_settled, api.records())) else None)
    answered = _saga_ids(tmp_path / "sent.har")
    assert {key: ids for key, ids in answered.items() if key is not None and len(ids) > 1} == {}
    assert {_saga_id(record) for record in api.records()} - before == set().union(*answered.values())
    audit = api.audit()
    assert all(invariant.checked for invariant in audit), audit
    assert_all_hold(audit)


def _schemathesis(api: Api, folder: Path) -> tuple[int, str]:
    """Exit status and output of schemathesis, which writes what was sent into ``sent.har``."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(api.document), encoding="utf-8")
    credentials = {
        "AWS_ACCESS_KEY_ID": api.user.access_key_id,
        "AWS_SECRET_ACCESS_KEY": api.user.secret_access_key,
        "AWS_DEFAULT_REGION": api.user.region,
        "SCHEMATHESIS_HOOKS": "tests.local.fuzzed.signed",
        "PYTHONPATH": str(ROOT),
    }
    run = ["--config-file", str(CONFIGURATION), "run", str(document), "--url", api.url, "--continue-on-failure"]
    drawn = ["--seed", str(seed_of(SEED)), "--max-examples", str(so_many(FEW) or MANY), "--generation-database", "none"]
    report = ["--report-har-path", str(folder / "sent.har"), "--output-sanitize", "false", "--no-color"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *run, *drawn, *report, *api.options],
        cwd=folder,
        env={**os.environ, **credentials},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def _saga_ids(har: Path) -> dict[tuple[str, str] | None, set[str]]:
    """Saga ids that answers to requests named, by operation and key; those of requests without a key by None."""
    found: dict[tuple[str, str] | None, set[str]] = defaultdict(set)
    for entry in json.loads(har.read_text("utf-8"))["log"]["entries"]:
        request, text = entry["request"], entry["response"]["content"].get("text", "")
        if request["method"] == "POST" and (saga_id := _named(text)) is not None:
            found[_key_of(request)].add(saga_id)
    return found


def _named(text: str) -> str | None:
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer.get("saga_id") if isinstance(answer, dict) else None


def _key_of(request: Mapping[str, Any]) -> tuple[str, str] | None:
    headers = {header["name"]: header["value"] for header in request["headers"]}
    operation = urlsplit(request["url"]).path.rpartition("/")[2]
    if operation == "orders":  # a natural key
        return operation, json.loads(request["postData"]["text"])["order"]["id"]
    try:
        key = idempotency_key_of({"headers": headers})
    except BadKey:
        return None
    return None if key is None else (operation, key)


def _saga_id(record: Item) -> str:
    return str(record[RecordAttribute.SAGA_ID]["S"])


def _is_settled(record: Item) -> bool:
    return str(record[RecordAttribute.STATUS]["S"]) != RecordStatus.IN_PROGRESS
