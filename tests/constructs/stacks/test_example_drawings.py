"""The pictures of the examples show what is synthesized."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from aws_cdk import Stack

from constructs_lib.cli.main import main
from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.graph.readme import sagas_shown
from tests.constructs.support.factories import AppFactory

pytestmark = pytest.mark.exhaustive

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = sorted(stack.parent for stack in EXAMPLES.glob("*/stack.py"))
WITHOUT_SAGAS = {"wallet"}
WITH_SAGAS = [folder for folder in FOLDERS if folder.name not in WITHOUT_SAGAS]


@pytest.fixture(scope="module")
def assembly(new_app: AppFactory) -> Path:
    """The examples, as the reference app has them."""
    app = new_app()
    for folder in FOLDERS:
        module = importlib.import_module(f"examples.{folder.name}.stack")
        (stack,) = (
            kind
            for kind in vars(module).values()
            if inspect.isclass(kind) and issubclass(kind, Stack) and kind.__module__ == module.__name__
        )
        stack(app, folder.name.title().replace("_", ""))
    return Path(app.synth().directory)


def test_there_are_examples() -> None:
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_page_of_an_example_shows_each_of_its_sagas(folder: Path, assembly: Path) -> None:
    own = [saga.name for saga in sagas_of(assembly) if saga.name.startswith(folder.name.title().replace("_", ""))]

    assert bool(own) is (folder.name not in WITHOUT_SAGAS)
    assert sagas_shown((folder / "README.md").read_text("utf-8")) == own


@pytest.mark.parametrize("folder", WITH_SAGAS, ids=lambda folder: folder.name)
def test_the_drawings_of_an_example_are_current(folder: Path, assembly: Path, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_bytes((folder / "README.md").read_bytes())

    assert main(["graph", str(assembly), "--update", str(page)]) == 0

    for drawn in tmp_path.iterdir():
        shown = folder / drawn.name
        assert drawn.read_bytes() == shown.read_bytes(), (
            f"{shown} is not current: synthesize, then run cdk-sagas graph --update {folder / 'README.md'}"
        )
