"""The command ``cdk-sagas cost``, from an assembly to the terminal."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from constructs_lib.cli.main import main
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription
from tests.unit.saga.test_cost_usage import saga, step
from tools.cost_examples import PLAIN, STOREFRONT


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    return _written(tmp_path, PLAIN, STOREFRONT)


def _written(folder: Path, *sagas: SagaDescription) -> Path:
    metadata = {f"/{one.name}": [{"type": METADATA_TYPE, "data": one.to_json()}] for one in sagas}
    artifact = {"type": "aws:cloudformation:stack", "metadata": metadata}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": {"Stack": artifact}}), "utf-8")
    return folder


def _said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["cost", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_it_reports_usage_costs_and_assumptions(assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _said(capsys, assembly, "--saga", "storefront", "--per-day", 10_000)

    assert "Standard transitions" in text
    assert "a month" in text
    assert "StartExecution per second" in text
    assert "not counted" in text
    assert "2026-" in text
    assert "https://aws.amazon.com/step-functions/pricing/" in text
    assert "five plain steps" not in text
    assert max(map(len, text.splitlines())) <= 140


def test_it_reports_every_saga_by_default(assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _said(capsys, assembly)

    assert PLAIN.name in text
    assert STOREFRONT.name in text
    assert "a month" not in text


def test_it_compares_other_designs(assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Lambda durable functions" in _said(capsys, assembly, "--compare")
    assert "Lambda durable functions" not in _said(capsys, assembly)


def test_the_inputs_change_the_result(assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def used(*options: object) -> dict[str, float]:
        document = json.loads(_said(capsys, assembly, "--saga", PLAIN.name, "--json", *options))
        amounts: dict[str, float] = document[0]["happy_path"]["used_by_one"]
        return amounts

    plain = used()
    assert used("--duration", "Charge=1500")["Lambda GB-seconds"] == pytest.approx(plain["Lambda GB-seconds"] + 0.5)
    assert used("--duration", "100")["Lambda GB-seconds"] == pytest.approx(plain["Lambda GB-seconds"] - 0.2)
    assert used("--writes", "3")["DynamoDB write units"] == plain["DynamoDB write units"] + 4 * 2 * 2
    assert used("--writes", "Step1=3")["DynamoDB write units"] == plain["DynamoDB write units"] + 2 * 2
    assert used("--retries", "0.2")["Standard transitions"] == plain["Standard transitions"] + 1
    assert "REST API requests" not in used("--no-api")
    assert used("--polls", "3")["REST API requests"] == 4
    assert used("--event", "queue")["SQS requests"] == 3
    assert used("--event", "rule")["EventBridge events"] == plain.get("EventBridge events", 0) + 1
    assert "REST API requests" not in used("--event", "stream", "--polls", "3")


def test_a_rate_a_second_and_a_rate_a_day_are_the_same_thing(
    assembly: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_second = json.loads(_said(capsys, assembly, "--json", "--rate", 2))
    by_day = json.loads(_said(capsys, assembly, "--json", "--per-day", 172_800))

    assert by_second == by_day


def test_a_step_of_another_saga_does_not_disturb_this_one(assembly: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _said(capsys, assembly, "--duration", "CommitOrder=20", "--duration", "Charge=20")


def test_a_step_can_be_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _written(tmp_path, saga(step("A", when="$request.a"), step("B", side="pivot")))

    assert "happy path            B\n" in _said(capsys, tmp_path, "--skip", "A")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--saga", "nothing"], "it has five plain steps, storefront"),
        (["--duration", "Unknown=1"], "no saga has a step 'Unknown'"),
        (["--skip", "Charge"], "no conditional step 'Charge'"),
        (["--rate", "0"], "a rate must be above 0"),
        (["--per-day", "1e400"], "a rate must be above 0 and at most 1,000,000,000,000 sagas a day, got 1E+400"),
        (["--retries", "1e400"], "retries must be 0 to 1,000,000,000,000, got 1E+400"),
        (["--memory", "1"], "memory_mib must be 128 or more"),
        (["--gatekeeper-memory", "1"], "gatekeeper_mib must be 128 or more"),
        (["--gatekeeper-duration", "-1"], "gatekeeper_ms must be 0 to 1,000,000,000,000"),
    ],
)
def test_an_invalid_question_is_refused_in_one_line(
    assembly: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["cost", str(assembly), *arguments]) == 1

    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--rate", "x"], ["--rate", "nan"], ["--duration", "x"], ["--writes", "A="]])
def test_an_invalid_number_is_refused(assembly: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cost", str(assembly), *arguments])


def test_an_assembly_without_sagas_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(_written(tmp_path))]) == 1
    assert "describes no saga" in capsys.readouterr().err


def test_a_folder_that_is_not_an_assembly_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(tmp_path)]) == 1
    assert "cdk synth" in capsys.readouterr().err


def test_a_file_that_is_not_an_assembly_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "template.json"
    file.write_text("{}")

    assert main(["cost", str(file)]) == 1
    assert f"no cloud assembly is in {file}; " in capsys.readouterr().err


def test_an_ascii_terminal_gets_ascii(assembly: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))

    assert main(["cost", str(assembly)]) == 0
    assert b"####" in written.getvalue()
