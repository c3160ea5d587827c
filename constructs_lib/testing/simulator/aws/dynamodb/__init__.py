"""DynamoDB in memory: expressions, conditions, transactions that conflict, indexes that are behind."""

from .service import DynamoDB, Later, Prompt, Timing
from .tables import Index, KeySchema, Table
from .trees import Condition, clauses_of, without

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
