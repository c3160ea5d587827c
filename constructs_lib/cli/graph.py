"""``cdk-sagas graph``: draw the sagas of a synthesized app, as SVG and Mermaid, and keep a page's pictures current."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from constructs_lib.cli.shared.process import CommandError, add_assembly
from constructs_lib.saga.description.assembly import sagas_of
from constructs_lib.saga.description.description import SagaDescription
from constructs_lib.saga.graph.mermaid import to_mermaid
from constructs_lib.saga.graph.readme import block, sagas_shown, with_blocks
from constructs_lib.saga.graph.svg import to_svg
from constructs_lib.saga.graph.words import file_name, long_file_name

_SVG, _MERMAID, _BOTH = "svg", "mermaid", "both"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``graph``, and add its options."""
    parser.description = (
        "Draws each saga of an assembly: the forward path, its compensations, the pivot. Reads "
        "the files of the synth; needs neither AWS nor the CDK. With --update, rewrites the parts of that page between "
        "<!-- saga:NAME --> and <!-- /saga -->, and nothing else in it. Exit status: "
        "0; 1 the assembly has no such saga, or a part of the page does not end."
    )
    add_assembly(parser)
    parser.add_argument("--saga", metavar="NAME", help="only this one: its path in the app, or the path's end")
    parser.add_argument("--format", choices=(_SVG, _MERMAID, _BOTH), default=_BOTH, help="(%(default)s)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of the files (here; or the page's)")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="a page whose marked parts are regenerated")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
    try:
        sagas = sagas_of(options.assembly)
        if options.saga is not None:
            sagas = [_named(sagas, options.saga)]
        if not sagas:
            raise CommandError(f"no saga is in {options.assembly}; synthesize an app that has a SagaStateMachine")
        written = _page(options, sagas) if options.update is not None else _files(options, sagas)
    except ValueError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    for file in written:
        sys.stdout.write(f"{file}\n")
    return 0


def _files(options: argparse.Namespace, sagas: Sequence[SagaDescription]) -> list[Path]:
    """A file per saga and format."""
    folder = options.output or Path()
    written = []
    for saga, name in zip(sagas, _file_names(sagas), strict=True):
        if options.format != _MERMAID:
            written.append(_write(folder / f"{name}.svg", to_svg(saga)))
        if options.format != _SVG:
            written.append(_write(folder / f"{name}.mmd", to_mermaid(saga)))
    return written


def _page(options: argparse.Namespace, sagas: Sequence[SagaDescription]) -> list[Path]:
    """Write the page, and its pictures; its Mermaid is in the page itself."""
    page: Path = options.update
    text = page.read_text(encoding="utf-8")
    shown = sagas_shown(text)
    if not shown:
        raise CommandError(
            f"{page} shows no saga; put <!-- saga:{sagas[0].name} --> and <!-- /saga --> where the picture belongs"
        )
    folder: Path = options.output or page.parent
    names = dict(zip((saga.name for saga in sagas), _file_names(sagas), strict=True))
    written: list[Path] = []

    def drawn(name: str) -> str:
        saga = _named(sagas, name)
        if options.format == _MERMAID:
            return block(saga, image=None, mermaid=True)
        file = folder / f"{names[saga.name]}.svg"
        written.append(_write(file, to_svg(saga)))
        image = Path(os.path.relpath(file, page.parent)).as_posix()
        return block(saga, image=image, mermaid=options.format == _BOTH)

    changed = with_blocks(text, drawn)
    return [*dict.fromkeys(written), _write(page, changed)]


def _named(sagas: Sequence[SagaDescription], name: str) -> SagaDescription:
    """The saga of that path, or of the only path that ends so."""
    found = [saga for saga in sagas if saga.name == name] or [s for s in sagas if s.name.endswith(f"/{name}")]
    if len(found) != 1:
        known = ", ".join(saga.name for saga in sagas)
        what = "several sagas are" if found else "no saga is"
        raise CommandError(f"{what} called {name}; name one of: {known}")
    return found[0]


def _file_names(sagas: Sequence[SagaDescription]) -> list[str]:
    """Short names; the whole path's where two sagas would share one."""
    short = [file_name(saga) for saga in sagas]
    return [name if short.count(name) == 1 else long_file_name(saga) for saga, name in zip(sagas, short, strict=True)]


def _write(file: Path, text: str) -> Path:
    """Write a file unless it is as it should be: what did not change keeps its time."""
    if not file.exists() or file.read_bytes() != text.encode():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return file
