"""Orders behind a step host; and carts about which two operators decide."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import boto3
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.testing.invariants import Invariant, Item
from constructs_lib.testing.simulator import Intent, Result, Workload, World
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.workload import Wrapped
from saga_runtime.protocol import RecordStatus, StepStatus
from saga_runtime.recovery.callers import prove
from saga_runtime.saga_log.rows import UNDER_WAY

_EVERY: Final = 60 * SECOND


class Hosted(Workload):
    """Two orders of each number: the second one is refused, and its charge refunded."""

    def intent(self, number: int, random: Random) -> Intent:
        del random
        return Intent(operation="orders", body={"order": f"o-{number // 2}"})

    def find_out(self, world: World, row: Item) -> bool | None:
        """Read the provider's books."""
        key = f"{row['saga_id']['S']}#{row['step']['S']}"
        undone = row["status"]["S"] == StepStatus.COMPENSATING
        books = [item["id"]["S"] for item in world.table("Hosted/Payments")]
        return f"{key}#undo" in books if undone else key in books

    def audit_results(self, world: World, results: Sequence[Result]) -> Iterable[Invariant]:
        """Compare the provider's books with what each order came to."""
        books = {item["id"]["S"] for item in world.table("Hosted/Payments")}
        violations = []
        for result in results:
            if result.saga_id is not None:
                found = tuple(f"{result.saga_id}#{what}" in books for what in ("Charge", "Charge#undo", "Deliver"))
                wanted = ((True, False, True),) if result.completed else ((False, False, False), (True, True, False))
                violations += [f"{result.saga_id}: {found}"] if found not in wanted else []
        return [Invariant(name="orders are paid and delivered", checked=len(results), violations=tuple(violations))]


class Identity:
    """STS, which answers who signed a proof: the operator who asks."""

    def __init__(self) -> None:
        self.who = ""

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any]:
        """Answer ``GetCallerIdentity``, which needs no right."""
        del params, actor
        assert operation == "GetCallerIdentity"
        arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/{self.who}/session"
        return {"UserId": f"{self.who}:session", "Account": ACCOUNT, "Arn": arn}


class Operated(Wrapped):
    """A workload about whose sagas two operators ask a function whatever it does, each time they look.

    Args:
        workload: the clients', and knows what operators find out.
        cancels: whether they cancel each saga.
        unwritten: name of a step of which they state that it never happens, if a parked saga has no row of it.

    Attributes:
        answered: how often the function gave each kind of answer.
    """

    def __init__(self, workload: Workload, *, cancels: bool = False, unwritten: str | None = None) -> None:
        super().__init__(workload)
        self._cancels, self._unwritten = cancels, unwritten
        self.answered: Counter[str] = Counter()

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        self._world, self._sts = world, Identity()
        world.calls.services["sts"] = self._sts
        self._function = world.output("OperatorsFunctionArn")
        self._actor = world.actor("operators")
        self._again()

    def _again(self) -> None:
        self._world.kernel.after(_EVERY, self._begin)

    def _begin(self) -> None:
        self._world.kernel.spawn(self._actor, self._look)

    def _look(self) -> None:
        self._again()
        records = [item for table in self._world.parts.requests for item in self._world.records(table)]
        for item in records:
            if item["status"]["S"] == RecordStatus.IN_PROGRESS:
                self._about(item)
        parked = [[str(item["saga_id"]["S"]), None] for item in records if "parked_by" in item]
        if parked:
            self._list(parked)
        self._ask("ann", do="repair", repair="clear", queue=self._world.output("OperatorsQueueUrl"))

    def _about(self, item: Item) -> None:
        saga = item["saga_id"]["S"]
        every = ((log, row) for log in self._world.parts.logs for row in self._world.table(log))
        rows = [(log, row) for log, row in every if row["saga_id"]["S"] == saga]
        if self._cancels:
            self._ask("ann", do="cancel", saga=saga)
        if "parked_by" in item:
            for log, row in rows:
                applied = self.find_out(self._world, row) if row["status"]["S"] in UNDER_WAY else None
                if applied is not None:
                    compensation = row["status"]["S"] == StepStatus.COMPENSATING
                    if compensation and not applied:
                        self._world.stated.add((log, (saga, row["step"]["S"])))
                    self._decide(saga, row["step"]["S"], applied=applied, compensation=compensation)
            if self._unwritten and all(row["step"]["S"] != self._unwritten for _, row in rows):
                self._decide(saga, self._unwritten, applied=False, compensation=False)
        for repair in ("make due", "reconcile", "compensate late"):
            self._ask("ann", do="repair", repair=repair, saga=saga)
        for table in self._world.parts.tokens:
            for job in self._world.table(table):
                if str(job["id"]["S"]).startswith(f"{saga}#"):
                    self._ask("ann", do="repair", repair="compensate late", saga=saga, tokens=table, job=job["id"]["S"])

    def _decide(self, saga: str, step: str, **answer: bool) -> None:
        shown = self._ask("ann", do="show", saga=saga, step=step).get("shown")
        proposed = self._ask("ann", do="resolve", saga=saga, step=step, seen=shown, **answer).get("proposed")
        if proposed is not None:
            number = proposed["number"]
            seen = self._ask("ben", do="show", saga=saga, proposal=number).get("shown")
            digest = seen and seen["proposal"]["digest"]
            self._ask("ben", do="confirm", saga=saga, proposal=number, digest=digest)

    def _list(self, parked: list[list[Any]]) -> None:
        proposed = self._ask("ann", do="propose_list", sagas=parked).get("proposed")
        if proposed is not None:
            self._ask("ben", do="show_list", list=proposed["list"])
            self._ask("ben", do="confirm_list", list=proposed["list"])
            for saga, _ in parked:
                self._ask("ben", do="resume_listed", list=proposed["list"], saga=saga)

    def _ask(self, who: str, **request: Any) -> dict[str, Any]:
        text = json.dumps({**request, "reason": "the books were read"})
        sts: Any = boto3.client("sts")
        proof = prove(sts, Credentials("A" * 20, "secret"), self._function, text)
        self._sts.who = self._actor.role = who
        payload = json.dumps({"request": text, "proof": proof})
        try:
            answer = boto3.client("lambda").invoke(FunctionName=self._function, Payload=payload)
        except (BotoCoreError, ClientError):
            return {}  # an operator repeats what is still to be done
        document: dict[str, Any] = json.loads(answer["Payload"].read())
        self.answered[next(iter(document))] += 1
        self._world.trace.note(who, f"asks {text[:90]}: {json.dumps(document)[:200]}")
        return document
