"""Input and result of a step function."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from inspect import CO_VARARGS, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from saga_runtime.errors import Invalid, ProtocolMismatch
from saga_runtime.idempotency.identity import (
    canonical_json,
    is_item_key,
    is_saga_id,
    parse_json,
    provider_key_of,
    row_name_of,
    step_key_of,
)
from saga_runtime.payloads.claim_check import Deferred, Outputs, Payloads, copied
from saga_runtime.payloads.references import has_reserved_member
from saga_runtime.payloads.request_paths import items_at
from saga_runtime.protocol import (
    ITEM_KEY_PATTERN,
    ITEM_MEMBER,
    MAX_EXACT_INTEGER,
    MAX_OUTPUT_BYTES,
    MAX_OUTPUTS_BYTES,
    MAX_TRANSACT_ITEMS,
    PROTOCOL_VERSION,
    REFERENCE_FIELD,
    STEP_NAME_PATTERN,
    CallField,
    ShareField,
    Side,
)
from saga_runtime.saga_log.outputs import LoggedOutputs
from saga_runtime.saga_log.write import Write, require_different_items

_STEP_NAME: Final = re.compile(STEP_NAME_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """One call of a step function by its saga.

    Attributes:
        saga_id: the saga; the same for every retry and every recovery.
        step: the step's name.
        key: the step key, ``{saga_id}#{step}``, in a map ``{saga_id}#{step}[{item_key}]`` (``…#undo`` in a
            compensation). Use it as the id of whatever the step creates; it is the same for every retry.
        side: the step's position in its saga: before the pivot, on it, or after it.
        request: the request's body. Integers are exact, fractions are ``Decimal``. A large one is read from the saga's
            payload bucket on access.
        outputs: outputs of the steps that ran before, by step name; large ones likewise.
        item: in a map, the item that this call is for, as exact as ``request``; None elsewhere.
        item_key: in a map, the item's key; None elsewhere.
        attempt: unique per invocation; for logs.
        now_ms: time of the invocation, epoch milliseconds.
        payloads: where the saga's large payloads are; None if it has no bucket.
        share: the part of the room for outputs that the step has.
    """

    saga_id: str
    step: str
    key: str
    side: Side = Side.BEFORE
    request: Any
    outputs: Mapping[str, Any]
    log_table: str
    log_days: int
    attempt: str
    now_ms: int
    payloads: Payloads | None = None
    item: Any = None
    item_key: str | None = None
    share: Share | None = None

    @property
    def row_name(self) -> str:
        """Sort key of the step's row in the saga log."""
        return row_name_of(self.step, self.item_key)

    @property
    def provider_key(self) -> str:
        """36-character form of ``key``, for providers outside."""
        return provider_key_of(self.key)

    def anew(self) -> StepCall:
        """The same call, for one run of a function: what another one has changed in its call is not in this one.

        A step is planned again after a conflict, and must not be planned on what its function did to its input.
        """
        outputs = self.outputs if isinstance(self.outputs, Outputs) else Outputs(self.outputs, self._payloads)
        return replace(self, request=self._own("request"), item=self._own("item"), outputs=outputs.anew())

    def _own(self, name: str) -> Deferred:
        value = object.__getattribute__(self, name)
        return Deferred(lambda: copied(value.value if type(value) is Deferred else value))

    @property
    def _payloads(self) -> Payloads:
        return self.payloads or Payloads(saga_id=self.saga_id)

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            """The attribute; what was not read yet is read now."""
            value = object.__getattribute__(self, name)
            return value.value if type(value) is Deferred else value

    def encode(self, output: Mapping[str, Any], *, alone: bool = False) -> str:
        """The step's output as stored and returned: itself, or a reference if it is large.

        Args:
            output: what the step returns.
            alone: whether it does not travel with those of other steps.

        Raises:
            Invalid: if it is not an object, is too large, or holds what an output must not hold.
            TransientError: if the payload bucket did not answer.
        """
        if alone:
            return encode_output(output, payloads=self.payloads)
        return encode_output(output, beside=self.outputs, payloads=self.payloads, share=self.share)

    def decode(self, text: str | None) -> Any:
        """The step's output from its row; a large output is read from the bucket.

        Raises:
            PayloadLost: if it cannot be read any more.
            TransientError: if the payload bucket did not answer.
        """
        return self._payloads.read(decode_output(text))

    @classmethod
    def from_event(cls, event: Any, *, attempt: str, now_ms: int, undo: bool = False) -> StepCall:
        """Read what the state machine sent.

        Raises:
            ProtocolMismatch: if the event was not sent by a saga, or by one that speaks another protocol.
            Invalid: if the request names an item by a key that no row can have.
        """
        if not isinstance(event, Mapping) or event.get(CallField.PROTOCOL) != PROTOCOL_VERSION:
            spoken = event.get(CallField.PROTOCOL) if isinstance(event, Mapping) else None
            raise ProtocolMismatch(
                f"this function speaks protocol {PROTOCOL_VERSION} and was called with {spoken!r}; "
                "call it from a SagaStateMachine, and deploy functions and state machine of one release together"
            )
        f = CallField
        saga_id, step, table = (event.get(name) for name in (f.SAGA_ID, f.STEP, f.LOG_TABLE))
        if not (isinstance(saga_id, str) and is_saga_id(saga_id)):
            raise ProtocolMismatch(f"not a saga id: {saga_id!r}")
        if not (isinstance(step, str) and _STEP_NAME.fullmatch(step)):
            raise ProtocolMismatch(f"a step's name must match {STEP_NAME_PATTERN}, got {step!r}")
        if not (isinstance(table, str) and table.strip()):
            raise ProtocolMismatch(f"the saga log's table is missing, got {table!r}")
        log_days = event.get(f.LOG_DAYS)
        if type(log_days) is not int or log_days < 1:
            # A row that expires at once is a step that may happen twice.
            raise ProtocolMismatch(f"the saga log keeps its rows for 1 day or more, got {log_days!r}")
        side = event.get(f.SIDE)
        if side not in set(Side):
            raise ProtocolMismatch(f"a step's side is one of {', '.join(Side)}, got {side!r}")
        item_key = _item_key_of(event)
        request = event.get(f.REQUEST)
        if not isinstance(request, str):
            raise ProtocolMismatch(f"the request must travel as JSON text, got {type(request).__name__}")
        outputs = _outputs_of(event)
        payloads = Payloads(saga_id=saga_id, bucket=event.get(f.PAYLOADS), inline=event.get(f.INLINE) is True)
        requested = payloads.later(parse_json(request), parse_json)
        return StepCall(
            saga_id=saga_id,
            step=step,
            key=step_key_of(saga_id, step, item_key=item_key, undo=undo),
            side=Side(side),
            item=None if item_key is None else _item_of(event, requested),
            item_key=item_key,
            request=requested,
            outputs=Outputs(_logged(event, table, saga_id, item_key, outputs), payloads),
            share=Share.of_event(event, item_key or step),
            payloads=payloads,
            log_table=table,
            log_days=log_days,
            attempt=attempt,
            now_ms=now_ms,
        )


