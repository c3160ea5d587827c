"""Updates of items: what an update expression's tree does.

Everything is read from the item as it was before; then everything is written.

Source: the developer guide's "Using update expressions".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from constructs_lib.testing.simulator.aws.dynamodb.trees import Attributes, Names, Path, Placeholder, Values
from constructs_lib.testing.simulator.aws.dynamodb.values import Item, Value, added, copied_item, equal, kind_of
from constructs_lib.testing.simulator.errors import ServiceError, invalid

_SETS: Final = ("SS", "NS", "BS")


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """``if_not_exists(path, value)``."""

    path: Path
    otherwise: Source


@dataclass(frozen=True, slots=True)
class Joined:
    """``list_append(a, b)``."""

    first: Source
    second: Source


@dataclass(frozen=True, slots=True)
class Combination:
    """``a + b`` or ``a - b``."""

    left: Source
    sign: int
    right: Source


Source: TypeAlias = Path | Placeholder | IfNotExists | Joined | Combination


@dataclass(frozen=True, slots=True)
class Assignment:
    """``SET path = source``."""

    path: Path
    source: Source


@dataclass(frozen=True, slots=True)
class Removal:
    """``REMOVE path``."""

    path: Path


@dataclass(frozen=True, slots=True)
class Addition:
    """``ADD path value``."""

    path: Path
    value: Placeholder


@dataclass(frozen=True, slots=True)
class Deletion:
    """``DELETE path value``."""

    path: Path
    value: Placeholder


Action: TypeAlias = Assignment | Removal | Addition | Deletion


@dataclass(frozen=True, slots=True)
class Update:
    """An update expression.

    Attributes:
        actions: everything that it does.
    """

    actions: tuple[Action, ...]

    def applied(self, item: Attributes, names: Names, values: Values, keys: Collection[str]) -> Item:
        """The item after the update.

        Args:
            item: as it was; with its key only if there was none.
            names: by placeholder.
            values: by placeholder, as they are stored.
            keys: attributes of the primary key, which cannot be updated.

        Raises:
            ServiceError: as DynamoDB refuses it.
        """
        places = [action.path.resolved(names) for action in self.actions]
        _check_places(places, keys)
        results = [_result(action, item, names, values) for action in self.actions]
        nested = any(len(place) > 1 for place in places)
        updated: dict[str, Any] = copied_item(item) if nested else dict(item)
        removed: list[tuple[str | int, ...]] = []
        for action, place, result in zip(self.actions, places, results, strict=True):
            if result is None:
                if not isinstance(action, Deletion | Removal):
                    raise AssertionError(f"{action} has no result")
                removed.append(place)
            else:
                _put(updated, place, result)
        # Of a list, the last position first: those before it stay where they are.
        for place in sorted(removed, key=_removal_order, reverse=True):
            _remove(updated, place)
        return updated

    def top_level(self, names: Names) -> list[str]:
        """Names of the attributes that it touches, in order, each once."""
        return list(dict.fromkeys(str(action.path.resolved(names)[0]) for action in self.actions))


def _removal_order(place: tuple[str | int, ...]) -> list[tuple[int, int, str]]:
    return [(1, part, "") if isinstance(part, int) else (0, 0, part) for part in place]


def _check_places(places: list[tuple[str | int, ...]], keys: Collection[str]) -> None:
    for number, place in enumerate(places):
        if place[0] in keys:
            raise invalid(
                "One or more parameter values were invalid: Cannot update attribute "
                f"{place[0]}. This attribute is part of the key"
            )
        for other in places[:number]:
            if place[: len(other)] == other or other[: len(place)] == place:
                raise invalid(
                    "Invalid UpdateExpression: Two document paths overlap with each other; must remove or rewrite one "
                    f"of these paths; path one: {list(other)}, path two: {list(place)}"
                )
            for one, two in zip(other, place, strict=False):
                if isinstance(one, int) is not isinstance(two, int):
                    raise invalid("Invalid UpdateExpression: Two document paths conflict with each other;")
                if one != two:
                    break


def _result(action: Action, item: Attributes, names: Names, values: Values) -> Value | None:
    """Compute the value at the action's path; None: it is removed."""
    match action:
        case Removal():
            return None
        case Assignment(_, source):
            return _value(source, item, names, values)
        case Addition(path, placeholder):
            return _sum(path.find(item, names, values), values[placeholder.name])
        case Deletion(path, placeholder):
            return _difference(path.find(item, names, values), values[placeholder.name])


