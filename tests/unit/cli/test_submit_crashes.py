"""``cdk-sagas submit`` in front of the gatekeeper: whatever dies, a file that is sent again repeats nothing."""

from __future__ import annotations

import io
import json
from typing import Any, Final

import pytest

from constructs_lib.cli.submit import ACCEPTED, Answer, Line, Patience, submit
from tests.unit.support.enumerated import require_all_run
from tests.unit.support.samples import BODY, post
from tests.unit.support.wire import Action, Fault, Killed, Moment
from tests.unit.support.world import World

LINES: Final = [Line(number=n, key=f"p-{n}", body=json.dumps({**BODY, "amount": n})) for n in (1, 2, 3)]
MATRIX: Final = [
    (call, on, action, moment, dies)
    for call in ("PutItem", "StartExecution")
    for on in (1, 2, 3)
    for action in (Action.KILL, Action.DROP)
    for moment in Moment
    for dies in (False, True)
    if action is Action.KILL or not dies
]
RAN: Final[set[str]] = set()


class Died(BaseException):
    """The process of the command died."""


def send(world: World, *, dies: bool) -> int:
    """Send the whole file; how many lines need attention, 3 if the command died with the gatekeeper."""

    def sent(line: Line) -> Answer | None:
        try:
            status, document, headers = world.call(post(line.body, key=line.key))
        except Killed:
            if dies:
                raise Died from None
            return None
        return Answer(
            status=status,
            headers={name.lower(): value for name, value in headers.items()},
            text=json.dumps(document),
        )

    moved = [0.0]

    def sleep(seconds: float) -> None:
        moved[0] += seconds
        world.clock.ms += int(seconds * 1_000)

    patience = Patience(unclear_seconds=60, settle_seconds=0, clock=lambda: moved[0], sleep=sleep)
    try:
        counts = submit(LINES, sent, patience, io.StringIO(), at_once=1)
    except Died:
        return len(LINES)
    return sum(number for outcome, number in counts.items() if outcome not in ACCEPTED)


@pytest.mark.parametrize(("call", "on", "action", "moment", "dies"), MATRIX)
def test_file_that_is_sent_again_begins_each_saga_once(
    world: World, call: str, on: int, action: Action, moment: Moment, dies: bool, request: pytest.FixtureRequest
) -> None:
    times = 1 if action is Action.KILL else 3
    world.wire.plan(Fault(operation=call, on=on, action=action, moment=moment, times=times))

    send(world, dies=dies)
    assert world.wire.fired, "the fault never struck"
    world.wire.forget()
    world.clock.ms += 3_600_000

    assert send(world, dies=False) == 0
    assert send(world, dies=False) == 0, "and once more"
    assert len(world.items("requests")) == len(world.executions.by_name) == len(LINES)
    RAN.add(request.node.name)


def test_part_that_is_sent_again_begins_nothing(world: World) -> None:
    send(world, dies=False)
    started = dict(world.executions.by_name)
    calls: list[Any] = world.calls_of(lambda: send(world, dies=False))

    assert dict(world.executions.by_name) == started
    assert "UpdateItem" not in calls


def test_as_many_were_run_as_were_enumerated(request: pytest.FixtureRequest) -> None:
    require_all_run(
        request,
        test_file_that_is_sent_again_begins_each_saga_once,
        RAN,
        enumerated=len(MATRIX),
        of="crash matrix of files that are submitted",
    )
