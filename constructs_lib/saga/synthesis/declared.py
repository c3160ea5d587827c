"""A saga as declared, after every check of its arguments. No construct is made before these."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Final

from aws_cdk import Duration
from constructs import Construct

from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.steps.group import StepGroup
from constructs_lib.saga.steps.routes import Notify
from constructs_lib.saga.steps.run import Run
from constructs_lib.saga.steps.step import Step
from constructs_lib.saga.synthesis.compile import committed_steps, fingerprint_of, ways_of
from constructs_lib.saga.synthesis.describe import describe
from constructs_lib.saga.synthesis.expression_scan import texts_of
from constructs_lib.saga.validation.budget import Finding, findings_of, worst_case
from constructs_lib.saga.validation.checks import check_statuses, check_steps, leaves_of
from constructs_lib.saga.validation.definition_file import compare_with_file, document_of, require_file
from constructs_lib.saga.validation.expressions import RequestRead, checked_reads
from constructs_lib.saga.validation.inline import check_inline
from constructs_lib.saga.validation.retention import retention_findings
from constructs_lib.shared.arguments import require_between, require_seconds
from constructs_lib.tables.interfaces import IIdempotencyTable
from constructs_lib.tables.payload_bucket import PayloadBucket
from saga_runtime.protocol import LEAST_LOG_DAYS

_HOUR: Final = 3_600
_DAY: Final = 86_400
_UNRESOLVED: Final = "${Token["


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A declaration that can work.

    Attributes:
        steps: in order.
        leaves: the plain steps, in order.
        result: as declared.
        on_failed: as declared.
        run: as declared.
        refused_http_status: as declared.
        http_status_by_error: as declared.
        texts: every text that may hold an expression, or a token.
        reads: members of the request that expressions read.
        refusal_statuses: HTTP statuses with which a refused saga settles.
        description: the saga as plain data.
    """

    steps: tuple[Step | StepGroup, ...]
    leaves: tuple[Step, ...]
    result: str | None
    on_failed: Notify | None
    run: Run
    refused_http_status: int
    http_status_by_error: Mapping[str, int]
    texts: tuple[str, ...]
    reads: tuple[RequestRead, ...]
    refusal_statuses: frozenset[int]
    description: SagaDescription

    @property
    def has_tokens(self) -> bool:
        """True if texts of its definition may hold tokens of any kind, which the CDK has to escape."""
        return any(step.direct or step.transaction for step in self.leaves) or any(
            _UNRESOLVED in text for text in self.texts
        )

    def findings(self, definition_file: str | Path | None) -> list[Finding]:
        """Findings of time, sizes and retention, and of sagas in flight under the committed definition."""
        found = [*findings_of(self.description), *retention_findings(self.description)]
        if definition_file is not None:
            found += compare_with_file(
                Path(definition_file), committed_steps(self.steps), ways_of(self.steps), self.run
            )
        return found


def declared_saga(
    scope: Construct,
    *,
    requests: IIdempotencyTable,
    steps: Sequence[Step | StepGroup],
    timeout: Duration | None,
    result: str | None,
    refused_http_status: int,
    http_status_by_error: Mapping[str, int],
    on_failed: Notify | None,
    payloads: PayloadBucket | None,
    definition_file: str | Path | None,
    run: Run,
    log_days: int,
) -> Declared:
    """Check the arguments of a ``SagaStateMachine``.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """
    own = tuple(steps)
    check_steps(own)
    require_file(definition_file)
    check_inline(own, run, definition_file)
    reads = checked_reads(own, result=result, on_failed=on_failed)
    leaves = tuple(leaves_of(own))
    described = describe(
        scope.node.path,
        own,
        timeout=0,
        fingerprint=fingerprint_of(own),
        tells_of_failure=on_failed is not None,
        replayed=requests.replay_seconds,
        remembered=requests.remember_seconds,
        due_after=int(requests.due_after.to_seconds()),
        log_days=log_days,
        inline=run is Run.INLINE,
        definition=document_of(committed_steps(own), ways_of(own), run),
    )
    seconds = (
        require_seconds("timeout", timeout, at_least=60, at_most=366 * _DAY)
        if timeout is not None
        else max(2, ceil(worst_case(described).seconds / _HOUR)) * _HOUR
    )
    require_between("log_retention_days", log_days, at_least=LEAST_LOG_DAYS, at_most=3_650)
    if log_days * _DAY < seconds + requests.replay_seconds:
        raise ValueError(
            f"log_retention_days must outlast timeout and the requests' replay_for, got {log_days} days "
            f"for {seconds} s + {requests.replay_seconds} s; raise it"
        )
    if payloads is not None and payloads.keep_days < log_days:
        raise ValueError(
            f"keep_days of payloads must outlast log_retention_days, got {payloads.keep_days} for "
            f"{log_days}; raise keep_days or lower log_retention_days"
        )
    return Declared(
        steps=own,
        leaves=leaves,
        result=result,
        on_failed=on_failed,
        run=run,
        refused_http_status=refused_http_status,
        http_status_by_error=http_status_by_error,
        texts=(*texts_of(own), *texts_of(on_failed), result or ""),
        reads=reads,
        refusal_statuses=check_statuses(refused_http_status, http_status_by_error, own),
        description=dataclasses.replace(described, timeout=seconds),
    )
