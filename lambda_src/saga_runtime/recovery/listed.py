"""Requests to the function that acts for operators about a list of sagas: propose, show, confirm, resume one of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.protocol import SecondPerson
from saga_runtime.recovery.audit import MOST_BEFORE_LISTS
from saga_runtime.recovery.lists import (
    FOR_AN_OPERATOR,
    LEFT,
    MOST_SAGAS,
    RESUMED,
    ListProposal,
    SeenSaga,
    list_key,
    outlook,
)
from saga_runtime.recovery.proposals import Caller, require_principal
from saga_runtime.recovery.resolution import CannotResolve
from saga_runtime.recovery.takeover import Finding
from saga_runtime.shared import aws, clock, writes
from saga_runtime.shared.clock import moment
from saga_runtime.shared.decisions import Audit

if TYPE_CHECKING:
    from saga_runtime.recovery.operators import FoundSaga, Operators

_READERS: Final = 8
"""Holds that are read at once; fewer than the connections that a client keeps."""
UNKNOWN: Final = "unknown"
HELD: Final = "held"
"""Outcome while all sagas are held: nothing is changed, and the work stops."""
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """Does what operators ask for about a list.

    Attributes:
        operators: does what they ask for about one saga.
        second: who confirms.
    """

    operators: Operators
    second: SecondPerson

    def propose(self, sagas: object, caller: Caller, audit: Audit) -> Answer:
        """Propose to resume those of some sagas that are parked as they were listed, and that no doubt is about."""
        require_principal(caller)
        now_ms, seen, left = clock.now_ms(), list[SeenSaga](), list[tuple[str, str]]()
        planned = dict(_planned(sagas))
        for saga_id, found in self.operators.find_each(list(planned)):
            parked = planned[saga_id]
            what = UNKNOWN if found is None else outlook(found.record, parked)
            if found is None or found.record.parked_at is None or what != RESUMED:
                left.append((saga_id, what))
            else:
                seen.append(SeenSaga(saga_id, found.record.owner, found.record.parked_at))
        if not seen:
            return {"left": left} if any(what != UNKNOWN for _, what in left) else {UNKNOWN: True}
        proposal = ListProposal(
            at_ms=now_ms,
            who=caller.arn,
            user_id=caller.user_id,
            why=audit.why,
            expires_at=now_ms + self.operators.proposal_ms,
            sagas=tuple(seen),
        )
        table = self.operators.tables[0]
        change = {"TableName": table, **proposal.propose_update(now_ms)}
        refused = writes.write({"Update": change})
        if refused is not None and refused.item is not None:
            proposal = ListProposal.from_item(refused.item)
        return {"listed": _told(proposal), "left": left}

    def show(self, list_id: str) -> Answer:
        """A proposal, and what would be done about each of its sagas now; or that this function has none."""
        read = self._read(list_id)
        if read is None:
            return {UNKNOWN: True}
        _, proposal = read
        read_now = self.operators.find_each([seen.saga_id for seen in proposal.sagas])
        outlooks = [_outlook(proposal, seen, found) for seen, (_, found) in zip(proposal.sagas, read_now, strict=True)]
        # One after the other they would outlast the function.
        with ThreadPoolExecutor(max_workers=_READERS) as readers:
            now = readers.map(self._held, (seen.saga_id for seen in proposal.sagas), outlooks)
            sagas = [(seen.saga_id, seen.owner, what) for seen, what in zip(proposal.sagas, now, strict=True)]
        return {"listed": {**_told(proposal), "who": proposal.who, "why": proposal.why, "list": sagas}}

    def confirm(self, list_id: str, caller: Caller, audit: Audit) -> Answer:
        """Confirm a proposal, once; of one that was confirmed before, any operator continues the work."""
        require_principal(caller)
        read, now_ms = self._read(list_id), clock.now_ms()
        if read is None:
            return {UNKNOWN: True}
        table, proposal = read
        if proposal.confirmed is None:
            proposal.require_confirmable(caller, self.second, now_ms)
            self.operators.require_free(None)
            change = {"TableName": table, **proposal.confirm_update(audit, now_ms)}
            if writes.write({"Update": change}) is not None:
                again = self._read(list_id)
                if again is None or again[1].confirmed is None:
                    raise CannotResolve(f"list {list_id} changed meanwhile; repeat this")
                proposal = again[1]
        return {"listed": _told(proposal)}

    def resume(self, list_id: str, saga_id: str) -> Answer:
        """Resume one saga of a confirmed proposal, if it is as it was seen; once, however often it is asked for."""
        read = self._read(list_id)
        if read is None:
            return {UNKNOWN: True}
        _, proposal = read
        seen = next((one for one in proposal.sagas if one.saga_id == saga_id), None)
        if proposal.confirmed is None or seen is None:
            wrong = "be confirmed" if seen is not None else f"have saga {saga_id}"
            raise CannotResolve(f"list {list_id} must {wrong} to resume it; see cdk-sagas resume --proposal {list_id}")
        found = self.operators.find(saga_id)
        if found is None:
            return _ended("failed", "its record is gone by now")
        record, now_ms = found.record, clock.now_ms()
        if record.settled:
            return _ended("settled", record.status)
        if (held := self.operators.hold.read()) is not None:
            return _ended(HELD, f"since {moment(held.since_ms)}: {held.reason}")
        if (held := self.operators.hold.of(saga_id)) is not None:
            return _ended(FOR_AN_OPERATOR, f"an operator holds it: {held.reason}")
        resolver = replace(self.operators.resolver(found, proposal.confirmed), most=MOST_BEFORE_LISTS)
        if seen.is_of(record, found.record.parked_at):
            started = resolver.unpark(
                record, now_ms, what=proposal.what, parked_at=seen.parked_at, before=[proposal.proposed]
            )
            return _ended("resumed", started) if started is not None else _ended("left alone", "changed meanwhile")
        if record.parked_by is None and proposal.is_resumed(found.decisions):
            # A request that died had resumed it: what it did not start is started.
            finding, started = replace(resolver.recoverer, log_days=found.served.days).recover(record, now_ms)
            if started is not None:
                return _ended("recovered", started)
            if finding in (Finding.NAME_EXPIRED, Finding.OWNER_SUCCEEDED, Finding.ROWS_EXPIRED):
                return _ended(FOR_AN_OPERATOR, finding)
            return _ended("left alone", finding)
        return _ended("left alone", "changed since it was proposed")

    def _held(self, saga_id: str, what: str) -> str:
        """Outlook of a saga, unless a hold prevents what would be done."""
        if what != RESUMED:
            return what
        if (held := self.operators.hold.read()) is not None:
            return f"an operator holds all sagas: {held.reason}"
        held = self.operators.hold.of(saga_id)
        return what if held is None else f"{FOR_AN_OPERATOR}: an operator holds it: {held.reason}"

    def _read(self, list_id: str) -> tuple[str, ListProposal] | None:
        for table in self.operators.tables:
            item = aws.dynamodb().get_item(TableName=table, Key=list_key(list_id), ConsistentRead=True).get("Item")
            if item is not None:
                return table, ListProposal.from_item(item)
        return None


def _outlook(proposal: ListProposal, seen: SeenSaga, found: FoundSaga | None) -> str:
    if found is None:
        return UNKNOWN
    if found.record.settled or seen.is_of(found.record, found.record.parked_at):
        return outlook(found.record, None)
    return "was resumed by this list" if proposal.is_resumed(found.decisions) else LEFT


def _planned(sagas: object) -> Iterator[tuple[str, str | None]]:
    """Saga ids, and the execution that had parked each; None if that is not known."""
    if not isinstance(sagas, Sequence) or isinstance(sagas, str):
        raise CannotResolve(f"sagas must be a list, got {type(sagas).__name__}; use the command cdk-sagas")
    if not 0 < len(sagas) <= MOST_SAGAS:
        raise CannotResolve(
            f"a list to propose must have 1 to {MOST_SAGAS:,} sagas, got {len(sagas):,}; propose it in parts"
        )
    for one in sagas:
        match one:
            case [str(saga_id), (str() | None) as parked]:
                yield saga_id, parked
            case _:
                raise CannotResolve(f"a saga must be its id and what parked it, got {one!r}; use the command cdk-sagas")


def _told(proposal: ListProposal) -> Answer:
    confirmed = proposal.confirmed
    return {
        "id": proposal.id,
        "sagas": len(proposal.sagas),
        "expires_at": proposal.expires_at,
        "confirmed_by": confirmed.who if confirmed is not None else None,
    }


def _ended(outcome: str, detail: str) -> Answer:
    return {"outcome": outcome, "detail": detail}
