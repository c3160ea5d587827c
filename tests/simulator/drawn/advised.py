"""Operators of drawn sagas who copy a command that ``cdk-sagas inspect`` advises, and complete it by what is true.

Their commands are the real ones. An operator may be slow, die between two calls, repeat an old command, or be one of
several who decide about a saga at once. What only a person can do, such a person does at the provider by the key that
the step, or its compensation, has, and holds the saga before.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, Final
from unittest import mock

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from constructs_lib.cli.main import parser_of
from constructs_lib.cli.saga.advice import OUTPUT, Advice, advice
from constructs_lib.cli.saga.inspection import Inspection, inspect_saga
from constructs_lib.cli.shared.process import CommandError
from constructs_lib.cli.shared.saga import PLACEHOLDER, deployed, find_saga
from constructs_lib.testing.invariants import Item
from constructs_lib.testing.simulator import Future, ProviderAnswer, ProviderRequest, World
from constructs_lib.testing.simulator.deployment.blueprint import ACCOUNT, REGION
from constructs_lib.testing.simulator.engine.actors import Actor
from constructs_lib.testing.simulator.engine.kernel import SECOND, Process, current_process
from constructs_lib.testing.simulator.outside.operators import UNDONE_LATE, Operator
from saga_runtime.idempotency.identity import provider_key_of, step_key_of
from saga_runtime.protocol import LogAttribute, RecordAttribute, RecordStatus

from .provider import DrawnProvider
from .sagas import PROVIDERS
from .workload import Drawn

STACK: Final = "Drawn"
_COMMANDS: Final = ("inspect", "resolve", "recover", "cancel", "hold")
_OPERATORS: Final = 3
_EVERY: Final = 300 * SECOND
_SLOWEST: Final = 7_200 * SECOND
_LOOKS_END: Final = 61 * SECOND
_AGAIN: Final = 30 * SECOND
_TRIES: Final = 20
_TROUBLED: Final = 0.4
"""Share of the keys about which a provider is troubled until an operator has it repaired."""
_REPEATED: Final = 0.2
"""Share of the commands that an operator copies again from an earlier day."""
_DIES: Final = 0.15
_BY_HAND: Final = ("done by hand", "undone by hand")
_PARSER: Final = parser_of(_COMMANDS)[0]


class TroubledProvider(DrawnProvider):
    """A provider that, of some keys, refuses each call, answers none, or fails, until an operator has it repaired."""

    def __init__(
        self, world: World, random: Random, undone: Collection[str] = (), needed: Collection[str] = ()
    ) -> None:
        super().__init__(world, random, undone, needed)
        self._salt = random.getrandbits(64)
        self.repaired: set[str] = set()

    def trouble_of(self, key: str) -> str | None:
        """The trouble of a key."""
        drawn = Random(f"{self._salt}:{key}")
        if key in self.repaired or drawn.random() >= _TROUBLED:
            return None
        return drawn.choice(("declines", "declines", "is silent", "fails", "fails afterwards"))

    def handle(self, request: ProviderRequest) -> ProviderAnswer | Future[ProviderAnswer]:
        trouble, operation = self.trouble_of(request.query["key"]), request.path.rpartition("/")[2]
        if trouble is None or operation == "begin" or (operation == "found" and trouble != "is silent"):
            return super().handle(request)
        if trouble == "declines" and operation == "act":
            return ProviderAnswer(status=402)
        if trouble in ("is silent", "fails afterwards") and operation != "found":
            super().handle(request)
        return ProviderAnswer(status=500)

    def by_hand(self, key: str) -> bool:
        """Do the effect of a key, unless it is done; whether it is done now."""
        if self.state_of(key) == "in work":
            return False
        if self.state_of(key) == "nothing":
            self._act(key)
            self._jobs[key] = "done"  # begun again, it is not done again
        return True


class _Session:
    """A session whose clients reach the simulated services."""

    region_name = REGION

    def client(self, service: Any, **options: Any) -> Any:
        return boto3.client(service, region_name=REGION, **options)


class _CloudFormation:
    """CloudFormation, which knows what is deployed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any]:
        """Describe a stack."""
        del operation, actor
        outputs = self._world.outputs[params["StackName"]].items()
        return {"Stacks": [{"Outputs": [{"OutputKey": name, "OutputValue": value} for name, value in outputs]}]}


class _Identity:
    """STS, to which each actor is a user of its own."""

    def call(self, operation: str, params: Mapping[str, Any], actor: Actor | None) -> dict[str, Any]:
        """Answer ``GetCallerIdentity``."""
        del operation, params
        assert actor is not None
        return {"UserId": actor.of, "Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:user/{actor.of}"}


