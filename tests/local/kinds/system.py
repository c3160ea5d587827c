"""The sagas with steps of every kind, deployed: many requests at once, and their outcomes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import ApiUser, HttpResponse, LocalAws
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import IDEMPOTENCY_KEY_HEADER
from saga_runtime.recovery.takeover import Recoverer
from saga_runtime.shared.arns import execution_of

from ..pauses import Pauses
from ..transfer_system import is_settled
from ..two_ledgers import await_quiet, entered_states, recover_to_the_end

SPEED: Final = 8.0
_PATIENCE_SECONDS: Final = 180.0
_GATEKEEPER_SECONDS: Final = 80


@dataclass(frozen=True)
class KindsSystem:
    """The deployed stack."""

    aws: LocalAws
    outputs: Mapping[str, str]
    user: ApiUser

    def post(self, saga: str, key: str, body: Mapping[str, object]) -> HttpResponse:
        """Ask once."""
        url = f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/{saga}"
        headers = {IDEMPOTENCY_KEY_HEADER: key}
        return self.user.request("POST", url, headers=headers, body={"counter": key, **body})

    def begin(self, saga: str, key: str, body: Mapping[str, object]) -> str:
        """Ask until the request is accepted, and return the saga's id."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (answer := self.post(saga, key, body)).status >= 500 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer.status < 500, answer.text
        return str(answer.json()["saga_id"])

    def settle(self, saga: str, key: str, body: Mapping[str, object]) -> HttpResponse:
        """Ask until the answer is settled."""
        deadline, pauses = time.monotonic() + _PATIENCE_SECONDS, Pauses(next=0.1, most=0.5)
        while not is_settled(answer := self.post(saga, key, body)):
            assert time.monotonic() < deadline, f"{key} is not settled: {answer.status} {answer.text}"
            pauses.pause()
        return answer

    def settle_all(self, saga: str, bodies: Mapping[str, Mapping[str, object]]) -> dict[str, HttpResponse]:
        """Ask for all of it at once, until every answer is settled."""
        with ThreadPoolExecutor(max_workers=6) as pool:
            answers = pool.map(lambda key: self.settle(saga, key, bodies[key]), bodies)
            return dict(zip(bodies, answers, strict=True))

    def recover(self, saga_id: str, *, days_ago: int = 0) -> RequestRecord:
        """Recover a saga until it is settled or parked, as if it had been taken over days ago."""
        return recover_to_the_end(self.recoverer, saga_id, lambda: self.now_ms() - days_ago * 86_400_000)

    def quiet(self, saga_id: str) -> RequestRecord:
        """Wait until no execution of a saga runs."""
        return await_quiet(self.recoverer, saga_id)

    @property
    def recoverer(self) -> Recoverer:
        """The component that recovers sagas."""
        return Recoverer(
            table=self.outputs["RequestTableName"],
            dynamodb=self.aws.client("dynamodb"),
            step_functions=self.aws.client("stepfunctions"),
        )

    def now_ms(self) -> int:
        """Roughly now: recoveries only compare it with days."""
        return int(time.time() * 1000)

    def counts(self, key: str) -> dict[str, int]:
        """Counters of each step, without zeros."""
        return {name: n for name, n in self._items(key) if n and "@" not in name}

    def books(self, key: str) -> dict[str, list[int]]:
        """The provider's books: for each step, how often each of its keys was written; twice is once too often."""
        books: dict[str, list[int]] = {}
        for name, n in self._items(key):
            if "@" in name:
                books.setdefault(name.partition("@")[0], []).append(n)
        return books

    def _items(self, key: str) -> Iterator[tuple[str, int]]:
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=self.outputs["CounterTableName"])
        for page in pages:
            for item in page["Items"]:
                owner, _, name = item["id"]["S"].partition("/")
                if owner == key:
                    yield name, int(item["n"]["N"])

    def rows(self, saga: str, saga_id: str) -> dict[str, str]:
        """Status of each row of a saga."""
        found = self.aws.client("dynamodb").query(
            TableName=self.outputs[f"{saga}LogTableName"],
            KeyConditionExpression="saga_id = :id",
            ExpressionAttributeValues={":id": {"S": saga_id}},
            ConsistentRead=True,
        )
        return {item["step"]["S"]: item["status"]["S"] for item in found["Items"]}

    def states(self, saga: str, saga_id: str) -> list[str]:
        """The states that a saga's first execution entered, branches included."""
        return entered_states(self.aws, execution_of(self.outputs[f"{saga}MachineArn"], saga_id))

    def messages(self, queue_url: str) -> list[dict[str, Any]]:
        """Take every message out of a queue."""
        sqs, bodies = self.aws.client("sqs"), list[dict[str, Any]]()
        while messages := sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                bodies.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        return bodies


@contextmanager
def deployed() -> Iterator[KindsSystem]:
    """Local AWS with the stack in it."""
    # Imported here: the CDK takes seconds, and only these tests need it.
    from aws_cdk import App

    from .stack import KindsStack

    with (
        tempfile.TemporaryDirectory(prefix="cdk-sagas-test-") as folder,
        LocalAws(speed=SPEED, concurrency=3) as aws,
    ):
        app = App(outdir=folder)
        KindsStack(app, "Kinds")
        app.synth()
        outputs = aws.deploy(Path(folder))["Kinds"]
        functions = aws.client("lambda")
        for path in ("Api/Gatekeeper/kinds", "Api/Gatekeeper/items", "Api/Gatekeeper/phase"):
            name = aws.resolve_function(f"Kinds/{path}/Function")
            functions.update_function_configuration(FunctionName=name, Timeout=_GATEKEEPER_SECONDS)
        yield KindsSystem(aws, outputs, aws.create_api_user("kinds", api_id=outputs["ApiId"]))
