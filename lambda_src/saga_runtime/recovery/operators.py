"""Actions of a deployed function for operators who ask it: answers, proposals, confirmations, cancellations, repairs.

The same code as the commands run, under the function's rights, and in the name of the caller that ``callers`` verified.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from saga_runtime.errors import Conflict, Invalid
from saga_runtime.idempotency.identity import is_saga_id, parse_json, request_id_from
from saga_runtime.idempotency.record import AttributeMap, RequestRecord
from saga_runtime.protocol import Env, Metric, RecordAttribute, SecondPerson, Side
from saga_runtime.recovery.callers import require_operator
from saga_runtime.recovery.cancel import CannotCancel, cancel
from saga_runtime.recovery.hold import Hold, hold_of_env
from saga_runtime.recovery.listed import Lists
from saga_runtime.recovery.proposals import (
    Caller,
    Proposal,
    proposal_update,
    require_confirmable,
    require_principal,
    require_room,
)
from saga_runtime.recovery.repairs import Repair, Repairs, clear
from saga_runtime.recovery.resolution import (
    CannotResolve,
    Change,
    DeclaredStep,
    DeployedStep,
    Statement,
    contradiction,
    require_own,
)
from saga_runtime.recovery.resolver import Resolver, Resumed
from saga_runtime.recovery.saga_reconciler import Caretaker, Served, served_of
from saga_runtime.recovery.takeover import Finding, MachineGone, Recoverer, what_to_do
from saga_runtime.shared import aws, clock, telemetry, writes
from saga_runtime.shared.arns import machine_of
from saga_runtime.shared.backoff import PATIENT
from saga_runtime.shared.clock import moment
from saga_runtime.shared.decisions import Audit, Decision
from saga_runtime.steps.step import encode_output

_LOOKS: Final = 4
_READ_TOGETHER: Final = 100
"""Records that are in memory at the same time, of one table."""
_UNDECIDED: Final = (Finding.NAME_EXPIRED, Finding.OWNER_SUCCEEDED)
"""Findings about a saga that is not parked, and that only an operator's decision continues."""
_ALTHOUGH_HELD: Final = "although_held"
_OF_ALL: Final = frozenset({"do", "saga", "reason"})
_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "resolve": frozenset({"step", "applied", "compensation", "output", "resume", "log_days", "seen", _ALTHOUGH_HELD}),
    "confirm": frozenset({"proposal", "digest", _ALTHOUGH_HELD}),
    "show": frozenset({"step", "proposal"}),
    "cancel": frozenset({_ALTHOUGH_HELD}),
    "repair": frozenset({"repair", "queue", "rows_end", "tokens", "job"}),
    "propose_list": frozenset({"sagas"}),
    "show_list": frozenset({"list"}),
    "confirm_list": frozenset({"list"}),
    "resume_listed": frozenset({"list"}),
}
"""Members of requests, apart from those of all."""
_LOGGED: Final = {"asked": "do", "saga_id": "saga", "list": "list", "step": "step"}
"""Members of a request that its log line has, by their names there; reasons are kept with the decisions only."""
_MOST_LOGGED: Final = 200
"""Characters of each."""
REFUSALS: Final = (CannotResolve, CannotCancel, Conflict, MachineGone, ValueError)
Answer = dict[str, Any]


