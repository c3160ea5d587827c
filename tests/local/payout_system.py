"""The agentic payout, deployed in local AWS with a stand-in for the model, or with the emulator's Bedrock."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from constructs_lib.testing import HttpResponse, LocalAws
from constructs_lib.testing.invariants import Invariant, Item, audit_effects, audit_ledger, audit_sagas, read_table
from examples.agentic_payout.functions.payout import model
from examples.agentic_payout.functions.payout.intent import Intent, intent_key, request_of
from saga_runtime import Money
from saga_runtime.protocol import LogAttribute

from .reconcilers import prepare_reconciler
from .transfer_system import CURRENCY
from .two_ledgers import MAIN, TwoLedgers, edit

STACK: Final = "AgenticPayout"
FORWARD: Final = f"{STACK}/Payout/StateMachine"
RECOVERY: Final = f"{STACK}/Payout/Recovery"
ANALYZE, CLAIM, RELEASE, RECOMMEND, ACT = (
    f"{STACK}/{name}/Function" for name in ("Analyze", "Claim", "Release", "Recommend", "Act")
)
NOTIFIER: Final = f"{STACK}/Payout/Notifier/Function"
AGENT: Final = "procurement"
CAPPED: Final = "capped"
CAP: Final = 1_000
MODEL: Final = "amazon.nova-lite-v1:0"
SPEED: Final = 10.0
FUNCTION_SECONDS: Final = 600
"""Emulated: a minute, for a function that starts on a busy machine."""
OPENING: Final = 1_000_000
AMOUNT: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Payout:
    """One payout, between two accounts that no other payout uses."""

    name: str
    amount: int = AMOUNT
    agent: str = AGENT
    mood: str = ""
    """First part of a payee's name for which the stand-in answers erratically."""

    @property
    def payer(self) -> str:
        """The account that pays."""
        return f"from-{self.name}"

    @property
    def payee(self) -> str:
        """The account that is paid."""
        return f"{self.mood or 'to'}-{self.name}"

    @property
    def intent(self) -> Intent:
        """The payout's intent."""
        amount = Money(self.amount, CURRENCY)
        return Intent(
            payer=self.payer, payee=self.payee, amount=amount, purpose=f"invoice:{self.name}", period="2026-11"
        )

    def key(self, attempt: int = 1) -> str:
        """The Idempotency-Key."""
        return intent_key(self.intent, attempt=attempt)

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        return request_of(self.intent, agent=self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call of the model that was paid for."""

    id: str
    payee: str
    answer: Any


@dataclass(frozen=True)
class PayoutSystem(TwoLedgers):
    """One deployed stack of the agentic payout."""

    stack: str = STACK

    @property
    def url(self) -> str:
        """URL for payouts."""
        return f"{self.aws.api_url(self.outputs['ApiId'], self.outputs['ApiStage'])}/payouts"

    @property
    def gatekeeper(self) -> str:
        return f"{self.stack}/Api/Gatekeeper/payouts/Function"

    @functools.cached_property
    def saga_of_scope(self) -> str:
        """A saga that is refused at once, and whose record contains the scope of the user's requests."""
        nobody = Payout(name="nobody")
        return self.begin(nobody.key(), nobody.body)

    def ready(self, payout: Payout, *, opening: int = OPENING) -> Payout:
        """Open the two accounts of a payout."""
        self.add_account(MAIN, payout.payer, opening)
        self.add_account(MAIN, payout.payee, 0)
        return payout

    def pay(self, payout: Payout, *, attempt: int = 1, user: str = "alice") -> HttpResponse:
        """Ask for a payout until it is settled."""
        return self.settle(payout.key(attempt), payout.body, user=user)

    def model_calls(self) -> list[ModelCall]:
        """Every call of the stand-in."""
        return [
            ModelCall(
                id=item["id"]["S"],
                payee=json.loads(item["question"]["S"])["request"]["payee"],
                answer=json.loads(item["answer"]["S"]),
            )
            for item in self._items("StandInBooksTableName")
        ]

    def controls(self) -> dict[str, Item]:
        """Claims and spending, by id."""
        return {item["id"]["S"]: item for item in self._items("ControlsTableName")}

    def claim_of(self, payout: Payout) -> str | None:
        """State of a payout's claim; None if it was never claimed."""
        found = self.controls().get(f"claim#{payout.intent.obligation}")
        return None if found is None else str(found["state"]["S"])

    def spent(self) -> Counter[str]:
        """Amount that each agent has spent, over all days."""
        spent: Counter[str] = Counter()
        for key, item in self.controls().items():
            if key.startswith("spent#"):
                spent[key.split("#")[1]] += int(item["spent"]["N"])
        return spent

    def recorded(self) -> dict[str, dict[str, Any]]:
        """The recorded recommendation of each saga that has one."""
        a = LogAttribute
        return {
            row[a.SAGA_ID]["S"]: json.loads(row[a.OUTPUT]["S"])
            for row in self.rows()
            if row[a.STEP]["S"] == "Recommend" and a.OUTPUT in row
        }

    def audit(self) -> list[Invariant]:
        """Everything that must hold of the tables once all requests are settled."""
        rows, (ledger,) = self.rows(), self.ledgers()
        return [
            *audit_ledger(ledger),
            *audit_sagas(self.records(), rows),
            *audit_effects(rows, ledger, steps=("Act",)),
        ]

    def _items(self, output: str) -> list[Item]:
        return read_table(self.aws.client("dynamodb"), self.outputs[output])


def _give_time(system: PayoutSystem, seconds: int) -> None:
    """Set the timeout of functions and of the tasks that wait for them: a busy machine must not cause a timeout."""
    functions = system.aws.client("lambda")
    for path in (system.gatekeeper, ANALYZE, CLAIM, RELEASE, RECOMMEND, ACT, NOTIFIER):
        functions.update_function_configuration(FunctionName=system.aws.resolve_function(path), Timeout=seconds)

    def patient(states: dict[str, Any]) -> None:
        for state in states.values():
            if state.get("Resource", "").endswith("lambda:invoke"):
                state["TimeoutSeconds"] = seconds + 10

    for machine in (FORWARD, RECOVERY):
        edit(system.aws, machine, patient)


@contextmanager
def asking_bedrock(system: PayoutSystem) -> Iterator[None]:
    """Let the step ask the emulator's Bedrock for a while."""
    functions, name = system.aws.client("lambda"), system.aws.resolve_function(RECOMMEND)
    deployed = functions.get_function_configuration(FunctionName=name)
    variables = deployed["Environment"]["Variables"]
    # AWS asks for bedrock:InvokeModel, which the stack grants; the emulator for an action that does not exist.
    statement = {
        "Effect": "Allow",
        "Action": "bedrock:Converse",
        "Resource": f"arn:aws:bedrock:{system.aws.region}::foundation-model/{MODEL}",
    }
    system.aws.client("iam").put_role_policy(
        RoleName=deployed["Role"].rpartition("/")[2],
        PolicyName="converse",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
    )
    asking = {key: value for key, value in variables.items() if key != model.STAND_IN_BOOKS}
    asking[model.BEDROCK_MODEL] = MODEL
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": asking})
    try:
        yield
    finally:
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})


@contextmanager
def deployed(*, concurrency: int = 2, reconciled: bool = False) -> Iterator[PayoutSystem]:
    """Local AWS with the example; its reconciler runs on schedule if requested."""
    with LocalAws(speed=SPEED, concurrency=concurrency) as aws:
        system = PayoutSystem(aws, aws.deploy(Path(_synthesized().name))[STACK], SPEED, STACK)
        system.user()  # once: many threads will ask for it
        _give_time(system, FUNCTION_SECONDS)
        prepare_reconciler(aws, system.outputs, seconds=FUNCTION_SECONDS, reconciled=reconciled)
        yield system


@functools.cache
def _synthesized() -> tempfile.TemporaryDirectory[str]:
    # Imported here: the CDK takes seconds, and only some tests need it.
    from aws_cdk import App

    from examples.agentic_payout.stack import AgenticPayoutStack

    folder = tempfile.TemporaryDirectory(prefix="cdk-sagas-test-")
    app = App(outdir=folder.name)
    caps = {CAPPED: CAP, AGENT: 10**12}
    AgenticPayoutStack(app, STACK, caps=caps)
    app.synth()
    return folder
