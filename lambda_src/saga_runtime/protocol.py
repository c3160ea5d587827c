"""Agreements between infrastructure and runtime, in one place and with the standard library only.

The constructs import this module to write templates; the runtime imports it to read and write items. A name that
is in a stored item, in a template and in a function is defined here and nowhere else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

PROTOCOL_VERSION: Final = 1
"""Raised when a function of one version could misread what a state machine or a function of another one wrote."""


class RecordAttribute(StrEnum):
    """Attributes of a request record (table: ``IdempotencyTable``).

    ``id``, ``status`` and ``expiration`` are the names that Powertools' ``DynamoDBPersistenceLayer`` uses by default.
    """

    ID = "id"
    STATUS = "status"
    EXPIRATION = "expiration"
    FINGERPRINT = "fingerprint"
    SCOPE = "scope"
    OPERATION = "operation"
    INPUT = "input"
    SAGA_ID = "saga_id"
    OWNER = "owner"
    DIRECTION = "direction"
    FAILURE = "failure"
    DEFINITION = "definition"
    EXECUTION_ARN = "execution_arn"
    ALIAS = "alias"
    """Of the state machine: the first execution is started by it."""
    RECOVERY_MACHINE_ARN = "recovery_machine_arn"
    RECOVERIES = "recoveries"
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    DUE_AT = "due_at"
    DUE_SHARD = "due_shard"
    HTTP_STATUS = "http_status"
    RESPONSE_EXPIRES_AT = "response_expires_at"
    """Until when a settled record's response is replayed; epoch seconds. From then on its key is refused."""
    RESPONSE_SHARD = "response_shard"
    """Place in the index of responses that are to be removed when they expire; until one is."""
    RESPONSE = "response"
    LATE_OUTCOME_AT = "late_outcome_at"
    """When an outcome found no waiting task: an execution that parks the saga afterwards does not know of it."""
    PARKED_BY = "parked_by"
    PARKED_AT = "parked_at"
    LOG_EXPIRES_AT = "log_expires_at"
    """Until when no row of its log is deleted; epoch seconds. Absent: each is kept for as long as when written."""
    PARKED_REASON = "parked_reason"
    LATE_TRIED = "late_tried"
    """Number of the last execution that was to undo late effects, and could not: an operator starts the next one."""
    LATE_AT = "late_at"
    """When late effects that could not be undone are checked again; epoch milliseconds."""
    AMOUNT = "amount"
    """Amount of the request, in minor units of its currency, if the operation declares where the body has it."""
    CURRENCY = "currency"
    DECISIONS = "decisions"
    """Decisions of operators about the saga, the earliest first: a list that is only appended to."""
    PROPOSALS = "proposals"
    """Decisions that a second operator confirms, the earliest first: appended to, and removed with the response."""
    RAN = "ran"
    """By which type of state machine the saga was settled, if it may run inline: ``Ran``."""


IN_FLIGHT_ATTRIBUTES: Final = (
    RecordAttribute.STATUS,
    RecordAttribute.EXECUTION_ARN,
    RecordAttribute.CREATED_AT,
    RecordAttribute.PARKED_BY,
    RecordAttribute.PARKED_AT,
    RecordAttribute.AMOUNT,
    RecordAttribute.CURRENCY,
)
"""Attributes in the request records' sparse index besides its keys: enough to sum what is in flight."""


class RecordStatus(StrEnum):
    """States of a request record."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


SETTLED: Final = (RecordStatus.COMPLETED, RecordStatus.FAILED)


class Ran(StrEnum):
    """Type of the state machine that settled a saga which may run inline."""

    EXPRESS = "EXPRESS"
    STANDARD = "STANDARD"


SAGA_CANCELLED: Final = "SagaCancelled"
"""Error of a saga that an operator cancelled before its pivot."""
RESULT_FAILED: Final = "ResultFailed"
"""Error name of a parked saga whose steps are done, and whose ``result`` fails to evaluate."""
SAGA_DELEGATED: Final = "SagaDelegated"
"""Error with which an Express execution ends that left its saga to the Standard machine."""
WAYS_AT: Final = 24
"""Where the part of a definition's fingerprint begins that identifies by what a saga goes its way: its conditions, keys
of a map's items, and outputs in place of refused steps."""
EXPRESS_MARK: Final = "+express"
"""Ends the definition in the input of a saga for which Express executions are started.

A Standard machine that does not expect them never begins such a saga.
"""
MAX_INLINE_SECONDS: Final = 60
"""Longest Express execution of a saga, and longest invocation of a step of it."""
OUTLIVE_EXPRESS_SECONDS: Final = 3 * MAX_INLINE_SECONDS
"""After a reservation: its gatekeeper starts Express, which invokes a function, and each of them has ended."""


class Direction(StrEnum):
    """Direction of a saga, once decided. Decided by a write, and never changed."""

    FORWARD = "forward"
    COMPENSATE = "compensate"


class LogAttribute(StrEnum):
    """Attributes of a saga log row."""

    SAGA_ID = "saga_id"
    STEP = "step"
    STATUS = "status"
    OUTPUT = "output"
    ATTEMPT_ID = "attempt_id"
    SIDE = "side"
    DEADLINE = "deadline"
    FIRST_ATTEMPT_AT = "first_attempt_at"
    ERROR = "error"
    DETAIL = "detail"
    ACCEPTED_AT = "accepted_at"
    """Of a job: when the provider took it on. Absent: it may have, and the answer was lost."""
    SUBSTITUTE = "substitute"
    """Substitute output of a skipped step that was applied late."""
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    EXPIRATION = "expiration"


class StepStatus(StrEnum):
    """States of a saga log row."""

    INTENT = "INTENT"
    """A provider is, or may have been, asked to act: the outcome is not known yet."""
    DONE = "DONE"
    RECORDED = "RECORDED"
    """A read-only step answered this; there is nothing to undo."""
    TOMBSTONE = "TOMBSTONE"
    COMPENSATING = "COMPENSATING"
    """A provider is, or may have been, asked to undo."""
    COMPENSATED = "COMPENSATED"
    REFUSED = "REFUSED"
    APPLIED_LATE = "APPLIED_LATE"
    """A late effect: a job that was treated as not applied was applied; it is compensated automatically."""


class Side(StrEnum):
    """Position of a step in its saga. A row keeps it, so that a recovery under another definition notices."""

    BEFORE = "before"
    PIVOT = "pivot"
    AFTER = "after"


NOTHING_STANDS: Final = (StepStatus.TOMBSTONE, StepStatus.COMPENSATED, StepStatus.REFUSED, StepStatus.RECORDED)
"""Row states of a step without an effect. A saga settles FAILED only over rows in these states."""


