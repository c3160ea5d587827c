"""IAM: whether a role may make a call. Policies are those of the stack; nothing else is allowed.

Source: the IAM user guide's "Policy evaluation logic" and "IAM JSON policy elements"; conditions as DynamoDB fills
them in, from "Using IAM policy conditions for fine-grained access control".
"""

from __future__ import annotations

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
    """One action on one resource that a statement allows a role.

    Attributes:
        role: the role's name.
        action: as the statement has it.
        resource: as the statement has it; ``*`` and patterns included.
    """

    role: str
    action: str
    resource: str

    def covers(self, demand: Demand) -> bool:
        """Test whether a call needs it."""
        return bool(
            _pattern(self.action, ignore_case=True).fullmatch(demand.action)
            and _pattern(self.resource).fullmatch(demand.resource)
        )


class Roles:
    """Every role's policies, and the calls that needed them.

    Args:
        statements: by the role's name.
    """

    def __init__(self, statements: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._statements = {role: [_Statement(given) for given in found] for role, found in statements.items()}
        self._known: dict[tuple[str, Demand], bool] = {}
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
        return known

    def grants(self) -> set[Grant]:
        """Each action on each resource that a role is allowed."""
        return {
            Grant(role, action, resource)
            for role, statements in self._statements.items()
            for statement in statements
            if statement.allows
            for action in statement.actions
            for resource in statement.resources
        }

    def unused(self) -> set[Grant]:
        """Grants that no call has needed so far."""
        needed: dict[str, list[Demand]] = {}
        for (role, demand), allowed in self._known.items():
            if allowed:
                needed.setdefault(role, []).append(demand)
        return {grant for grant in self.grants() if not any(map(grant.covers, needed.get(grant.role, ())))}


class _Statement:
    """One statement of a policy."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        if "NotAction" in given or "NotResource" in given:
            raise NotSimulatedError("NotAction and NotResource in a policy are not simulated")
        self.allows = given["Effect"] == "Allow"
        self.actions = [str(action) for action in _listed(given["Action"])]
        self.resources = [str(resource) for resource in _listed(given["Resource"])]
        self._actions = [_pattern(action, ignore_case=True) for action in self.actions]
        self._resources = [_pattern(resource) for resource in self.resources]
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
        """Test whether it is about a demand."""
        return (
            any(pattern.fullmatch(demand.action) for pattern in self._actions)
            and any(pattern.fullmatch(demand.resource) for pattern in self._resources)
            and all(
                _is_met(operator, dict(demand.context).get(key), values) for operator, key, values in self._conditions
            )
        )


@lru_cache(maxsize=4096)
def _pattern(text: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    parts = [{"*": ".*", "?": "."}.get(part, re.escape(part)) for part in re.split(r"([*?])", text)]
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))


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
    negated = bare.startswith(("StringNot", "ArnNot"))
    test = _TESTS.get(bare.replace("Not", "", 1) if negated else bare)
    if test is None:
        raise NotSimulatedError(f"the condition operator {operator} is not simulated")
    if found is None:
        return if_exists or quantifier == "ForAllValues" or negated
    met = [any(test(value, one) for one in wanted) != negated for value in found]
    return all(met) if quantifier != "ForAnyValue" else any(met)
