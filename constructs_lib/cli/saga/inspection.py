"""A saga's record, executions and rows. Gathered by strong reads; shown by ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from constructs_lib.cli.saga.holds import hold_of
from constructs_lib.cli.saga.retries import Retrying, read_retries
from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.manifest import DeployedSaga
from constructs_lib.cli.shared.process import json_in
from constructs_lib.cli.shared.reads import Aws, rows_of
from constructs_lib.cli.shared.saga import FoundSaga
from saga_runtime.idempotency.identity import provider_key_of
from saga_runtime.idempotency.record import RequestRecord
from saga_runtime.protocol import EXPRESS_MARK, WAYS_AT, LogAttribute, RecordAttribute, Side, StartField, StepStatus
from saga_runtime.recovery.hold import Held, decisions_key
from saga_runtime.recovery.proposals import Proposal
from saga_runtime.recovery.resolution import LONGEST_GRACE_MS, DeclaredStep
from saga_runtime.recovery.takeover import Finding, Owner, recovery_name, what_to_do
from saga_runtime.saga_log.rows import UNDER_WAY
from saga_runtime.shared.arns import execution_of, machine_of
from saga_runtime.shared.aws import error_code
from saga_runtime.shared.decisions import Decision

_NEWEST_RECOVERIES: Final = 20
"""As many executions are looked up; a saga that was recovered more often shows its last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionView:
    """One execution of a saga.

    Attributes:
        name: its name.
        machine: ``forward`` or ``recovery``.
        status: from Step Functions.
        link: its page in the console; empty outside the partition ``aws``.
        started_at: epoch milliseconds.
        stopped_at: epoch milliseconds; None while it runs.
        error: name of the error that it failed with.
        cause: what came with it.
    """

    name: str
    machine: str
    status: str
    link: str = ""
    started_at: int
    stopped_at: int | None
    error: str | None
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step, or one item of a step in a map. Without a row it has its name only.

    Attributes:
        step: the row's sort key.
        status: the row's state; None for a step that was not reached.
        side: its position in its saga.
        output: as it is stored, JSON text.
        attempt: who wrote the row last.
        deadline: epoch milliseconds at which the attempt is certainly dead; while its outcome is open.
        certain_at: epoch milliseconds from which "it did not happen" counts: the deadline and the provider's grace.
        first_attempt_at: epoch milliseconds.
        error: name of the refusal.
        detail: its message.
        skipped: whether the saga continued without the step because of that refusal; None: it goes its way by other
            conditions than the deployed definition's.
        accepted_at: of a job: when its provider took it on, epoch milliseconds.
        instead: of a skipped step that was applied late: the saga's substitute output.
        created_at: epoch milliseconds.
        updated_at: epoch milliseconds.
        provider_key: what the provider was given as idempotency key; for the undo while that is in doubt.
    """

    step: str
    status: str | None = None
    side: str | None = None
    output: str | None = None
    attempt: str | None = None
    deadline: int | None = None
    certain_at: int | None = None
    first_attempt_at: int | None = None
    error: str | None = None
    detail: str | None = None
    skipped: bool | None = False
    accepted_at: int | None = None
    instead: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    provider_key: str | None = None

    @property
    def open(self) -> bool:
        """True if a provider is being asked, or was."""
        return self.status in UNDER_WAY

    @property
    def passed_over(self) -> bool:
        """True if the saga continues without the step."""
        return self.went_on_with is not None

    @property
    def went_on_with(self) -> str | None:
        """Substitute output with which the saga continued."""
        return self.output if self.status == StepStatus.TOMBSTONE else self.instead


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """A decision that an operator proposed.

    Attributes:
        number: by which it is confirmed.
        at_ms, expires_at: epoch milliseconds.
        who: ARN of the proposer.
        what, why: the decision, and the proposer's reason.
        state: ``open``, ``confirmed``, ``expired``, ``replaced`` by a later one about the same step, or ``outdated``:
            the saga changed since.
    """

    number: int
    at_ms: int
    expires_at: int
    who: str
    what: str
    why: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A saga.

    Attributes:
        saga_id: the saga.
        request_id: key of its record.
        operation: what the request asked for.
        status: of the record.
        finding: what a recovery would find.
        direction: where the saga goes, once that was decided.
        owner: the execution that may settle it.
        recoveries: how many there were.
        definition: fingerprint of the steps.
        http_status: of the settled answer.
        created_at, updated_at, due_at: epoch milliseconds.
        parked_by: name of the execution that parked it.
        parked_at: epoch milliseconds.
        parked_reason: where it was parked: ``step``, ``error``, ``detail``.
        failure: why it compensates.
        log_table: the saga log.
        ran: type of the machine that settled a saga which may run inline.
        express: whether Express executions were started for it, which Step Functions does not list.
        now_ms: when it was read.
        executions: those that Step Functions remembers, in the order of their starts.
        steps: rows in order of their first writes, then steps without one in the definition's order.
        decisions: those of operators, to hold it too, the earliest first.
        proposals: of operators, the earliest first.
        held: since when, why and by whom it is held, or all sagas are; None: it is not, or that may not be read.
        retries: tasks of its owner that failed and are retried, the longest first; None: they may not be read.
    """

    saga_id: str
    request_id: str
    operation: str | None
    status: str
    finding: Finding
    direction: str | None
    owner: str
    recoveries: int
    definition: str | None
    http_status: int | None
    created_at: int
    updated_at: int
    due_at: int | None
    parked_by: str | None
    parked_at: int | None
    parked_reason: Mapping[str, Any]
    failure: Mapping[str, Any]
    log_table: str
    ran: str | None = None
    express: bool = False
    now_ms: int
    executions: tuple[ExecutionView, ...]
    steps: tuple[StepView, ...]
    decisions: tuple[Decision, ...] = ()
    proposals: tuple[ProposalView, ...] = ()
    held: Held | None = None
    retries: tuple[Retrying, ...] | None = ()