class LedgerAttribute(StrEnum):
    """Attributes of the items of a ``LedgerTable``."""

    PK = "pk"
    SK = "sk"
    KIND = "kind"
    BALANCE = "balance"
    CURRENCY = "currency"
    STATE = "state"
    CAP = "cap"
    SEQUENCE = "sequence"
    AMOUNT = "amount"
    BALANCE_AFTER = "balance_after"
    COUNTERPARTY = "counterparty"
    ENTRY_ID = "entry_id"
    POSTED_AT = "posted_at"
    OPENED_AT = "opened_at"
    PLACES = "places"
    HELD = "held"
    """Sum of an account's open holds: part of its balance, and not available."""
    HOLD_ID = "hold_id"
    EXPIRES_AT = "expires_at"
    CLOSED_AT = "closed_at"
    CLOSED_BY = "closed_by"
    CAPTURED = "captured"
    LEGS = "legs"
    """Digest of the legs of a capture."""
    DUE_AT = "due_at"
    DUE_SHARD = "due_shard"


DUE_INDEX: Final = "due"
"""Sparse index of the request records, or of the token rows, to check again; of a ledger, of open
holds and collecting shards."""
RESPONSE_INDEX: Final = "responses"
"""Sparse index of the settled request records that still hold a response, by when it expires."""
FIRST_SHARD: Final = "00"
"""Every index has it, however many it has."""
LEDGER_DUE_SHARDS: Final = 16
"""Partitions of a ledger's index."""


class TokenAttribute(StrEnum):
    """Attributes of the rows of a ``CallbackIntegration``'s token table.

    Five kinds of rows share it: jobs (``id`` is the step key), aliases of jobs (``alias#`` and the provider's own id),
    markers of events that were received (``event#`` and a hash), decisions of people (``approval#`` and the job), and
    notices to operators (``notice#``, the job, the error, and the outcome's id).
    """

    ID = "id"
    STATUS = "status"
    TOKEN = "token"
    ATTEMPT_ORDER = "attempt_order"
    """Sorts the attempts at one job: text that compares as their age does."""
    OUTCOME = "outcome"
    """JSON text of ``OutcomeField``."""
    LOG_TABLE = "log_table"
    REQUEST_TABLE = "request_table"
    EXECUTION = "execution"
    JOB_ID = "job_id"
    """Of an alias or a notice: its job. Of a marker: the job's id in the event."""
    EVENT_ID = "event_id"
    """The event whose outcome the row holds; of a marker, the event's id as it was sent."""
    OK = "ok"
    """Of a marker: whether its event reports a success."""
    WAITING_SINCE = "waiting_since"
    EXPECTED_AT = "expected_at"
    """When the task will have waited longer than expected."""
    WAIT_EXPIRES_AT = "wait_expires_at"
    """When the wait has certainly ended."""
    HEARTBEAT_AT = "heartbeat_at"
    FAILED_DISPATCHES = "failed_dispatches"
    DISPATCH_ERROR = "dispatch_error"
    DECISION = "decision"
    """Of an approval: JSON text of what was decided, by whom, when, and with which note."""
    CONFLICT = "conflict"
    """JSON text of an outcome that contradicts the one that counts."""
    APPLIED_LATE_AT = "applied_late_at"
    """Time of a late effect; present until it is compensated."""
    DEAD_LETTER_QUEUE_URL = "dead_letter_queue_url"
    """Of a job: URL of the queue to notify if it is never reported."""
    REPORTED_UNANSWERED_AT = "reported_unanswered_at"
    """When that queue was notified."""
    MAX_OUTPUT = "max_output"
    """Bytes that the job's output may have."""
    ENTRY = "entry"
    """Of a notice: the entry for operators, JSON text."""
    QUEUE_URL = "queue_url"
    """Of a notice: URL of the queue that gets the entry."""
    FORGOTTEN_AT = "forgotten_at"
    """Of an outcome of an unknown job: when an operator closed it; until it is contradicted, or its job is known."""
    DECISIONS = "decisions"
    """Of the same: the decisions of operators to close it, as in a request record."""
    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    DUE_AT = "due_at"
    DUE_SHARD = "due_shard"
    EXPIRATION = "expiration"


class TokenStatus(StrEnum):
    """States of a token row."""

    WAITING = "WAITING"
    """A state machine waits."""
    EARLY = "EARLY"
    """An outcome is known, and no task waits yet."""
    DELIVERING = "DELIVERING"
    """The outcome is known, and is being delivered."""
    DELIVERED = "DELIVERED"
    """Delivered."""
    UNDELIVERED = "UNDELIVERED"
    """No task waited any more."""
    ALIAS = "ALIAS"
    EVENT = "EVENT"
    DECIDED = "DECIDED"
    """Of an approval: a person has decided."""
    NOTICE = "NOTICE"
    """Of a notice: operators' queue does not have the entry yet."""
    NOTIFIED = "NOTIFIED"
    """Of a notice: the queue has the entry, and no operator has acknowledged its outcome."""


class OutcomeField(StrEnum):
    """Fields of an outcome."""

    OK = "ok"
    OUTPUT = "output"
    """JSON text, as a saga log row keeps it."""
    ERROR = "error"
    DETAIL = "detail"


UNANSWERED_FIELD: Final = "unanswered"
"""The only member of an entry of an unanswered job in a dead-letter queue: ``UnansweredField``."""


class UnansweredField(StrEnum):
    """Fields of an entry of an unanswered job, which its saga abandoned.

    Times are epoch milliseconds; 0 or an empty text: not known, or it has not happened. It has no task token.
    """

    JOB_ID = "job_id"
    SAGA_ID = "saga_id"
    STEP = "step"
    """Name of the saga log's row."""
    EXECUTION = "execution"
    """The execution that waited last."""
    FOUND_AT = "found_at"
    WAITING_SINCE = "waiting_since"
    EXPECTED_AT = "expected_at"
    HEARTBEAT_AT = "heartbeat_at"
    FAILED_DISPATCHES = "failed_dispatches"
    """How many deliveries of the job failed."""
    DISPATCH_ERROR = "dispatch_error"
    LOG_STATUS = "log_status"
    """State of the saga log's row; empty: it does not exist."""
    FIRST_ATTEMPT_AT = "first_attempt_at"
    ACCEPTED_AT = "accepted_at"
    RECORD_STATUS = "record_status"
    """State of the saga's request record; empty: it is gone."""
    LOG_TABLE = "log_table"
    REQUEST_TABLE = "request_table"


class TaskField(StrEnum):
    """Fields of which attempt of which execution waits; together they order the attempts at one job."""

    STARTED = "started"
    REDRIVEN = "redriven"
    ENTERED = "entered"
    RETRIED = "retried"


