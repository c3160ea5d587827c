"""``cdk-sagas diff``: which sagas in flight survive a changed definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from constructs_lib.cli.main import main
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription
from constructs_lib.saga.steps.run import Run

Document = dict[str, Any]
STEP: Final[Document] = {
    "name": "Debit",
    "kind": "atomic",
    "side": "before",
    "compensated": True,
    "per_item": False,
    "phase": "",
}
CREDIT: Final[Document] = {**STEP, "name": "Credit", "side": "pivot", "compensated": False}
BEFORE: Final[Document] = {"steps": [STEP, CREDIT], "ways": {"Credit when": "$request.credit"}}


def changed(**step: Any) -> Document:
    return {**BEFORE, "steps": [{**STEP, **step}, CREDIT]}


FOLLOWED: Final = "all sagas in flight can follow"
CHANGES: Final[dict[str, tuple[Document, int, str]]] = {
    "nothing": (BEFORE, 0, "is unchanged"),
    "a step is added": (
        {**BEFORE, "steps": [STEP, {**STEP, "name": "Fee"}, CREDIT]},
        0,
        FOLLOWED,
    ),
    "another order": ({**BEFORE, "steps": [CREDIT, STEP]}, 0, FOLLOWED),
    "a step is renamed": (
        changed(name="Take"),
        1,
        "step Debit was removed or renamed: a saga in flight that has",
    ),
    "another side": (changed(side="after"), 1, "changed its side of the pivot from 'before' to 'after'"),
    "another kind": (changed(kind="external"), 1, "changed its kind"),
    "no compensation": (changed(compensated=False), 1, "lost its compensation"),
    "another condition": (
        {**BEFORE, "ways": {"Credit when": "true"}},
        1,
        "Credit when was changed: a saga in",
    ),
    "a condition more": ({**BEFORE, "ways": {**BEFORE["ways"], "Debit when": "true"}}, 1, "Debit when was added"),
    "prepared": ({**BEFORE, "run": Run.PREPARED.value}, 0, FOLLOWED),
    "inline at once": ({**BEFORE, "run": Run.INLINE.value}, 1, "deploy Run.PREPARED between"),
}


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def assembly(folder: Path, **sagas: Document) -> Path:
    """A cloud assembly with these sagas."""
    folder.mkdir()
    entries = [
        {
            "type": METADATA_TYPE,
            "data": SagaDescription(
                name=f"Shop/{name}", steps=(), timeout=60, fingerprint="f", definition=document
            ).to_json(),
        }
        for name, document in sagas.items()
    ]
    stack = {"type": "aws:cloudformation:stack", "metadata": {"/Shop": entries}}
    written(folder / "manifest.json", {"artifacts": {"Shop": stack}})
    names = ("machine", "recovery", "requests", "log", "operators")
    listed = [
        {"path": f"Shop/{name}", "shards": 16, "days": 400, **{each: f"{name}-{each}" for each in names}}
        for name in sagas
    ]
    listing = json.dumps({"version": 1, "sagas": listed})
    written(folder / "Shop.template.json", {"Outputs": {"CdkSagas": {"Value": listing}}})
    return folder


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("of_files", [True, False], ids=["files", "assemblies"])
def test_change_of_a_saga(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, of_files: bool) -> None:
    document, status, text = CHANGES[change]
    if of_files:
        old, new = written(tmp_path / "old.json", BEFORE), written(tmp_path / "new.json", document)
    else:
        old, new = assembly(tmp_path / "old", Pay=BEFORE), assembly(tmp_path / "new", Pay=document)

    assert main(["diff", str(old), str(new)]) == status

    said = capsys.readouterr().out
    assert text in said
    assert said.startswith("the saga " if of_files else "Shop/Pay ")


def test_added_and_removed_sagas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = assembly(tmp_path / "old", Pay=BEFORE, Old=BEFORE), assembly(tmp_path / "new", Pay=BEFORE, New=BEFORE)

    assert main(["diff", str(old), str(new), "--json"]) == 1

    found = {one["saga"]: one for one in json.loads(capsys.readouterr().out)}
    assert {name: one["survives"] for name, one in found.items()} == {
        "Shop/Pay": True,
        "Shop/Old": False,
        "Shop/New": True,
    }
    assert "no reconciler recovers them" in found["Shop/Old"]["text"]
    assert main(["diff", str(old), str(new), "--saga", "Pay"]) == 0


def test_assembly_is_compared_with_a_definition_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path / "old.json", BEFORE)
    new = assembly(tmp_path / "new", Pay=BEFORE, Other=changed(name="Take"))

    assert main(["diff", str(old), str(new)]) == 1
    assert "choose one with --saga" in capsys.readouterr().err
    assert main(["diff", str(old), str(new), "--saga", "Pay"]) == 0
    assert main(["diff", str(old), str(new), "--saga", "Shop/Other"]) == 1


WRONG: Final = ["{}", "[]", "7", "not JSON", '{"steps": 7, "ways": {}}', '{"steps": [{}], "ways": {}}', '{"steps": []}']


@pytest.mark.parametrize("text", WRONG)
def test_file_of_another_form_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    old = written(tmp_path / "old.json", BEFORE)
    (tmp_path / "new.json").write_text(text)

    assert main(["diff", str(old), str(tmp_path / "new.json")]) == 1

    said = capsys.readouterr().err
    assert "new.json must be a cloud assembly or a definition file" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_path_without_definitions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    (tmp_path / "empty").mkdir()
    old = written(tmp_path / "old.json", BEFORE)

    assert main(["diff", str(old), str(tmp_path / path)]) == 1
    assert "must be a cloud assembly" in capsys.readouterr().err


def test_unknown_saga_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = assembly(tmp_path / "old", Pay=BEFORE)

    for name in ("Nope", "", "/", "y"):
        assert main(["diff", str(folder), str(folder), "--saga", name]) == 1
        assert "must have a saga" in capsys.readouterr().err
