"""A run in which no request settled, or an actor did not act, proves nothing, and nothing passes for it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from aws_cdk import App, Stack

from constructs_lib import IdempotencyTable, SagaStateMachine, Step, StepFunction, TimeoutReconciler, TransactionApi
from constructs_lib.testing.proof import Case, Check, NotProvenError, Proof
from constructs_lib.testing.simulator import (
    Climate,
    Event,
    Intent,
    PromiseBrokenError,
    SimulationReport,
    Trouble,
    Workload,
    World,
    break_each_call,
    simulate,
    unused_grants,
)
from constructs_lib.testing.simulator.checks.requests import Requests
from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.faults.climate import CALM
from constructs_lib.testing.simulator.promise import result_of
from constructs_lib.testing.simulator.run import START
from saga_runtime.idempotency.identity import request_id_of, scope_of

from .conftest import Deployed
from .workloads.transfers import Transfers

pytestmark = pytest.mark.proof


class _Changed(Transfers):
    """Transfers whose bodies the schema refuses."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), body={"amount": "much"})


class _Misspelt(Transfers):
    """Requests of an operation that no API has."""

    def intent(self, number: int, random: Random) -> Intent:
        return replace(super().intent(number, random), operation="transfer")


class _Unable(Transfers):
    """Transfers, and an actor of the workload that fails."""

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        world.kernel.spawn(world.actor("reviewer"), lambda: os.environ["NO_DECISION"])


class _Silent(Transfers):
    """Transfers, and something that is to be sent and never is."""

    patience = timedelta(hours=1)

    def has_sent(self, world: World) -> bool:
        return False


class _Unrecorded(_Changed):
    unrecorded = ("transfers",)


INVALID: Final = (
    r"transfers must be 1 or more, got 0 of \d+ \(\d+ received 400: .+\); correct the intents or the API, "
    "or name an operation that is to record nothing in Workload.unrecorded"
)
CHECKS: Final[Mapping[str, Callable[[Any, Workload], Any]]] = {
    "simulate": lambda stack, workload: simulate(stack, workload, sagas=20).require_kept(),
    "break_each_call": lambda stack, workload: break_each_call(stack, workload, part=(0, 4)).require_kept(),
    "unused_grants": unused_grants,
}


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_passes_if_no_request_settles(check: str, deployed: Deployed) -> None:
    with pytest.raises(PromiseBrokenError, match=f"settled requests of {INVALID}") as broken:
        CHECKS[check](deployed("funds_transfer"), _Changed())
    assert "nothing was found" not in str(broken.value)


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_passes_if_the_operation_is_misspelt(check: str, deployed: Deployed) -> None:
    with pytest.raises(ValueError, match=r"operation of an Intent must be one of .*, got 'transfer'"):
        CHECKS[check](deployed("funds_transfer"), _Misspelt())


def test_proof_in_which_no_request_settles_does_not_hold(deployed: Deployed, tmp_path: Path) -> None:
    with (
        pytest.raises(NotProvenError, match=f"0 break it\n  settled requests of {INVALID}"),
        Proof(deployed("funds_transfer"), _Changed(), report=tmp_path) as proof,
    ):
        proof.survives_random_faults(requests=20)

    document = json.loads((tmp_path / "proof.json").read_text("utf-8"))
    (check,) = document["checks"]
    assert not document["holds"]
    assert not check["holds"]
    assert check["unproven"][0].startswith("settled requests of transfers must be 1 or more")
    assert check["requests"]["transfers"]["sent"] == 20
    page = (tmp_path / "proof.html").read_text("utf-8")
    assert "A claim does not hold." in page
    assert '<li class="bad">settled requests of transfers must be 1 or more' in page


def test_operation_of_which_no_request_settles_is_not_kept() -> None:
    known = ("orders", "refunds")
    orders = Requests(sent=5, settled=5, known=known)
    refused = Requests(sent=5, received=Counter({"404": 4, "no response": 1}), final=4, detail="Not Found", known=known)
    received = r"got 0 of 5 \(4 received 404, 1 received no response: Not Found\)"
    for name, remedy in (("refunds", "correct the intents"), ("refund", "use an operation of the stack: orders, ref")):
        report = SimulationReport(seed=0, requests={"orders": orders, name: refused})
        with pytest.raises(
            PromiseBrokenError, match=f"settled requests of {name} must be 1 or more, {received}; {remedy}"
        ):
            report.require_kept()
    assert SimulationReport(seed=0, requests={"orders": orders, "refunds": replace(refused, recorded=False)}).kept
    # The client of one request may give up.
    assert SimulationReport(seed=0, requests={"orders": orders, "refunds": Requests(sent=1, known=known)}).kept