class WaitField(StrEnum):
    """Fields of how long a callback step waits, in seconds."""

    HEARTBEAT = "heartbeat"
    TIMEOUT = "timeout"


class ServedField(StrEnum):
    """Fields of a saga whose callbacks an integration receives; a list of them is ``Env.CALLBACKS``."""

    LOG = "log"
    REQUESTS = "requests"
    DAYS = "days"
    OPERATORS = "operators"
    STEPS = "steps"
    """Step name to ``ServedStepField``."""


class ServedStepField(StrEnum):
    """Fields of one callback step."""

    SIDE = "side"
    JOB = "job"
    """True: the provider works for the saga. False: the saga only waits for something to happen."""
    UNDO = "undo"
    """True if something undoes it."""


class ReconciledField(StrEnum):
    """Fields of a reconciler's saga; a list of them is ``Env.RECONCILED``."""

    MACHINE = "machine"
    """Name of its forward state machine."""
    REQUESTS = "requests"
    SHARDS = "shards"
    """Shards of the request table's sparse index."""
    LOG = "log"
    DAYS = "days"
    OPERATORS = "operators"
    TOKENS = "tokens"
    """Steps whose late effects can be compensated, by the token table of their jobs."""


class LookField(StrEnum):
    """Fields of the event that a schedule sends to a reconciler."""

    LOOK = "look"
    """A ``Look``; absent, everything that is due is checked."""


class Look(StrEnum):
    """Tasks of a reconciler."""

    IN_FLIGHT = "in-flight"
    """Everything that is not settled: it is counted, and its money added up."""


class HoldAttribute(StrEnum):
    """Attributes of an item that holds a reconciler: while it is there, nothing is changed; or not its saga."""

    ID = "id"
    SINCE = "since"
    """Epoch milliseconds."""
    REASON = "reason"
    WHO = "who"
    """ARN of the operator."""
    DECISIONS = "decisions"
    """Of another item, which stays: the newest decisions about that switch, as ``RecordAttribute.DECISIONS``."""


HOLD_ID: Final = "hold"
"""Of the item for all sagas; the others have the ids of their sagas."""
HOLD_DECISIONS: Final = "#decisions"
"""Ends the id of a switch's decisions."""


class OnceAttribute(StrEnum):
    """Attributes of the item of a job that runs once in a period, in the table of request records."""

    OWNER = "owner"
    STATE = "state"
    """``RUNNING``, ``DONE`` or ``FAILED``."""
    HOST = "host"
    STARTED_AT = "started_at"
    """Epoch milliseconds."""
    EXIT_STATUS = "exit_status"
    DECISIONS = "decisions"
    """Those to run it again, or that it is done, as ``RecordAttribute.DECISIONS``."""


ONCE_PREFIX: Final = "once#"
"""Begins the ids of these items; no request's id has a ``#``."""


class ListAttribute(StrEnum):
    """Attributes of a proposal to resume many sagas, in the table of request records: no saga's item."""

    AT = "at"
    """Epoch milliseconds, as all its times."""
    WHO = "who"
    """ARN of the proposer."""
    USER_ID = "user_id"
    """Its unique id, from AWS."""
    WHY = "why"
    EXPIRES_AT = "expires_at"
    SAGAS = "sagas"
    """JSON text of a list: of each saga its id, its owner, and when it was parked."""
    CONFIRMED_AT = "confirmed_at"
    """Absent, as the two below, until it is confirmed."""
    CONFIRMED_BY = "confirmed_by"
    CONFIRMED_WHY = "confirmed_why"
    EXPIRATION = "expiration"


LIST_PREFIX: Final = "list#"
"""Begins the ids of these items; a hash follows."""


class MigrationAttribute(StrEnum):
    """Attributes that a migration adds to a table, besides the table's own keys.

    On items of customers: ``at`` and, for each concern, ``at_<concern>``. All others belong to the migration's own
    items: its phase, and the progress of each job.
    """

    AT = "at"
    """Of a new item: ``DUAL`` or ``NEW``. Of an old item, with ``_`` and a concern's name behind it: the same."""
    PHASE = "phase"
    CHANGED_AT = "changed_at"
    """When the phase changed last; epoch milliseconds."""
    CHANGES = "changes"
    """Number of changes of the phase. Of a pass: that of the phase that it serves."""
    LAYOUT = "layout"
    """Of the phase: hash of the layout with which it changed."""
    DECISIONS = "decisions"
    """Of the phase: its newest changes, as ``RecordAttribute.DECISIONS``."""
    VERSION = "version"
    """Of a job's progress: +1 with each page. Of two runs of one job, one writes it."""
    CURSOR = "cursor"
    """JSON text of the key behind which the next page begins. Absent: at the start."""
    BEGAN_AT = "began_at"
    """When this pass of the table began."""
    SEEN = "seen"
    MOVED = "moved"
    LEFT = "left"
    """Concerns of customers that this pass found and could not move, or compare."""
    COMPARED = "compared"
    DIFFERENT = "different"
    EXAMPLES = "examples"
    """JSON text of the first concerns that differ or are left: customer, concern, reason."""
    LAST = "last"
    """JSON text of the last complete pass: ``PassField``."""


class PassField(StrEnum):
    """Fields of a complete pass."""

    PHASE = "phase"
    CHANGES = "changes"
    BEGAN_AT = "began_at"
    ENDED_AT = "ended_at"
    SEEN = "seen"
    MOVED = "moved"
    LEFT = "left"
    COMPARED = "compared"
    DIFFERENT = "different"
    CLEAN_SINCE = "clean_since"
    """Since when passes of this phase have found no difference, or nothing to move; None: the last one did."""


class MigrationField(StrEnum):
    """Fields of ``Env.MIGRATION``."""

    NAME = "name"
    OLD_ITEM = "old_item"
    PARTITION_KEY = "partition_key"
    SORT_KEY = "sort_key"
    GROUPS = "groups"
    ITEM = "item"
    ATTRIBUTES = "attributes"
    PILOTS = "pilots"
    HISTORIES = "histories"
    OLD_PREFIX = "old_prefix"
    NEW_PREFIX = "new_prefix"
    ID = "id"
    ORDER = "order"
    MOST_PHASE = "most_phase"
    SEGMENTS = "segments"
    ENDED_AFTER = "ended_after"
    CLEAN_FOR = "clean_for"
    KEPT_FOR = "kept_for"
    WRITERS = "writers"


class LedgerTermsField(StrEnum):
    """Fields of ``Env.LEDGER_TERMS``, and of a collecting entry in it."""

    UNITS = "units"
    """Decimal places by code."""
    COLLECTING = "collecting"
    PREFIX = "prefix"
    UNIT = "unit"
    SHARDS = "shards"
    HOLDS = "holds"


