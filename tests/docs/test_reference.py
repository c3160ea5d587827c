"""The reference is complete and correct: compared with the code, both ways."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import logging
import re
from enum import Enum, StrEnum
from typing import Any

import pytest

import constructs_lib
import constructs_lib.testing
import saga_runtime
import saga_runtime.migration
from constructs_lib.cli.main import parser_of
from constructs_lib.saga.validation.definition_file import WRITE_VARIABLE
from constructs_lib.testing.fault_plan import Action
from saga_runtime import errors, protocol
from saga_runtime.http import response as http
from saga_runtime.ledger import errors as ledger_errors
from saga_runtime.shared import telemetry
from tests.docs.pages import DOCS, ROOT, Table, prose, tables_marked
from tests.for_each import for_each

REFERENCE = DOCS / "reference"
MADE_HERE = {"ApprovalPage", "CallbackCall", "ExternalCall", "Recording", "StepCall", "Webhook"}
"""Classes of which users get instances, and never create one."""
ALIASES = {"Items", "Outputs"}
_FINDERS = ("budget.py", "definition_file.py", "retention.py", "unreconciled.py", "inline.py")


def _object(path: str) -> Any:
    """Value of a dotted path: a module's attribute, or an attribute of one."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise LookupError(path)


def _marked(first: str) -> list[Table]:
    assert tables_marked(first), f"no page has a table that is marked {first}"
    return tables_marked(first)


def _public() -> list[Any]:
    """Public classes except errors and closed sets, and their methods that add something."""
    doors = (constructs_lib, constructs_lib.testing, saga_runtime, saga_runtime.migration)
    found = {getattr(door, name) for door in doors for name in door.__all__ if name not in ALIASES}
    classes = [one for one in found if inspect.isclass(one) and not issubclass(one, Enum | BaseException)]
    adding = [value for one in classes for name, value in vars(one).items() if name.startswith("add_")]
    return sorted([*classes, *adding], key=lambda one: str(one.__qualname__))


