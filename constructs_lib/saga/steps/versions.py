"""Publication of a saga's definitions, and the move of new sagas from one to the next."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aws_cdk import Duration

from constructs_lib.shared.arguments import require_seconds
from constructs_lib.shared.types import check_fields, shown

_ALIAS: Final = re.compile(r"(?=.*[a-zA-Z_-])[a-zA-Z0-9_-]{1,80}")
_MOST_MINUTES: Final = 2_100


class Shift(StrEnum):
    """Ways in which a deployment moves new sagas from the deployed version to the next one.

    The words are those of CloudFormation (``AWS::StepFunctions::StateMachineAlias DeploymentPreference``).
    """

    ALL_AT_ONCE = "ALL_AT_ONCE"
    """All of them together."""
    CANARY = "CANARY"
    """``percent`` of them, and after ``every`` the rest."""
    LINEAR = "LINEAR"
    """``percent`` of them, and as many again after each ``every``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Publishes each definition of a saga as a version, and starts sagas by an alias.

    A deployment publishes the new definition and moves the alias to it, at once or step by step. If one of the alarms
    of ``SagaStateMachine.roll_back_on`` goes off while it moves step by step, CloudFormation rolls the whole deployment
    back. A person turns the alias back to an earlier version without a deployment.

    A deployment that creates the alias, the first one or one that renames it, points it to the version at once.

    Attributes:
        alias: its name; letters, digits, ``_`` and ``-``, at most 80, and not digits only.
        shift: how a deployment moves the alias.
        percent: of new sagas, in each step; 1 to 99. With ``CANARY`` and ``LINEAR`` only.
        every: between two steps; 1 to 2,100 minutes, which all steps together may take, too. With ``CANARY`` and
            ``LINEAR`` only.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy.
    """

    alias: str = "live"
    shift: Shift = Shift.ALL_AT_ONCE
    percent: int | None = None
    every: Duration | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not _ALIAS.fullmatch(self.alias):
            raise ValueError(
                "alias must be 1 to 80 letters, digits, _ and -, and not digits only, "
                f"got {self.alias!r}; name it like 'live'"
            )
        if self.shift is Shift.ALL_AT_ONCE:
            for name, value in (("percent", self.percent), ("every", self.every)):
                if value is not None:
                    raise ValueError(
                        f"{name} must be None for shift={self.shift}, got {_shown(value)}; "
                        f"leave it out, or choose {Shift.CANARY} or {Shift.LINEAR}"
                    )
            return
        if self.percent is None or not 1 <= self.percent <= 99:
            raise ValueError(
                f"percent must be 1 to 99 for shift={self.shift}, got {shown(self.percent)}; "
                "choose the share of new sagas that each step moves"
            )
        if self.every is None:
            raise ValueError(
                f"every must be 1 to {_MOST_MINUTES} whole minutes for shift={self.shift}, got None; "
                "choose the time between two steps, like Duration.minutes(10)"
            )
        minutes = self._minutes(self.every)
        steps = math.ceil(100 / self.percent)
        if self.shift is Shift.LINEAR and steps * minutes > _MOST_MINUTES:
            raise ValueError(
                f"every must be at most {_MOST_MINUTES} minutes for {steps} steps of {self.percent} % together, got "
                f"{minutes} minutes; choose a shorter time, or a larger percent"
            )

    @property
    def gradual(self) -> bool:
        """True if a deployment moves the alias step by step."""
        return self.shift is not Shift.ALL_AT_ONCE

    @property
    def minutes(self) -> int | None:
        """Between two steps."""
        return self._minutes(self.every) if self.every is not None else None

    def _minutes(self, every: Duration) -> int:
        seconds = require_seconds("every", every, at_least=60, at_most=_MOST_MINUTES * 60)
        if seconds % 60:
            raise ValueError(f"every must be whole minutes for shift={self.shift}, got {seconds} s; round it")
        return seconds // 60


def _shown(value: Duration | int | None) -> str:
    return value.to_human_string() if isinstance(value, Duration) else shown(value)
