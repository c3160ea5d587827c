"""The environment of commands: the region, and the time of a local AWS that runs faster."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from constructs_lib import cli as commands
from constructs_lib.cli.main import main
from constructs_lib.cli.shared.aws import LOCAL_STATE, session_of
from constructs_lib.cli.shared.process import CommandError
from saga_runtime.protocol import Env

ENDPOINT, CLOCK = "http://127.0.0.1:4566", "1700000000.0:20.0"


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A shell without settings, in a folder of its own."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", Env.CLOCK):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.pop(Env.CLOCK, None)


def options(region: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(profile=None, region=region)


@pytest.mark.parametrize(
    ("variables", "option", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, None, "eu-west-1"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}, None, "eu-west-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "us-east-1"}, None, "us-east-1"),
        ({"AWS_REGION": "eu-west-1"}, "eu-central-1", "eu-central-1"),
    ],
)
def test_region_is_taken_as_the_aws_cli_takes_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], option: str | None, region: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert session_of(options(option)).region_name == region


def test_every_command_makes_its_session_in_one_place() -> None:
    folder = Path(commands.__file__).parent
    made = [file.name for file in folder.rglob("*.py") if "boto3.Session(" in file.read_text("utf-8")]

    assert made == ["aws.py"]


def note(clock: str = CLOCK) -> None:
    """Note a local AWS, as ``local up`` does."""
    LOCAL_STATE.parent.mkdir()
    more = dict.fromkeys(("pid", "run_folder", "account", "region", "assembly"), "")
    LOCAL_STATE.write_text(json.dumps({**more, "endpoint_url": ENDPOINT, "clock": clock}), encoding="utf-8")


def clock_after(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> str | None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    session_of(options("us-east-1"))
    return os.environ.get(Env.CLOCK)


@pytest.mark.parametrize("endpoint", [ENDPOINT, f"{ENDPOINT}/"])
def test_command_against_local_aws_takes_its_clock(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    note()

    assert clock_after(monkeypatch, endpoint) == CLOCK


@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:4567"])
def test_command_elsewhere_keeps_its_own_clock(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    note()

    assert clock_after(monkeypatch, endpoint) is None


def test_clock_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    note()
    monkeypatch.setenv(Env.CLOCK, "1.0:1")

    assert clock_after(monkeypatch, ENDPOINT) == "1.0:1"


def test_command_without_noted_local_aws_keeps_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock_after(monkeypatch, ENDPOINT) is None


@pytest.mark.parametrize("action", ["status", "env", "down", "up", "reset", "logs"])
@pytest.mark.parametrize("text", ["", "[]", '{"endpoint_url": "http://127.0.0.1:1"}', None])
def test_state_that_local_up_did_not_note_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str, text: str | None
) -> None:
    file = tmp_path / "noted"
    if text is None:
        file.mkdir()
    else:
        file.write_text(text)

    assert main(["local", action, "--state", str(file)]) == 1

    refusal = f"cdk-sagas: {file} must be what cdk-sagas local up noted, got another file; name that with --state\n"
    assert capsys.readouterr() == ("", refusal)
    assert file.exists()


def test_command_against_local_aws_does_not_guess_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    note()
    LOCAL_STATE.write_text("{}")

    with pytest.raises(CommandError, match="must be what cdk-sagas local up noted"):
        clock_after(monkeypatch, ENDPOINT)
