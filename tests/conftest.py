"""Lets tests run without `make`, from an editor for instance: the CDK finds the virtual environment's Node."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

from tests.sampling import head

_BIN = Path(sys.prefix) / "bin"
if (_BIN / "node").exists() and os.environ.get("PATH", "").split(os.pathsep)[0] != str(_BIN):
    os.environ["PATH"] = f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}"

# The CDK's own validation of templates takes a fifth of a second for each app. One test runs it on every example
# (tests/constructs/stacks/test_lint.py).
os.environ["CDK_VALIDATION"] = "false"
# Stack traces of constructs are not read here, and take a tenth of a synth.
os.environ.setdefault("CDK_CONTEXT_JSON", '{"aws:cdk:disable-stack-trace": true}')

# What is alive here lives long (moto's models, constructs, snapshots): looking for garbage among it at every turn takes
# a twelfth of the time.
gc.set_threshold(200_000, 20, 50)


def pytest_report_header() -> str:
    """Report what samples are drawn by."""
    return head()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report what was compared with DynamoDB Local, if it ran."""
    if "CDK_SAGAS_DYNAMODB_LOCAL" not in os.environ:
        return
    # Imported here: other runs do not need it.
    from tests.parity.mirror import server

    local = server()
    if local is not None:
        for line in local.report():
            terminalreporter.write_line(line)
