"""Functions in a row, for comparison: similar to a well-known article's architecture, and not the same.

A function behind API Gateway looks a key up, reserves it with a TTL, and starts a Standard state machine; one function
debits, one credits, a last one writes the answer into the idempotency table; every error is retried. The article,
"Idempotent Serverless Workflows for Financial Transactions with Step Functions" (devtechtools.org), reserves without a
look-up, writes the execution's ARN after the start, and has no function for the answer: ``docs/benchmarks.md``.
"""
