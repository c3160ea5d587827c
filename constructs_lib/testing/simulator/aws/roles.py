"""IAM: whether a role may make a call. Policies are those of the stack; nothing else is allowed.

Source: the IAM user guide's "Policy evaluation logic" and "IAM JSON policy elements"; conditions as DynamoDB fills
them in, from "Using IAM policy conditions for fine-grained access control".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from constructs_lib.testing.simulator.errors import NotSimulatedError

Context = Mapping[str, Sequence[str]]
"""Values of condition keys."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that a call needs to be allowed.

    Attributes:
        action: as IAM spells it, e.g. ``dynamodb:PutItem``.
        resource: an ARN.
        context: values of condition keys.
    """

    action: str
    resource: str
    context: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One action on one resource that a role is allowed; with a condition, for one of the condition's values.

    Attributes:
        role: The role's name.
        action: As the statement has it.
        resource: As the statement has it; ``*`` and patterns included.
        condition: Key and value, such as ``dynamodb:LeadingKeys=mail#*``; empty: there is no condition.
    """

    role: str
    action: str
    resource: str
    condition: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.role, self.action, self.resource, self.condition)))


class Roles:
    """Every role's policies, and the calls that needed them.

    Args:
        statements: by the role's name.
    """

    def __init__(self, statements: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._statements = {role: [_Statement(role, given) for given in found] for role, found in statements.items()}
        self._known: dict[tuple[str, Demand], bool] = {}
        self._used: set[Grant] = set()
        self._keys = {
            role: frozenset(key for statement in found for key in statement.keys)
            for role, found in self._statements.items()
        }

    def keys(self, role: str) -> frozenset[str]:
        """Condition keys that a role's policies read: the values of others do not matter."""
        return self._keys.get(role, frozenset())

    def allows(self, role: str, demand: Demand) -> bool:
        """Test whether a role may do it."""
        known = self._known.get((role, demand))
        if known is None:
            matching = [statement for statement in self._statements.get(role, ()) if statement.covers(demand)]
            allowed = any(statement.allows for statement in matching)
            known = self._known[role, demand] = allowed and all(statement.allows for statement in matching)
            if known:
                self._used.update(grant for statement in matching for grant in statement.used_by(demand))
        return known

    def grants(self) -> set[Grant]:
        """Each action on each resource that a role is allowed."""
        return {
            grant
            for statements in self._statements.values()
            for statement in statements
            if statement.allows
            for grant in statement.grants()
        }

    def unused(self) -> set[Grant]:
        """Grants that no call has needed so far."""
        return self.grants() - self._used


class _Statement:
    """One statement of a policy."""

    def __init__(self, role: str, given: Mapping[str, Any]) -> None:
        self.allows = given["Effect"] == "Allow"
        self._role = role
        self._is_known = not {"NotAction", "NotResource"} & given.keys()
        self._actions = _patterns(given.get("Action", ()), ignore_case=True)
        self._resources = _patterns(given.get("Resource", ()))
        self._conditions = [
            (operator, key, tuple(map(str, _listed(values))))
            for operator, tests in given.get("Condition", {}).items()
            for key, values in tests.items()
        ]

    @property
    def keys(self) -> Iterator[str]:
        """Condition keys that it reads."""
        return (key for _, key, _ in self._conditions)

    def covers(self, demand: Demand) -> bool:
        """Test whether it is about a demand.

        Raises:
            NotSimulatedError: if it has ``NotAction`` or ``NotResource``.
        """
        self._require_known()
        return (
            any(pattern.fullmatch(demand.action) for pattern in self._actions.values())
            and any(pattern.fullmatch(demand.resource) for pattern in self._resources.values())
            and all(
                _is_met(operator, dict(demand.context).get(key), values) for operator, key, values in self._conditions
            )
        )

    def grants(self) -> Iterator[Grant]:
        """Every action on every resource, for every value of its conditions.

        Raises:
            NotSimulatedError: if it has ``NotAction`` or ``NotResource``.
        """
        self._require_known()
        conditions = [f"{key}={value}" for _, key, values in self._conditions for value in values]
        yield from self._grants(self._actions, self._resources, conditions)

    def _require_known(self) -> None:
        if not self._is_known:
            raise NotSimulatedError(
                f"a policy of role {self._role} has NotAction or NotResource, which is not simulated"
            )

    def used_by(self, demand: Demand) -> Iterator[Grant]:
        """Those that a demand needs which the statement covers."""
        context = dict(demand.context)
        conditions = [
            f"{key}={value}"
            for operator, key, values in self._conditions
            for value in values
            if _is_negated(operator) or any(_is_met(operator, (found,), (value,)) for found in context.get(key, ()))
        ]
        yield from self._grants(
            (action for action, pattern in self._actions.items() if pattern.fullmatch(demand.action)),
            (resource for resource, pattern in self._resources.items() if pattern.fullmatch(demand.resource)),
            conditions,
        )

    def _grants(self, actions: Iterable[str], resources: Iterable[str], conditions: list[str]) -> Iterator[Grant]:
        each = conditions if self._conditions else [""]
        for action, resource, condition in itertools.product(actions, resources, each):
            yield Grant(self._role, action, resource, condition)


@lru_cache(maxsize=4096)
def _pattern(text: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    parts = [{"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", text)]
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _patterns(given: Any, *, ignore_case: bool = False) -> dict[str, re.Pattern[str]]:
    return {str(one): _pattern(str(one), ignore_case=ignore_case) for one in _listed(given)}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _equals(found: str, wanted: str) -> bool:
    return found == wanted


def _like(found: str, wanted: str) -> bool:
    return _pattern(wanted).fullmatch(found) is not None


_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "StringEquals": _equals,
    "StringLike": _like,
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda found, wanted: found.lower() == wanted.lower(),
}


def _is_met(operator: str, found: Sequence[str] | None, wanted: Iterable[str]) -> bool:
    name, if_exists = operator.removesuffix("IfExists"), operator.endswith("IfExists")
    quantifier, _, bare = name.rpartition(":")
    negated = _is_negated(operator)
    test = _TESTS.get(bare.replace("Not", "", 1) if negated else bare)
    if test is None:
        raise NotSimulatedError(f"the condition operator {operator} is not simulated")
    if found is None:
        return if_exists or quantifier == "ForAllValues" or negated
    met = [any(test(value, one) for one in wanted) != negated for value in found]
    return all(met) if quantifier != "ForAnyValue" else any(met)


def _is_negated(operator: str) -> bool:
    return operator.rpartition(":")[2].startswith(("StringNot", "ArnNot"))