@for_each(one for one in _public() if one.__qualname__ not in MADE_HERE)
def test_every_argument_is_described_in_its_docstring(described: Any) -> None:
    # The metaclass of constructs hides the constructor's own arguments.
    parameters = inspect.signature(described.__init__ if inspect.isclass(described) else described).parameters
    asked = [
        name
        for name, parameter in parameters.items()
        if not name.startswith("_")
        and name not in {"self", "scope", "id"}
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    text = _docstrings(described)

    assert [name for name in asked if not _described(name, text)] == []


@for_each(one for one in _public() if inspect.isclass(one))
def test_every_public_member_is_described_in_its_docstring(described: type) -> None:
    text = _docstrings(described)
    members = {name: inspect.getattr_static(described, name, None) for name in _members(described)}
    source = inspect.getsource(described)
    apart = {name for name in members if re.search(rf"\b{name}\b.*\n +\"\"\"", source)}
    missing = [name for name, member in members.items() if not _is_member(member) and not _described(name, text)]

    assert sorted({*missing} - apart) == []


def _described(name: str, text: str) -> bool:
    return bool(re.search(rf"^ *(?:\w+, )*{name}(?:, \w+)*: |``{name}``", text, re.MULTILINE))


def _docstrings(described: Any) -> str:
    """Docstring of a function, or of a class and its bases of ours."""
    if not inspect.isclass(described):
        return inspect.getdoc(described) or ""
    ours = [base for base in described.__mro__ if base.__module__.startswith(("constructs_lib", "saga_runtime"))]
    return "\n".join(f"{base.__doc__}\n{vars(base).get('__init__').__doc__}" for base in ours)


@for_each(_marked("fields"))
def test_every_field_is_documented(table: Table) -> None:
    fields = dataclasses.fields(_object(table.mark.split()[1]))

    assert table.names == [field.name for field in fields]


def _members(described: type) -> set[str]:
    """Public methods, properties and documented attributes, inherited ones of ours included."""
    found: set[str] = set()
    for base in described.__mro__:
        if not base.__module__.startswith(("constructs_lib", "saga_runtime")):
            continue
        found |= {name for name, value in vars(base).items() if not name.startswith("_") and _is_member(value)}
        found |= _attributes(base)
    return found


def _is_member(value: object) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def _attributes(base: type) -> set[str]:
    """Attributes without an underscore that ``__init__`` sets."""
    if "__init__" not in vars(base):
        return set()
    source = inspect.getsource(base)
    targets = re.findall(r"^        (self\.[^=\n]+?) = ", source, re.MULTILINE)
    return {name for target in targets for name in re.findall(r"(?:^|, )self\.([a-z]\w*)", target)}


@for_each(_marked("attributes"))
def test_every_stored_attribute_is_documented(table: Table) -> None:
    kind: type[StrEnum] = getattr(protocol, table.mark.split()[1])

    assert sorted(table.names) == sorted(kind)


def test_every_stored_kind_has_its_table() -> None:
    marked = {table.mark.split()[1] for table in tables_marked("attributes")}

    assert marked == {
        "RecordAttribute",
        "LogAttribute",
        "LedgerAttribute",
        "TokenAttribute",
        "WatchAttribute",
        "HoldAttribute",
        "ListAttribute",
        "OnceAttribute",
        "StartField",
        "CallField",
    }


@for_each(_marked("closed"))
def test_every_member_of_a_closed_set_is_documented(table: Table) -> None:
    kind: type[StrEnum] = getattr(protocol, table.mark.split()[1])

    assert sorted(table.names) == sorted(kind)


def _only(first: str) -> Table:
    (table,) = tables_marked(first)
    return table


def test_every_environment_variable_is_documented() -> None:
    assert sorted(_only("environment").names) == sorted(protocol.Env)


def test_every_environment_variable_of_a_synth_is_documented() -> None:
    assert WRITE_VARIABLE in _only("machine").names


def test_every_metric_is_documented() -> None:
    assert sorted(_only("metrics").names) == sorted(protocol.Metric)


def test_every_log_event_is_documented() -> None:
    logged: set[str] = set()
    for file in (ROOT / "lambda_src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "telemetry.event":
                name = node.args[0]
                assert isinstance(name, ast.Constant), ast.unparse(node)
                logged.add(str(name.value))

    assert sorted(_only("events").names) == sorted(logged)


def test_every_log_event_is_documented_with_its_level() -> None:
    documented = {name: row[1] for row in _only("events").rows for name in re.findall(r"`(\w+)`", row[0])}

    assert documented == {name: logging.getLevelName(telemetry.level_of(name)) for name in documented}
    assert set(documented) >= telemetry._ERRORS | telemetry._WARNINGS, "a level is kept for an event that is gone"
    # What is named after a failure is never logged as if nothing had happened.
    failures = {name for name in documented if re.search(r"failed|unclear|lost|not_read|not_told|without", name)}
    assert not {name for name in failures if documented[name] == "INFO"}


def test_every_error_name_is_documented_with_its_code_and_class() -> None:
    classes = {**vars(errors), **vars(ledger_errors)}
    documented = {row[0].strip("`"): (row[1], row[2].strip("`")) for row in _only("errors").rows}

    assert documented == {name: (_class(name), str(classes[name].code)) for name in protocol.ErrorName}


def _class(name: protocol.ErrorName) -> str:
    if name is protocol.ErrorName.FENCED:
        return "fenced"
    if name in protocol.PERMANENT_ERRORS or name is protocol.ErrorName.CALLBACK_TIMED_OUT:  # which every wait names
        return "permanent"
    return "transient" if name in protocol.TRANSIENT_ERRORS else "in doubt"


@pytest.mark.parametrize(
    ("heading", "names"), [("Transient", protocol.TRANSIENT_ERRORS), ("Permanent", protocol.PERMANENT_ERRORS)]
)
def test_the_lists_of_names_are_those_that_the_state_machine_has(heading: str, names: tuple[str, ...]) -> None:
    section = prose(REFERENCE / "errors.md").partition(f"\n### {heading}\n")[2].partition("\n#")[0]

    listed = re.findall(r"`([^`]+)`", section.partition(" A subclass")[0])
    assert [name for name in listed if name != "refusals"] == [str(name) for name in names]


@for_each(_marked("limits"))
def test_every_limit_has_the_value_that_the_code_has(table: Table) -> None:
    for _, value, constant in table.rows:
        number = int(re.sub(r"\D", "", value))
        assert number == getattr(protocol, constant.strip("`")), constant


def test_every_limit_of_the_protocol_is_documented() -> None:
    source = ast.parse((ROOT / "lambda_src/saga_runtime/protocol.py").read_text("utf-8"))
    numbers = [
        node.target.id
        for node in source.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.startswith("MAX_")
    ]
    documented = {row[2].strip("`") for table in tables_marked("limits") for row in table.rows}

    assert sorted(set(numbers) - documented) == []


def test_every_problem_of_the_function_is_documented() -> None:
    (table,) = (t for t in tables_marked("problems") if t.mark.endswith("function"))

    assert _by_status(table) == {(str(http.problem(kind, "x").status), kind) for kind in http.Problem}


def _by_status(table: Table) -> set[tuple[str, str]]:
    return {(status, code) for status, codes in table.rows for code in re.findall(r"`([a-z-]+)`", codes)}


def test_every_problem_of_the_gateway_is_documented() -> None:
    from constructs_lib.rest import problem_documents as _gateway_problems

    (table,) = (t for t in tables_marked("problems") if t.mark.endswith("gateway"))
    wanted = {(status, code) for _, status, code, _ in _gateway_problems.GATEWAY_PROBLEMS}

    assert _by_status(table) == wanted | {("4xx", "request-rejected"), ("5xx", "gateway-error")}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("constructs_lib", constructs_lib.__all__),
        ("saga_runtime", saga_runtime.__all__),
        ("constructs_lib.testing", constructs_lib.testing.__all__),
        ("saga_runtime.ledger.errors", ["FAILURES", "LedgerFailure"]),
    ],
)
def test_every_public_name_has_a_place_in_the_reference(module: str, names: list[str]) -> None:
    text = "\n".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))

    missing = [name for name in names if not name.startswith("_") and not re.search(rf"\b{re.escape(name)}\b", text)]
    assert missing == []