class MoneyPathField(StrEnum):
    """Fields of ``Env.MONEY``. Of currency and code there is one."""

    AMOUNT = "amount"
    """JSON pointer to the amount in minor units."""
    CURRENCY = "currency"
    """JSON pointer to the currency."""
    CODE = "code"
    """The unit's code itself, of an operation that knows only one."""
    UNITS = "units"
    """Codes of units that bodies may name in addition to ISO 4217 currencies."""


class FailedStatus(StrEnum):
    """Statuses of a failed execution, as Step Functions names them."""

    TIMED_OUT = "TIMED_OUT"
    """Its machine's ``TimeoutSeconds`` were over: none of its states could catch that."""
    ABORTED = "ABORTED"
    """It was stopped: none of its states could catch that, either."""
    FAILED = "FAILED"
    """It came to a ``Fail`` state, or met an error that no state caught, or that none can catch."""


class FailureEventField(StrEnum):
    """Fields of the event that an ``on_timeout`` function is called with. Times are epoch milliseconds."""

    ID = "id"
    """The same in every call for one end of one execution."""
    EXECUTION_ARN = "execution_arn"
    NAME = "name"
    STATE_MACHINE_ARN = "state_machine_arn"
    STATUS = "status"
    """A ``FailedStatus``."""
    ERROR = "error"
    CAUSE = "cause"
    INPUT = "input"
    """The text that the execution was started with."""
    STARTED_AT = "started_at"
    STOPPED_AT = "stopped_at"
    REDRIVE_COUNT = "redrive_count"
    ATTEMPT = "attempt"
    """Attempt number, starting at 1."""


class WatchedField(StrEnum):
    """Fields of a hand-written state machine that a reconciler watches; a list of them is ``Env.WATCHED``."""

    MACHINE = "machine"
    """ARN of the state machine."""
    FUNCTION = "function"
    """ARN of the function that is called when one of its executions fails."""
    ENDS = "ends"
    """Statuses to report: ``FailedStatus``."""
    GRACE = "grace"
    """Seconds between the end and the call."""
    LEASE = "lease"
    """Seconds after which a call of the function is certainly over, even if its caller crashed."""
    ATTEMPTS = "attempts"


class WatchAttribute(StrEnum):
    """Attributes of the rows that a reconciler keeps of hand-written state machines.

    Two kinds of rows share the table: ends of executions (``id`` is the execution's ARN, ``#``, and how often it had
    been redriven), and how far executions were listed (``list#``, the machine's ARN, ``#`` and the ``FailedStatus``).
    """

    ID = "id"
    STATUS = "status"
    EXECUTION_STATUS = "execution_status"
    """The ``FailedStatus``."""
    STOPPED_AT = "stopped_at"
    FOUND_AT = "found_at"
    UPDATED_AT = "updated_at"
    ATTEMPT = "attempt"
    """How often its function was called."""
    NOT_BEFORE = "not_before"
    """No call before this: the grace, a pause, or the lease of a call that may be under way. Only while pending."""
    ERROR = "error"
    """Error name of the last call."""
    REDRIVEN_AT = "redriven_at"
    """When a redrive of the execution was found, which has not ended again."""
    DUE_AT = "due_at"
    """Of an end: its next check. Of a list: its next read."""
    DUE_SHARD = "due_shard"
    EXPIRATION = "expiration"
    LISTED_UNTIL = "listed_until"
    """Of a list: every end before this has a row, if the list was in order, and not behind."""
    VERIFIED_UNTIL = "verified_until"
    """Of a list: every end before this has a row; it was read to its end since."""
    SCAN_STARTED_AT = "scan_started_at"
    """Of a list: when the pass began that is under way."""
    PAGE_TOKEN = "page_token"
    """Of a list: where that pass continues."""
    VERSION = "version"
    """Of a list: raised by every write."""


class DecisionField(StrEnum):
    """Members of an operator's decision, in the list that its saga's record keeps."""

    AT = "at"
    """Epoch milliseconds."""
    WHO = "who"
    """ARN of the caller."""
    WHAT = "what"
    WHY = "why"
    PARKED_REASON = "parked_reason"
    """Step and error for which the saga was parked then; absent if it was not parked."""
    PROPOSAL = "proposal"
    """Number of the proposal that ``who`` confirmed; absent: ``who`` decided alone."""
    PROPOSED_BY = "proposed_by"
    """ARN of who proposed it."""


class ProposalField(StrEnum):
    """Members of a proposal, in the list that its saga's record keeps."""

    NUMBER = "number"
    """Place in the list of decisions of the one that states it: nothing removes those, so it is never another's."""
    AT = "at"
    """Epoch milliseconds."""
    WHO = "who"
    """ARN of the caller."""
    USER_ID = "user_id"
    """The caller's unique id, from AWS: of a role with the name of the session."""
    WHY = "why"
    EXPIRES_AT = "expires_at"
    """Epoch milliseconds."""
    STEP = "step"
    """Sort key of the row that the answer is about; absent: to resume the saga."""
    APPLIED = "applied"
    COMPENSATION = "compensation"
    OUTPUT = "output"
    ROW_STATUS = "row_status"
    """Of the row, as it was read; absent: there was none."""
    ROW_ATTEMPT = "row_attempt"
    LOG_DAYS = "log_days"
    """For how many days rows of the saga's log were always kept; absent: the proposer stated nothing."""
    STATUS = "status"
    """Of the record, as it was read."""
    OWNER = "owner"
    PARKED_AT = "parked_at"
    """Epoch milliseconds; absent: it was not parked."""


class SecondPerson(StrEnum):
    """Principals that may confirm a proposal. AWS knows principals, not people."""

    OTHER_ROLE = "OTHER_ROLE"
    """Another IAM user or another role. Two sessions of one role are one principal: the caller that assumes it chooses
    the session's name."""
    OTHER_SESSION = "OTHER_SESSION"
    """Also a session of the same role under another name: for roles whose sessions are named by others than those who
    use them, as IAM Identity Center does, or a trust policy that requires ``sts:RoleSessionName``."""


class WatchStatus(StrEnum):
    """States of an end."""

    PENDING = "PENDING"
    """Its function has not succeeded."""
    NOTIFIED = "NOTIFIED"
    DEAD_LETTERED = "DEAD_LETTERED"
    """Its function failed on every allowed attempt: operator action is required."""
    SUPERSEDED = "SUPERSEDED"
    """The execution was redriven before the call: that end is obsolete."""


