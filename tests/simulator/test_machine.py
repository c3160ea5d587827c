"""A function's view of its machine: time, environment, randomness, modules and threads of its own."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from typing import Any

import pytest

from constructs_lib.testing.simulator.engine.kernel import SECOND
from constructs_lib.testing.simulator.run import START

from .support import add_function, blueprint, world_of

CLOCK = """
import datetime, time
from datetime import UTC, datetime as moment

def handler(event, context):
    began = time.time()
    time.sleep(7)
    return {
        "began": began,
        "slept": time.time() - began,
        "date": moment.now(UTC).isoformat(),
        "same": isinstance(datetime.datetime.now(), datetime.datetime),
        "left": context.get_remaining_time_in_millis(),
    }
"""
NAMED = """
import os
NAME = os.environ["NAME"]
counted = []

def handler(event, context):
    counted.append(1)
    return {"at import": NAME, "now": os.environ["NAME"], "function": context.function_name, "count": len(counted)}
"""
RANDOM = """
import os, random, secrets, uuid

def handler(event, context):
    return [random.random(), uuid.uuid4().hex, os.urandom(4).hex(), secrets.token_hex(4)]
"""
THREADS = """
import threading, time
from concurrent.futures import ThreadPoolExecutor

def handler(event, context):
    lock, order = threading.Lock(), []

    def work(number):
        with lock:
            time.sleep(1)
            order.append(number)
        return number

    began = time.time()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    return {"results": results, "order": order, "seconds": time.time() - began}
"""
LEFT_THREADS = """
import time
from concurrent.futures import ThreadPoolExecutor

done = []

def late():
    time.sleep(1)
    done.append(1)

def handler(event, context):
    ThreadPoolExecutor(1).submit(late)
    time.sleep(event["seconds"])
    return done
"""


def _invoke(world: Any, name: str, payload: str = "{}") -> Any:
    import json

    outcome = world.functions.invoke(name, payload)
    world.kernel.run(ended=lambda: outcome.done)
    return json.loads(outcome.value().payload)


def test_time_is_virtual() -> None:
    real = time.time()
    with world_of(blueprint(clock=CLOCK)) as world:
        told = _invoke(world, "clock")
    assert told["slept"] == pytest.approx(7)
    assert START / SECOND <= told["began"] < START / SECOND + 5
    assert told["date"].startswith("2026-01-01T00:00:0")
    assert told["same"]
    assert 0 < told["left"] <= 8_000
    assert time.time() - real < 5
    assert abs(dt.datetime.now(dt.UTC).timestamp() - time.time()) < 5


def test_each_function_has_its_own_environment_and_modules() -> None:
    made = blueprint()
    for name in ("one", "two"):
        add_function(made, name, NAMED, environment={"NAME": name})
    with world_of(made) as world:
        told = [_invoke(world, name) for name in ("one", "two", "one")]
    assert [(one["at import"], one["now"], one["function"], one["count"]) for one in told] == [
        ("one", "one", "one", 1),
        ("two", "two", "two", 1),
        ("one", "one", "one", 2),
    ]
    assert "NAME" not in os.environ
    assert "index" not in sys.modules


def test_a_run_finds_nothing_that_a_former_one_left() -> None:
    from constructs_lib.testing.simulator.checks.coverage import Coverage
    from constructs_lib.testing.simulator.deployment.deployment import Deployment
    from constructs_lib.testing.simulator.faults.climate import CALM
    from constructs_lib.testing.simulator.world import running

    made = blueprint()
    add_function(made, "one", NAMED, environment={"NAME": "one"})
    counts = []
    with Deployment(made) as deployment:
        for _ in range(2):
            with running(deployment, CALM, "1", start=START, coverage=Coverage()) as world:
                counts.append(_invoke(world, "one")["count"])
    assert counts == [1, 1]


def test_random_numbers_are_drawn_from_the_seed() -> None:
    drawn = []
    for seed in ("1", "1", "2"):
        with world_of(blueprint(dice=RANDOM), seed=seed) as world:
            drawn.append(_invoke(world, "dice"))
    assert drawn[0] == drawn[1]
    assert all(one != other for one, other in zip(drawn[0], drawn[2], strict=True))


def test_threads_are_tasks_that_give_way() -> None:
    with world_of(blueprint(threads=THREADS)) as world:
        told = _invoke(world, "threads")
    assert told["results"] == [0, 1, 2, 3]
    assert sorted(told["order"]) == [0, 1, 2, 3]
    assert told["seconds"] == pytest.approx(4)


def test_a_function_that_takes_too_long_is_ended() -> None:
    made = blueprint()
    add_function(made, "slow", "import time\ndef handler(event, context):\n    time.sleep(60)\n", timeout=5)
    with world_of(made) as world:
        told = _invoke(world, "slow")
        assert world.kernel.now < START + 10 * SECOND
    assert told["errorType"] == "Sandbox.Timedout"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def handler(event, context):\n    raise KeyError('x')\n", "KeyError"),
        ("import nothing_of_the_kind\n", "ModuleNotFoundError"),
        ("import sys\ndef handler(event, context):\n    sys.exit(3)\n", "Runtime.ExitError"),
        ("def handler(event, context):\n    raise KeyboardInterrupt\n", "Runtime.ExitError"),
        ("def handler(event, context):\n    raise ValueError('\\ud83d')\n", "Runtime.ExitError"),
        ("def handler(event, context):\n    return object()\n", "Runtime.MarshalError"),
    ],
)
def test_errors_have_lambdas_names(source: str, error: str) -> None:
    with world_of(blueprint(broken=source)) as world:
        assert _invoke(world, "broken")["errorType"] == error


@pytest.mark.parametrize(("share", "seen"), [(0.1, [1]), (0.9, [])])
def test_thread_of_an_ended_invocation_continues_or_dies(
    share: float, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with world_of(blueprint(left=LEFT_THREADS)) as world:
        monkeypatch.setattr(world.weather, "share", lambda: share)
        assert _invoke(world, "left", '{"seconds": 0}') == []
        assert _invoke(world, "left", '{"seconds": 2}')[: len(seen)] == seen
        first = [line for line in world.trace.lines() if "left#1" in line and "threads continue" in line]
        assert len(first) == len(seen)
