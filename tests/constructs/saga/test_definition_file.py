"""The committed definition: what is written, and which change of it sagas in flight could not follow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack, Stage
from constructs import Construct

from constructs_lib import Provider, Step, StepGroup
from constructs_lib.saga.synthesis.compile import committed_steps, fingerprint_of, ways_of
from constructs_lib.saga.validation.budget import Finding, Severity
from constructs_lib.saga.validation.definition_file import WRITE_VARIABLE, compare_with_file
from saga_runtime.protocol import WAYS_AT
from tests.constructs.support.integrations import integration, job
from tests.constructs.support.sagas import plain_function

Steps = list[Step | StepGroup]
Change = Callable[["Shop"], Steps]


class Shop:
    """The same saga, and ways to change it."""

    def __init__(self, stack: Stack) -> None:
        self.fn = plain_function(stack, "Function")

    def atomic(self, name: str, *, undo: bool = True, pivot: bool = False) -> Step:
        return Step.atomic(name, fn=self.fn, compensate=self.fn if undo else None, pivot=pivot)

    def steps(self) -> Steps:
        items = Step.map("Ship", items="$request.items", key="$item.sku", steps=[self.atomic("Pack")])
        return [self.atomic("Debit"), items, self.atomic("Credit", undo=False, pivot=True), self.atomic("Book")]


@pytest.fixture(scope="module")
def shop(new_app: Callable[[], Any]) -> Shop:
    return Shop(Stack(new_app(), "Test"))


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed file of the saga as it was."""
    path = tmp_path / "definitions" / "shop.json"
    monkeypatch.setenv(WRITE_VARIABLE, "1")
    assert compare_with_file(path, committed_steps(shop.steps()), ways_of(shop.steps())) == []
    monkeypatch.delenv(WRITE_VARIABLE)
    return path


@pytest.mark.parametrize(
    "change", [{"items": "$request.lines"}, {"key": "$item.id"}, {"max_items": 2}], ids=["items", "key", "limit"]
)
@pytest.mark.parametrize("compensated", [True, False])
def test_functions_of_other_items_are_outlived_where_a_compensation_visits_items(
    shop: Shop, change: dict[str, Any], compensated: bool
) -> None:
    given: dict[str, Any] = {"items": "$request.items", "key": "$item.sku", "max_items": 3}
    names = {
        fingerprint_of([Step.map("Ship", **{**given, **changed}, steps=[shop.atomic("Pack", undo=compensated)])])[
            :WAYS_AT
        ]
        for changed in ({}, change)
    }

    assert len(names) == (2 if compensated else 1)


def _findings(file: Path, steps: Steps) -> list[Finding]:
    return compare_with_file(file, committed_steps(steps), ways_of(steps))


def test_the_file_contains_what_a_recovery_depends_on(file: Path) -> None:
    assert json.loads(file.read_text("utf-8"))["steps"] == [
        {"name": name, "kind": "atomic", "side": side, "compensated": compensated, "per_item": per_item, "phase": ""}
        for name, side, compensated, per_item in (
            ("Debit", "before", True, False),
            ("Pack", "before", True, True),
            ("Credit", "pivot", False, False),
            ("Book", "after", True, False),
        )
    ]
    assert file.read_text("utf-8").endswith("}\n")


def test_the_same_definition_is_nothing_to_speak_of(file: Path, shop: Shop) -> None:
    assert _findings(file, shop.steps()) == []


