"""DynamoDB in memory: expressions, conditions, transactions that conflict, indexes that are behind."""

from constructs_lib.testing.simulator.aws.dynamodb.service import DynamoDB, Later, Prompt, Timing
from constructs_lib.testing.simulator.aws.dynamodb.tables import Index, KeySchema, Table
from constructs_lib.testing.simulator.aws.dynamodb.trees import Condition, clauses_of, without

__all__ = [
    "Condition",
    "DynamoDB",
    "Index",
    "KeySchema",
    "Later",
    "Prompt",
    "Table",
    "Timing",
    "clauses_of",
    "without",
]