class WatchMessageField(StrEnum):
    """The only member of a message in the queue of a reconciler's watch, by what it is."""

    ENDED = "detail"
    """A status event, cut down to the execution's name."""
    DUE = "due"
    """The id of an end that is due."""
    EXECUTION = "execution"
    """An end that was reported to operators; it is retried when the dead letters are redriven."""


class SchemeKind(StrEnum):
    """Schemes of signed webhooks."""

    STRIPE = "stripe"
    """One header with a time and hex HMAC-SHA256 signatures: ``t=…,v1=…``."""
    HMAC = "hmac"
    """An HMAC of the body, or of a text around it, in a header."""
    PADDLE = "paddle"
    """Paddle's header: ``ts=…;h1=…``."""
    STANDARD = "standard-webhooks"
    """Standard Webhooks: ``webhook-id``, ``webhook-timestamp``, ``webhook-signature`` with ``v1`` signatures."""
    STANDARD_KEY_PAIR = "standard-webhooks-v1a"
    """The same with ``v1a`` signatures: Ed25519, and a public key."""
    ADYEN = "adyen"
    """Adyen's payment notifications: signatures inside the body."""
    OWN = "own"
    """A function of the user's."""


class SchemeField(StrEnum):
    """Fields of ``Env.WEBHOOK_SCHEME``. All but the first three belong to single kinds; absent, they have a default."""

    KIND = "kind"
    """A ``SchemeKind``."""
    SECRETS = "secrets"
    """ARNs of the secrets in Secrets Manager; a signature by any of them counts."""
    TOLERANCE = "tolerance"
    """Seconds after which a signed time is too old."""
    HEADER = "header"
    """Of Stripe's kind, Paddle's and HMAC: the header with the signature."""
    HASH = "hash"
    """Of HMAC: ``sha256`` or ``sha512``."""
    ENCODING = "encoding"
    """Of HMAC: ``hex`` or ``base64``."""
    PREFIX = "prefix"
    """Of HMAC: text before the signature in its header."""
    TIMESTAMP_HEADER = "timestamp_header"
    """Of HMAC: the header with the signed time, since the epoch."""
    TIME_UNIT = "time_unit"
    """Of HMAC: ``s`` or ``ms``, the unit of the signed time."""
    KEY_ENCODING = "key_encoding"
    """Of HMAC: ``text``, ``hex`` or ``base64``, in which a secret holds its key."""
    HEADER_PREFIX = "header_prefix"
    """Of Standard Webhooks: ``webhook`` or ``svix``, the first word of its headers."""
    FUNCTION = "function"
    """Of a user's own: ``module.function``, which checks requests."""
    TEMPLATE = "template"
    """Of HMAC: the text that is signed, with ``{timestamp}`` and ``{body}``."""
    FIELD = "field"
    """The field of each secret's JSON object that is the key; absent: each secret is its text."""
    PREVIOUS = "previous"
    """Seconds for which a secret's previous version counts, from when the current one was created."""


EVENT_PREFIX: Final = "event#"
ALIAS_PREFIX: Final = "alias#"
APPROVAL_PREFIX: Final = "approval#"
NOTICE_PREFIX: Final = "notice#"
TOKEN_DUE_SHARDS: Final = 8
"""Shards of the token table's sparse index."""
WATCH_DUE_SHARDS: Final = 4
"""Shards of the sparse index of ends of hand-written state machines' executions."""
WATCH_LIST_PREFIX: Final = "list#"
DELIVERING_SECONDS: Final = 60
"""An outcome that is undelivered after this long is delivered again."""
EVENT_ID_PATTERN: Final = r"^[\x21-\x7e]{1,255}$"
JOB_ID_PATTERN: Final = r"^[\x21-\x7e]{1,255}$"
MIN_KEY_BYTES: Final = 16
"""Shorter keys can be guessed: 128 bits are the least that RFC 2104 and Standard Webhooks come near to."""
PREVIOUS_SECONDS: Final = 86_400
"""For so long, unless it is declared otherwise, the previous version of a rotated secret counts."""
MAX_WEBHOOK_BYTES: Final = 262_144
"""A webhook's body; larger ones are refused."""
MAX_EVENT_BYTES: Final = 65_536
"""Detail of an outbox' event; with what is around it less than the 256 KB that every EventBridge quota has allowed."""
MAX_MESSAGE_BYTES: Final = 1_048_576
"""A message of SQS with its attributes (SQS's quotas)."""

STATUS_OF_REFUSAL: Final = 422
"""HTTP status that a refused saga settles with, unless the saga's ``http_status_by_error`` names another."""


class ErrorName(StrEnum):
    """Error names that the state machine matches. A class of the same name exists in ``saga_runtime.errors``."""

    FENCED = "SagaFenced"
    TRANSIENT = "TransientError"
    CONFLICT = "Conflict"
    IN_DOUBT = "StepInDoubt"
    UNDECIDED = "ManualResolutionRequired"
    OVERDUE = "JobStillPending"
    PERMANENT = "PermanentError"
    INVALID = "Invalid"
    DECLINED = "Declined"
    INSUFFICIENT_FUNDS = "InsufficientFunds"
    CAP_EXCEEDED = "CapExceeded"
    CALLBACK_TIMED_OUT = "WaitTimedOut"
    ACCOUNT_NOT_FOUND = "AccountNotFound"
    ACCOUNT_CLOSED = "AccountClosed"
    CURRENCY_MISMATCH = "CurrencyMismatch"
    DUPLICATE_POSTING = "DuplicatePosting"
    HOLD_UNKNOWN = "HoldUnknown"
    HOLD_CLOSED = "HoldClosed"
    HOLD_EXCEEDED = "HoldExceeded"


PERMANENT_ERRORS: Final = (
    ErrorName.PERMANENT,
    ErrorName.INVALID,
    ErrorName.DECLINED,
    ErrorName.INSUFFICIENT_FUNDS,
    ErrorName.CAP_EXCEEDED,
    ErrorName.ACCOUNT_NOT_FOUND,
    ErrorName.ACCOUNT_CLOSED,
    ErrorName.CURRENCY_MISMATCH,
    ErrorName.DUPLICATE_POSTING,
    ErrorName.HOLD_UNKNOWN,
    ErrorName.HOLD_CLOSED,
    ErrorName.HOLD_EXCEEDED,
)
"""Refusals: never retried. A subclass of ``PermanentError`` that a user defines is named in the step's ``refusals``."""

SERVICE_REFUSALS: Final = (
    "AWS.AccessDeniedException",
    "AWS.ResourceNotFoundException",
    "AWS.ValidationException",
)
"""Calls that AWS refused for good, and that wrote nothing: never retried on the way forward. Not names of exceptions
that a function could raise itself: what an external step's function raises may come after its effect."""

