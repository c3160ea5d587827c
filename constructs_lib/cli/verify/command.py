"""``cdk-sagas verify-definition``: AWS validates state machines and evaluates states; nothing is deployed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from botocore.config import Config
from botocore.exceptions import ClientError

from constructs_lib.cli.shared.aws import add_aws_options, one_line_errors, session_of
from constructs_lib.cli.shared.process import CommandError, add_assembly, say
from constructs_lib.cli.shared.terminal import progress
from saga_runtime.shared.aws import error_code

if TYPE_CHECKING:
    from constructs_lib.cli.verify.cases import Case
    from constructs_lib.testing.simulator.deployment.blueprint import MachineSpec


AGREES: Final = "agrees"
DIFFERS: Final = "differs"
NOT_COMPARED: Final = "not compared"
REFUSED: Final = "refused"
_SHOWN: Final = 20
_REFUSALS: Final = frozenset({"InvalidArn", "InvalidDefinition", "InvalidExecutionInput", "ValidationException"})
"""Of a single call. Any other error, such as missing permissions, ends the command; a second run continues."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``verify-definition``, and add its options."""
    parser.description = (
        "Calls ValidateStateMachineDefinition for each state machine of an assembly, and TestState "
        "for each of its states, with mocks, and compares the answers with those of the simulator's engine. Nothing is "
        "deployed, started or changed. Needs states:ValidateStateMachineDefinition and states:TestState. A second run "
        "with the same results file continues, and compares AWS's former answers again. Exit status: 0 everything "
        "agrees; 1 something differs, was not compared or was refused, or the command failed."
    )
    add_assembly(parser)
    parser.add_argument("--machine", metavar="TEXT", help="only state machines whose name contains it")
    parser.add_argument("--role", metavar="ARN", help="a role for states without a mock (Pass, Choice, Wait …)")
    parser.add_argument("--per-second", metavar="N", type=float, default=5.0, help="calls a second, at most (5)")
    parser.add_argument(
        "--results", metavar="FILE", type=Path, default=Path("verified-definitions.jsonl"), help="one line per call"
    )
    parser.add_argument("--dry-run", action="store_true", help="count the calls, and make none")
    add_aws_options(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the results file.

    Attributes:
        id: digest of the call.
        machine: the state machine's name.
        state: the state's name; None: the whole definition was validated.
        situation: how the state's work ends.
        verdict: ``agrees``, ``differs``, ``not compared`` (in part or at all) or ``refused``.
        why: what differs or was not compared, or AWS's error.
        answer: AWS's answer; the next run compares it again, without a call.
    """

    id: str
    machine: str
    state: str | None
    situation: str
    verdict: str
    why: Sequence[str] = ()
    answer: Mapping[str, Any] | None = None


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    if not 0 < options.per_second <= 1_000:
        raise CommandError(f"--per-second must be above 0 and at most 1000, got {options.per_second}; 5 is gentle")
    try:
        from constructs_lib.cli.verify.cases import cases_of
        from constructs_lib.testing.assembly import AssemblyError
        from constructs_lib.testing.simulator.deployment.template import blueprint_of
        from constructs_lib.testing.simulator.errors import NotSimulatedError
    except ImportError as error:
        raise CommandError(f"extra `local` must be installed, got {error}; install cdk-sagas[local]") from None
    if options.results.is_dir():
        raise CommandError(f"--results must be a file, got the folder {options.results}; name a file in it")
    try:
        every = list(blueprint_of(options.assembly).machines.values())
    except NotSimulatedError as error:
        raise CommandError(f"ASSEMBLY must have only resources that the simulator knows, got one: {error}") from None
    except (AssemblyError, OSError) as error:
        raise CommandError(f"ASSEMBLY must be a cloud assembly, got {options.assembly}: {error}") from None
    machines = _chosen(every, options)
    cases = [case for machine in machines for case in cases_of(machine, options.role)]
    known = lines_of(options.results)
    calls = len(machines) + sum(case.id not in known for case in cases)
    seconds = calls / options.per_second
    say(f"{len(machines)} state machines, {len(cases)} cases; {calls} calls, at least {seconds:.0f} s\n")
    if options.dry_run:
        return 0
    client = _client(options)
    with one_line_errors("definitions were not verified"):
        lines = verify(client, machines, cases, options.results, pause=1 / options.per_second)
    return report(lines)


def _chosen(every: Sequence[MachineSpec], options: argparse.Namespace) -> list[MachineSpec]:
    """The state machines to verify; those that are skipped are printed.

    Raises:
        CommandError: if all are skipped, or the assembly or --machine has none.
    """
    if not every:
        raise CommandError(
            f"ASSEMBLY must have a state machine, got none in {options.assembly}; synthesize an app that has one"
        )
    named = [machine for machine in every if options.machine is None or options.machine in machine.name]
    if not named:
        names = ", ".join(sorted(machine.name for machine in every))
        raise CommandError(
            f"--machine must be part of a state machine's name, got {options.machine!r}; there are {names}"
        )
    chosen: list[MachineSpec] = []
    for machine in named:
        reason = _skipped(machine)
        if reason is None:
            chosen.append(machine)
        else:
            say(f"skipped: {machine.name}: {reason}\n")
    if not chosen:
        raise CommandError("at least one state machine must be in JSONata, got none; JSONPath cannot be evaluated here")
    return chosen


def _skipped(machine: MachineSpec) -> str | None:
    definition: Mapping[str, Any] | None = machine.definition  # None: in S3
    if definition is None:
        return "its definition is not in the template"
    language = definition.get("QueryLanguage", "JSONPath")
    return None if language == "JSONata" else f"its QueryLanguage is {language}; only JSONata is evaluated here"


def _client(options: argparse.Namespace) -> Any:
    return session_of(options).client(
        "stepfunctions", config=Config(retries={"mode": "standard", "total_max_attempts": 8})
    )


def lines_of(results: Path) -> dict[str, Line]:
    """Read AWS's answers to a former run, by the calls' digests; a refused call has none, a broken line is ignored."""
    found: dict[str, Line] = {}
    if results.is_file():
        for text in results.read_text("utf-8", errors="replace").splitlines():
            try:
                line = Line(**json.loads(text))
            except (TypeError, ValueError):
                continue
            if isinstance(line.answer, Mapping):
                found[line.id] = line
    return found


def verify(
    client: Any,
    machines: Iterable[MachineSpec],
    cases: Sequence[Case],
    results: Path,
    *,
    pause: float,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Line]:
    """Make every call that no former run made, and append each answer to the results as soon as it is there.

    AWS's answers to a former run are compared again: another version of this library may expect others.

    Args:
        client: of Step Functions.
        machines: their definitions are validated, each time.
        cases: calls of TestState.
        results: the file.
        pause: seconds between two calls.
        sleep: waits.

    Returns:
        A line for each call, those of former runs included.
    """
    machines = list(machines)
    known = lines_of(results)
    lines: list[Line] = []
    with _appended(results) as file, progress(len(machines) + len(cases)) as bar:

        def keep(line: Line, former: Line | None = None) -> None:
            if line != former:
                file.write(json.dumps(asdict(line)) + "\n")
                file.flush()
            lines.append(line)
            bar(advance=1, note=line.machine)

        for machine in machines:
            keep(_validated(client, machine))
            sleep(pause)
        for case in cases:
            former = known.get(case.id)
            if former is not None and former.answer is not None:
                keep(_judged(case, former.answer), former)
                continue
            keep(_tested(client, case))
            sleep(pause)
    return lines


def _appended(results: Path) -> TextIO:
    """Open the results for more lines; one that a crash cut off is ended.

    Raises:
        CommandError: if the file cannot be written.
    """
    try:
        results.parent.mkdir(parents=True, exist_ok=True)
        file = results.open("a", encoding="utf-8")
        if results.stat().st_size and not results.read_bytes().endswith(b"\n"):
            file.write("\n")
    except OSError as error:
        raise CommandError(f"--results must be a file that can be written, got {error}; name another one") from None
    return file


def _validated(client: Any, machine: MachineSpec) -> Line:
    def line(verdict: str, why: Sequence[str] = ()) -> Line:
        return Line(id="", machine=machine.name, state=None, situation="is validated", verdict=verdict, why=why)

    try:
        answer = client.validate_state_machine_definition(
            definition=json.dumps(machine.definition), type=machine.kind, severity="WARNING", maxResults=100
        )
    except ClientError as error:
        if error_code(error) not in _REFUSALS:
            raise
        return line(REFUSED, [str(error)])
    found = [f"{one['severity']} {one['code']}: {one['message']}" for one in answer["diagnostics"]]
    return line(AGREES if answer["result"] == "OK" and not found else DIFFERS, found)


def _tested(client: Any, case: Case) -> Line:
    try:
        answer: Mapping[str, Any] = client.test_state(**case.request)
    except ClientError as error:
        if error_code(error) not in _REFUSALS:
            raise
        return _line(case, REFUSED, [str(error)])
    return _judged(case, {name: value for name, value in answer.items() if name != "ResponseMetadata"})


def _judged(case: Case, answer: Mapping[str, Any]) -> Line:
    from constructs_lib.cli.verify.one_state import differences, gaps

    found, missing = list(differences(case.expected, answer)), list(gaps(case.expected, answer))
    verdict = DIFFERS if found else NOT_COMPARED if missing else AGREES
    return _line(case, verdict, [*found, *missing], answer)


def _line(case: Case, verdict: str, why: Sequence[str], answer: Mapping[str, Any] | None = None) -> Line:
    return Line(
        id=case.id,
        machine=case.machine,
        state=case.state,
        situation=case.situation,
        verdict=verdict,
        why=why,
        answer=answer,
    )


def report(lines: Sequence[Line]) -> int:
    """Write totals, and what does not agree; the exit status."""
    counted = Counter(line.verdict for line in lines)
    wrong = [line for line in lines if line.verdict != AGREES]
    for line in wrong[:_SHOWN]:
        say(f"{line.verdict}: {line.machine}: {line.state or 'definition'} {line.situation}: {'; '.join(line.why)}\n")
    if len(wrong) > _SHOWN:
        sys.stderr.write(f"and {len(wrong) - _SHOWN} more; the results file has all\n")
    say(", ".join(f"{counted[verdict]} {verdict}" for verdict in (AGREES, DIFFERS, NOT_COMPARED, REFUSED)) + "\n")
    return 1 if wrong else 0