@for_each(constructs_lib.__all__)
def test_every_construct_and_value_has_its_own_place(name: str) -> None:
    headings = "\n".join(
        line for page in REFERENCE.glob("*.md") for line in prose(page).splitlines() if line.startswith("#")
    )
    values = {
        "FailedStatus",
        "InProgressResponse",
        "KeyPolicy",
        "RefusalPolicy",
        "Run",
        "SecondPerson",
        "Shift",
    }  # closed sets, which are in their props' rows

    assert name in values or re.search(rf"^#+ {name}$", headings, re.MULTILINE)


def test_every_finding_of_the_budget_is_documented() -> None:
    source = "".join((ROOT / "constructs_lib" / "saga" / "validation" / name).read_text("utf-8") for name in _FINDERS)
    made = set(re.findall(r'id=f?"(cdk-sagas-[^"]+)"', source))
    patterns = {re.sub(r"\\{[^}]*\\}", "[A-Za-z]+", re.escape(name).replace("\\ ", " ")) for name in made}
    documented = [re.sub(r"<(\w+)>", r"\1", name) for name in _only("findings").names]

    assert sorted(n for n in documented if not any(re.fullmatch(p, n) for p in patterns)) == []
    assert sorted(p for p in patterns if not any(re.fullmatch(p, n) for n in documented)) == []
    assert len(patterns) >= 8


def test_every_action_of_a_fault_is_documented() -> None:
    text = prose(REFERENCE / "local-aws.md")

    assert [action for action in Action if f"| `{action}` |" not in text] == []


def test_every_command_and_option_is_documented() -> None:
    page = prose(REFERENCE / "command.md")
    _, commands = parser_of()

    common = page.partition("\n## ")[0]
    for name, command in commands.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0] + common
        assert f"[`cdk-sagas {name}`]" in page
        for options, where in _options(command, name):
            for option in options:
                assert f"`{option}`" in section, f"{where} {option}"
    listed = {
        word for table in tables_marked("command") for word in re.findall(r"`cdk-sagas ([^`]+)`", str(table.rows))
    }
    known = {*commands, *(f"local {action}" for action in _actions(commands["local"]))}
    assert listed == known


def _actions(parser: Any) -> dict[str, Any]:
    found: dict[str, Any] = next((a.choices for a in parser._actions if isinstance(a.choices, dict)), {})
    return found


def _options(parser: Any, where: str) -> list[tuple[list[str], str]]:
    own = [
        (list(a.option_strings), where)
        for a in parser._actions
        if a.option_strings and "--help" not in a.option_strings
    ]
    return own + [pair for name, action in _actions(parser).items() for pair in _options(action, f"{where} {name}")]
