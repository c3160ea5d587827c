"""Model: a decision about a parked saga that one operator proposes and another one confirms.

An operator reads the saga and asks a function to propose an answer about a row; the request may come late, and twice. A
confirmation reads the record, writes the answer with the decision, and then resumes the saga. Each may die in between,
and is repeated. Meanwhile the provider may report, which changes the row; an outcome may resume the saga, which is
parked again; a proposal's time passes; and all are removed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.specification.checker import Move
from tests.specification.conditions import Because, Condition, Conditional
from tests.specification.states import replace

AUDIT: Final = "lambda_src/saga_runtime/recovery/audit.py"
PROPOSALS: Final = "lambda_src/saga_runtime/recovery/proposals.py"
OPERATORS: Final = "lambda_src/saga_runtime/recovery/operators.py"
RESOLUTION: Final = "lambda_src/saga_runtime/recovery/resolution.py"


class ProposalCondition(Condition):
    """Conditions of proposals and confirmations."""

    OTHER_PRINCIPAL = Because(
        "two people decide: who proposed does not confirm",
        PROPOSALS,
        "if principal_of(caller.user_id, second) == principal_of(user_id, second):",
    )
    UNEXPIRED = Because(
        "what was true when it was proposed is confirmed soon, or proposed again",
        PROPOSALS,
        "if now_ms >= proposal.expires_at:",
    )
    AS_SEEN = Because(
        "a request that comes late, or again, is about the saga as it was parked when its sender read it",
        OPERATORS,
        'if (seen["owner"], seen["parked_at"]) != (found.record.owner, found.record.parked_at):',
    )
    NUMBER_IS_FREE = Because(
        "a number names one proposal: two that are written at once would get the same one",
        PROPOSALS,
        'numbered = f"size(#{a.DECISIONS}) = :count"',
    )
    NUMBERS_GROW = Because(
        "proposals are removed with the response, decisions stay: a number is never used again",
        OPERATORS,
        "numbered = replace(proposal, number=len(found.decisions) + 1)",
    )
    RECORD_AS_PROPOSED = Because(
        "the answer is about the saga as it was parked when it was proposed: resumed and parked again, it is another",
        AUDIT,
        'AS_READ: Final = f"{SAME_SAGA} AND #status = :was_status AND #owner = :was_owner"',
    )
    ROW_AS_PROPOSED = Because(
        "the answer is about the attempt that the proposer saw, and is written once",
        RESOLUTION,
        'AS_READ: Final = "#status = :found AND #attempt_id = :held"',
    )
    CONFIRMED_BEFORE = Because(
        "a confirmation that died after its answer continues: the row is not as it was because of itself",
        OPERATORS,
        "if not proposal.is_decided(decisions):",
    )
    RESUMED_AS_PARKED = Because(
        "two confirmations start one recovery",
        RESOLUTION,
        'PARKED: Final = f"{OWNED} AND attribute_exists(#parked_by)"',
    )


class ProposalPromise(StrEnum):
    """Promises of the model."""

    PROPOSED_ABOUT_ANOTHER_PARKING = "PROPOSED_ABOUT_ANOTHER_PARKING"
    DECIDED_ALONE = "DECIDED_ALONE"
    DECIDED_TOO_LATE = "DECIDED_TOO_LATE"
    DECIDED_TWICE = "DECIDED_TWICE"
    DECIDED_ABOUT_ANOTHER_PARKING = "DECIDED_ABOUT_ANOTHER_PARKING"
    DECIDED_ABOUT_ANOTHER_ROW = "DECIDED_ABOUT_ANOTHER_ROW"
    RESUMED_ANOTHER_PARKING = "RESUMED_ANOTHER_PARKING"
    TOLD_THE_NUMBER_OF_ANOTHER = "TOLD_THE_NUMBER_OF_ANOTHER"
    REFUSED_ALTHOUGH_DECIDED = "REFUSED_ALTHOUGH_DECIDED"


C, P = ProposalCondition, ProposalPromise


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry of the record's list.

    Attributes:
        by: who proposed it.
        parking, row: versions of the record and the row that it is about.
        old: whether its time is over.
        decided: how often its answer was written; counted to two.
    """

    by: str
    parking: int
    row: int
    old: bool = False
    decided: int = 0


class At(StrEnum):
    """States of a command."""

    ASK = "about to ask the function"
    PROPOSE = "about to propose"
    ANSWER = "about to write the answer"
    RESUME = "about to resume"