TRANSIENT_ERRORS: Final = (
    ErrorName.TRANSIENT,
    ErrorName.CONFLICT,
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "Lambda.TooManyRequestsException",
    "Lambda.ClientExecutionTimeoutException",
)
"""Retried with full jitter. Every name that is in no list is in doubt."""


class Env(StrEnum):
    """Environment variables of our functions."""

    PROTOCOL = "CDK_SAGAS_PROTOCOL"
    CLOCK = "CDK_SAGAS_CLOCK"
    REQUEST_TABLE = "CDK_SAGAS_REQUEST_TABLE"
    LOG_TABLE = "CDK_SAGAS_LOG_TABLE"
    STATE_MACHINE_ARN = "CDK_SAGAS_STATE_MACHINE_ARN"
    RECOVERY_MACHINE_ARN = "CDK_SAGAS_RECOVERY_MACHINE_ARN"
    EXPRESS_MACHINE_ARN = "CDK_SAGAS_EXPRESS_MACHINE_ARN"
    ALIAS = "CDK_SAGAS_ALIAS"
    DEFINITION = "CDK_SAGAS_DEFINITION"
    OPERATION = "CDK_SAGAS_OPERATION"
    IDENTITY = "CDK_SAGAS_IDENTITY"
    KEY_POLICY = "CDK_SAGAS_KEY_POLICY"
    KEY_SOURCE = "CDK_SAGAS_KEY_SOURCE"
    ALLOWED_ORIGINS = "CDK_SAGAS_ALLOWED_ORIGINS"
    DOCS_URL = "CDK_SAGAS_DOCS_URL"
    IN_PROGRESS_RESPONSE = "CDK_SAGAS_IN_PROGRESS_RESPONSE"
    DUE_AFTER_SECONDS = "CDK_SAGAS_DUE_AFTER_SECONDS"
    DUE_SHARDS = "CDK_SAGAS_DUE_SHARDS"
    MAX_BODY_BYTES = "CDK_SAGAS_MAX_BODY_BYTES"
    KEPT_EVENTS = "CDK_SAGAS_KEPT_EVENTS"
    PARKED_EVENTS = "CDK_SAGAS_PARKED_EVENTS"
    MAX_WAIT_SECONDS = "CDK_SAGAS_MAX_WAIT_SECONDS"
    SERVICE = "POWERTOOLS_SERVICE_NAME"
    LEDGER_TABLE = "CDK_SAGAS_LEDGER_TABLE"
    LEDGER_TERMS = "CDK_SAGAS_LEDGER_TERMS"
    OUTBOX_TABLE = "CDK_SAGAS_OUTBOX_TABLE"
    OUTBOX_BUS = "CDK_SAGAS_OUTBOX_BUS"
    OUTBOX_SOURCE = "CDK_SAGAS_OUTBOX_SOURCE"
    PAYLOADS = "CDK_SAGAS_PAYLOADS"
    INLINE_BODY_BYTES = "CDK_SAGAS_INLINE_BODY_BYTES"
    EXPRESSION_PATHS = "CDK_SAGAS_EXPRESSION_PATHS"
    STEP_HOST_APPLY = "CDK_SAGAS_HOST_APPLY"
    STEP_HOST_VERIFY = "CDK_SAGAS_HOST_VERIFY"
    STEP_HOST_UNDO = "CDK_SAGAS_HOST_UNDO"
    STEP_HOST_VERIFY_UNDO = "CDK_SAGAS_HOST_VERIFY_UNDO"
    TOKEN_TABLE = "CDK_SAGAS_TOKEN_TABLE"
    INTEGRATION = "CDK_SAGAS_INTEGRATION"
    CALLBACKS = "CDK_SAGAS_CALLBACKS"
    WEBHOOK_SCHEME = "CDK_SAGAS_WEBHOOK_SCHEME"
    APPROVAL_URL = "CDK_SAGAS_APPROVAL_URL"
    APPROVAL_SECRET = "CDK_SAGAS_APPROVAL_SECRET"
    APPROVAL_PREVIOUS_SECONDS = "CDK_SAGAS_APPROVAL_PREVIOUS_SECONDS"
    MAX_RECEIVES = "CDK_SAGAS_MAX_RECEIVES"
    DEAD_LETTERS = "CDK_SAGAS_DEAD_LETTERS"
    RECONCILED = "CDK_SAGAS_RECONCILED"
    OPERATED = "CDK_SAGAS_OPERATED"
    OPERATORS = "CDK_SAGAS_OPERATORS"
    SECOND_PERSON = "CDK_SAGAS_SECOND_PERSON"
    PROPOSAL_SECONDS = "CDK_SAGAS_PROPOSAL_SECONDS"
    RECOVERIES_LIMIT = "CDK_SAGAS_RECOVERIES_LIMIT"
    LONGEST_LOOK = "CDK_SAGAS_LONGEST_LOOK"
    HOLD_TABLE = "CDK_SAGAS_HOLD_TABLE"
    WATCHED = "CDK_SAGAS_WATCHED"
    WATCH_TABLE = "CDK_SAGAS_WATCH_TABLE"
    WATCH_QUEUE = "CDK_SAGAS_WATCH_QUEUE"
    MONEY = "CDK_SAGAS_MONEY"
    CALLER_MEMBER = "CDK_SAGAS_CALLER_MEMBER"
    REPLAY_SECONDS = "CDK_SAGAS_REPLAY_SECONDS"
    REMEMBER_SECONDS = "CDK_SAGAS_REMEMBER_SECONDS"
    REFUSAL_POLICY = "CDK_SAGAS_REFUSAL_POLICY"
    FAILURE_STATUS = "CDK_SAGAS_FAILURE_STATUS"
    CONFLICT_BACKOFF = "CDK_SAGAS_CONFLICT_BACKOFF"
    MIGRATION = "CDK_SAGAS_MIGRATION"
    MIGRATION_TABLE = "CDK_SAGAS_MIGRATION_TABLE"


class KeyPolicy(StrEnum):
    """Treatment of a request without an ``Idempotency-Key``."""

    REQUIRED = "REQUIRED"
    OPTIONAL = "OPTIONAL"


class InProgressResponse(StrEnum):
    """Response to a duplicate while its saga runs: 409 or 202."""

    CONFLICT = "CONFLICT"
    ACCEPTED = "ACCEPTED"


class RefusalPolicy(StrEnum):
    """Effect of a direct operation's refusal on its key."""

    FINAL = "FINAL"
    """It is stored, and answers every duplicate."""
    OPEN = "OPEN"
    """Nothing is stored: the same key may be tried again. A copy of the request that is still travelling may move the
    money after the refusal was answered."""


