"""``cdk-sagas graph`` writes files, and the parts of a page between its comments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from constructs_lib.cli.main import main
from constructs_lib.saga.description.description import METADATA_TYPE, SagaDescription
from constructs_lib.saga.graph.readme import with_blocks
from constructs_lib.saga.graph.svg import to_svg
from tests.unit.support.drawn_sagas import ORDER, TRANSFER, saga, step

OTHER_ORDER = saga(step("Move", side="pivot"), name="Wholesale/Order")


def assembly_of(folder: Path, *sagas: SagaDescription) -> Path:
    """An assembly that holds these sagas and nothing else."""
    metadata = {f"/{one.name}": [{"type": METADATA_TYPE, "data": one.to_json()}] for one in sagas}
    folder.mkdir()
    manifest = {"artifacts": {"App": {"type": "aws:cloudformation:stack", "metadata": metadata}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    return assembly_of(tmp_path / "cdk.out", ORDER, TRANSFER)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "README.md"
    page.write_text("# Shop\n\n<!-- saga:Shop/Order -->\nold\n<!-- /saga -->\n\nThe end.\n")
    return page


def test_each_saga_gets_a_picture_and_a_chart(
    assembly: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "drawn"

    assert main(["graph", str(assembly), "--output", str(out)]) == 0

    assert sorted(file.name for file in out.iterdir()) == ["order.mmd", "order.svg", "transfer.mmd", "transfer.svg"]
    assert (out / "order.svg").read_text("utf-8") == to_svg(ORDER)
    assert capsys.readouterr().out.splitlines()[0].endswith("transfer.svg")


def test_one_saga_in_one_format_can_be_requested(assembly: Path, tmp_path: Path) -> None:
    out = tmp_path / "drawn"

    assert main(["graph", str(assembly), "--saga", "Order", "--format", "mermaid", "--output", str(out)]) == 0

    assert [file.name for file in out.iterdir()] == ["order.mmd"]


def test_the_part_of_a_page_between_the_comments_is_regenerated(assembly: Path, page: Path) -> None:
    assert main(["graph", str(assembly), "--update", str(page)]) == 0

    text = page.read_text("utf-8")
    assert text.startswith("# Shop\n\n<!-- saga:Shop/Order -->\n![The saga Order: ")
    assert "](order.svg)\n\n<details>" in text
    assert "```mermaid\nflowchart TD\n" in text
    assert text.endswith("</details>\n<!-- /saga -->\n\nThe end.\n")
    assert (page.parent / "order.svg").is_file()


def test_a_page_that_is_current_stays_untouched(assembly: Path, page: Path) -> None:
    main(["graph", str(assembly), "--update", str(page)])
    before = (page.read_bytes(), page.stat().st_mtime_ns)

    main(["graph", str(assembly), "--update", str(page)])

    assert (page.read_bytes(), page.stat().st_mtime_ns) == before


def test_pictures_may_lie_elsewhere(assembly: Path, page: Path) -> None:
    out = page.parent / "docs" / "images"

    assert main(["graph", str(assembly), "--update", str(page), "--format", "svg", "--output", str(out)]) == 0

    assert "](docs/images/order.svg)\n<!-- /saga -->" in page.read_text("utf-8")
    assert "mermaid" not in page.read_text("utf-8")


def test_two_sagas_of_one_name_get_files_of_their_own(tmp_path: Path) -> None:
    assembly = assembly_of(tmp_path / "cdk.out", ORDER, OTHER_ORDER)

    assert main(["graph", str(assembly), "--format", "svg", "--output", str(tmp_path)]) == 0

    assert {"shop-order.svg", "wholesale-order.svg"} <= {file.name for file in tmp_path.iterdir()}


def test_a_name_that_two_sagas_share_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assembly = assembly_of(tmp_path / "cdk.out", ORDER, OTHER_ORDER)

    assert main(["graph", str(assembly), "--saga", "Order"]) == 1

    assert "several sagas are called Order; name one of: Shop/Order, Wholesale/Order" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Shop\n", "shows no saga; put <!-- saga:"),
        ("<!-- saga:Shop/Oder -->\n<!-- /saga -->\n", "no saga is called Shop/Oder"),
        ("<!-- saga:Shop/Order -->\n", "does not end; put <!-- /saga --> behind it"),
        ("<!-- saga:Shop/Order -->\n<!-- saga:Shop/Order -->\n<!-- /saga -->\n", "does not end"),
    ],
)
def test_a_page_that_cannot_be_regenerated_is_unchanged(
    assembly: Path, page: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    page.write_text(text)

    assert main(["graph", str(assembly), "--update", str(page)]) == 1

    assert said in capsys.readouterr().err
    assert page.read_text() == text


def test_text_around_the_comments_is_never_changed() -> None:
    page = "a\n<!-- saga:X -->\nold\n<!-- /saga -->\nb\n<!-- saga:Y -->\n<!-- /saga -->\nc"

    assert with_blocks(page, lambda name: f"{name.lower()}\n") == (
        "a\n<!-- saga:X -->\nx\n<!-- /saga -->\nb\n<!-- saga:Y -->\ny\n<!-- /saga -->\nc"
    )


def test_a_folder_without_an_assembly_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(tmp_path)]) == 1

    assert "no cloud assembly is in" in capsys.readouterr().err


def test_an_assembly_without_sagas_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(assembly_of(tmp_path / "cdk.out"))]) == 1

    assert "no saga is in" in capsys.readouterr().err
