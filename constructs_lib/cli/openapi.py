"""``cdk-sagas openapi``: print the OpenAPI document of a synthesized API."""

from __future__ import annotations

import argparse
import json

from constructs_lib.api.openapi import documents_in
from constructs_lib.cli.shared.process import CommandError, add_assembly, say


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe ``openapi``, and add its options."""
    parser.description = (
        "Prints the OpenAPI 3.1 document of an API in an assembly: operations, keys, bodies, "
        "every answer with its problem codes. Reads the files of the synth; needs neither AWS nor the CDK. Exit "
        "status: 0; 1 the assembly has no such API."
    )
    add_assembly(parser)
    parser.add_argument(
        "--api", metavar="NAME", help="its path in the app, or the path's end; needed if there are more"
    )
    parser.add_argument("--url", metavar="URL", help="address of the deployed stage, as the document's server")


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit status."""
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