def _value(source: Source, item: Attributes, names: Names, values: Values) -> Value:
    match source:
        case Placeholder(name):
            return values[name]
        case IfNotExists(path, otherwise):
            found = path.find(item, names, values)
            return found if found is not None else _value(otherwise, item, names, values)
        case Joined(first, second):
            joined = [_value(part, item, names, values) for part in (first, second)]
            if any(kind_of(part) != "L" for part in joined):
                raise _operand_type("list_append")
            return {"L": [*joined[0]["L"], *joined[1]["L"]]}
        case Combination(left, sign, right):
            numbers = [_value(part, item, names, values) for part in (left, right)]
            if any(kind_of(part) != "N" for part in numbers):
                raise _operand_type("+" if sign > 0 else "-")
            return {"N": added(numbers[0]["N"], numbers[1]["N"], sign=sign)}
        case Path():
            found = source.find(item, names, values)
            if found is None:
                raise invalid("The provided expression refers to an attribute that does not exist in the item")
            return found


def _operand_type(operator: str) -> ServiceError:
    if operator in "+-":
        return invalid("An operand in the update expression has an incorrect data type")
    return invalid(
        f"Invalid UpdateExpression: Incorrect operand type for operator or function; operator or function: {operator}"
    )


def _sum(found: Value | None, value: Value) -> Value:
    kind = kind_of(value)
    if kind not in ("N", *_SETS):
        raise invalid(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; "
            f"operator: ADD, operand type: {kind}"
        )
    if found is None:
        return value
    if kind_of(found) != kind:
        raise invalid("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return {"N": added(found["N"], value["N"])}
    return {kind: [*found[kind], *(member for member in value[kind] if not _among(kind, member, found[kind]))]}


def _difference(found: Value | None, value: Value) -> Value | None:
    kind = kind_of(value)
    if kind not in _SETS:
        raise invalid(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; "
            f"operator: DELETE, operand type: {kind}"
        )
    if found is None:
        return None
    if kind_of(found) != kind:
        raise invalid("An operand in the update expression has an incorrect data type")
    kept = [member for member in found[kind] if not _among(kind, member, value[kind])]
    return {kind: kept} if kept else None


def _among(kind: str, member: Any, members: list[Any]) -> bool:
    return any(equal({kind[0]: member}, {kind[0]: other}) for other in members)


def _holder(item: Item, place: tuple[str | int, ...]) -> Any:
    """The map or list that holds the last element of a place: an item, a map's members or a list's."""
    holder: Any = item
    for part in place[:-1]:
        held: Mapping[str, Any] | None
        if isinstance(part, int):
            held = holder[part] if isinstance(holder, list) and part < len(holder) else None
        else:
            held = holder.get(part) if isinstance(holder, dict) else None
        if held is None:
            raise invalid("The document path provided in the update expression is invalid for update")
        holder = held.get("M", held.get("L"))
    last = place[-1]
    if not isinstance(holder, list if isinstance(last, int) else dict):
        raise invalid("The document path provided in the update expression is invalid for update")
    return holder


def _put(item: Item, place: tuple[str | int, ...], value: Value) -> None:
    holder, last = _holder(item, place), place[-1]
    if isinstance(last, int) and last >= len(holder):
        holder.append(dict(value))
    else:
        holder[last] = dict(value)


def _remove(item: Item, place: tuple[str | int, ...]) -> None:
    holder, last = _holder(item, place), place[-1]
    if isinstance(last, int):
        if last < len(holder):
            del holder[last]
    else:
        holder.pop(last, None)