class OutboxAttribute(StrEnum):
    """Attributes of an event that waits in an outbox."""

    ID = "id"
    """The step key, or the id of a direct operation."""
    TYPE = "type"
    DETAIL = "detail"
    """JSON, with ``event_id``."""
    PUT_AT = "put_at"
    """Epoch milliseconds."""


class EventField(StrEnum):
    """Fields of a kept or parked event's message, and the message attribute that names the reason."""

    WEBHOOK = "cdk_sagas_webhook"
    """Of an event whose signature was verified. Only a receiver writes it."""
    MESSAGE = "cdk_sagas_message"
    """Text of another queue's message: whatever it has inside, it is not a webhook's event."""
    PACKED = "cdk_sagas_packed"
    """Base85 of the compressed message, of one that would be too large."""
    TOO_LARGE = "cdk_sagas_too_large"
    """A change that fits into no message, without its images: its keys, and its place in the stream."""
    BODY = "body"
    HEADERS = "headers"
    QUERY = "query"
    RECEIVED_AT = "received_at"
    REASON = "reason"


class StartField(StrEnum):
    """Fields of a state machine's input."""

    PROTOCOL = "protocol"
    SAGA_ID = "saga_id"
    REQUEST_ID = "request_id"
    REQUEST = "request"
    DEFINITION = "definition"
    OUTPUTS = "outputs"
    """Outputs so far; in the input of a phase that runs in a state machine of its own."""
    LATE = "late"
    """True: only late effects are compensated; the record is unchanged."""


class CallField(StrEnum):
    """Fields of the event that a state machine sends to a step function."""

    PROTOCOL = "protocol"
    SAGA_ID = "saga_id"
    STEP = "step"
    LOG_TABLE = "log_table"
    LOG_DAYS = "log_days"
    REQUEST = "request"
    OUTPUTS = "outputs"
    """In a message of a waiting step: their JSON text instead, if they have a character that SQS refuses."""
    EXECUTION = "execution"
    QUEUE_URL = "queue_url"
    MESSAGE = "message"
    SIDE = "side"
    MODE = "mode"
    RECORD = "record"
    PROVIDER = "provider"
    ITEM = "item"
    """JSON text of an object whose only member, ``ITEM_MEMBER``, is the item of a map."""
    ITEM_PATH = "item_path"
    """Instead: names of the members that lead to the map's items in the request, whose text has every digit."""
    ITEM_INDEX = "item_index"
    """Its index among them, from 0."""
    ITEM_KEY = "item_key"
    PAYLOADS = "payloads"
    TOKEN = "token"
    TASK = "task"
    WAIT = "wait"
    REQUEST_TABLE = "request_table"
    SHARE = "share"
    """``ShareField``: the part of the room for outputs that an item of a map, or a branch, has to itself."""
    LOGGED = "logged"
    """``LoggedField``: steps whose outputs the function reads from the saga log on access."""
    INLINE = "inline"
    """True: an expression reads this step's output, so it never travels by reference."""


class ShareField(StrEnum):
    """Fields of a share of the room for outputs."""

    OF = "of"
    """How many equal shares there are: the branches, or the items that a map takes at most."""
    OWN = "own"
    """Names of the steps before this one in its item or branch."""
    LEFT = "left"
    """How many of its steps are still to answer, this one included."""


class LoggedField(StrEnum):
    """Fields of which outputs are meant: names of steps."""

    STEPS = "steps"
    PER_ITEM = "per_item"
    """Steps of maps, one row for each item."""
    OWN = "own"
    """Steps of the same item."""
    INSTEAD = "instead"
    """JSON text: of steps that may be skipped, the substitute output of each refusal. Absent: none may be."""


class CallMode(StrEnum):
    """Mode of a call of an external step; absent, it is called to act."""

    VERIFY = "verify"
    """Write the outcome into the row, without repeating the step if that can be avoided."""
    LATE = "late"
    """Of a compensation: compensate only late effects."""


class PhaseField(StrEnum):
    """Result of a phase (an Express or Standard child, a branch, an item): it never fails, it reports."""

    OK = "ok"
    FENCED = "fenced"
    OUTPUTS = "outputs"
    FAILURE = "failure"


UNDO_STATE: Final = "Compensate "
"""Beginning of the name of a compensation's state, the step's name behind it; a saga may be stuck there."""

REFERENCE_FIELD: Final = "cdk_sagas_ref"
"""The only member of a reference: the payload's key in the payload bucket."""

PAYLOAD_KEY_PATTERN: Final = r"^[a-z2-7]{26}(-[0-9a-z]{1,13})?/[0-9a-f]{64}$"
"""Owner (a request id, or a saga id) and SHA-256 of the payload."""

OUTPUT_FIELD: Final = "output"
"""Field of a step function's answer that holds the step's output."""

ITEM_MEMBER: Final = "item"
"""A bare text would not be JSON: JSONata writes it without quotes."""

SCHEMA_FILE: Final = "request_schema.json"
"""File next to the gatekeeper's code that holds the operation's JSON schema, when it has one."""

# Lengths and sizes. Each is a limit of AWS, or is derived from one; none is silent.
REQUEST_ID_LENGTH: Final = 26
MAX_EXECUTION_NAME: Final = 80
MAX_SAGA_ID: Final = 40
MAX_STATE_PAYLOAD: Final = 262_144
MAX_BODY_BYTES: Final = 65_536
"""A body is part of each task's payload as an escaped string: at worst twice its size, or 7/3 of it if all of it is
characters that SQS refuses (``start_input_of``)."""
MAX_OUTPUT_BYTES: Final = 32_768
MAX_OUTPUTS_BYTES: Final = 98_304
"""All outputs of a saga together. With the largest body, escaped, they fit a task's payload; escaped
too, they fit the settled answer."""
MAX_PAYLOAD_BYTES: Final = 3_000_000
"""A body, an output or an answer with a payload bucket. A function is invoked with, and answers, 6 MiB of JSON, in
which a body is an escaped string: at worst twice its size, with headers."""
INLINE_BODY_BYTES: Final = 32_768
"""With a payload bucket, a larger body travels by reference."""
INLINE_OUTPUT_BYTES: Final = 8_192
"""With a payload bucket, a larger output travels by reference."""
MAX_TRANSACT_ITEMS: Final = 100
MAX_FUNCTION_SECONDS: Final = 900
MAX_EXPRESS_SECONDS: Final = 300
MAX_KEY_LENGTH: Final = 255
CLIENT_SHARE: Final = 0.75
"""A client of a provider waits for so much of its invocation's time; the rest is for storing the outcome."""
MAX_JSON_DEPTH: Final = 100
"""The same everywhere: what the interpreter's stack happens to allow differs from one caller to the next."""
EXECUTION_NAME_DAYS: Final = 90
"""A name stays taken for 90 days after its execution closed; after that, starting by it would be a new execution."""
LEAST_NAME_DAYS: Final = 30
"""In an account that asked AWS to keep histories for less; then names are free again, too."""
LEAST_LOG_DAYS: Final = 30
"""Rows of a saga log are kept at least this long, whatever a deployment declares."""
MAX_EXACT_INTEGER: Final = 10**15 - 1
"""JSONata numbers are doubles and its ``$string`` keeps 15 digits: larger integers travel as strings."""
MAX_EXPRESSION_DIGITS: Final = 15
"""Significant digits of a number that a JSONata expression reads: its ``$string`` keeps no more."""
MAX_EXPRESSION_LEVELS: Final = 90
"""Levels to which an expression of a saga's nests: Step Functions evaluates 100 (measured: floci-io/floci issue 2737),
and what is generated around it has some."""

