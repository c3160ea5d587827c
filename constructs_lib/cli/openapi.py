"""``cdk-sagas openapi``: print the OpenAPI document of a synthesized API."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from constructs_lib.cli.shared.errors import CommandError
from constructs_lib.cli.shared.output import say

_ASSEMBLY: Final = Path("cdk.out")


def add_parser(commands: Any) -> None:
    """Add ``openapi`` to the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "openapi",
        help="print the OpenAPI document of an API",
        description="Prints the OpenAPI 3.1 document of a TransactionApi in an assembly: operations, keys, bodies, "
        "every answer with its problem codes. Reads the files of the synth; needs neither AWS nor the CDK. Exit "
        "status: 0; 1 the assembly has no such API.",
    )
    parser.add_argument(
        "assembly",
        nargs="?",
        type=Path,
        default=_ASSEMBLY,
        metavar="ASSEMBLY",
        help="what cdk synth wrote (%(default)s)",
    )
    parser.add_argument(
        "--api", metavar="NAME", help="its path in the app, or the path's end; needed if there are more"
    )
    parser.add_argument("--url", metavar="URL", help="address of the deployed stage, as the document's server")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from constructs_lib.api.openapi import documents_in

    try:
        documents = documents_in(options.assembly)
    except ValueError as error:
        raise CommandError(str(error)) from None
    named = {
        path: document
        for path, document in documents.items()
        if options.api is None or path == options.api or path.endswith(f"/{options.api}")
    }
    if len(named) != 1:
        known = ", ".join(sorted(documents)) or "none"
        raise CommandError(f"--api must name one API of {options.assembly}, got {options.api}; there are: {known}")
    (document,) = named.values()
    if options.url is not None:
        document["servers"] = [{"url": options.url.rstrip("/")}]
    say(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return 0
