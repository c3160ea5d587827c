"""The runbook: a page for each alarm, with commands that their programs take."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from botocore import xform_name
from botocore.model import ServiceModel
from botocore.session import Session

from constructs_lib.monitoring.alarms import Runbook
from saga_runtime.protocol import METRIC_NAMESPACE, Metric
from tests.docs.pages import DOCS, ROOT, Snippet, snippets, tables_marked
from tests.for_each import for_each

RUNBOOK: Final = DOCS / "runbook"
PARTS: Final = ("**Affected:** ", "```console\n$ ", "1. ")
GLOBAL_OPTIONS: Final = {"query", "output", "region", "profile", "cli-binary-format"}
OF_ALARMS: Final = sorted(path for path in RUNBOOK.glob("*.md") if path.stem != "index")


def test_every_kind_of_alarm_has_a_page_and_every_page_one_alarm() -> None:
    assert sorted(page.path for page in Runbook) == [path.relative_to(ROOT).as_posix() for path in OF_ALARMS]


@for_each(OF_ALARMS)
def test_page_has_its_alarm_and_every_part_in_order(page: Path) -> None:
    text = page.read_text("utf-8")
    title, alarm, meaning, *rest = text.split("\n\n")

    assert re.fullmatch("# .+", title)
    assert alarm.startswith(f"Alarm `{page.stem}`: ")
    assert re.match(r"[A-Z`]", meaning)
    places = [next(n for n, part in enumerate(rest) if part.startswith(mark)) for mark in PARTS]
    assert places == sorted(places)
    assert all(n > places[-1] for n, part in enumerate(rest) if part.startswith("**Clears** "))


@for_each(OF_ALARMS)
def test_page_is_in_the_index_with_its_title(page: Path) -> None:
    title = page.read_text("utf-8").splitlines()[0].removeprefix("# ")

    assert f"| [{page.stem}]({page.name}) | {title} |" in (RUNBOOK / "index.md").read_text("utf-8")


def _aws_commands() -> list[tuple[Snippet, str]]:
    return [
        (snippet, line.removeprefix("$ "))
        for snippet in snippets()
        if snippet.page.parent == RUNBOOK and snippet.language == "console"
        for line in snippet.body.splitlines()
        if line.startswith("$ aws ")
    ]


@cache
def _service(name: str) -> ServiceModel:
    return Session().get_service_model(name)


def _refused(command: str) -> list[str]:
    """Parts of a command of AWS's that its service does not know: operation, options, members, closed values."""
    _, service, operation, *rest = shlex.split(command)
    model = _service(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in names:
        return [operation]
    shape = model.operation_model(names[operation]).input_shape
    members = {xform_name(name, "-"): member for name, member in shape.members.items()} if shape is not None else {}
    given: dict[str, list[str]] = {}
    for word in rest:
        if word.startswith("--"):
            given[word.removeprefix("--")] = []
        else:
            given[list(given)[-1]].append(word)
    wrong = [option for option in given if option not in {*members, *GLOBAL_OPTIONS}]
    required = shape.required_members if shape is not None else []
    wrong += [f"without {name}" for name in required if xform_name(name, "-") not in given]
    for option, values in given.items():
        if option in members:
            wrong += [f"{option} {value}" for value in values if not _fits(members[option], value)]
    return wrong


def _fits(shape: Any, value: str) -> bool:
    """Test a value of an option: the command takes structures as ``Name=…,Value=…``, and lists word by word."""
    if shape.type_name == "list":
        return _fits(shape.member, value)
    if shape.type_name == "structure":
        fields = dict(part.partition("=")[::2] for part in value.split(","))
        return all(name in shape.members and _fits(shape.members[name], text) for name, text in fields.items())
    if shape.type_name in {"integer", "long"}:
        return value.isdecimal()
    return value in shape.enum if getattr(shape, "enum", None) else bool(value)


@for_each(_aws_commands())
def test_every_command_of_aws_is_one(snippet: Snippet, command: str) -> None:
    assert _refused(command) == [], snippet


def _patterns() -> list[tuple[Snippet, str]]:
    """Patterns by which commands of the runbook search logs."""
    words = [(snippet, shlex.split(command)) for snippet, command in _aws_commands()]
    return [(s, found[found.index("--filter-pattern") + 1]) for s, found in words if "--filter-pattern" in found]


@for_each(_patterns())
def test_every_log_event_and_metric_that_is_searched_for_exists(snippet: Snippet, pattern: str) -> None:
    (events,) = (table.names for table in tables_marked("events"))
    searched = re.findall(r'\$\.message = "([^"]+)"', pattern)

    assert [event for event in searched if event not in events] == [], snippet
    assert pattern.startswith("{") or pattern in set(Metric), snippet


@for_each(_aws_commands())
def test_every_metric_of_ours_that_is_read_exists(snippet: Snippet, command: str) -> None:
    words = shlex.split(command)
    if METRIC_NAMESPACE in words:
        assert words[words.index("--metric-name") + 1] in set(Metric), snippet


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("aws sqs receive --queue-url Q", ["receive"]),
        ("aws sqs receive-message --queue Q", ["queue", "without QueueUrl"]),
        ("aws sqs receive-message --queue-url Q --max-number-of-messages ten", ["max-number-of-messages ten"]),
        ("aws stepfunctions list-executions --status-filter DEAD", ["status-filter DEAD"]),
        ("aws cloudtrail lookup-events --lookup-attributes Key=EventName", ["lookup-attributes Key=EventName"]),
    ],
)
def test_a_wrong_command_of_aws_is_found(command: str, wrong: list[str]) -> None:
    assert _refused(command) == wrong
