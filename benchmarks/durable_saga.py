"""Two steps as a durable function, on AWS's local runner. Runs where that is installed: see ``benchmarks.durable``."""

import json
import logging
import sys
import time
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python_testing import DurableFunctionTestRunner

logging.disable(logging.CRITICAL)


def handler(event: Any, context: DurableContext) -> dict[str, Any]:
    """Debit, credit: nothing is written by either."""
    context.step(lambda _: {"amount": event["amount"]}, name="Debit")
    context.step(lambda _: {"amount": event["amount"]}, name="Credit")
    return {"amount": event["amount"]}


def main() -> None:
    """Run so many sagas, and print processor milliseconds for one."""
    sagas = int(sys.argv[1])
    with DurableFunctionTestRunner(handler=durable_execution(handler)) as runner:
        for _ in range(5):
            runner.run(input='{"amount": 100}')
        begun = time.process_time()
        for number in range(sagas):
            ended = runner.run(input=json.dumps({"amount": number}))
            if ended.status.value != "SUCCEEDED":
                raise RuntimeError(f"a saga ended as {ended.status.value}")
        sys.stdout.write(f"{(time.process_time() - begun) / sagas * 1e3}\n")


if __name__ == "__main__":
    main()
