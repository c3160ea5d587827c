"""``python -m examples.funds_transfer.demo.synthesize FOLDER``: write the example's assembly."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# If a virtual environment contains Node, it lies next to its Python; the CDK searches for it when it is imported.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

from aws_cdk import App

from constructs_lib import Run
from examples.funds_transfer.stack import FundsTransferStack

if __name__ == "__main__":
    app = App(outdir=sys.argv[1])
    FundsTransferStack(app, "FundsTransfer", run=Run.INLINE)
    app.synth()
