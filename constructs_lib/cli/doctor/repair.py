"""Repairs of ``cdk-sagas doctor --repair``: those of the deployed functions, by their code, and one more.

Each repair reads again, decides again and writes conditionally: whatever was found, what is done is right for what is
there by then. Two doctors at once, or a doctor and a reconciler, do what one does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.doctor.findings import Finding, Kind, Saga, Severity, held_back
from constructs_lib.cli.doctor.records import Records
from constructs_lib.cli.doctor.system import READ_ENTRIES, System
from constructs_lib.cli.shared.aws import NO_RIGHTS
from constructs_lib.cli.shared.process import CommandError, environment
from constructs_lib.cli.shared.reads import UNREADABLE, all_of
from constructs_lib.cli.shared.saga import Asker, keep_decision
from saga_runtime.callbacks.rows import TokenRow
from saga_runtime.callbacks.store import read_token
from saga_runtime.callbacks.sweeper import look_after
from saga_runtime.callbacks.task_tokens import settle_row
from saga_runtime.errors import SagaError
from saga_runtime.protocol import Env, TokenStatus
from saga_runtime.recovery.hold import Held, hold_key
from saga_runtime.recovery.repairs import BY_ANOTHER, Repair, Repairs, clear, left_in
from saga_runtime.recovery.takeover import MachineGone
from saga_runtime.shared import aws as runtime
from saga_runtime.shared.decisions import Audit

_BY_ONE_THREAD: Final = (Repair.DELIVER, Repair.SWEEP)
"""A variable of the process names the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairer:
    """Repairs what was found; with the clients of ``saga_runtime.shared.aws``, which are a session's of the command.

    Attributes:
        records: how request records are read.
        system: what is repaired.
        audit: who repairs, and why: kept with each saga that a repair decides about.
        asker: asks the deployed function that acts for operators; None: the stacks have none.
        done: ids of findings about which something was done, or that were found to need nothing any more.
    """

    records: Records
    system: System
    audit: Audit
    asker: Asker | None = None
    done: list[str] = field(default_factory=list)

    def repair(self, findings: Sequence[Finding]) -> list[Finding]:
        """Repair those findings that can be repaired, and record what was done.

        What is wrong with one saga is repaired one after the other: a repair that saw another one's write would leave
        it unrepaired.
        """
        sagas: dict[str, list[int]] = {}
        for place, one in enumerate(findings):
            sagas.setdefault(one.saga_id or one.id, []).append(place)
        repaired = list(findings)

        def of_one_saga(places: list[int]) -> None:
            for place in places:
                if findings[place].repair not in _BY_ONE_THREAD:
                    repaired[place] = self._repaired(findings[place])

        try:
            for place, one in enumerate(findings):
                if one.repair in _BY_ONE_THREAD:
                    repaired[place] = self._repaired(one)
            all_of(of_one_saga, sagas.values())
        except KeyboardInterrupt:
            wanted = sum(one.repair is not None for one in findings)
            sys.stderr.write(
                f"interrupted: {len(self.done)} of {wanted} repairs were made; repeat this for the others\n"
            )
            raise
        return repaired

    def _repaired(self, finding: Finding) -> Finding:
        if finding.repair is None:
            return finding
        try:
            if (held := self._held(finding)) is not None:
                return held_back(finding, held, self.records.release(finding.saga_id))
            said = self._asked(finding, finding.repair)
            repaired = replace(finding, repaired=said if said is not None else self._repair(finding, finding.repair))
        except (MachineGone, CommandError) as gone:
            return replace(finding, severity=Severity.OPERATOR, then=f"NOT repaired: {gone}")
        except (ClientError, BotoCoreError, SagaError, *UNREADABLE) as error:
            code = runtime.error_code(error) or type(error).__name__
            then = f"NOT repaired, {code}: repeat this"
            if code in NO_RIGHTS and isinstance(error, ClientError):
                then = f"NOT repaired, {code}: ask for the right to {error.operation_name}, and repeat this"
            return replace(finding, severity=Severity.OPERATOR, then=then)
        self.done.append(finding.id)
        if finding.repair is Repair.CLEAR and left_in(repaired.repaired):
            return replace(repaired, severity=Severity.OPERATOR, then=READ_ENTRIES)
        return repaired

    def _asked(self, finding: Finding, repair: Repair) -> str | None:
        """Ask the deployed function to repair; None: the stacks have none for it, or the sweeper's table is about."""
        if self.asker is None or repair in _BY_ONE_THREAD:
            return None
        about = {"queue": finding.table} if repair is Repair.CLEAR else {"saga": finding.saga_id}
        job = {"tokens": finding.table, "job": finding.id} if repair is Repair.COMPENSATE_LATE else {}
        how = {"repair": repair, "rows_end": finding.kind is Kind.ROWS_END, "reason": self.audit.why}
        answer = self.asker.ask(do="repair", **how, **about, **job)
        return str(answer["repaired"]) if answer is not None else None

    def _held(self, finding: Finding) -> Held | None:
        """The hold of the one saga that a finding is about."""
        if finding.saga is None or not finding.saga.hold or not finding.saga_id:
            return None
        item = self.records.aws.read(finding.saga.hold, hold_key(finding.saga_id))
        return Held.from_item(item) if item is not None else None

    def _repair(self, finding: Finding, repair: Repair) -> str:
        match repair:
            case Repair.RECONCILE:
                return self._repairs(finding).reconcile(finding.saga_id, rows_end=finding.kind is Kind.ROWS_END)
            case Repair.MAKE_DUE:
                return self._repairs(finding).make_due(finding.saga_id)
            case Repair.DELIVER:
                return self._tell(finding)
            case Repair.SWEEP:
                return self._sweep(finding)
            case Repair.COMPENSATE_LATE:
                return self._repairs(finding).compensate_late(finding.saga_id, tokens=finding.table, job=finding.id)
            case Repair.CLEAR:
                return clear(finding.table, [saga.served for saga in self.system.sagas])

    def _repairs(self, finding: Finding) -> Repairs:
        saga = _saga(finding)
        caretaker = self.records.caretaker(saga, self.audit)
        return Repairs(reconciler=caretaker, saga=saga.served, now_ms=self.records.now_ms)

    def _sweep(self, finding: Finding) -> str:
        """Process a due row, as the sweeper of tokens does."""
        with environment({Env.TOKEN_TABLE: finding.table}):
            before = read_token(finding.id)
            if before is None or before.status is not TokenStatus.WAITING or before.reported_unanswered_at:
                return BY_ANOTHER
            if not before.due_at or before.due_at > self.records.now_ms:
                return ""  # it will be due: until then, its answer may come
            self._keep(finding, "swept", before)
            swept = look_after(finding.id, self.records.now_ms)
            return "its dead-letter queue was notified" if swept.unanswered else "not due any more"

    def _tell(self, finding: Finding) -> str:
        """Deliver an outcome, as the sweeper of tokens does."""
        with environment({Env.TOKEN_TABLE: finding.table}):
            row = read_token(finding.id)
            if row is None or row.status is not TokenStatus.DELIVERING:
                return BY_ANOTHER
            self._keep(finding, "outcome delivered", row)
            receipt = settle_row(row)
        told = {"DELIVERED": "delivered", "UNDELIVERED": "delivered: no task waited any more"}
        return told[receipt] if receipt is not None else BY_ANOTHER

    def _keep(self, finding: Finding, what: str, row: TokenRow) -> None:
        tables = [row.request_table] if row.request_table else [saga.served.requests for saga in self.system.sagas]
        keep_decision(self.audit, f"job {finding.id}: {what}", finding.id, tables, self.records.now_ms)


def _saga(finding: Finding) -> Saga:
    if finding.saga is None:
        raise ValueError(f"{finding.id} is at home nowhere")
    return finding.saga