def _outputs_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The outputs that were sent; as JSON text, if a queue refuses a character of them."""
    sent = event.get(CallField.OUTPUTS) or {}
    try:
        outputs = json.loads(sent) if isinstance(sent, str) else sent
    except ValueError:
        outputs = None
    if not isinstance(outputs, Mapping):
        raise ProtocolMismatch("outputs must be an object")
    return outputs


def _logged(
    event: Mapping[str, Any], table: str, saga_id: str, item_key: str | None, outputs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The outputs that were sent, and those that the saga log has if the state machine leaves them there."""
    told = event.get(CallField.LOGGED)
    if told is None:
        return outputs
    return LoggedOutputs.of(told, table=table, saga_id=saga_id, item_key=item_key, others=outputs)


def _item_key_of(event: Mapping[str, Any]) -> str | None:
    f = CallField
    key = event.get(f.ITEM_KEY)
    if key is None and not any(name in event for name in (f.ITEM, f.ITEM_PATH, f.ITEM_INDEX)):
        return None
    if not isinstance(key, str):
        raise ProtocolMismatch(f"an item's key must be text, got {type(key).__name__}")
    if not is_item_key(key):
        raise Invalid(f"an item's key must match {ITEM_KEY_PATTERN}, got {key!r}")
    return key


def _item_of(event: Mapping[str, Any], request: Any) -> Any:
    """The item that a call is for: its text, or its place in the request, which is exact."""
    text, path, index = (event.get(name) for name in (CallField.ITEM, CallField.ITEM_PATH, CallField.ITEM_INDEX))
    if isinstance(text, str):
        item = parse_json(text)
        if not isinstance(item, Mapping) or set(item) != {ITEM_MEMBER}:
            raise ProtocolMismatch(f"an item must travel as the member {ITEM_MEMBER} of an object, got other JSON")
        return _with_integers(item[ITEM_MEMBER])
    if not isinstance(path, list) or type(index) is not int or index < 0:
        raise ProtocolMismatch(f"an item must travel as text or by path and index, got {path!r} and {index!r}")
    return Deferred(lambda: _item_at(request.value if isinstance(request, Deferred) else request, path, index))