def _stack(folder: Path, module: str, *, reconciled: bool = True, **options: Any) -> Stack:
    """A stack with one saga, whose function is this text."""
    (folder / "functions").mkdir()
    (folder / "functions" / "transfer.py").write_text(module, encoding="utf-8")
    stack = Stack(App(), "Broken")
    fn = StepFunction(stack, "TransferFunction", code=folder / "functions", handler="transfer.handler")
    steps = [Step.atomic("Transfer", fn=fn, **options)]
    saga = SagaStateMachine(stack, "Transfer", requests=IdempotencyTable(stack, "Requests"), steps=steps)
    if reconciled:
        TimeoutReconciler(stack, "Reconciler", sagas=[saga])
    TransactionApi(stack, "Api", operations={"transfers": saga})
    return stack


class _Anything(Workload):
    """Requests that any function may receive."""

    def intent(self, number: int, random: Random) -> Intent:
        return Intent(operation="transfers", body={"amount": 1})


_CALLER: Final = ("iam", "123456789012", "alice")
_RAISES: Final = """
from saga_runtime import PermanentError, atomic_step

class SoldOut(PermanentError):
    pass

@atomic_step
def handler(call):
    raise SoldOut("nothing is left")
"""
BROKEN: Final = {
    "no module": (
        "import absent_module\nfrom saga_runtime import atomic_step\nhandler = atomic_step(absent_module.move)\n",
        r"ModuleNotFoundError: No module named 'absent_module'",
    ),
    "no result": (
        "from saga_runtime import atomic_step\n@atomic_step\ndef handler(call):\n    pass\n",
        r"TypeError: an atomic step must return a Commit, got NoneType; return one, from a plain def",
    ),
    "an undeclared error": (_RAISES, r"SoldOut: nothing is left"),
}


@pytest.mark.parametrize(
    ("check", "broken"), [*((check, "no module") for check in CHECKS), *(("simulate", broken) for broken in BROKEN)][1:]
)
def test_no_check_passes_if_a_function_always_fails(check: str, broken: str, tmp_path: Path) -> None:
    module, raised = BROKEN[broken]
    told = (
        r"requests of transfers that are done or refused by a step must be 1 or more, got 0 of \d+ \(.*\d+ failed with "
        rf"StepFailed in Transfer.*: TransferFunction.* raised {raised}\); correct the step's function, or name"
    )
    with pytest.raises(PromiseBrokenError, match=told):
        CHECKS[check](_stack(tmp_path, module), _Anything())


@pytest.mark.parametrize("reconciled", [True, False])
def test_stopped_saga_is_recovered_by_a_reconciler_only(reconciled: bool, tmp_path: Path) -> None:
    module = "from saga_runtime import Commit, atomic_step\nhandler = atomic_step(lambda call: Commit(output={}))\n"
    report = break_each_call(_stack(tmp_path, module, reconciled=reconciled), _Anything())
    assert report.kept == reconciled
    assert reconciled or "no request is left in progress" in str(report)


def test_proof_of_a_function_that_always_fails_does_not_hold(tmp_path: Path) -> None:
    module, raised = BROKEN["no module"]
    with (
        pytest.raises(NotProvenError, match=rf"got 0 of \d+ \(\d+ failed with .+ raised {raised}\)"),
        Proof(_stack(tmp_path, module), _Anything(), report=tmp_path) as proof,
    ):
        proof.duplicates_are_one()

    (check,) = json.loads((tmp_path / "proof.json").read_text("utf-8"))["checks"]
    assert not check["holds"]
    assert check["requests"]["transfers"]["failed"] == {
        "StepFailed in Transfer": check["requests"]["transfers"]["sent"]
    }


def test_workload_whose_every_request_is_refused_is_kept(tmp_path: Path) -> None:
    simulate(_stack(tmp_path, _RAISES, refusals=["SoldOut"]), _Anything(), sagas=20).require_kept()


@pytest.mark.parametrize(
    ("status", "response", "unexplained"),
    [
        (200, {"status": "COMPLETED"}, None),
        (422, {"error": "InsufficientFunds", "step": "Transfer"}, None),
        (422, {"error": "SagaCancelled", "step": ""}, "SagaCancelled"),
        (422, {"error": "AWS.AccessDeniedException", "step": "Transfer"}, "AWS.AccessDeniedException in Transfer"),
        (500, {"error": "StepFailed", "step": "Transfer"}, "StepFailed in Transfer"),
        (500, {"error": "SagaInterrupted", "step": ""}, "SagaInterrupted"),
        (500, None, "status 500"),
        (None, None, "no settled response"),
    ],
)
def test_failure_is_unexplained_unless_a_step_refused(
    status: int | None, response: dict[str, str] | None, unexplained: str | None
) -> None:
    intent = Intent(operation="transfers", body={})
    stored = {"id": "r", "saga_id": "r-1", "status": "COMPLETED" if status == 200 else "FAILED", "execution_arn": "arn"}
    record = {name: {"S": value} for name, value in stored.items()}
    record |= {"http_status": {"N": str(status)}} if status else {}
    record |= {"response": {"S": json.dumps(response)}} if response else {}
    request = request_id_of(scope_of("transfers", _CALLER), "key")

    result = result_of(intent, "key", {request: record}, callers=[_CALLER], known=(), response=None)

    assert result.unexplained == unexplained


