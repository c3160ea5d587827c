"""``Proof``: what an auditor asks of a saga, run on the user's own stack, and reported."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from constructs_lib.testing.local_aws import LocalAws
from constructs_lib.testing.proof.checks import Check
from constructs_lib.testing.proof.layer import Cases, Layer
from constructs_lib.testing.proof.local import Local
from constructs_lib.testing.proof.report import delete_report, write_report
from constructs_lib.testing.proof.simulated import Simulated
from constructs_lib.testing.proof.stated import Stated
from constructs_lib.testing.simulator.deployment.deployment import Deployment
from constructs_lib.testing.simulator.simulation import deployed, require_stack, without_garbage_collection
from constructs_lib.testing.simulator.workload import Workload, require_workload

if TYPE_CHECKING:
    from aws_cdk import Stack, Stage

_LOGGED: Final = "each step is logged once, log and records agree"
_WHEREVER: Final = "Whichever AWS call of the undisturbed request fails, and at whichever state its execution ends"
_ONCE: Final = "the request is applied once and completely, or not at all"
_ANSWERED: Final = "and the client receives one response."
CRASHES: Final = (f"{_WHEREVER}, {_ONCE}, {_ANSWERED}", f"{_WHEREVER}, {_LOGGED}, {_ANSWERED}")
"""What is proven of a request whose result the workload states; and of another. So are the next ones."""
DUPLICATES: Final = (
    "A request that is sent again under its key is applied once, and receives the same response.",
    f"When a request is sent again under its key, {_LOGGED}, and it receives the same response.",
)
RETRIES: Final = (
    "After a function has died, the same request completes, with the response that it has without a crash.",
    f"After a function has died, {_LOGGED}, and the same request has the response that it has without a crash.",
)
CONCURRENT: Final = (
    "A request that many clients send at the same moment is applied once; all receive one response.",
    f"When many clients send a request at the same moment, {_LOGGED}; all receive one response.",
)
SOAK: Final = (
    "Under random faults, every invariant holds, and each request results in what its workload states.",
    "Under random faults, every invariant holds.",
)


class Proof:
    """Proof of the sagas of a stack. Use it in a ``with`` block: at its end, the report is written.

    A check runs the request that the workload's first intent is, once for each of its cases, each on an empty stack.
    After each case every invariant is audited: the promise, ledgers, and those of the workload. A check that does not
    hold fails the test, and the report contains it. What a request does is claimed only if ``Workload.audit_results``
    states it; otherwise the report contains that nothing was stated.

    Example:
        ```python
        def test_transfers_are_proven() -> None:
            with Proof(FundsTransferStack(App(), "FundsTransfer"), Transfers(), report="build/proof") as proof:
                proof.survives_crashes()
                proof.duplicates_are_one()
                proof.retry_completes()
                proof.concurrent_duplicates_are_one()
        ```

    Args:
        stack: a CDK stack, an app, or a synthesized assembly, for the simulator; or ``LocalAws`` in which it is
            deployed.
        workload: its clients' intents, and invariants in addition to the promise.
        seeds: what the request is drawn from: another seed may be another way through the saga.
        report: folder for ``proof.html`` and ``proof.json``; None: no report is written.

    Attributes:
        checks: those that were run, in order.

    Raises:
        ValueError: if a seed is not an integer or comes twice, or another argument has a wrong type.
    """

    def __init__(
        self,
        stack: Stack | Stage | Path | Deployment | LocalAws,
        workload: Workload,
        *,
        seeds: Sequence[int] = (0,),
        report: str | Path | None = None,
    ) -> None:
        require_workload(workload)
        if not isinstance(stack, LocalAws):
            require_stack(stack)
        self._seeds = _require_seeds(seeds)
        self.checks: list[Check] = []
        self._stack = stack
        self._title = type(workload).__name__
        self._workload = Stated(workload)
        if report is not None and not str(report).strip():
            raise ValueError(f"report must be a folder, got {report!r}; leave it out for no report")
        if report is not None and Path(report).exists() and not Path(report).is_dir():
            raise ValueError(f"report must be a folder, got the file {report}; name another one")
        self._report = None if report is None else Path(report)
        self._opened = ExitStack()
        self._layer: Layer | None = None

    def __enter__(self) -> Self:
        """Deploy the stack, and delete the report of a former run."""
        if self._report is not None:
            delete_report(self._report)
        self._layer = self._layer_of(self._stack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the report, also of a check that does not hold. It does not hold if an exception ends the block."""
        layer, self._layer = self._open, None
        self._opened.close()
        if self._report is not None:
            ended_by = None if error is None else f"{type(error).__name__}: {error}".splitlines()[0]
            write_report(
                self._report,
                self.checks,
                layer=layer.name,
                left_out=layer.left_out,
                seeds=self._seeds,
                title=self._title,
                ended_by=ended_by,
            )

    def survives_crashes(self, *, at_most: int | None = None, draw: int | None = None) -> Check:
        """Break each call of AWS in each way, and end executions before each state, in a case of its own each.

        A function's process dies before or after the call, its request or response is lost, once or for long; calls of
        state machines and of clients are lost; an execution is stopped, or times out. Then it is recovered. A fault
        that is over after one call must not change the response.

        In the simulator, an execution is stopped amid its states, too, and the calls of its recovery are broken: those
        of functions that a schedule invokes, such as a reconciler, and those of state machines and functions that only
        the recovery calls. On local AWS, the check invokes the stack's reconciler for what was interrupted, or recovers
        it itself if the stack has none.

        Args:
            at_most: so many of these cases for each seed; None: all of them. On local AWS, another case is drawn for a
                call that no run makes.
            draw: draws which; a fresh number in each run of your tests visits all of them in time. None: the seed does.

        Raises:
            NotProvenError: if a case breaks an invariant, or its fault did not happen though its call was made.
            ValueError: if the request of a seed has no settled response when nothing goes wrong; or an argument is no
                whole number.
        """
        if at_most is not None:
            _require_number("at_most", at_most, "leave it out for all")
        if draw is not None:
            _require_number("draw", draw, "leave it out to draw by the seed", least=0)
        return self._run(
            "survives crashes",
            CRASHES,
            lambda seed: self._open.crashes(seed, at_most, seed if draw is None else draw),
            drawn=at_most is not None,
            draw=draw,
        )

    def duplicates_are_one(self) -> Check:
        """Send the request again under its key, while its saga runs and after it has ended.

        Raises:
            NotProvenError: if two of the responses differ, or a case breaks an invariant.
            ValueError: if the request of a seed has no settled response when nothing goes wrong.
        """
        return self._run("duplicates are one", DUPLICATES, self._open.duplicates)

    def retry_completes(self) -> Check:
        """Let each function die around its first call, and send the request again under its key.

        Raises:
            NotProvenError: if the response is another one than without the crash, or a case breaks an invariant.
            ValueError: if the request of a seed has no settled response when nothing goes wrong.
        """
        return self._run("a retry completes", RETRIES, self._open.retries)

    def concurrent_duplicates_are_one(self, *, clients: int = 10) -> Check:
        """Send the request from many clients at the same moment, under one key.

        Args:
            clients: how many there are.

        Raises:
            NotProvenError: if two of the responses differ, or a case breaks an invariant.
            ValueError: if the request of a seed has no settled response when nothing goes wrong.
        """
        _require_number("clients", clients, "10 are enough", least=2)
        return self._run("concurrent duplicates are one", CONCURRENT, lambda seed: self._open.concurrent(seed, clients))

    def survives_random_faults(self, *, requests: int = 1_000) -> Check:
        """Run many requests under random faults. ``Workload.audit_results`` states what each must have resulted in.

        Args:
            requests: how many for each seed, at least.

        Raises:
            NotProvenError: if a run breaks an invariant, or no request of an operation settles.
        """
        _require_number("requests", requests, "1,000 take some seconds in the simulator")
        return self._run("survives random faults", SOAK, lambda seed: self._open.soak(seed, requests))

    @property
    def _open(self) -> Layer:
        if self._layer is None:
            raise RuntimeError("the proof is not open; use it in a with block")
        return self._layer

    def _layer_of(self, stack: Stack | Stage | Path | Deployment | LocalAws) -> Layer:
        if isinstance(stack, LocalAws):
            return Local(stack, self._workload)
        return Simulated(deployed(stack, self._opened), self._workload)

    def _run(
        self,
        name: str,
        claims: tuple[str, str],
        cases: Callable[[int], Cases],
        *,
        drawn: bool = False,
        draw: int | None = None,
    ) -> Check:
        """Run every case of a check, and require that it holds."""
        of_results, of_others = claims
        check = Check(name=name, claim=of_others, drawn=drawn, draw=draw)
        self._workload.stated = 0
        self.checks.append(check)
        began = time.monotonic()
        try:
            with without_garbage_collection():
                for seed in self._seeds:
                    found = cases(seed)
                    check.enumerated += found.enumerated
                    for case in found.cases:
                        check.cases.append(case)
            check.stated = self._workload.stated > 0
            check.claim = of_results if check.stated else of_others
            check.finished = True
        finally:
            check.seconds = time.monotonic() - began
        check.require()
        return check


def _require_seeds(seeds: Any) -> tuple[int, ...]:
    whole = isinstance(seeds, Sequence) and not isinstance(seeds, str)
    if not whole or not seeds or any(isinstance(seed, bool) or not isinstance(seed, int) for seed in seeds):
        raise ValueError(f"seeds must be one integer or several, as a tuple, got {seeds!r}; (0,) is one")
    if len({*seeds}) != len(seeds):
        raise ValueError(f"seeds must be different, got {seeds!r}; the same seed is the same request")
    return tuple(seeds)


def _require_number(name: str, value: Any, remedy: str, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}; {remedy}")
