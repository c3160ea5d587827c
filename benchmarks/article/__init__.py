"""The architecture of a well-known article, written anew, to measure beside.

"Idempotent Serverless Workflows for Financial Transactions with Step Functions" (devtechtools.org): a function behind
API Gateway looks a key up, reserves it with a TTL, and starts a Standard state machine; one function debits, one
credits, a last one writes the answer into the idempotency table; every error is retried.
"""