def inspect_saga(found: FoundSaga, saga: DeployedSaga) -> Inspection:
    """Look a saga up: its executions, and the rows of its log."""
    a, record = RecordAttribute, found.record
    executions = tuple(sorted(_executions(found), key=lambda one: one.started_at))
    owned = {one.machine: Owner(one.status, one.stopped_at) for one in executions if one.name == record.owner}
    owner = owned.get("forward", owned.get("recovery", Owner()))
    finding = what_to_do(record, owner, found.now_ms, log_days=saga.served.days)
    return Inspection(
        saga_id=record.saga_id,
        request_id=record.request_id,
        operation=_text(found.item, a.OPERATION),
        status=record.status,
        finding=finding,
        direction=record.direction,
        owner=record.owner,
        recoveries=record.recoveries,
        definition=_text(found.item, a.DEFINITION),
        http_status=record.http_status,
        created_at=record.created_at,
        updated_at=record.updated_at,
        due_at=record.due_at,
        parked_by=record.parked_by,
        parked_at=record.parked_at,
        parked_reason=_object(found.item, a.PARKED_REASON),
        failure=_object(found.item, a.FAILURE),
        log_table=saga.served.log,
        ran=_text(found.item, a.RAN),
        express=_object(found.item, a.INPUT).get(StartField.DEFINITION, "").endswith(EXPRESS_MARK),
        now_ms=found.now_ms,
        executions=executions,
        steps=tuple(_steps(found, saga)),
        decisions=tuple(sorted((*Decision.all_of(found.item), *_holds(found)), key=lambda one: one.at_ms)),
        proposals=tuple(_proposals(found)),
        held=hold_of(Aws(session=found.session), found),
        retries=_retries(found, executions) if finding is Finding.RUNNING else (),
    )


def console_link(execution_arn: str) -> str:
    """Address of an execution's page in the console; empty outside the partition ``aws``.

    >>> console_link("arn:aws:states:eu-central-1:111122223333:execution:Shop:a")[:80]
    'https://eu-central-1.console.aws.amazon.com/states/home?region=eu-central-1#/v2/'
    """
    _, partition, _, region, _ = execution_arn.split(":", 4)
    if partition != "aws":
        return ""
    home = f"https://{region}.console.aws.amazon.com/states/home?region={region}"
    return f"{home}#/v2/executions/details/{execution_arn}"


def _retries(found: FoundSaga, executions: Sequence[ExecutionView]) -> tuple[Retrying, ...] | None:
    """Tasks that the running executions retry; None if a history may not be read."""
    record = found.record
    machines = {"forward": machine_of(record.execution_arn), "recovery": record.recovery_machine_arn}
    retries: list[Retrying] = []
    for one in executions:
        if one.stopped_at is None:
            try:
                retries += read_retries(found.recoverer.step_functions, execution_of(machines[one.machine], one.name))
            except ClientError as error:
                if error_code(error) not in NO_RIGHTS:
                    raise
                return None
    return tuple(retries)


