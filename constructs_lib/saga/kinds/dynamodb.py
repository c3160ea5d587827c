"""A step whose effect the state machine itself commits together with its row."""

from __future__ import annotations

from typing import Final

from constructs_lib.saga.asl.flow import Flow
from constructs_lib.saga.asl.plan import SagaPlan, State
from constructs_lib.saga.asl.tasks import Exits, transaction_states
from constructs_lib.saga.cost.tally import Tally
from constructs_lib.saga.cost.work import write_items, write_transaction
from constructs_lib.saga.description.description import StepDescription
from constructs_lib.saga.description.kind import Mutation
from constructs_lib.saga.graph.looks import Tone
from constructs_lib.saga.kinds import PlainStep

_TABLE: Final = "M2 3h12v10H2zM2 6.5h12M2 9.8h12M6.5 6.5V13"


class DynamoDb(PlainStep, name="dynamodb"):
    """The effect is in DynamoDB, written straight from the state machine together with the saga log row."""

    icon = _TABLE
    words = "DynamoDB, no function"
    tone = Tone.LOCAL
    mutation = Mutation.BY_MACHINE

    def states(self, plan: SagaPlan, flow: Flow, index: int, exits: Exits) -> dict[str, State]:
        """A transaction; if it is refused, the row decides."""
        return transaction_states(plan, flow, index, exits)

    def count(self, tally: Tally, step: StepDescription, times: int) -> None:
        """One transaction."""
        write_transaction(tally, step, times)

    def count_effects(self, tally: Tally, step: StepDescription, times: int) -> None:
        """Its items."""
        write_items(tally, step, times)