class UnknownSaga(Exception):
    """No table of the function's sagas has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSaga:
    """A saga whose record was read strongly."""

    record: RequestRecord
    item: AttributeMap
    served: Served
    steps: Mapping[str, DeployedStep]
    ways: str

    @property
    def proposals(self) -> list[Proposal]:
        """The record's list, the earliest first."""
        return Proposal.all_of(self.item)

    @property
    def decisions(self) -> list[Decision]:
        """The record's list, the earliest first."""
        return Decision.all_of(self.item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Does what operators ask for.

    Attributes:
        served: the sagas.
        steps: by what each of them goes its way, and its steps by name.
        second: who confirms an answer of ``resolve``; None: it is executed at once.
        proposal_ms: how long a proposal can be confirmed.
        limit: recoveries of one saga before it is parked.
        hold: keeps repairs from acting.
        operators: ARNs of the roles and users that may ask.
    """

    served: Sequence[Served]
    steps: Sequence[tuple[str, Mapping[str, DeployedStep]]]
    second: SecondPerson | None
    proposal_ms: int
    limit: int
    hold: Hold
    operators: Sequence[str]

    @classmethod
    def from_env(cls) -> Operators:
        """From the function's environment."""
        served = served_of(os.environ[Env.RECONCILED])
        return cls(
            served=served,
            steps=steps_of(os.environ[Env.OPERATED], served),
            second=SecondPerson(os.environ[Env.SECOND_PERSON]) if os.environ.get(Env.SECOND_PERSON) else None,
            proposal_ms=int(os.environ[Env.PROPOSAL_SECONDS]) * 1_000,
            limit=int(os.environ[Env.RECOVERIES_LIMIT]),
            hold=hold_of_env(),
            operators=os.environ[Env.OPERATORS].split(),
        )

    def answer(self, text: str, caller: Caller) -> Answer:
        """Do what a request asks for; or the reason why not: ``refused``, or ``unknown`` for a saga that it has not.

        Raises:
            ClientError, BotoCoreError: AWS refuses a call, or does not answer. The request may be repeated.
        """
        request: Mapping[str, Any] = {}
        try:
            require_operator(caller, self.operators)
            request = _request(text)
            answer = self._answer(request, caller)
        except UnknownSaga:
            answer = {"unknown": True}
        except REFUSALS as refusal:
            answer = {"refused": str(refusal)}
        about = {name: str(request[member])[:_MOST_LOGGED] for name, member in _LOGGED.items() if member in request}
        telemetry.event("operator_asked", who=caller.arn, **about, outcome=next(iter(answer), ""))
        return answer

    def _answer(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        match request.get("do"):
            case "resolve" | "confirm" as decides:
                try:
                    return (self._resolve if decides == "resolve" else self._confirm)(request, caller)
                except REFUSALS as refusal:
                    raise CannotResolve(f"{refusal}{self._contradicted(request)}") from None
            case "show":
                return {"shown": self._show(request)}
            case "cancel":
                return self._cancel(request, caller)
            case "repair":
                return {"repaired": self._repair(request, caller)}
            case "propose_list":
                return self._lists().propose(request.get("sagas"), caller, _audit(request, caller))
            case "show_list":
                return self._lists().show(_text(request, "list"))
            case "confirm_list":
                return self._lists().confirm(_text(request, "list"), caller, _audit(request, caller))
            case "resume_listed":
                return self._lists().resume(_text(request, "list"), _text(request, "saga"))
            case other:
                raise CannotResolve(
                    f"a request must ask for {', '.join(_MEMBERS)}, got {other!r}; use the command of the release "
                    "that deployed this function"
                )

    # -- resolve and confirm ----------------------------------------------------------------------------------------

    def _resolve(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        audit = _audit(request, caller)
        found, now_ms = self._found(request), clock.now_ms()
        step, statement = _statement(request)
        _require_as_seen(found, request)
        self._require_own(request, caller)
        resolver = self.resolver(found, audit)
        log_days = _log_days(request)
        if self.second is None:
            return _carried_out(resolver, found, step, statement, now_ms, log_days)
        require_principal(caller)
        change, row = None, None
        if statement is not None and step is not None:
            change, row = resolver.answer(found.record, step, found.steps, statement, now_ms, writes_it=False)
            if found.record.settled and not change.written:
                return _told(change, None)
            statement = replace(statement, attempt=row.attempt if row is not None else None, rowless=row is None)
        else:
            self._require_undecided(resolver, found.record, now_ms, log_days)
        proposal = Proposal(
            number=0,
            at_ms=now_ms,
            who=caller.arn,
            user_id=caller.user_id,
            why=audit.why,
            expires_at=now_ms + self.proposal_ms,
            step=step,
            statement=statement,
            row_status=row.status if row is not None else None,
            status=found.record.status,
            owner=found.record.owner,
            parked_at=found.record.parked_at if found.record.parked_by is not None else None,
            log_days=log_days,
        )
        return self._proposed(found, proposal, resolver)

    def _show(self, request: Mapping[str, Any]) -> Answer:
        """Read what a decision is made about: the command sends it back, and nothing else is decided about."""
        found = self._found(request)
        shown: Answer = {"owner": found.record.owner, "parked_at": found.record.parked_at}
        if request.get("step") is not None:
            audit = Audit(who="nobody", why="to read")
            row, _ = self.resolver(found, audit).row_of(found.record.saga_id, _text(request, "step"))
            shown["attempt"] = row.attempt if row is not None else None
        if "proposal" in request:
            self._second()
            one = _numbered(found, request["proposal"])
            told = {"what": one.what, "who": one.who, "why": one.why, "expires_at": one.expires_at}
            shown["proposal"] = {**told, "digest": one.digest}
        return shown

    def _proposed(self, found: FoundSaga, proposal: Proposal, resolver: Resolver) -> Answer:
        for _ in range(_LOOKS):
            record, proposals = found.record, found.proposals
            if not proposal.is_of(record):
                raise CannotResolve(f"saga {record.saga_id} changed meanwhile; inspect it, and repeat this")
            # A proposal may be of this very command, whose response was lost.
            for earlier in proposals:
                if earlier.repeats(proposal) and earlier.is_open(record, proposals, found.decisions, proposal.at_ms):
                    return _proposal_told(earlier)
            numbered = replace(proposal, number=len(found.decisions) + 1)
            opened = {
                one.number
                for one in proposals
                if one.is_open(record, [*proposals, numbered], found.decisions, proposal.at_ms)
            }
            kept = [one if one.number in opened else one.without_output for one in proposals]
            require_room((one for one in kept if one.number in opened), numbered)
            if resolver.recoverer.updated(proposal_update(numbered, kept, record, resolver.audit)):
                return _proposal_told(numbered)
            found = self._found({"saga": record.saga_id})
        raise CannotResolve(f"saga {proposal.owner} keeps changing; repeat this")

    def _require_undecided(self, resolver: Resolver, record: RequestRecord, now_ms: int, log_days: int | None) -> None:
        """Refuse to propose to resume a saga that continues without a decision, or whose rows may be gone."""
        resolver.require_unsettled(record)
        if record.parked_by is not None:
            resolver.rows_end(record, now_ms, log_days)
            return
        finding = what_to_do(record, resolver.recoverer.owner(record), now_ms, log_days=resolver.log_days)
        if finding not in _UNDECIDED:
            raise CannotResolve(
                f"saga {record.saga_id} is not parked, and decides for itself; its reconciler recovers it"
            )

    def _confirm(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        second = self._second()
        require_principal(caller)
        found, now_ms = self._found(request), clock.now_ms()
        record, decisions = found.record, found.decisions
        proposal = _numbered(found, request.get("proposal"))
        if request.get("digest") != proposal.digest:
            raise CannotResolve(
                f"proposal {proposal.number} must be as it was shown, got another digest; repeat cdk-sagas confirm"
            )
        self._require_own(request, caller)
        audit = replace(_audit(request, caller), proposal=proposal.number, proposed_by=proposal.who)
        resolver = self.resolver(found, audit, proposal)
        confirmed = {"confirmed": {"number": proposal.number, "what": proposal.what}}
        if not proposal.is_decided(decisions):
            require_confirmable(proposal, found.proposals, record, caller, second, now_ms)
            step, statement = proposal.step, proposal.statement
            return confirmed | _carried_out(resolver, found, step, statement, now_ms, proposal.log_days)
        # It was confirmed before, and that command may have died before it resumed the saga.
        if record.settled:
            return confirmed | _told(None, Resumed(finding=Finding.SETTLED, started=None))
        if proposal.is_of(record) and (proposal.parked or proposal.statement is None):
            return confirmed | _carried_out(resolver, found, None, None, now_ms)
        if record.parked_by is not None:
            raise CannotResolve(
                f"proposal {proposal.number} was executed, and saga {record.saga_id} was parked again; inspect it"
            )
        if not proposal.parked and proposal.statement is not None:
            return confirmed  # an answer about a saga that was not parked resumes nothing
        finding, started = resolver.recoverer.recover(record, now_ms)
        return confirmed | _told(None, Resumed(finding=finding, started=started))

    def _contradicted(self, request: Mapping[str, Any]) -> str:
        """The last decision about a step, behind the refusal of an answer that contradicts it; or nothing."""
        try:
            found = self._found(request)
            if "proposal" in request:
                proposal = _numbered(found, request["proposal"])
                step, statement = proposal.step, proposal.statement
            else:
                step, statement = _statement(request)
        except (*REFUSALS, UnknownSaga):
            return ""
        return contradiction(found.decisions, step, statement) if step is not None and statement is not None else ""

    def _second(self) -> SecondPerson:
        if self.second is None:
            raise CannotResolve("this stack requires no second operator; nothing is to be confirmed")
        return self.second

    def _lists(self) -> Lists:
        return Lists(operators=self, second=self._second())

    # -- cancel and repair ------------------------------------------------------------------------------------------

    def _cancel(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        audit = _audit(request, caller)
        found = self._found(request)
        self._require_own(request, caller)
        done = cancel(self._recoverer(found), found.served.log, found.record, audit, clock.now_ms())
        return {"cancelled": {**asdict(done), "jobs": list(done.jobs)}}

    def _repair(self, request: Mapping[str, Any], caller: Caller) -> str:
        repair, audit = Repair(_text(request, "repair")), _audit(request, caller)
        if repair is Repair.CLEAR:
            queue = _text(request, "queue")
            if queue not in {saga.operators for saga in self.served}:
                raise CannotResolve(f"a queue must be of these sagas' operators, got {queue!r}")
            self.require_free(None)
            return clear(queue, self.served)
        found = self._found(request)
        saga_id = found.record.saga_id
        self.require_free(saga_id)
        repairs = Repairs(
            reconciler=Caretaker(served=self.served, limit=self.limit, count=_uncounted, audit=audit),
            saga=found.served,
            now_ms=clock.now_ms(),
        )
        match repair:
            case Repair.RECONCILE:
                return repairs.reconcile(saga_id, rows_end=request.get("rows_end") is True)
            case Repair.MAKE_DUE:
                return repairs.make_due(saga_id)
            case Repair.COMPENSATE_LATE:
                return repairs.compensate_late(
                    saga_id, tokens=str(request.get("tokens", "")), job=str(request.get("job", ""))
                )
            case _:
                raise CannotResolve(f"a repair must be of a saga or of its operators' queue, got {repair}")

    def _require_own(self, request: Mapping[str, Any], caller: Caller) -> None:
        """Refuse a decision about a saga that another operator holds, unless its caller knows of the hold."""
        if request.get(_ALTHOUGH_HELD) is not True:
            saga_id = _text(request, "saga")
            require_own(self.hold.of(saga_id), saga_id, caller.arn)

    def require_free(self, saga_id: str | None) -> None:
        """Refuse to act while all sagas are held, or this one.

        Raises:
            CannotResolve: with the reason.
        """
        held = self.hold.read()
        if held is not None:
            raise CannotResolve(f"an operator holds all sagas since {moment(held.since_ms)}: {held.reason}")
        if saga_id is not None and self.hold.holds(saga_id):
            raise CannotResolve(f"an operator holds saga {saga_id}; nothing is done")

    # -- the saga ---------------------------------------------------------------------------------------------------

    def _found(self, request: Mapping[str, Any]) -> FoundSaga:
        found = self.find(_text(request, "saga"))
        if found is None:
            raise UnknownSaga
        return found

    def find(self, saga_id: str) -> FoundSaga | None:
        """Read a saga's record strongly; None: no table of the function's sagas has it.

        Raises:
            CannotResolve: for another text than a saga id.
        """
        key = _key_of(saga_id)
        for table in self.tables:
            item = aws.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
            found = self._saga_of(table, item) if item is not None else None
            if found is not None and found.record.saga_id == saga_id:
                return found
        return None

    def find_each(self, saga_ids: Sequence[str]) -> Iterator[tuple[str, FoundSaga | None]]:
        """Read the records of many sagas strongly, a hundred with one call for each table, in the order given.

        Raises: as ``find``; TransientError if DynamoDB stays busy.
        """
        keys = {saga_id: _key_of(saga_id) for saga_id in saga_ids}
        for first in range(0, len(keys), _READ_TOGETHER):
            some = list(keys)[first : first + _READ_TOGETHER]
            # Two sagas of one key have one record, which is that of one of them.
            asked = list({keys[saga_id][RecordAttribute.ID]["S"]: keys[saga_id] for saga_id in some}.values())
            there: dict[str, FoundSaga] = {}
            for table in self.tables:
                for item in writes.read_all({table: asked}, retry=PATIENT)[table]:
                    if (found := self._saga_of(table, item)) is not None:
                        there.setdefault(found.record.saga_id, found)
            yield from ((saga_id, there.get(saga_id)) for saga_id in some)

    @property
    def tables(self) -> Sequence[str]:
        """Tables of request records, each once."""
        return list(dict.fromkeys(saga.requests for saga in self.served))

    def _saga_of(self, table: str, item: AttributeMap) -> FoundSaga | None:
        if RecordAttribute.SAGA_ID not in item:
            return None
        record = RequestRecord.from_item(item)
        machine = machine_of(record.execution_arn).rpartition(":")[2]
        for saga, (ways, steps) in zip(self.served, self.steps, strict=True):
            if (saga.requests, saga.machine) == (table, machine):
                return FoundSaga(record=record, item=item, served=saga, steps=steps, ways=ways)
        return None

    def _recoverer(self, found: FoundSaga) -> Recoverer:
        return Recoverer(
            table=found.served.requests,
            dynamodb=aws.dynamodb(),
            step_functions=aws.step_functions(),
            log_days=found.served.days,
        )

    def resolver(self, found: FoundSaga, audit: Audit, proposal: Proposal | None = None) -> Resolver:
        """The component that applies a decision about a saga."""
        return Resolver(
            # As the command: that its rows may have expired is its own refusal.
            recoverer=replace(self._recoverer(found), log_days=None),
            log_table=found.served.log,
            audit=audit,
            log_days=found.served.days,
            ways=found.ways,
            proposal=proposal,
        )


def _key_of(saga_id: str) -> dict[str, dict[str, str]]:
    """Key of a saga's record.

    Raises:
        CannotResolve: for another text than a saga id.
    """
    if not is_saga_id(saga_id):
        raise CannotResolve(f"not a saga id: {saga_id!r}; give it as the API answered it")
    return {RecordAttribute.ID: {"S": request_id_from(saga_id)}}


def steps_of(text: str, served: Sequence[Served]) -> tuple[tuple[str, Mapping[str, DeployedStep]], ...]:
    """Read ``Env.OPERATED``: of each saga by what it goes its way, and its steps.

    Each step is ``[side or null, external, grace in seconds, in a map]``, followed by refusals by which it is skipped.
    """
    return tuple(
        (
            ways,
            {
                name: DeployedStep(
                    name=name,
                    in_map=bool(in_map),
                    declared=DeclaredStep(
                        side=Side(side),
                        external=bool(external),
                        grace_ms=grace * 1_000,
                        log_days=saga.days,
                        skipped_by=frozenset(refusals),
                    )
                    if side is not None
                    else None,
                )
                for name, (side, external, grace, in_map, *refusals) in steps.items()
            },
        )
        for saga, (ways, steps) in zip(served, json.loads(text), strict=True)
    )


def _uncounted(_metric: Metric, _saga_id: str) -> None:
    """Discard metrics: the reconciler counts what it does itself."""


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value.strip():
        raise CannotResolve(f"{name} must be text that is not blank, got {value!r}")
    return value


def _audit(request: Mapping[str, Any], caller: Caller) -> Audit:
    return Audit(who=caller.arn, why=_text(request, "reason").strip())


def _request(text: str) -> Mapping[str, Any]:
    """Read a request.

    Raises:
        CannotResolve: if it is not one, or has members that it must not have.
    """
    try:
        request = json.loads(text)
    except (RecursionError, ValueError):
        raise CannotResolve("a request must be JSON of few levels; use the command cdk-sagas") from None
    if not isinstance(request, Mapping):
        raise CannotResolve(f"a request must be an object, got {type(request).__name__}")
    known = _MEMBERS.get(request["do"]) if isinstance(request.get("do"), str) else None
    unknown = sorted(set(request) - known - _OF_ALL) if known is not None else []
    if unknown:
        raise CannotResolve(
            f"members of a request to {request['do']} must be known, got {', '.join(unknown)}; use the command of the "
            "release that deployed this function"
        )
    return request


def _statement(request: Mapping[str, Any]) -> tuple[str | None, Statement | None]:
    """The step and the answer about it; None to resume. Its attempt, or that there was no row, is what was seen."""
    if request.get("resume") is True:
        given = sorted({"step", "applied", "compensation", "output"} & set(request))
        if given:
            raise CannotResolve(f"a request to resume decides nothing; leave {', '.join(given)} out")
        return None, None
    step = _text(request, "step")
    for name in ("applied", "compensation"):
        if not isinstance(request.get(name), bool):
            raise CannotResolve(f"{name} must be true or false, got {request.get(name)!r}")
    output, attempt = request.get("output"), _seen(request).get("attempt", 0)
    if output is not None and not isinstance(output, str):
        raise CannotResolve(f"output must be text, got {output!r}")
    if output is not None and not request["applied"]:
        raise CannotResolve("a step that was not applied has no output; leave output out")
    if attempt is not None and not isinstance(attempt, str):
        raise CannotResolve(
            f"seen.attempt must be text, or null without a row, got {attempt!r}; use the command cdk-sagas"
        )
    try:
        kept = encode_output(parse_json(output)) if output is not None else None
    except (Invalid, RecursionError) as refusal:
        raise CannotResolve(f"output: {refusal}") from None
    return step, Statement(
        applied=request["applied"],
        undo=request["compensation"],
        output=kept,
        attempt=attempt,
        rowless=attempt is None,
    )


def _log_days(request: Mapping[str, Any]) -> int | None:
    """For how long rows of the saga's log were always kept, as of ``Resolver.resume``."""
    days = request.get("log_days")
    if days is not None and (not isinstance(days, int) or isinstance(days, bool)):
        raise CannotResolve(f"log_days must be a whole number, got {days!r}")
    if days is not None and request.get("resume") is not True:
        raise CannotResolve("log_days is part of a request to resume; leave it out")
    return days


def _seen(request: Mapping[str, Any]) -> Mapping[str, Any]:
    seen = request.get("seen")
    if not isinstance(seen, Mapping) or not {"owner", "parked_at"} <= set(seen):
        raise CannotResolve(f"seen must have owner and parked_at, got {seen!r}; use the command cdk-sagas")
    return seen


def _require_as_seen(found: FoundSaga, request: Mapping[str, Any]) -> None:
    """Refuse a request that is sent again, or late: the saga was resumed since, and must be decided about again."""
    seen = _seen(request)
    if (seen["owner"], seen["parked_at"]) != (found.record.owner, found.record.parked_at):
        raise CannotResolve(
            f"saga {found.record.saga_id} must be as it was seen, with owner {seen['owner']} and parked_at "
            f"{seen['parked_at']}, got {found.record.owner} and {found.record.parked_at}; inspect it, and decide again"
        )


def _numbered(found: FoundSaga, number: object) -> Proposal:
    numbers = {one.number: one for one in found.proposals}
    if not isinstance(number, int) or isinstance(number, bool) or number not in numbers:
        had = ", ".join(map(str, numbers)) or "none"
        raise CannotResolve(f"proposal must be one of saga {found.record.saga_id}, which has {had}, got {number!r}")
    return numbers[number]


def _carried_out(
    resolver: Resolver,
    found: FoundSaga,
    step: str | None,
    statement: Statement | None,
    now_ms: int,
    log_days: int | None = None,
) -> Answer:
    change = None
    if step is not None and statement is not None:
        change, _ = resolver.answer(found.record, step, found.steps, statement, now_ms)
        if found.record.settled:
            return _told(change, None)  # what was left to undo is undone; the saga itself has ended
    return _told(change, resolver.resume(found.record, now_ms, log_days))


def _told(change: Change | None, resumed: Resumed | None) -> Answer:
    told: Answer = {}
    if change is not None:
        told["change"] = {"to": change.to, "written": change.written}
    if resumed is not None:
        told["resumed"] = {"finding": resumed.finding, "started": resumed.started}
    return told


def _proposal_told(proposal: Proposal) -> Answer:
    return {"proposed": {"number": proposal.number, "what": proposal.what, "expires_at": proposal.expires_at}}