def _executions(found: FoundSaga) -> Iterator[ExecutionView]:
    record, client = found.record, found.recoverer.step_functions
    forward = machine_of(record.execution_arn)
    # A recovery that goes forward runs on in the forward machine, under its own name.
    asked = [("forward", forward, record.saga_id)]
    for number in range(max(1, record.recoveries - _NEWEST_RECOVERIES + 1), record.recoveries + 1):
        name = recovery_name(record.saga_id, number)
        asked += [("recovery", record.recovery_machine_arn, name), ("forward", forward, name)]
    for machine, arn, name in asked:
        try:
            said = client.describe_execution(executionArn=execution_of(arn, name))
        except client.exceptions.ExecutionDoesNotExist:
            continue
        stopped = said.get("stopDate")
        yield ExecutionView(
            name=name,
            machine=machine,
            status=said["status"],
            link=console_link(execution_of(arn, name)),
            started_at=int(said["startDate"].timestamp() * 1_000),
            stopped_at=int(stopped.timestamp() * 1_000) if stopped is not None else None,
            error=said.get("error"),
            cause=said.get("cause"),
        )


def _holds(found: FoundSaga) -> Iterator[Decision]:
    """Decisions to hold the saga, and to release it; those that may not be read are left out."""
    aws = Aws(session=found.session)
    for table in dict.fromkeys(one.hold for one in found.manifest.reconcilers):
        read = partial(aws.read, table, decisions_key(found.record.saga_id))
        kept: Mapping[str, Any] | None = aws.allowed(f"table {table}", read)
        yield from Decision.all_of(kept or {})


def _proposals(found: FoundSaga) -> Iterator[ProposalView]:
    decisions, proposals = Decision.all_of(found.item), Proposal.all_of(found.item)
    for one in proposals:
        state = "open"
        if one.is_decided(decisions):
            state = "confirmed"
        elif not one.is_of(found.record):
            state = "outdated"
        elif one.replaced_by(proposals) is not None:
            state = "replaced"
        elif found.now_ms >= one.expires_at:
            state = "expired"
        yield ProposalView(
            number=one.number,
            at_ms=one.at_ms,
            expires_at=one.expires_at,
            who=one.who,
            what=one.what,
            why=one.why,
            state=state,
        )


def _steps(found: FoundSaga, saga: DeployedSaga) -> Iterator[StepView]:
    rows = sorted(
        rows_of(found.recoverer.dynamodb, saga.served.log, found.record.saga_id),
        key=lambda item: int(item[LogAttribute.CREATED_AT]["N"]),
    )
    reached = set()
    for item in rows:
        view = _row_view(found.record, saga, item)
        reached.add(view.step.partition("[")[0])
        yield view
    for name, step in saga.steps.items():
        if name not in reached:
            side = step.declared.side if step.declared is not None else None
            yield StepView(step=f"{name}[...]" if step.in_map else name, side=side)


def _row_view(record: RequestRecord, saga: DeployedSaga, item: Mapping[str, Any]) -> StepView:
    a = LogAttribute
    name, status = item[a.STEP]["S"], item[a.STATUS]["S"]
    under_way = status in UNDER_WAY
    deadline = _number(item, a.DEADLINE) if under_way else None
    step = saga.steps.get(name.partition("[")[0])
    declared = step.declared if step is not None else None
    grace_ms = declared.grace_ms if declared is not None else LONGEST_GRACE_MS
    external = under_way or (declared is not None and declared.external)
    undo = "#undo" if status in (StepStatus.COMPENSATING, StepStatus.COMPENSATED) else ""
    side = _text(item, a.SIDE)
    return StepView(
        step=name,
        status=status,
        side=Side(side) if side is not None else None,
        output=_text(item, a.OUTPUT),
        attempt=_text(item, a.ATTEMPT_ID),
        deadline=deadline,
        certain_at=deadline + grace_ms if deadline is not None else None,
        first_attempt_at=_number(item, a.FIRST_ATTEMPT_AT),
        error=_text(item, a.ERROR),
        detail=_text(item, a.DETAIL),
        skipped=status in (StepStatus.REFUSED, StepStatus.APPLIED_LATE)
        and _is_skipped(record, saga, declared, _text(item, a.ERROR)),
        accepted_at=_number(item, a.ACCEPTED_AT),
        instead=_text(item, a.SUBSTITUTE),
        created_at=_number(item, a.CREATED_AT),
        updated_at=_number(item, a.UPDATED_AT),
        provider_key=provider_key_of(f"{record.saga_id}#{name}{undo}") if external else None,
    )


def _is_skipped(
    record: RequestRecord, saga: DeployedSaga, declared: DeclaredStep | None, error: str | None
) -> bool | None:
    if record.definition[WAYS_AT:] != saga.ways:
        return None
    return declared is not None and error in declared.skipped_by


def _text(item: Mapping[str, Any], name: str) -> str | None:
    return str(item[name]["S"]) if name in item else None


def _number(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def _object(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A document in the record; another value is shown as it is."""
    text = _text(item, name)
    if text is None:
        return {}
    found = json_in(text)
    return found if isinstance(found, Mapping) else {"detail": text}
