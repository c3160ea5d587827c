"""Conditions and promises of the whole saga."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tests.specification.conditions import Because, Condition

RECORD: Final = "lambda_src/saga_runtime/idempotency/record.py"
SAGA_LOG: Final = "lambda_src/saga_runtime/saga_log/rows.py"
RESOLUTION: Final = "lambda_src/saga_runtime/recovery/resolution.py"
RECOVERY: Final = "lambda_src/saga_runtime/recovery/takeover.py"
ENDING: Final = "constructs_lib/saga/asl/ending.py"
TASKS: Final = "constructs_lib/saga/asl/tasks.py"
STATES: Final = "constructs_lib/saga/asl/states.py"
DIRECTION: Final = "constructs_lib/saga/asl/direction.py"
FLOW: Final = "constructs_lib/saga/asl/flow.py"
FENCE: Final = "constructs_lib/saga/asl/fence.py"
RECOVERY_MACHINE: Final = "constructs_lib/saga/asl/recovery.py"


class SagaCondition(Condition):
    """Conditions of the forward machine, of the recovery machine, and of those who start and take over."""

    STEP_NO_ROW = Because("a step that was compensated never runs", SAGA_LOG, "when(NO_ROW)")
    FENCED_ENDS = Because(
        "a fenced execution compensates nothing: another execution decides about the saga",
        TASKS,
        '{"ErrorEquals": [ErrorName.FENCED], **exits.fences},',
    )
    PASSED_OVER_REPLAYS = Because(
        "a skipped step is skipped again when the saga goes forward once more",
        SAGA_LOG,
        "if self.status is StepStatus.TOMBSTONE: return self.output",
    )
    FENCE_BEFORE_GIVING_UP = Because(
        "a pivot in doubt is decided by the write of a tombstone",
        DIRECTION,
        'return f"Fence {pivot.name}" if pivot is not None else _compensate_name(node)',
    )
    FENCE_NO_ROW = Because(
        "a tombstone never covers a pivot that happened",
        FENCE,
        '"ConditionExpression": "attribute_not_exists(#saga_id)"',
    )
    NO_WAY_BACK = Because(
        "behind a pivot that happened nothing is compensated, even if another pivot is still to come",
        DIRECTION,
        "pivots = _pivots_passed(plan, index) if not pivots: return {}",
    )
    FORWARD_AROUND_PIVOTS = Because(
        "after the last pivot the record's direction is forward, if no row of a pivot is DONE",
        FLOW,
        "only_forward_name(node) if index < self.last_pivot < ahead and not ran else node.name",
    )
    DIRECTION_OWNED = Because(
        "only the owner decides the direction",
        DIRECTION,
        'condition=f"{OWNED} AND (attribute_not_exists(#direction)',
    )
    DIRECTION_ONCE = Because(
        "a direction that was decided stays",
        DIRECTION,
        "(attribute_not_exists(#direction) OR #direction = :direction)",
    )
    ASK_THE_LOG = Because(
        "FAILED is settled over a log without an applied effect, or not at all",
        ENDING,
        '{"Condition": expression("$nothing_stands"), "Next": told},',
    )
    SETTLE_OWNED = Because("only the owner settles, and once", STATES, "condition: str = OWNED")
    PARK_OWNED = Because("only the owner parks, and never what is settled", ENDING, "SET #parked_by = :owner")
    READ_MINE = Because(
        "a recovery that does not own the record touches nothing",
        RECOVERY_MACHINE,
        '{"Condition": expression(f"$not({mine})"), "Next": FENCED}',
    )
    READ_DIRECTION = Because(
        "a recovery follows the direction that it finds",
        RECOVERY_MACHINE,
        '"Next": SAME_WAYS}, {"Condition"',
    )
    FENCE_IN_RECOVERY = Because(
        "a recovery decides by writing tombstones: what it reads may be history at once",
        RECOVERY_MACHINE,
        'name=f"Fence {step.name}"',
    )
    FENCE_EVERY_PIVOT = Because(
        "which pivot lies on this request's way is not known to the recovery",
        RECOVERY_MACHINE,
        "for step, following in zip(pivots, [*pivots[1:], None]",
    )
    OUTLIVE_EARLIER_FUNCTIONS = Because(
        "under another definition a recovery waits until no function of a step that was renamed can still be at work",
        RECOVERY_MACHINE,
        '{"Condition": expression(f"{unread} and {other_names(plan)}"), "Next": OUTLIVE}',
    )
    ROWS_FIT = Because(
        "a recovery continues only over rows of steps that it knows, whatever definition the record names",
        RECOVERY_MACHINE,
        '{"Condition": expression(unread), "Next": READ_ROWS}',
    )
    NOTE_DEFINITION = Because(
        "the record names the definition of its last owner, also of one that is rolled back",
        RECOVERY_MACHINE,
        '"SET #definition = :definition, #updated_at = :now"',
    )
    CHAIN_FROM_LAST = Because(
        "a recovery does not know how far the saga came: its chain begins at the last step",
        RECOVERY_MACHINE,
        "chain_from(plan, len(plan.steps) - 1)",
    )
    TAKE_OVER_OWNED = Because(
        "of several who take over from one owner, one does, and none when the saga is settled",
        RECOVERY,
        'f"{OWNED} AND attribute_not_exists(#parked_by)"',
    )
    TAKE_OVER_NOT_PARKED = Because(
        "a saga that waits for a person is left to the person", RECOVERY, "AND attribute_not_exists(#parked_by)"
    )
    WHAT_TO_DO_PARKED = Because("the same, when it is checked", RECOVERY, "return Finding.PARKED")
    WHAT_TO_DO_SUCCEEDED = Because(
        "an execution that succeeded has settled its record: a record in progress was restored, with its rows",
        RECOVERY,
        "return Finding.OWNER_SUCCEEDED if certain else Finding.RUNNING",
    )
    LOOK_RECOVERY_FIRST = Because(
        "once a recovery has ended, the execution that it started under its name is there",
        RECOVERY,
        "else [record.recovery_machine_arn, forward]",
    )
    WHAT_TO_DO_YOUNG = Because(
        "after 90 days an execution's absence does not mean that it never ran",
        RECOVERY,
        "return Finding.NOT_STARTED if young else Finding.NAME_EXPIRED",
    )
    RESOLVE_UNPARKS_ONCE = Because(
        "of several operators who resume one parked saga, one does, and none when it settled or was parked again",
        RESOLUTION,
        'PARKED: Final = f"{OWNED} AND attribute_exists(#parked_by)"',
    )
    RESTART_YOUNG = Because(
        "the same, for a duplicate that finds the saga due", RECORD, "and due and name_is_taken and"
    )
    RESTART_NOT_PARKED = Because("a duplicate does not start a parked saga", RECORD, "record.parked_by is None")
    RESTART_FIRST_OWNER = Because(
        "a duplicate does not start what was taken over", RECORD, "record.owner == record.saga_id"
    )


class SagaPromise(StrEnum):
    """Promises of the model."""

    COMPLETED_BUT_NOT_ALL_APPLIED = "COMPLETED_BUT_NOT_ALL_APPLIED"
    FAILED_BUT_AN_EFFECT_STANDS = "FAILED_BUT_AN_EFFECT_STANDS"
    EFFECT_FORGOTTEN = "EFFECT_FORGOTTEN"
    """A DONE row was covered: the effect can no longer be found."""
    UNDONE_BEHIND_A_STANDING_PIVOT = "UNDONE_BEHIND_A_STANDING_PIVOT"
    """Or after a later step: an effect that cannot be compensated remains, and earlier ones were compensated."""
    EFFECT_UNDER_TWO_NAMES = "EFFECT_UNDER_TWO_NAMES"
    """A step that was renamed happened under both names."""
    DIRECTION_CHANGED = "DIRECTION_CHANGED"
    ANSWER_CHANGED = "ANSWER_CHANGED"
    PARKED_ALTHOUGH_SETTLED = "PARKED_ALTHOUGH_SETTLED"
    PARKED_WHILE_ITS_OWNER_RUNS = "PARKED_WHILE_ITS_OWNER_RUNS"
    TAKEN_OVER_ALTHOUGH_SETTLED = "TAKEN_OVER_ALTHOUGH_SETTLED"
    TAKEN_OVER_ALTHOUGH_PARKED = "TAKEN_OVER_ALTHOUGH_PARKED"
    TAKEN_OVER_FROM_A_FORMER_OWNER = "TAKEN_OVER_FROM_A_FORMER_OWNER"
    STARTED_ALTHOUGH_PARKED = "STARTED_ALTHOUGH_PARKED"
    STARTED_ALTHOUGH_TAKEN_OVER = "STARTED_ALTHOUGH_TAKEN_OVER"
    OWNER_GAVE_UP = "OWNER_GAVE_UP"
    """The owner's execution ended without an interruption, and the saga is neither settled nor parked."""
