"""Messages that begin sagas in Express on local AWS: each trade counts once, whatever is killed or sent twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from constructs_lib.testing import Fault
from constructs_lib.testing.fault_plan import Moment
from constructs_lib.testing.fault_schedules import First

from .begun.stack import NAME
from .market import Market, deployed_market
from .support import eventually
from .transfer_system import SPEED

READER = f"{NAME}/Reader/Function"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Market]:
    with deployed_market(tmp_path_factory.mktemp("begun"), speed=SPEED, inline=True) as market:
        yield market


@pytest.fixture
def market(running: Market) -> Market:
    """The same, emptied."""
    running.aws.faults.clear()
    running.aws.reset()
    return running


def _settled(market: Market, number: int) -> list[str]:
    found = eventually(lambda: ran if len(ran := market.ran()) >= number else None)
    return sorted(found.values())


def test_signals_of_all_sources_are_settled_by_express(market: Market) -> None:
    market.send("t-1")
    market.send("t-1")
    market.send("t-2", fifo=True)
    market.send("t-2", fifo=True)
    market.put("t-3")
    market.publish("t-4", "t-4")

    assert _settled(market, 4) == ["EXPRESS"] * 4
    assert market.effects() == {f"t-{number}": 1 for number in (1, 2, 3, 4)}
    assert market.executions() == 0


def test_reader_that_dies_before_express_leaves_the_saga_to_standard(market: Market) -> None:
    market.aws.faults.plan(
        Fault(function=READER, call="states:StartExecution", moment="before", action="kill", on=First(1))
    )

    market.send("t")

    assert _settled(market, 1) == ["STANDARD"]
    market.aws.faults.report().require_all_fired()
    assert (market.effects(), market.executions()) == ({"t": 1}, 1)


def test_express_that_is_refused_leaves_the_saga_to_standard(market: Market) -> None:
    market.aws.faults.plan(
        Fault(function=READER, call="states:StartExecution", action="throttle", on=First(1), attempts="all")
    )

    market.send("t", fifo=True)

    assert _settled(market, 1) == ["STANDARD"]
    market.aws.faults.report().require_all_fired()
    assert (market.effects(), market.executions()) == ({"t": 1}, 1)


@pytest.mark.parametrize("moment", list(Moment))
def test_step_that_dies_in_express_counts_once(market: Market, moment: Moment) -> None:
    market.aws.faults.plan(
        Fault(
            function=f"{NAME}/Step/Function",
            call="dynamodb:TransactWriteItems",
            moment=moment,
            action="kill",
            on=First(3 if moment is Moment.BEFORE else 1),
        )
    )

    market.send("t")
    market.send("t")

    assert len(_settled(market, 1)) == 1
    assert market.effects() == {"t": 1}