@dataclass(frozen=True, slots=True)
class Command:
    """A command of an operator that has read the record.

    Attributes:
        by: who runs it.
        at: its next write.
        parking, row: versions that it read.
        number: position of the proposal that it confirms; of the decision that states the one that it adds.
    """

    by: str
    at: At
    parking: int
    row: int
    number: int


@dataclass(frozen=True, slots=True)
class World:
    """The record, the row, and what every command is about to do.

    Attributes:
        parking: how often another execution has become the owner.
        parked: whether the saga is parked.
        row: version of the row in doubt.
        proposals: the record's list.
        stated: how many proposals decisions state.
        commands: commands in progress, sorted.
    """

    parking: int = 0
    parked: bool = True
    row: int = 0
    proposals: tuple[Proposal, ...] = ()
    stated: int = 0
    commands: tuple[Command, ...] = ()


Moves = Iterator[Move[World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalModel(Conditional):
    """The model.

    Attributes:
        people: principals; each may propose and confirm.
        most_proposals: length of the record's list.
        at_once: commands in progress.
        reports: how often the provider reports.
        outcomes: how often an outcome resumes the saga.
    """

    people: tuple[str, ...] = ("alice", "bob")
    most_proposals: int = 1
    at_once: int = 2
    reports: int = 1
    outcomes: int = 1

    def initial(self) -> World:
        """A parked saga."""
        return World()

    def at_rest(self, world: World) -> bool:
        """No command runs, and what was decided has been resumed: of others, an operator may think for ever."""
        return not world.commands and not (_unresumed(world) and world.parked)

    def broken(self, world: World) -> Iterator[str]:
        """Promises that the list breaks."""
        if any(one.decided > 1 for one in world.proposals):
            yield P.DECIDED_TWICE

    def moves(self, world: World) -> Moves:
        """One move of an operator, of a command, of the provider, or of time."""
        yield from self._surroundings(world)
        if len(world.commands) < self.at_once:
            for person in self.people:
                yield from self._proposes(world, person)
                for number in range(len(world.proposals)):
                    yield from self._confirms(world, person, number)
        for command in dict.fromkeys(world.commands):
            ended = _without(world, command)
            yield Move(f"{command.by} dies, {command.at}", ended, fault=True)
            yield from self._writes(world, ended, command)

    def _surroundings(self, world: World) -> Moves:
        decided = sum(one.decided for one in world.proposals)
        if world.row < self.reports + decided:
            yield Move("the provider reports", replace(world, row=world.row + 1), fault=True)
        if world.parked and world.parking < self.outcomes:
            yield Move(
                "an outcome resumes the saga", replace(world, parking=world.parking + 1, parked=False), fault=True
            )
        if not world.parked and world.parking <= self.outcomes:
            yield Move("the saga is parked again", replace(world, parked=True), fault=True)
        if any(not one.old for one in world.proposals):
            old = tuple(replace(one, old=True) for one in world.proposals)
            yield Move("the proposals' time is over", replace(world, proposals=old), fault=True)

        if world.proposals and len(world.proposals) == world.stated and not world.commands and not _unresumed(world):
            yield Move("the proposals are removed with the response", replace(world, proposals=()), fault=True)

    def _proposes(self, world: World, person: str) -> Moves:
        if world.parked and len(world.proposals) < self.most_proposals:
            reads = Command(person, At.ASK, world.parking, world.row, world.stated)
            yield Move(f"{person} reads the saga, to propose", _with(world, reads), fault=True)

    def _confirms(self, world: World, person: str, number: int) -> Moves:
        """Read the record and the row, and decide what is left to do."""
        proposal, c = world.proposals[number], self.holds
        reads = Command(person, At.ANSWER, world.parking, world.row, number)
        alone = person == proposal.by
        if alone and c(C.OTHER_PRINCIPAL):
            return
        if proposal.decided and c(C.CONFIRMED_BEFORE):
            if world.parked and world.parking == proposal.parking:
                continues = replace(reads, at=At.RESUME)
                yield Move(f"{person} confirms {number}, which is decided", _with(world, continues))
            return
        if proposal.old and c(C.UNEXPIRED):
            return
        as_proposed = (world.parking, world.parked) == (proposal.parking, True)
        if not as_proposed and c(C.RECORD_AS_PROPOSED):
            return
        if world.row != proposal.row and c(C.ROW_AS_PROPOSED):
            if proposal.decided and world.parked and as_proposed:
                yield Move(
                    f"{person} confirms {number}, and is refused", world, fault=True, breaks=P.REFUSED_ALTHOUGH_DECIDED
                )
            return
        breaks = P.DECIDED_ALONE if alone else P.DECIDED_TOO_LATE if proposal.old else None
        yield Move(f"{person} confirms {number}", _with(world, reads), fault=True, breaks=breaks)

    def _writes(self, world: World, ended: World, command: Command) -> Moves:
        match command.at:
            case At.ASK:
                yield from self._asks(world, ended, command)
            case At.PROPOSE:
                yield self._adds(world, ended, command)
            case At.ANSWER:
                yield self._answers(world, ended, command)
            case At.RESUME:
                yield self._resumes(world, ended, command)

    def _asks(self, world: World, ended: World, command: Command) -> Moves:
        """The request arrives, and perhaps once more later; the function reads the record."""
        as_seen = world.parking == command.parking
        if not world.parked or len(world.proposals) >= self.most_proposals or (not as_seen and self.holds(C.AS_SEEN)):
            yield Move(f"{command.by} is refused: it is not as it was read", ended)
            return
        breaks = None if as_seen else P.PROPOSED_ABOUT_ANOTHER_PARKING
        reads = Command(command.by, At.PROPOSE, world.parking, world.row, world.stated)
        yield Move(f"{command.by}'s request arrives", _with(ended, reads), breaks=breaks)
        if len(world.commands) < self.at_once:
            yield Move(f"{command.by}'s request arrives, and is on its way again", _with(world, reads), fault=True)

    def _adds(self, world: World, ended: World, command: Command) -> Move[World]:
        if world.stated != command.number and self.holds(C.NUMBER_IS_FREE):
            return Move(f"{command.by} is refused, and reads again", ended)
        added = Proposal(command.by, command.parking, command.row)
        number = command.number if self.holds(C.NUMBERS_GROW) else len(world.proposals)
        breaks = None if number == world.stated else P.TOLD_THE_NUMBER_OF_ANOTHER
        return Move(
            f"{command.by} proposes {number}",
            replace(ended, proposals=(*world.proposals, added), stated=world.stated + 1),
            breaks=breaks,
        )

    def _answers(self, world: World, ended: World, command: Command) -> Move[World]:
        """The row and the decision, in one transaction."""
        proposal = world.proposals[command.number]
        as_parked = (world.parking, world.parked) == (proposal.parking, True)
        as_read = world.row == command.row
        if (not as_parked and self.holds(C.RECORD_AS_PROPOSED)) or (not as_read and self.holds(C.ROW_AS_PROPOSED)):
            return Move(f"{command.by} is refused: it has changed", ended)
        breaks = None
        if not as_parked:
            breaks = P.DECIDED_ABOUT_ANOTHER_PARKING
        elif world.row != proposal.row and not proposal.decided:
            breaks = P.DECIDED_ABOUT_ANOTHER_ROW
        decided = replace(proposal, decided=min(proposal.decided + 1, 2))
        proposals = (*world.proposals[: command.number], decided, *world.proposals[command.number + 1 :])
        after = replace(ended, row=world.row + 1, proposals=proposals)
        resumes = replace(command, at=At.RESUME, row=0)
        return Move(f"{command.by} writes the answer of {command.number}", _with(after, resumes), breaks=breaks)

    def _resumes(self, world: World, ended: World, command: Command) -> Move[World]:
        as_read = world.parked and world.parking == command.parking
        if not as_read and self.holds(C.RESUMED_AS_PARKED):
            return Move(f"{command.by} is refused: it is resumed", ended)
        breaks = None if as_read else P.RESUMED_ANOTHER_PARKING
        after = replace(ended, parking=min(world.parking + 1, 3), parked=False)
        return Move(f"{command.by} resumes the saga", after, breaks=breaks)


def _unresumed(world: World) -> bool:
    """Test whether a proposal is decided, and the saga not resumed since."""
    return any(one.decided and one.parking == world.parking for one in world.proposals)


def _with(world: World, command: Command) -> World:
    return replace(world, commands=tuple(sorted((*world.commands, command), key=repr)))


def _without(world: World, command: Command) -> World:
    left = list(world.commands)
    left.remove(command)
    return replace(world, commands=tuple(left))
