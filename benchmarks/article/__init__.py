"""The article's architecture, and what its readers build instead: transfers without this library.

"Idempotent Serverless Workflows for Financial Transactions with Step Functions" (devtechtools.org). A function behind
API Gateway puts the key on condition that it is absent, for seven days; starts a Standard state machine; writes the
execution's ARN. One function debits, one credits; the last state writes the answer without a function. Four errors of
Lambda itself are retried three times.

One thing is not as printed: there the result of a task takes the place of the input, so that the last state does not
find the key, and no transfer is ever completed. Here a task's result is discarded.
"""
