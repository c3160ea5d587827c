"""WatchedMachine: a hand-written state machine, and the function that is notified of its failed executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration, NestedStack, Stack, Stage
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from constructs_lib.execution_watch.checks import require_ends, require_watchable
from constructs_lib.functions.runtime_function import RuntimeFunction
from constructs_lib.shared.accepted import AnyFunction
from constructs_lib.shared.arguments import known_to_differ, require_between, require_seconds
from constructs_lib.shared.types import check_fields
from saga_runtime.protocol import FailedStatus

_DAY: Final = 86_400
_LONGEST_LIFE_SECONDS: Final = 900
"""Of a function."""
GRACE_SECONDS: Final = _LONGEST_LIFE_SECONDS
"""A function that the dead execution called may run on for as long."""
_LONGEST_SECONDS: Final = 840
"""Longest timeout of an ``on_timeout`` function: its caller must outlive it, and lives 900 s at most."""
_DEFAULT_FUNCTION_SECONDS: Final = 3
MARGIN_SECONDS: Final = 60
"""What is around a call: what comes before and after it, and what travels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMachine:
    """A Standard state machine that is not a saga, and the function to invoke when an execution of it fails.

    Guaranteed: for every end in ``ends``, after every redrive, the function is called until it returns; never within
    ``grace`` after the end, and never while an earlier call for the same end may still run.
    Not guaranteed: that it is called once. A call whose answer was lost is made again, with the same ``id`` in its
    event: the function must be idempotent by it.

    Args:
        machine: the state machine: Standard, of this account and region, not of a saga. Of an imported one it cannot
            be known here whether it is Standard; import the machine itself, no version and no alias.
        on_timeout: the function, of this region; its timeout is at most 840 s. One of which no timeout is known here
            (an imported one, an alias, one whose timeout is a token) is taken as 840 s.
        ends: statuses to report; by default those that none of the machine's states can catch, ``TIMED_OUT`` and
            ``ABORTED``. Add ``FAILED`` if the machine does not clean up after itself when it fails.
        grace: how long after the end it is called at the soonest; 0 s to 14 days, 15 minutes by default: for as long,
            functions that the dead execution called may still run, and a person may redrive it.
        attempts: failed calls before an operator is notified; 1 to 1,000, 100 by default: about a day.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    machine: sfn.IStateMachine
    on_timeout: AnyFunction | RuntimeFunction
    ends: Sequence[FailedStatus] = (FailedStatus.TIMED_OUT, FailedStatus.ABORTED)
    grace: Duration | None = None
    attempts: int = 100

    def __post_init__(self) -> None:
        check_fields(self)
        require_watchable(self.machine)
        path = self.machine.node.path
        require_ends(path, self.ends)
        require_between("attempts", self.attempts, at_least=1, at_most=1_000)
        require_seconds("grace", self.grace or Duration.seconds(GRACE_SECONDS), at_least=0, at_most=14 * _DAY)
        if self.function_seconds > _LONGEST_SECONDS:
            raise ValueError(
                f"the timeout of on_timeout of {path} must be at most {_LONGEST_SECONDS} s, got {self.function_seconds}"
                " s: its caller must outlive it; let it delegate its work"
            )

    @property
    def function(self) -> AnyFunction:
        """The function that is called."""
        return self.on_timeout.function if isinstance(self.on_timeout, RuntimeFunction) else self.on_timeout

    @property
    def function_seconds(self) -> int:
        """For how long a call of it is waited for."""
        known = self._known_seconds
        return _LONGEST_SECONDS if known is None else known

    @property
    def lease_seconds(self) -> int:
        """After which a call of it is certainly over."""
        known = self._known_seconds
        return (_LONGEST_LIFE_SECONDS if known is None else known) + MARGIN_SECONDS

    @property
    def _known_seconds(self) -> int | None:
        """Its timeout; None: it is imported, an alias, or known at the deployment."""
        function = self.function
        if not isinstance(function, lambda_.Function):
            return None
        if function.timeout is None:
            return _DEFAULT_FUNCTION_SECONDS
        return None if function.timeout.is_unresolved() else int(function.timeout.to_seconds())


def require_each_once_and_here(scope: Construct, machines: Sequence[WatchedMachine]) -> None:
    """Refuse machines that are given twice, and machines or functions that cannot be reached from here.

    Raises:
        ValueError: if one is, naming it and the remedy.
    """
    path = scope.node.path
    if not machines:
        raise ValueError(f"machines of {path} must be at least one, got none; name the state machines to watch")
    seen: set[str] = set()
    for watched in machines:
        machine = watched.machine
        if machine.state_machine_arn in seen:
            raise ValueError(f"machines of {path} must be different ones, got {machine.node.path} twice; name it once")
        seen.add(machine.state_machine_arn)
        _require_here(scope, machine)
        here, there = Stack.of(scope).env.region, watched.function.env.region
        if known_to_differ(here, there):
            raise ValueError(
                f"on_timeout of machine {machine.node.path} must be of the region of {path}, {here}, got {there}; name "
                f"a function of {here}, which may call that one"
            )


def _require_here(scope: Construct, machine: sfn.IStateMachine) -> None:
    path, name = scope.node.path, machine.node.path
    here, there = Stack.of(scope), Stack.of(machine)
    for kind, ours, theirs in (
        ("account", here.account, machine.env.account),
        ("region", here.region, machine.env.region),
    ):
        if known_to_differ(ours, theirs):
            raise ValueError(
                f"machine {name} must be of the {kind} of {path}, {ours}, got {theirs}; make an ExecutionWatch there"
            )
    if there is here or not isinstance(machine, sfn.StateMachine):
        return
    if Stage.of(there) is not Stage.of(here):
        raise ValueError(
            f"machine {name} must be in the stage of {path}, got another one; make an ExecutionWatch there"
        )
    if isinstance(there, NestedStack) or isinstance(here, NestedStack):
        raise ValueError(
            f"machine {name} must be in the stack of {path}, got {there.node.path}: a nested stack shares names only "
            "with its parent; make an ExecutionWatch where the machine is"
        )