def _item_at(request: Any, path: list[str], index: int) -> Any:
    items = items_at(request, path)
    if index >= len(items):
        raise ProtocolMismatch(f"the request must have an item {index} at {'.'.join(path)}, got {len(items)} items")
    return items[index]


def _with_integers(value: Any) -> Any:
    """The value with whole numbers as ``int``, as they are in a request: JSONata writes large ones with an exponent."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    if isinstance(value, Mapping):
        return {name: _with_integers(member) for name, member in value.items()}
    return [_with_integers(element) for element in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Result of a step: writes and output, committed together with the saga log row, or not at all.

    Attributes:
        writes: at most 99 writes, no two of them to the same item; others are ``Invalid``.
        output: a JSON object for the steps that follow. Clients see only what the saga's ``result`` names of it.
            Amounts belong in strings: a state machine's numbers are doubles.
    """

    writes: Sequence[Write] = ()
    output: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: Iterable[object] = self.writes
        for write in given:
            if not isinstance(write, Write):
                raise TypeError(f"writes of a Commit must be a list of Write, got {write!r:.60}; write Write(action=…)")
        number, most = len(self.writes), sum(1 + write.more for write in self.writes)
        if most > MAX_TRANSACT_ITEMS - 1:
            grown = f", and {most} while a migration has old and new items" if most > number else ""
            raise Invalid(
                f"a step commits at most {MAX_TRANSACT_ITEMS - 1} writes with its log row, got {number}{grown}; "
                "split the step"
            )
        require_different_items(self.writes)