def test_response_without_a_record_is_unexplained_unless_a_step_refused() -> None:
    for status, error, unexplained in ((422, "SoldOut", None), (500, "StepFailed", "StepFailed")):
        response = (status, json.dumps({"error": error}))
        intent = Intent(operation="transfers", body={})
        result = result_of(intent, "key", {}, callers=[_CALLER], known=(), response=response)
        assert result.unexplained == unexplained


def test_unrecorded_operation_whose_sagas_fail_is_not_kept() -> None:
    failed = Requests(sent=2, failed=Counter({"StepFailed in Transfer": 2}), recorded=False)
    with pytest.raises(PromiseBrokenError, match="settled requests of transfers must be 0, got 2 of 2; leave it out"):
        SimulationReport(seed=0, requests={"transfers": failed}).require_kept()


def test_operation_whose_requests_are_to_be_refused_may_be_stated(deployed: Deployed) -> None:
    simulate(deployed("funds_transfer"), _Unrecorded(), sagas=20).require_kept()
    with Proof(deployed("funds_transfer"), _Unrecorded()) as proof:
        proof.survives_random_faults(requests=10)


def test_unrecorded_operation_that_settles_is_not_kept(deployed: Deployed) -> None:
    class Stale(Transfers):
        unrecorded = ("transfers",)

    with pytest.raises(PromiseBrokenError, match=r"transfers must be 0, got \d+ of 10; leave it out of Workload.unre"):
        simulate(deployed("funds_transfer"), Stale(), sagas=10).require_kept()


@pytest.mark.parametrize("unrecorded", ["transfers", 1, (1,)])
def test_unrecorded_must_be_names(unrecorded: Any, deployed: Deployed) -> None:
    class Mistaken(Transfers):
        pass

    Mistaken.unrecorded = unrecorded
    with pytest.raises(ValueError, match=r"unrecorded must be names of operations, got .+; \('transfers',\) is one"):
        simulate(deployed("funds_transfer"), Mistaken(), sagas=1)


def test_clients_that_receive_nothing_prove_nothing(deployed: Deployed) -> None:
    troubles, events = {Trouble.LOSE_REQUEST: 1.0}, {Event.CLIENT_GIVES_UP: 1.0}
    lost = Climate(troubles=troubles, events=events, ends=START + 7_200 * SECOND)
    with pytest.raises(
        PromiseBrokenError, match=r"got 0 of 10 \(10 received no response\); run more requests, or under"
    ):
        simulate(deployed("funds_transfer"), Transfers(), sagas=10, climate=lost).require_kept()


def test_invariant_that_checked_no_settled_saga_proves_nothing() -> None:
    saga = {"transfers": Requests(sent=2, settled=2, of_saga=True)}
    told = "things of which 'records and log agree' is checked must be 1 or more, got 0 of 2 settled sagas; keep the"
    check = Check(name="n", claim="c", enumerated=1, cases=[Case(seed=0, requests=saga)], finished=True)
    with pytest.raises(NotProvenError, match=told):
        check.require()
    assert SimulationReport(seed=0, requests=saga, checked={"records and log agree": 2}).kept
    direct = {"orders": Requests(sent=2, settled=2)}
    assert SimulationReport(seed=0, requests=direct).kept


def test_failure_that_planned_faults_explain_is_taken_for_settled() -> None:
    one = Requests(sent=4, settled=1, failed=Counter({"SagaInterrupted in Debit": 2, "StepFailed in Debit": 1}))
    one.expect("SagaInterrupted")
    assert (one.settled, one.failed) == (3, Counter({"StepFailed in Debit": 1}))


def test_exception_of_an_actor_ends_the_run(deployed: Deployed) -> None:
    with pytest.raises(KeyError, match="NO_DECISION"):
        simulate(deployed("funds_transfer"), _Unable(), sagas=1)


def test_workload_that_does_not_end_is_found(deployed: Deployed) -> None:
    with pytest.raises(PromiseBrokenError, match=r"not everything has ended: {'workload': 'has_sent is false'}"):
        simulate(deployed("funds_transfer"), _Silent(), sagas=1, climate=CALM).require_kept()


def test_report_without_a_request_is_not_kept() -> None:
    with pytest.raises(PromiseBrokenError, match="requests must be 1 or more, got 0; run at least one intent"):
        SimulationReport(seed=0).require_kept()