@contextmanager
def advised() -> Iterator[None]:
    """Let commands reach the simulated services, and no other operators resume sagas."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch("constructs_lib.cli.shared.saga.session_of", return_value=_Session()))
        stack.enter_context(mock.patch("constructs_lib.cli.hold.session_of", return_value=_Session()))
        # Executions have no history here.
        stack.enter_context(mock.patch("constructs_lib.cli.saga.inspection.read_retries", return_value=[]))
        stack.enter_context(mock.patch.object(Operator, "_resume"))
        yield


class Advised(Drawn):
    """Drawn sagas at a troubled provider, and operators who do what is advised.

    Attributes:
        done: how often each case was executed, or refused.
    """

    done: Counter[str]

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.done = Counter()

    def prepare(self, world: World, random: Random) -> None:
        super().prepare(world, random)
        self._world, self._dice = world, Random(random.getrandbits(64))
        self._history: list[tuple[str, str]] = []
        self._careful: set[Process | None] = set()
        world.calls.services |= {"cloudformation": _CloudFormation(world), "sts": _Identity()}
        for number in range(_OPERATORS):
            self._look_later(number)

    def provider_of(
        self, world: World, random: Random, undone: Collection[str], needed: Collection[str]
    ) -> DrawnProvider:
        self.provider = TroubledProvider(world, random, undone, needed)
        return self.provider

    def _look_later(self, number: int) -> None:
        self._world.kernel.after(int(_EVERY * (0.2 + self._dice.random())), partial(self._spawn, number))

    def _spawn(self, number: int) -> None:
        actor = self._world.actor(f"operator-{number}")
        # Another process may hold the same name: it is the same user at another terminal.
        self._world.kernel.spawn(actor, partial(self._look, actor))
        self._look_later(number)

    def _look(self, actor: Actor) -> None:
        open_now = list(self._to_care_for())
        if not open_now:
            return
        saga_id = self._dice.choice(open_now)
        if self._dice.random() < _DIES:
            self._world.kernel.after(int(self._dice.random() * SECOND), partial(self._die, actor))
        if self._history and self._dice.random() < _REPEATED:
            case, command = self._dice.choice(self._history)
            self._run(f"again: {case}", command)
            return
        inspection = self._inspect(saga_id)
        if inspection is None:
            return
        found = [(case, command) for one in self._advice(inspection) for case, command in one.commands]
        if found:
            case, command = self._dice.choice(found)
            self._carry_out(inspection, case, command)

    def _die(self, actor: Actor) -> None:
        if actor not in self._careful:
            actor.kill()
            self._world.calls.abandon(actor)

    def _to_care_for(self) -> Iterator[str]:
        late = {
            row[LogAttribute.SAGA_ID]["S"]
            for log in self._world.parts.logs
            for row in self._world.table(log)
            if row[LogAttribute.STATUS]["S"] in UNDONE_LATE
        }
        for table in self._world.parts.requests:
            for item in self._world.records(table):
                saga_id = item[RecordAttribute.SAGA_ID]["S"]
                if item[RecordAttribute.STATUS]["S"] == RecordStatus.IN_PROGRESS or saga_id in late:
                    yield saga_id

    def _options(self, command: str) -> Any:
        return _PARSER.parse_args(shlex.split(command)[1:])

    def _inspect(self, saga_id: str) -> Inspection | None:
        try:
            found = find_saga(self._options(f"cdk-sagas inspect {saga_id} --stack {STACK}"))
            return inspect_saga(found, deployed(found))
        except (CommandError, ClientError, BotoCoreError) as refusal:
            self.done[f"inspect: {type(refusal).__name__}"] += 1
            return None

    def _advice(self, inspection: Inspection) -> list[Advice]:
        return advice(inspection, ["--stack", STACK])

    def _carry_out(self, inspection: Inspection, case: str, command: str) -> None:
        """Find out whether a case is true, or make it true; then run the command, perhaps much later."""
        options = self._options(command.replace(PLACEHOLDER, "true"))
        row = self._row(inspection, getattr(options, "step", None))
        if row is not None:
            command = self._completed(command, row)
            if self._dice.random() < 0.3:
                self._repair(row)
            if case in _BY_HAND:
                self._careful.add(current_process())
                self._by_hand(inspection, case, command, row)
                return
            if not self._is_true(case, row):
                return
            if case == "no, undo it again":
                log = inspection.log_table
                self._world.stated.add((log, (inspection.saga_id, row[LogAttribute.STEP]["S"])))
        if case == "resume":
            for other in self._rows(inspection):
                if self._dice.random() < 0.1:
                    self._repair(other)
        self._world.kernel.sleep(int(self._dice.random() ** 6 * _SLOWEST))
        self._history.append((case, self._reasoned(command)))
        self._run(case, command)

    def _completed(self, command: str, row: Item) -> str:
        """The command with the output that the step would have returned."""
        name = row[LogAttribute.STEP]["S"]
        output = {"of": name, **({} if "[" in name else {"items": [{"sku": "a"}]})}
        return command.replace(OUTPUT, shlex.quote(json.dumps(output)))

    def _reasoned(self, command: str) -> str:
        return command.replace(PLACEHOLDER, "advised")

    def _run(self, case: str, command: str) -> bool:
        try:
            options = self._options(self._reasoned(command))
            options.run(options)
        except (CommandError, ClientError, BotoCoreError) as refusal:
            self._world.trace.note("operator", f"{case}: {command}: {refusal}")
            self.done[f"{case}: refused"] += 1
            return False
        self._world.trace.note("operator", f"{case}: {command}: done")
        self.done[case] += 1
        return True

    # -- the provider -------------------------------------------------------------------------------------------------

    def _rows(self, inspection: Inspection) -> Iterator[Item]:
        for row in self._world.table(inspection.log_table):
            if row[LogAttribute.SAGA_ID]["S"] == inspection.saga_id:
                yield row

    def _row(self, inspection: Inspection, name: str | None) -> Item | None:
        return next((row for row in self._rows(inspection) if row[LogAttribute.STEP]["S"] == name), None)

    def _key(self, row: Item, *, undo: bool) -> str:
        step, _, item = row[LogAttribute.STEP]["S"].removesuffix("]").partition("[")
        return step_key_of(row[LogAttribute.SAGA_ID]["S"], step, item_key=item or None, undo=undo)

    def _repair(self, row: Item) -> None:
        """Have the provider repair its trouble with the step, and with its compensation."""
        for undo in (False, True):
            self.provider.repaired.add(provider_key_of(self._key(row, undo=undo)))

    def _is_true(self, case: str, row: Item) -> bool:
        if case.startswith("yes"):
            return self.find_out(self._world, row) is True
        if case.startswith("no"):
            return self.find_out(self._world, row) is False
        if case == "fixed, call it again":
            self._repair(row)
        return True

    def _by_hand(self, inspection: Inspection, case: str, command: str, row: Item) -> None:
        """Hold the saga, inspect it, do it, and record that, even if all sagas are held by then; release the saga."""
        hold = f"--saga {inspection.saga_id} --reason by-hand --stack {STACK}"
        if not self._run("hold", f"cdk-sagas hold on {hold}"):
            return
        self._world.kernel.sleep(_LOOKS_END)
        again = self._inspect(inspection.saga_id)
        if again is not None and again.held is not None and again.held.reason == "by-hand":
            offered = [self._completed(text, row) for one in self._advice(again) for _, text in one.commands]
            if command in offered and self._did(inspection, row, case):
                command += " --although-held"
                self._history.append((case, self._reasoned(command)))
                for _ in range(_TRIES):
                    if self._run(case, command):
                        break
                    self._world.kernel.sleep(_AGAIN)
        while not self._run("release", f"cdk-sagas hold off {hold}"):
            self._world.kernel.sleep(_AGAIN)

    def _did(self, inspection: Inspection, row: Item, case: str) -> bool:
        """Do a case by hand; whether it is done."""
        key = self._key(row, undo=case == "undone by hand")
        if self._kind_of(inspection, row) not in (*PROVIDERS, "job"):
            table = self._world.output("EffectsTableName")
            item = {"id": {"S": key}, "times": {"N": "1"}}
            if all(found["id"]["S"] != key for found in self._world.table(table)):
                self._world.call("dynamodb", "PutItem", {"TableName": table, "Item": item})
            return True
        self._world.trace.note("operator", f"does {key} by hand at the provider")
        return self.provider.by_hand(provider_key_of(key))

    def _kind_of(self, inspection: Inspection, row: Item) -> str:
        """Kind of a row's step."""
        name = row[LogAttribute.STEP]["S"].partition("[")[0]
        (sagas,) = (sagas for log, sagas in self._logs() if self._world.output(f"Log{log}") == inspection.log_table)
        return next(step.kind for saga in sagas for step in saga.steps if step.name == name)
