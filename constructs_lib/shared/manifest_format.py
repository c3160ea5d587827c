"""Names of the parts of a stack's manifest. Neither the CDK nor boto3 is needed.

The manifest is one JSON object in the stack output ``OUTPUT``: its version, and for each ``Part``
a list of objects. All names in it are those of the deployed resources.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

OUTPUT: Final = "CdkSagas"
"""Logical id of the stack output that holds the manifest; that of a nested stack is in its root stack's."""
VERSION: Final = 1
"""Of this format. A command reads this version only: the release that deployed a stack reads that stack."""
VERSION_FIELD: Final = "version"


class Part(StrEnum):
    """Lists of a manifest."""

    SAGAS = "sagas"
    RECONCILERS = "reconcilers"
    OPERATORS = "operators"
    """Functions that act for operators."""
    TOKENS = "tokens"
    INTEGRATIONS = "integrations"
    WATCHES = "watches"
    LEDGERS = "ledgers"
    MIGRATIONS = "migrations"
    OPERATIONS = "operations"
    FUNCTIONS = "functions"
    RULES = "rules"
    SOURCES = "sources"
    QUEUES = "queues"
    ALARMS = "alarms"


class ManifestField(StrEnum):
    """Members of the objects in these lists."""

    ALWAYS = "always"
    """Steps of a saga that every request takes, and that leave a row."""
    ARN = "arn"
    BUS = "bus"
    DAYS = "days"
    DEAD_LETTERS = "dead"
    DEFINITION = "definition"
    EXTERNAL = "external"
    FUNCTION = "function"
    GRACE = "grace"
    HOLD = "hold"
    IDENTITY = "identity"
    JOBS = "jobs"
    LAYOUT = "layout"
    LIMIT = "limit"
    LOG = "log"
    MACHINE = "machine"
    MAP = "map"
    MEASURES = "measures"
    NAME = "name"
    OPERATORS = "operators"
    PATH = "path"
    QUEUE = "queue"
    RECOVERY = "recovery"
    REMEMBER = "remember"
    REQUESTS = "requests"
    ROLE = "role"
    RUNBOOK = "runbook"
    SCHEDULED = "scheduled"
    SECOND = "second"
    """Who confirms: ``SecondPerson``."""
    SERVES = "serves"
    SHARDS = "shards"
    SIDE = "side"
    SKIPPED_BY = "skipped"
    """Refusals by which a step is skipped."""
    STEPS = "steps"
    TABLE = "table"
    TIMEOUT = "timeout"
    URL = "url"
    UUID = "uuid"
    WATCHED = "watched"


class QueueRole(StrEnum):
    """Contents of a queue that nothing, or nothing but operators, reads."""

    JOBS = "jobs"
    """Dead letters of a callback integration."""
    EVENTS = "events"
    """Dead letters of a reconciler: status events, which it does without."""
    DEAD = "dead"
    """Other dead letters. ``QUEUE`` is the queue that takes them back; events for a receiver have no such queue."""