def test_a_missing_file_is_a_warning_with_the_command_that_writes_it(tmp_path: Path, shop: Shop) -> None:
    (finding,) = _findings(tmp_path / "none.json", shop.steps())
    assert (finding.id, finding.severity) == ("cdk-sagas-definition-file", Severity.WARNING)
    assert "none.json does not exist" in finding.message
    assert f"{WRITE_VARIABLE}=1" in finding.message
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"steps": [1]}', '{"steps": [{}]}', "no json", "null"])
def test_a_file_that_no_synth_wrote_is_an_error(file: Path, shop: Shop, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    (finding,) = _findings(file, shop.steps())
    assert (finding.id, finding.severity) == ("cdk-sagas-definition-file", Severity.ERROR)


def _pack(shop: Shop, *others: Step) -> StepGroup:
    return Step.map("Ship", items="$request.items", key="$item.sku", steps=[shop.atomic("Pack"), *others])


FOLLOWED: dict[str, Change] = {
    "a further step": lambda s: [s.atomic("New"), *s.steps()],
    "a further step behind the pivot": lambda s: [*s.steps(), s.atomic("New")],
    "another order": lambda s: [_pack(s), s.atomic("Debit"), *s.steps()[2:]],
    "a further step of the items": lambda s: [s.atomic("Debit"), _pack(s, s.atomic("Label")), *s.steps()[2:]],
    "a compensation that was added": lambda s: [*s.steps()[:2], s.atomic("Credit", pivot=True), s.atomic("Book")],
}


@pytest.mark.parametrize("change", FOLLOWED)
def test_a_change_that_sagas_in_flight_can_follow_is_a_warning(file: Path, shop: Shop, change: str) -> None:
    (finding,) = _findings(file, FOLLOWED[change](shop))
    assert (finding.id, finding.severity) == ("cdk-sagas-definition-file", Severity.WARNING)
    assert "in a way that sagas in flight can follow" in finding.message


def test_a_step_that_moved_into_a_phase_or_was_added_to_one_ends_the_synth(file: Path, shop: Shop) -> None:
    credit = shop.atomic("Credit", undo=False, pivot=True)
    debit, ship, _, book = shop.steps()
    with_phase = [debit, ship, Step.child("Phase", steps=[credit], timeout=Duration.minutes(9)), book]

    (moved,) = _findings(file, with_phase)
    assert "step Credit moved into or out of a phase from '' to 'Phase'" in moved.message

    compare = file.with_name("phase.json")
    compare.write_text(json.dumps({"steps": committed_steps(with_phase), "ways": ways_of(with_phase)}), "utf-8")
    more = Step.child("Phase", steps=[shop.atomic("Check"), credit], timeout=Duration.minutes(9))
    (added,) = _findings(compare, [debit, ship, more, book])
    assert (
        "step Check was added to phase Phase: a saga in flight that calls it compensates, or is parked" in added.message
    )


def _external(shop: Shop) -> Step:
    return Step.external(
        "Debit",
        fn=shop.fn,
        compensate=shop.fn,
        provider=Provider(idempotent_for=Duration.days(1), compensation_idempotent_for=Duration.days(1)),
    )


REFUSED: dict[str, tuple[Change, str, str]] = {
    "removed": (lambda s: s.steps()[1:], "Debit", "was removed or renamed"),
    "renamed": (lambda s: [s.atomic("Take"), *s.steps()[1:]], "Debit", "was removed or renamed"),
    "another kind": (lambda s: [_external(s), *s.steps()[1:]], "Debit", "changed its kind from 'atomic' to 'external'"),
    "out of the map": (
        lambda s: [s.atomic("Debit"), s.atomic("Pack"), *s.steps()[2:]],
        "Pack",
        "moved into or out of a map from True to False",
    ),
    "into a map": (
        lambda s: [_pack(s, s.atomic("Debit")), *s.steps()[2:]],
        "Debit",
        "moved into or out of a map from False to True",
    ),
    "behind the pivot": (
        lambda s: [*s.steps()[1:3], s.atomic("Debit"), s.atomic("Book")],
        "Debit",
        "changed its side of the pivot from 'before' to 'after'",
    ),
    "before the pivot": (
        lambda s: [s.atomic("Book"), *s.steps()[:3]],
        "Book",
        "changed its side of the pivot from 'after' to 'before'",
    ),
    "no compensation": (lambda s: [*s.steps()[:3], s.atomic("Book", undo=False)], "Book", "lost its compensation"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_sagas_in_flight_could_not_follow_is_an_error_that_names_the_step(
    file: Path, shop: Shop, change: str
) -> None:
    steps, name, what = REFUSED[change]
    (finding,) = _findings(file, steps(shop))
    assert (finding.id, finding.severity) == (f"cdk-sagas-definition-{name}", Severity.ERROR)
    assert finding.message.startswith(f"step {name} {what}: ")
    assert f"put it back, or wait for them: run the synth once with {WRITE_VARIABLE}=1" in finding.message


def test_a_callback_step_that_moves_to_another_integration_is_an_error(stack: Stack, tmp_path: Path) -> None:
    """The former integration refuses reports of jobs in flight from then on."""
    file = tmp_path / "picked.json"
    before, after = integration(stack, "Warehouse"), integration(Construct(stack, "Other"), "Warehouse")
    file.write_text(json.dumps({"steps": committed_steps([job(before)]), "ways": {}}), "utf-8")

    assert _findings(file, [job(before)]) == []
    (finding,) = _findings(file, [job(after)])

    assert (finding.id, finding.severity) == ("cdk-sagas-definition-Pick", Severity.ERROR)
    assert finding.message.startswith(
        "step Pick moved from CallbackIntegration 'Warehouse' to 'Other/Warehouse': reports of jobs and waits in "
        "flight get 503"
    )
    assert "docs/how-to/replace-a-saga.md" in finding.message


def test_an_integration_has_the_same_place_in_each_stage(new_app: Callable[[], Any]) -> None:
    app = new_app()
    places = {
        integration(Construct(Stack(Stage(app, stage), "Shop"), "Jobs")).place for stage in ("Testing", "Production")
    }

    assert places == {"Jobs/Warehouse"}


def _asked(shop: Shop, **ways: str) -> Steps:
    items, key = ways.get("items", "$request.items"), ways.get("key", "$item.sku")
    ship = Step.map("Ship", items=items, key=key, steps=[shop.atomic("Pack")])
    debit = Step.atomic("Debit", fn=shop.fn, compensate=shop.fn, when=ways.get("when"))
    return [debit, ship, *shop.steps()[2:]]


@pytest.mark.parametrize(
    ("ways", "what"),
    [
        ({"when": "$request.a"}, "Debit when was added"),
        ({"items": "$request.lines"}, "Ship items was changed"),
        ({"key": "$item.id"}, "Ship key was changed"),
    ],
)
def test_other_conditions_items_and_keys_are_an_error(file: Path, shop: Shop, ways: dict[str, str], what: str) -> None:
    (finding,) = _findings(file, _asked(shop, **ways))

    assert (finding.id, finding.severity) == ("cdk-sagas-definition-ways", Severity.ERROR)
    assert finding.message.startswith(f"{what}: ")
    assert "parked" in finding.message


def test_a_condition_that_was_removed_is_an_error(shop: Shop, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WRITE_VARIABLE, "1")
    assert _findings(file, _asked(shop, when="$request.a")) == []
    monkeypatch.delenv(WRITE_VARIABLE)

    (finding,) = _findings(file, _asked(shop))

    assert finding.message.startswith("Debit when was removed: ")


def test_each_step_that_cannot_be_followed_is_named(file: Path, shop: Shop) -> None:
    another = [shop.atomic("Debit", undo=False, pivot=True), shop.atomic("Credit", undo=False)]
    found = {finding.id.rpartition("-")[2] for finding in _findings(file, [*another])}
    assert found == {"Debit", "Pack", "Credit", "Book"}


def test_with_the_variable_the_file_is_written_and_nothing_compared(
    file: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WRITE_VARIABLE, "1")
    changed = shop.steps()[1:]
    assert _findings(file, changed) == []
    assert [step["name"] for step in json.loads(file.read_text("utf-8"))["steps"]] == ["Pack", "Credit", "Book"]
