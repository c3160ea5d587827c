"""Report of a simulation, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Final

from constructs_lib.testing.simulator.checks.coverage import Coverage
from constructs_lib.testing.simulator.checks.requests import Requests, add_requests, unproven
from constructs_lib.testing.simulator.run import RunResult

_LINES: Final = 60
_FINDINGS: Final = 10
_FAULTS: Final = 25
_WIDTH: Final = 110


class PromiseBrokenError(AssertionError):
    """A simulation found something that must not be, or proved nothing."""


@dataclass(slots=True, kw_only=True)
class SimulationReport:
    """Result of many runs.

    Attributes:
        seed: of the first run; each further run has the next one.
        sagas: how many intents there were.
        runs: how many runs.
        faults: how many faults hit.
        parked: sagas that were parked at some time.
        moved: sagas that were moved to other state machines, because a release had replaced theirs.
        seconds: of this process's processor time.
        coverage: what was reached.
        violated: runs that found something.
        statuses: how many sagas ended how.
        checked: how many things each invariant was checked of.
        left_out: what of the stack is not simulated, one text each; a run that needs it is refused.
        requests: those of each operation.
    """

    seed: int
    sagas: int = 0
    runs: int = 0
    faults: int = 0
    parked: int = 0
    moved: int = 0
    seconds: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)
    violated: list[RunResult] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    requests: dict[str, Requests] = field(default_factory=dict)

    def leave_out(self, told: Iterable[str]) -> None:
        """Note what of the stack is not simulated."""
        self.left_out += [text for text in told if text not in self.left_out]

    def add(self, result: RunResult) -> None:
        """Add a run."""
        self.sagas += result.sagas
        self.runs += 1
        self.faults += result.faults
        self.parked += result.parked
        self.moved += result.moved
        _add(self.statuses, result.statuses)
        _add(self.checked, result.checked)
        add_requests(self.requests, result.requests)
        if result.findings:
            self.violated.append(result)

    def merge(self, other: SimulationReport) -> None:
        """Add the runs of another report, such as that of another process."""
        self.sagas += other.sagas
        self.runs += other.runs
        self.faults += other.faults
        self.parked += other.parked
        self.moved += other.moved
        self.seconds += other.seconds
        self.coverage.merge(other.coverage)
        self.violated += other.violated
        _add(self.statuses, other.statuses)
        _add(self.checked, other.checked)
        self.leave_out(other.left_out)
        add_requests(self.requests, other.requests)

    @property
    def kept(self) -> bool:
        """True if nothing was found, and requests were done or refused: of others nothing could be found."""
        return not self.violated and not self.unproven

    @property
    def unproven(self) -> list[str]:
        """Why the runs prove nothing, or nothing of an operation: none of its requests was done or refused."""
        return list(unproven(self.requests, self.checked))

    def require_kept(self) -> None:
        """Fail if something was found, or if no request of an operation was done, or refused by a step.

        Then nothing was tried of the operation: its function may not even start.

        Raises:
            PromiseBrokenError: naming seed, findings and faults of the first such run, with the end of its trace; or
                how requests ended instead, with what a function raised in one of them.
        """
        if not self.kept:
            raise PromiseBrokenError(str(self))

    def as_json(self) -> dict[str, Any]:
        """The report as data."""
        return {
            "sagas": self.sagas,
            "seed": self.seed,
            "runs": self.runs,
            "faults": self.faults,
            "parked": self.parked,
            "moved": self.moved,
            "violated": [
                {"seed": run.seed, "findings": [str(finding) for finding in run.findings]} for run in self.violated
            ],
            "seconds": round(self.seconds, 1),
            "statuses": self.statuses,
            "invariants": self.checked,
            "left_out": self.left_out,
            "requests": {name: one.as_json() for name, one in sorted(self.requests.items())},
            "unproven": self.unproven,
            "coverage": self.coverage.as_json(),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        rate = self.sagas / self.seconds if self.seconds else 0.0
        reached = self.coverage
        yield (
            f"{self.sagas} sagas in {self.runs} runs from seed {self.seed}, {self.faults} faults, "
            f"{self.seconds:.1f} s ({rate:.0f} sagas a second), {self.parked} parked on the way"
            f"{f', {self.moved} moved to other state machines' if self.moved else ''}"
        )
        yield (
            f"reached {len(reached.states)} of {len(reached.known_states)} states, "
            f"{len(reached.transitions)} transitions"
        )
        yield from _counted("pairs of call and fault", Counter(fault for _, fault in reached.faults))
        yield from _counted("things were checked", Counter(self.checked))
        if self.left_out:
            yield "not simulated:"
            yield from (f"  {text}" for text in self.left_out)
        yield from self.unproven
        if self.kept:
            yield "nothing was found"
        if not self.violated:
            return
        yield f"{len(self.violated)} runs broke the promise; the first one:"
        yield from told(self.violated[0])


def _add(counts: dict[str, int], further: Mapping[str, int]) -> None:
    for name, count in further.items():
        counts[name] = counts.get(name, 0) + count


def _counted(what: str, counts: Counter[str]) -> Iterator[str]:
    yield f"{counts.total()} {what}{':' if counts else ''}"
    told = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
    yield from wrap(told, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def told(run: RunResult) -> Iterator[str]:
    """A run that found something, as a person reads it."""
    yield f"  seed {run.seed}: simulate(…, seed={run.seed}, sagas={run.sagas}) repeats it"
    for finding in run.findings[:_FINDINGS]:
        yield f"  {finding}"
    if len(run.findings) > _FINDINGS:
        yield f"  and {len(run.findings) - _FINDINGS} more"
    yield f"  faults that hit: {', '.join(run.hit[:_FAULTS])}{' …' if len(run.hit) > _FAULTS else ''}"
    lines = run.about()
    yield f"  the last {min(len(lines), _LINES)} of {len(lines)} lines about it:"
    yield from (f"  {line}" for line in lines[-_LINES:])