def require_def(function: object, *arguments: str) -> None:
    """Refuse a function whose call fails, or does nothing until its result is awaited or iterated.

    Args:
        function: what a decorator is given.
        arguments: what it is called with, in this order.

    Raises:
        TypeError: naming it.
    """
    name = getattr(function, "__name__", repr(function))
    if iscoroutinefunction(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
        raise TypeError(f"{name} must do its work when it is called, got an async function or a generator; write def")
    if not isinstance(function, FunctionType):
        return
    code, has = function.__code__, len(function.__defaults__ or ())
    fits = code.co_argcount - has <= len(arguments) and (
        len(arguments) <= code.co_argcount or code.co_flags & CO_VARARGS
    )
    if not fits or code.co_kwonlyargcount > len(function.__kwdefaults__ or ()):
        raise TypeError(
            f"{name} must take ({', '.join(arguments)}), got a function of other arguments; "
            f"write def {name}({', '.join(arguments)})"
        )


def require_commit(wanted: object, kind: str) -> Commit:
    """Return the result of a user's function, if it is a ``Commit``.

    Raises:
        TypeError: naming what it must be. Nothing was written.
    """
    if not isinstance(wanted, Commit):
        raise TypeError(f"{kind} must return a Commit, got {type(wanted).__name__}; return one, from a plain def")
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of the room for a saga's outputs that one step has.

    Items of a map, and branches, do not know of each other's outputs. Each has an equal share of what the steps before
    all of them left, however many items there are: so all outputs together always fit.

    Attributes:
        of: how many equal shares there are; 1: the whole room.
        own: names of the steps before this one in its item or branch.
        left: how many steps of the item or branch are still to answer, this one included.
        key: what precedes an output, among all others: the item's key, or the step's name.
    """

    of: int = 1
    own: frozenset[str] = frozenset()
    left: int = 1
    key: str = ""

    @classmethod
    def of_event(cls, event: Mapping[str, Any], key: str) -> Share:
        """Read the share that a state machine gives a step.

        Raises:
            ProtocolMismatch: if it gives something else.
        """
        told = event.get(CallField.SHARE)
        if told is None:
            return cls()
        of, own, left = (told.get(name) if isinstance(told, Mapping) else None for name in ShareField)
        if not (type(of) is type(left) is int and of > 0 and left > 0 and isinstance(own, list)):
            raise ProtocolMismatch(f"a share of the room for outputs must have {', '.join(ShareField)}, got {told!r}")
        return cls(of=of, own=frozenset(own), left=left, key=key)

    @property
    def shared(self) -> bool:
        """True if others have a share, too."""
        return self.of > 1

    def room(self, others: Mapping[str, Any]) -> int:
        """Bytes that are left for the step's output and its name, after those of the steps before it."""
        before = _size({name: output for name, output in others.items() if name not in self.own})
        own = sum(self.taken(_size(others[name])) for name in self.own if name in others)
        return (MAX_OUTPUTS_BYTES - before) // self.of - own

    def most(self, others: Mapping[str, Any]) -> int:
        """Bytes that the step's output may have; 2 at least: an empty one always fits."""
        room = self.room(others.raw if isinstance(others, Outputs) else others) - self.taken(0)
        return max(_EMPTY, min(room, MAX_OUTPUT_BYTES))

    def taken(self, size: int) -> int:
        """Bytes that an output of this size takes, among all others."""
        return size + (len(self.key.encode("utf-8")) + _PUNCTUATION if self.shared else 0)


_PUNCTUATION: Final = len('"":,')
_EMPTY: Final = len("{}")


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8"))


def encode_output(
    output: Mapping[str, Any],
    *,
    beside: Mapping[str, Any] | None = None,
    payloads: Payloads | None = None,
    share: Share | None = None,
) -> str:
    """The output as it is stored and answered.

    Args:
        output: what the step returns.
        beside: outputs of the steps before it: all of a saga's outputs together have a limit, too.
        payloads: where a large output is stored; then what is returned is a reference.
        share: the part of that limit that is the step's; all of it by default.

    Raises:
        Invalid: if it is not an object, is too large, holds a number that a state machine would change, or has a
            member by the name that only references have.
        TransientError: if the payload bucket did not answer.
    """
    kept, mine = payloads or Payloads(saga_id=""), share or Share()
    if not isinstance(output, Mapping):
        raise Invalid(f"a step's output must be an object, got {type(output).__name__}")
    text = canonical_json(output)
    _refuse_inexact(output, "output")
    if has_reserved_member(text):
        raise Invalid(f"output has a member {REFERENCE_FIELD}, which refers to stored payloads; rename it")
    size = len(text.encode("utf-8"))
    if size > kept.max_output_bytes:
        raise Invalid(f"a step's output may have {kept.max_output_bytes} bytes, got {size}; {_remedy(kept)}")
    room = mine.room(beside.raw if isinstance(beside, Outputs) else beside or {})
    # In a share the steps that are still to answer have room, too: for a reference at least.
    text = kept.travelling(text, at_most=room // mine.left - mine.taken(0))
    taken = mine.taken(len(text.encode("utf-8")))
    if taken <= room:
        return text
    if mine.shared:
        raise Invalid(
            f"the output must have at most {max(room - mine.taken(0), 0)} bytes with those of its item or branch, "
            f"got {size}; return less, lower max_items, or give the saga payloads=PayloadBucket(…)"
        )
    raise Invalid(
        f"all outputs of a saga together may have {MAX_OUTPUTS_BYTES} bytes, got {MAX_OUTPUTS_BYTES - room + taken}; "
        "give the saga payloads=PayloadBucket(…), or store them and return their keys instead"
    )


def _remedy(payloads: Payloads) -> str:
    if payloads.bucket is None:
        return "give the saga payloads=PayloadBucket(…), or store it and return its key instead"
    if payloads.inline:
        return "an expression of the saga reads it: let that read the output of a step that returns less"
    return "store it and return its key instead"


def decode_output(text: str | None) -> Any:
    """The output as it travels, and as the step answers it: a reference where a large one was stored."""
    return json.loads(text) if text else {}


def _refuse_inexact(value: Any, where: str) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        raise Invalid(
            f"{where} must be at most {MAX_EXACT_INTEGER} as a number, got {value}; a state machine would lose digits: "
            "give it as text"
        )
    if isinstance(value, float | Decimal):
        raise Invalid(
            f"{where} must be a whole number or text, got {value}; a state machine's numbers are doubles: "
            "give it as text"
        )
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_inexact(item, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_inexact(item, f"{where}[{index}]")
