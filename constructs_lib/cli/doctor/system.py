"""Resources of a deployed stack that the doctor checks: sagas, tables and queues. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from constructs_lib.cli.doctor.findings import Saga
from constructs_lib.cli.doctor.switch import Switch
from saga_runtime.protocol import Env

MOST_SHARDS: Final = 100
"""As many as a sparse index can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the stack.

    Attributes:
        environment: its variables.
        at_zero: whether its reserved concurrency is 0: it never runs.
        ends_in: ARN of where events end that it could not handle; empty: they are lost.
        switch: of a reconciler, what may hold it; None: it has none, or it may not be read.
    """

    name: str
    arn: str
    environment: Mapping[str, str]
    at_zero: bool
    ends_in: str = ""
    switch: Switch | None = None

    @property
    def held(self) -> bool:
        """True if it is kept from acting."""
        return self.switch is not None and self.switch.held is not None

    def schedules(self, rules: Sequence[Rule]) -> list[Rule]:
        """Those of some rules by which it looks."""
        return [rule for rule in rules if rule.scheduled and rule.looks and self.arn in rule.targets]

    def works(self, rules: Sequence[Rule], *, known: bool) -> bool:
        """Test whether it runs, if it runs by a schedule.

        Args:
            rules: those of the stack that could be read.
            known: whether these are all: one that cannot be read is assumed to work.
        """
        mine = self.schedules(rules)
        return not self.at_zero and (any(rule.enabled for rule in mine) if mine else not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the stack.

    Attributes:
        bus: its event bus; empty: the default one.
        scheduled: whether a schedule triggers it.
        looks: whether its target reconciles or sweeps, and does not only measure.
        targets: ARNs of what it calls.
        dead_letters: ARNs of where its events end that could not be delivered.
    """

    name: str
    bus: str
    enabled: bool
    scheduled: bool
    looks: bool
    targets: tuple[str, ...]
    dead_letters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Event source mapping of a queue and a function."""

    uuid: str
    enabled: bool
    queue: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue.

    Attributes:
        messages: about how many are in it, those that are being read included.
        ends_in: ARN of its dead-letter queue; empty: it has none.
    """

    url: str
    arn: str
    messages: int
    ends_in: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.arn.rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Resources to check.

    Attributes:
        name: of the stack, or of the table.
        sagas: those of it.
        token_tables: those of its callbacks.
        functions, rules, sources, queues: none, where no stack was named.
        functions_known, rules_known: whether all existing ones could be read.
        ledgers: tables of ledgers in functions' environments, or that were named.
        stacks: names of the stacks that were named.
    """

    name: str
    sagas: tuple[Saga, ...]
    token_tables: tuple[str, ...] = ()
    functions: tuple[Function, ...] = ()
    rules: tuple[Rule, ...] = ()
    sources: tuple[Source, ...] = ()
    queues: tuple[Queue, ...] = ()
    functions_known: bool = True
    rules_known: bool = True
    ledgers: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that are checked."""
        watches = [function.environment[Env.WATCH_TABLE] for function in self.watches]
        return (*(saga.served.requests for saga in self.sagas), *self.token_tables, *watches)

    @property
    def reconcilers(self) -> tuple[Function, ...]:
        """Functions that reconcile sagas."""
        return tuple(function for function in self.functions if Env.RECONCILED in function.environment)

    @property
    def watches(self) -> tuple[Function, ...]:
        """Functions that watch hand-written state machines."""
        return tuple(function for function in self.functions if Env.WATCH_TABLE in function.environment)

    @property
    def sweepers(self) -> tuple[Function, ...]:
        """Functions that sweep token tables."""
        return tuple(
            function
            for function in self.functions
            if Env.TOKEN_TABLE in function.environment and Env.INTEGRATION not in function.environment
        )

    @property
    def unscheduled(self) -> tuple[Function, ...]:
        """Functions that should look by a schedule, and have none; none, where not every rule is known."""
        looks = (*self.reconcilers, *self.watches, *self.sweepers) if self.rules_known else ()
        return tuple(function for function in looks if not function.schedules(self.rules))

    def sweeps(self, tokens: str) -> bool:
        """Test whether a token table's sweeper works; an unknown one is assumed to."""
        sweepers = [function for function in self.sweepers if function.environment[Env.TOKEN_TABLE] == tokens]
        return not sweepers or any(function.works(self.rules, known=self.rules_known) for function in sweepers)