ITEM_KEY_PATTERN: Final = r"^[A-Za-z0-9._:/@+=,-]{1,64}$"
"""Key of an item of a map: part of the step key, so it must never be an index."""
STEP_NAME_PATTERN: Final = r"^[A-Z][A-Za-z0-9]{0,39}$"
OPERATION_PATTERN: Final = r"^[a-z][a-z0-9-]{0,39}$"
SAGA_ID_PATTERN: Final = r"^[a-z2-7]{26}-[0-9a-z]{1,13}$"
UNIT_PATTERN: Final = r"^[A-Z][A-Z0-9_]{1,15}(:[A-Za-z0-9][A-Za-z0-9._-]{0,31})?$"
"""Code of a unit: an ISO 4217 currency, or one of a user's own."""
IDEMPOTENCY_KEY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotent-Replayed"
PREFER_HEADER: Final = "Prefer"
PREFERENCE_APPLIED_HEADER: Final = "Preference-Applied"
PROBLEM_TYPES: Final = "urn:cdk-sagas:problem:"
"""Beginning of the ``type`` of a problem document (RFC 9457); its code follows."""


METRIC_NAMESPACE: Final = "CdkSagas"
"""Namespace of our functions' metrics."""
SERVICE_DIMENSION: Final = "service"
"""Dimension of all metrics: ``Env.SERVICE`` of the function; of ``Metric.SUSPENDED`` the ledger's table."""
CURRENCY_DIMENSION: Final = "currency"
"""The other dimension of metrics of money."""


class Metric(StrEnum):
    """Metrics that our functions emit (embedded metric format)."""

    KEY_MISSING = "IdempotencyKeyMissing"
    RESERVED = "RequestReserved"
    REPLAYED = "IdempotencyReplay"
    DUPLICATE_IN_PROGRESS = "DuplicateInProgress"
    EVENT_APPLIED = "EventApplied"
    EVENT_DUPLICATE = "EventDuplicate"
    EVENT_KEPT = "EventKept"
    EVENT_PARKED = "EventParked"
    EVENT_REFUSED = "EventRefused"
    EVENT_PUBLISHED = "EventPublished"
    OLDEST_UNPUBLISHED = "AgeOfOldestUnpublishedEvent"
    WAITED = "ResponseWaitedFor"
    WAITED_IN_VAIN = "ResponseNotInTime"
    INLINE_SETTLED = "InlineSettled"
    INLINE_DELEGATED = "InlineDelegated"
    INLINE_NOT_STARTED = "InlineNotStarted"
    KEY_REUSED = "IdempotencyKeyReused"
    START_FAILED = "SagaStartUnconfirmed"
    START_REFUSED = "SagaStartRefused"
    KEY_EXPIRED = "IdempotencyKeyExpired"
    RESTARTED = "SagaRestarted"
    CONFLICT = "TransactionConflict"
    LATE_CAPTURE = "LateCapture"
    SUSPENDED = "PostedToSuspense"
    OLDEST_UNSWEPT = "AgeOfOldestUnswept"
    STEP_REPLAYED = "StepReplayed"
    STEP_FENCED = "StepFenced"
    CALLBACK_RECEIVED = "CallbackReceived"
    CALLBACK_DUPLICATE = "CallbackDuplicate"
    CALLBACK_EARLY = "CallbackEarly"
    CALLBACK_LATE = "CallbackUndelivered"
    CALLBACK_APPLIED_LATE = "LateEffectRecorded"
    CALLBACK_CONFLICT = "CallbackConflict"
    CONTRADICTIONS = "ContradictionsOpen"
    LATE_OPEN = "LateEffectsOpen"
    CALLBACK_UNKNOWN = "CallbackUnknownJob"
    CALLBACK_REFUSED = "CallbackRefused"
    EVENT_ID_REUSED = "CallbackEventIdReused"
    CALLBACK_SENT_AGAIN = "CallbackRedelivered"
    CALLBACK_UNANSWERED = "CallbackUnanswered"
    OLDEST_WAITING = "AgeOfOldestOverdueCallback"
    SIGNATURE_REFUSED = "SignatureRejected"
    """Wrong or stale: made with something like the secret, or copied."""
    UNSIGNED = "WebhookUnsigned"
    """Not signed at all: anyone who knows the address can cause that."""
    DISPATCH_FAILED = "CallbackDispatchFailed"
    ORPHANS = "OrphanedSagasFound"
    RECOVERIES = "RecoveriesStarted"
    UNSETTLED = "ExecutionSucceededUnsettled"
    OLDEST_IN_FLIGHT = "AgeOfOldestSagaInFlight"
    PARKED = "SagasParked"
    UNATTENDED = "SagasUnreconciled"
    OLDEST_PARKED = "AgeOfOldestParkedSaga"
    LATE_STANDS = "LateEffectNotCompensated"
    BAD_ENDS = "WatchedExecutionsFailed"
    BAD_ENDS_TOLD = "WatchedFailuresNotified"
    BAD_ENDS_STUCK = "WatchedFailuresDeadLettered"
    OLDEST_BAD_END = "AgeOfOldestUnnotifiedFailure"
    IN_FLIGHT = "SagasInFlight"
    MONEY_IN_FLIGHT = "MoneyInFlight"
    """In minor units; its dimensions are ``service`` and ``currency``."""
    RECONCILE_FAILED = "SagasNotReconcilable"
    LOOK_INCOMPLETE = "LookIncomplete"
    OLDEST_OVERDUE = "AgeOfOldestOverdue"
    HOLD_AGE = "AgeOfHold"
    RECORD_MISSING = "RequestRecordMissing"
    MIGRATED = "MigrationMoved"
    MIGRATION_LEFT = "MigrationLeft"
    MIGRATION_DIFFERENCE = "MigrationDifference"
    MIGRATION_CLEAN = "MigrationCleanSeconds"
