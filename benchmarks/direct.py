"""A direct operation and Powertools' ``@idempotent`` around the same transaction: imports, warm calls, AWS calls.

python -m benchmarks.direct
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Final

from benchmarks.aws_stub import AwsStub
from benchmarks.gatekeeper import ROOT, THEIRS, Warm, compare, environment_of_functions, import_times, write

OURS: Final = "direct operation"


def main() -> None:
    """Measure, and write the report."""
    modules = {OURS: "benchmarks.direct_handler", THEIRS: "benchmarks.direct_powertools"}
    write("direct", imports=import_times(modules), warm=warm_times())


def warm_times() -> Warm:
    """Seconds per warm call, and the AWS and Python calls of one, for new requests and for settled duplicates."""
    os.environ.update(environment_of_functions())
    sys.path[:0] = [str(ROOT / "lambda_src")]
    with contextlib.redirect_stdout(io.StringIO()):  # logs go to standard output, as in Lambda
        from benchmarks import direct_handler, direct_powertools
        from saga_runtime.shared import aws

    stub = AwsStub()
    stub.put_before(aws.dynamodb(), direct_powertools.persistence.client)
    return compare({OURS: direct_handler.handler, THEIRS: direct_powertools.handler}, stub)


if __name__ == "__main__":
    main()
