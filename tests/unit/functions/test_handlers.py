"""A handler, found in the text of a folder: whether it exists, what makes it, and whether it asks for a ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import saga_runtime
from constructs_lib.functions.handlers import DECORATORS, Handler, find_handler

Write = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files into a folder."""

    def written(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            file = tmp_path / "functions" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        return tmp_path / "functions"

    return written


def found(write: Write, text: str, handler: str = "pay.charge", **others: str) -> Handler:
    files = {f"{name}.py": content for name, content in others.items()}
    return find_handler("StepFunction Pay", write({"pay.py": text, **files}), handler)


def test_every_decorator_is_one_of_the_runtime() -> None:
    assert [name for name in DECORATORS if not callable(getattr(saga_runtime, name))] == []


MADE: dict[str, tuple[str, str | None]] = {
    "a decorator": ("from saga_runtime import atomic_step\n@atomic_step\ndef charge(call): ...", "atomic_step"),
    "a decorator with arguments": (
        "from saga_runtime import external_step\n@external_step(verify=find)\ndef charge(call): ...", "external_step",
    ),
    "a decorator of the package": (
        "import saga_runtime\n@saga_runtime.read_only_step\ndef charge(call): ...", "read_only_step",
    ),
    "a decorator of its module": (
        "from saga_runtime.atomic_step import atomic_step\n@atomic_step\ndef charge(call): ...", "atomic_step",
    ),
    "another name for it": (
        "from saga_runtime import compensation as undoes\n@undoes\ndef charge(call, output): ...", "compensation",
    ),
    "another name for the package": (
        "import saga_runtime as rt\n@rt.webhook\ndef charge(event): ...", "webhook",
    ),
    "one decorator of several": (
        "from saga_runtime import atomic_step\nfrom tools import traced\n@traced\n@atomic_step\ndef charge(call): ...",
        "atomic_step",
    ),
    "a call": ("from saga_runtime import atomic_step\ndef _do(call): ...\ncharge = atomic_step(_do)", "atomic_step"),
    "a call of a call": (
        "from saga_runtime import external_step\ncharge = external_step(verify=f)(g)", "external_step",
    ),
    "a condition": (
        "from saga_runtime import atomic_step\nif True:\n    @atomic_step\n    def charge(call): ...", "atomic_step",
    ),
    "an attempt": (
        "try:\n    from fast import charge\nexcept ImportError:\n    def charge(event, context): ...", None,
    ),
    "a plain function": ("def charge(event, context): ...", None),
    "a decorator of the user's own": ("from tools import atomic_step\n@atomic_step\ndef charge(call): ...", None),
    "an import": ("from elsewhere import charge", None),
    "everything of a module": ("from elsewhere import *", None),
    "names that are made when they are asked for": ("def __getattr__(name): ...", None),
    "a newer syntax than this Python's": ("def charge(call: = 3", None),
}  # fmt: skip


@pytest.mark.parametrize("case", MADE)
def test_these_objects_are_handlers(write: Write, case: str) -> None:
    text, decorator = MADE[case]

    assert found(write, text).decorator == decorator


def test_a_module_that_this_python_cannot_read_is_known_by_its_line(write: Write) -> None:
    assert found(write, "x = 1\ndef charge(call)\n    ...").unread == "pay.py, line 2: expected ':'"
    assert found(write, "x = 'a\0b'").unread.startswith("pay.py")
    assert not found(write, "def charge(call): ...").unread


RUNS: dict[str, tuple[str, str | None]] = {
    "async": ("@atomic_step\nasync def charge(call): ...", "async def charge"),
    "async after another decorator": ("@traced\n@atomic_step\nasync def charge(call): ...", "async def charge"),
    "a generator": ("@atomic_step\ndef charge(call):\n    if call:\n        x = yield call", "the generator charge"),
    "yield from": ("@atomic_step\ndef charge(call):\n    yield from call", "the generator charge"),
    "a generator in it": (
        "@atomic_step\ndef charge(call):\n    def all():\n        yield call\n    return [*all()]", None,
    ),
    "a coroutine in it": ("@atomic_step\ndef charge(call):\n    async def get(): ...\n    return run(get())", None),
    "a decorator that runs it": ("@atomic_step\n@sync\nasync def charge(call): ...", None),
    "a decorator of another package": ("@sync\nasync def charge(call): ...", None),
    "no argument": ("@atomic_step\ndef charge(): ...", "charge()"),
    "a context": ("@atomic_step\ndef charge(event, context): ...", "charge(event, context)"),
    "a name": ("@atomic_step\ndef charge(call, *, ledger): ...", "charge(call, *, ledger)"),
    "more than it is given": ("@atomic_step\ndef charge(call, ledger=None, *rest, log=None, **more): ...", None),
    "one of two": ("if fast:\n    @atomic_step\n    async def charge(c): ...\nelse:\n    charge = slow", None),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_a_decorated_function_that_a_call_does_not_run_is_refused(write: Write, case: str) -> None:
    body, wrong = RUNS[case]
    text = f"from saga_runtime import atomic_step\n{body}"
    if wrong is None:
        found(write, text)
        return
    line = next(number for number, one in enumerate(text.split("\n"), 1) if "def charge" in one)
    told = (
        f"handler of StepFunction Pay must be a function that returns its result, got {wrong} in pay.py, line {line}; "
        "write def charge(call) with a return"
    )
    with pytest.raises(ValueError, match=re.escape(told) + "$"):
        found(write, text)


@pytest.mark.parametrize(
    ("maker", "given"),
    [
        ("compensation", "call, output"),
        ("external_compensation(of=pay)", "call, output"),
        ("direct_operation", "call"),
        ("event_operation(read)", "call"),
        ("event_saga", "event"),
        ("webhook", "event"),
    ],
)
def test_each_decorator_names_the_arguments_that_it_gives(write: Write, maker: str, given: str) -> None:
    start = f"from saga_runtime import {maker.partition('(')[0]}\n@{maker}\n"

    for taken in (given, f"{given}, more=None", "*all"):
        found(write, f"{start}def charge({taken}): ...")
    with pytest.raises(ValueError, match=re.escape(f"write def charge({given}) with a return")):
        found(write, f"{start}def charge(a, b, c): ...")


PLAIN: dict[str, tuple[str, bool]] = {
    "one argument": ("def charge(call): return {}", True),
    "two arguments": ("def charge(event, context):\n    send(event)\n    return {}", True),
    "attributes of its context": ("def charge(event, context): return send(event, context.aws_request_id)", True),
    "async": ("async def charge(event, context): ...", True),
    "its context to another function": ("def charge(event, context): return step(event, context)", False),
    "its context by another name": ("def charge(event, context):\n    c = context\n    return step(event, c)", False),
    "any arguments": ("def charge(*arguments): return step(*arguments)", False),
    "arguments by name": ("def charge(event, **more): return step(event, **more)", False),
    "a decorator": ("@traced\ndef charge(event, context): ...", False),
    "an assignment": ("def _charge(event, context): ...\ncharge = _charge", False),
    "a class": ("class charge: ...", False),
    "an import": ("from elsewhere import charge", False),
    "one of two": ("def charge(event, context): ...\nif fast:\n    charge = step", False),
    "everything of a module after it": ("def charge(event, context): ...\nfrom elsewhere import *", False),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_function_that_is_not_a_handler_is_plain_if_certain(write: Write, case: str) -> None:
    text, plain = PLAIN[case]

    assert found(write, text).plain is plain


WITHOUT: dict[str, tuple[str, set[str]]] = {
    "no arguments": ("@external_step\ndef charge(call): ...", {"verify", "verify_undo"}),
    "no arguments in a call": ("@external_step()\ndef charge(call): ...", {"verify", "verify_undo"}),
    "None": ("@external_step(verify=None)\ndef charge(call): ...", {"verify", "verify_undo"}),
    "an argument": ("@external_step(verify=find)\ndef charge(call): ...", {"verify_undo"}),
    "an argument of a call": ("charge = external_step(verify=find)(act)", {"verify_undo"}),
    "any arguments": ("@external_step(**options)\ndef charge(call): ...", set()),
    "one of two": ("if fast:\n    charge = external_step(a)\nelse:\n    charge = external_step(b)", set()),
}


@pytest.mark.parametrize("case", WITHOUT)
def test_arguments_that_a_decorator_does_not_have_are_known(write: Write, case: str) -> None:
    body, without = WITHOUT[case]

    assert found(write, f"from saga_runtime import external_step\n{body}").without == without


def test_a_module_in_packages_is_found(write: Write) -> None:
    folder = write({"steps/__init__.py": "def charge(e, c): ...", "steps/deep/pay.py": "def charge(e, c): ..."})

    assert find_handler("Pay", folder, "steps.charge") == find_handler("Pay", folder, "steps.deep.pay.charge")


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("transfers.handler", "name a module in {folder}, got 'transfers.handler'; write transfer"),
        ("nowhere.at.all", "name a module in {folder}, got 'nowhere.at.all'; there is deep.pay, transfer"),
        ("transfer.handel", "name a function in transfer.py, got 'transfer.handel'; write handler"),
        ("transfer.charge", "name a function in transfer.py, got 'transfer.charge'; there is handler, other"),
        ("deep.pay.charge", "name a function in deep/pay.py, got 'deep.pay.charge'; there is none"),
    ],
)
def test_a_missing_handler_is_refused_with_the_existing_ones(write: Write, handler: str, message: str) -> None:
    folder = write({"transfer.py": "def handler(e, c): ...\ndef other(): ...\nSIZE = 3", "deep/pay.py": ""})

    with pytest.raises(ValueError, match=re.escape(f"handler of Pay must {message.format(folder=folder)}") + "$"):
        find_handler("Pay", folder, handler)


STEPS = """
from saga_runtime import external_compensation, external_step

@external_step(verify=find)
def pay(call): ...
@external_step
def fee(call): ...
"""
UNDOES: dict[str, tuple[Mapping[str, str], str | None]] = {
    "its own step": ({"undo.py": f"{STEPS}@external_compensation(of=pay)\ndef undo(call, output): ..."}, "undo.pay"),
    "another step": ({"undo.py": f"{STEPS}@external_compensation(of=fee)\ndef undo(call, output): ..."}, "undo.fee"),
    "a step of another module": (
        {"steps.py": STEPS, "undo.py": "from saga_runtime import external_compensation\nfrom steps import fee as x\n"
         "@external_compensation(of=x, verify_undo=f)\ndef undo(call, output): ..."},
        "steps.fee",
    ),
    "a step by its module": (
        {"steps.py": STEPS, "undo.py": "from saga_runtime import external_compensation\nimport steps\n"
         "undo = external_compensation(of=steps.fee)(f)"},
        "steps.fee",
    ),
    "a step that a call makes": (
        {"undo.py": "from saga_runtime import external_compensation, external_step\npay = external_step(verify=f)(g)\n"
         "undo = external_compensation(of=pay)(h)"},
        "undo.pay",
    ),
    "a step after everything of a module": (
        {"undo.py": f"from saga_runtime import *\n{STEPS}@external_compensation(of=pay)\ndef undo(call, output): ..."},
        "undo.pay",
    ),
    "another name of a step": (
        {"undo.py": f"{STEPS}same = fee\n@external_compensation(of=same)\ndef undo(call, output): ..."}, None,
    ),
    "one of two of a name": (
        {"undo.py": f"{STEPS}if test:\n    pay = fee\n@external_compensation(of=pay)\ndef undo(call, output): ..."},
        None,
    ),
    "a step of a module that is not there": (
        {"undo.py": "from saga_runtime import external_compensation\nfrom elsewhere import pay\n"
         "@external_compensation(of=pay)\ndef undo(call, output): ..."},
        None,
    ),
    "a step that a call returns": (
        {"undo.py": "from saga_runtime import external_compensation\n@external_compensation(of=step())\n"
         "def undo(call, output): ..."},
        None,
    ),
    "no step": ({"undo.py": "from saga_runtime import compensation\n@compensation\ndef undo(call, output): ..."}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", UNDOES)
def test_the_step_of_a_compensation_is_found_if_it_is_certain(write: Write, case: str) -> None:
    files, step = UNDOES[case]
    folder = write(files)

    assert find_handler("Undo", folder, "undo.undo").undoes == (None if step is None else (folder.resolve(), step))


def test_a_step_that_is_imported_is_the_one_of_its_module(write: Write) -> None:
    folder = write({"steps.py": STEPS, "here.py": "from steps import pay", "there.py": "from here import pay"})

    made = (folder.resolve(), "steps.pay")
    assert find_handler("Pay", folder, "steps.pay").made == find_handler("Pay", folder, "here.pay").made == made
    assert find_handler("Pay", folder, "there.pay").made is None


ASKS = "from saga_runtime import Ledger\nledger = Ledger.from_env()\n"
LEDGER: dict[str, tuple[Mapping[str, str], bool]] = {
    "at the import": ({"pay.py": ASKS}, True),
    "from the package": ({"pay.py": "import saga_runtime\nledger = saga_runtime.Ledger.from_env()\n"}, True),
    "from the module": ({"pay.py": "from saga_runtime.ledger.store import Ledger\nl = Ledger.from_env()\n"}, True),
    "by another name": ({"pay.py": "import saga_runtime.ledger.store as s\nl: s.Ledger = s.Ledger.from_env()\n"}, True),
    "in a module that is imported": ({"pay.py": "import shop\n", "shop.py": ASKS}, True),
    "in a module of a package": ({"pay.py": "from shop import books\n", "shop/books.py": ASKS}, True),
    "in a neighbour": ({"pay.py": "from steps.pay import x\n", "steps/pay.py": "from .books import l\n",
                        "steps/books.py": ASKS}, True),
    "in modules that import each other": (
        {"pay.py": "import a\n", "a.py": "import b\n", "b.py": f"import a\n{ASKS}"}, True,
    ),
    "in a function, which may never be called": (
        {"pay.py": "from saga_runtime import Ledger\ndef books():\n    return Ledger.from_env()\n"}, False,
    ),
    "in a module that is not imported": ({"pay.py": "", "shop.py": ASKS}, False),
    "of another class": ({"pay.py": "from shop import Ledger\nledger = Ledger.from_env()\n", "shop.py": ""}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", LEDGER)
def test_an_import_of_the_ledger_is_detected(write: Write, case: str) -> None:
    files, asks = LEDGER[case]
    folder = write({**files, "pay.py": files["pay.py"] + "def charge(event, context): ...\n"})

    assert find_handler("Pay", folder, "pay.charge").needs_ledger is asks


@pytest.mark.parametrize("case", LEDGER)
def test_an_import_of_the_outbox_is_detected(write: Write, case: str) -> None:
    files, asks = LEDGER[case]
    folder = write(
        {
            name: (text + ("def charge(event, context): ...\n" if name == "pay.py" else ""))
            .replace("Ledger", "Outbox")
            .replace("ledger.store", "outbox.event")
            for name, text in files.items()
        }
    )

    found = find_handler("Pay", folder, "pay.charge")
    assert (found.needs_outbox, found.needs_ledger) == (asks, False)
