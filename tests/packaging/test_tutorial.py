"""The tutorial, typed from its page into an empty folder with only the wheel installed, and the app of ``init``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

from constructs_lib.cli.init.command import APP, write
from constructs_lib.cli.main import main
from tests.packaging.conftest import ROOT, link_distributions, run

PAGE: Final = ROOT / "docs" / "tutorial" / "first-saga.md"
_FILE: Final = re.compile(r'^```\w+ title="constructs_lib/cli/init/app/([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PYRIGHT: Final = ROOT / "node_modules" / "pyright" / "index.js"
USERS_STACK: Final = Path(__file__).with_name("stack_of_concrete_classes.py")
NOT_TYPED: Final = {".gitignore", "README.md", "requirements.txt"}


def typed(folder: Path) -> Path:
    """Write the files that the page shows."""
    folder.mkdir()
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def files_of(folder: Path) -> dict[str, str]:
    """Contents of all files of a folder."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text(encoding="utf-8") for file in files}


@pytest.fixture(scope="session")
def testing_python(clean_python: Path) -> Path:
    """The clean environment with the extra ``local`` and pytest."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site_packages = Path(run([str(clean_python), "-c", code], cwd=clean_python.parent).strip())
    (installed,) = metadata.distributions(name="cdk-sagas", path=[str(site_packages)])
    extra = [
        need.partition(";")[0] for need in installed.requires or [] if 'extra == "local"' in need.replace("'", '"')
    ]
    link_distributions([*extra, "pytest"], site_packages)
    return clean_python


def test_the_page_shows_every_file_whole(tmp_path: Path) -> None:
    write(tmp_path / "written")

    shown, written = files_of(typed(tmp_path / "typed")), files_of(tmp_path / "written")

    assert written.keys() - shown.keys() == NOT_TYPED
    assert {name: written[name] for name in shown} == shown


def test_what_the_page_shows_passes_its_tests_with_only_the_wheel(testing_python: Path, tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME")}

    said = run(
        [str(testing_python), "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=typed(tmp_path / "first_saga"),
        env=environment,
    )

    assert "5 passed" in said


def test_init_writes_a_new_folder_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "payments"

    assert main(["init", str(folder)]) == 0
    assert "pytest test_simulated.py" in capsys.readouterr().out
    assert len(files_of(folder)) == len(files_of_app())
    assert re.search(r"^cdk-sagas\[local\]==\d", (folder / "requirements.txt").read_text(), re.MULTILINE)

    assert main(["init", str(folder)]) == 1
    assert "FOLDER must be new or empty" in capsys.readouterr().err
    assert main(["init", str(folder / "stack.py")]) == 1
    assert main(["init", " "]) == 1


def test_pyright_finds_nothing_in_what_users_write(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    write(folder)
    shutil.copy(USERS_STACK, folder)
    assert PYRIGHT.is_file(), "node_modules is missing; run `make setup`"

    command = ["node", str(PYRIGHT), "--pythonpath", sys.executable, "."]
    checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=570)

    assert checked.returncode == 0, checked.stdout
    assert "0 errors, 0 warnings" in checked.stdout


def files_of_app() -> list[Path]:
    """The files that ``init`` copies."""
    return [file for file in APP.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
