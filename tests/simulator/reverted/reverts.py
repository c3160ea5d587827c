"""Defects that were found and fixed, and the edit that reverts each fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that a file has once, and its replacement."""

    file: str
    text: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """A defect that returns when its fix is reverted.

    Attributes:
        name: of the command.
        defect: what went wrong.
        edits: revert the fix.
        stack: where it is looked for.
    """

    name: str
    defect: str
    edits: Sequence[Edit]
    stack: str = "drawn"


_ASL: Final = "constructs_lib/saga/asl/"
_RUNTIME: Final = "lambda_src/saga_runtime/"
_ANY_MACHINE: Final = [
    Edit(
        f"{_RUNTIME}idempotency/record.py",
        "same_machine = _machine_in(record.execution_arn) == _machine_in(reservation.execution_arn)",
        "same_machine = True",
    ),
    Edit(
        "lambda_src/handlers/gatekeeper.py",
        "            if not start(record):",
        "            here = execution_of(self._config.saga.state_machine_arn, record.saga_id)\n"
        "            if not start(replace(record, execution_arn=here)):",
    ),
]
"""A duplicate is started on the present machine of its operation, whatever machine the saga has."""

REVERTS: Final = {
    revert.name: revert
    for revert in (
        Revert(
            name="refusal-by-any-error",
            defect="An error that a provider's function raised after the provider had acted was treated as a refusal",
            edits=[
                Edit(
                    f"{_RUNTIME}steps/external_call.py",
                    "if not named or (ours and kind not in (Declined, Rejected)):",
                    "if not named and not ours:",
                )
            ],
        ),
        Revert(
            name="items-lose-digits",
            defect="Numbers of a map's items lost digits",
            edits=[
                Edit(f"{_ASL}items.py", "path = request_path(items)\n", "path = None\n"),
                Edit(
                    f"{_ASL}items.py",
                    """value = "" if request_path(items) is not None else ', "value": $item'""",
                    """value = ', "value": $item'""",
                ),
            ],
        ),
        Revert(
            name="condition-by-truth",
            defect="A condition that evaluated to nothing skipped its step",
            edits=[Edit(f"{_ASL}flow.py", "({names} $not(({node.when}) = false))", "({names} false)")],
        ),
        Revert(
            name="no-way-forward",
            defect="On a path without a pivot, an interrupted saga was compensated behind steps that cannot be undone",
            edits=[
                Edit(
                    f"{_ASL}flow.py",
                    "return only_forward_name(node) if index < self.last_pivot < ahead and not ran else node.name",
                    "return node.name",
                )
            ],
        ),
        Revert(
            name="outputs-one-by-one",
            defect="Outputs of a map's items were not counted together",
            edits=[Edit(f"{_ASL}flow.py", "    if not flow.shares:", "    if flow.shares >= 0:")],
        ),
        Revert(
            name="forward-first",
            defect="`recover` queried the forward execution before the recovery that starts it",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/takeover.py",
                    "else [record.recovery_machine_arn, forward]",
                    "else [forward, record.recovery_machine_arn]",
                )
            ],
        ),
        Revert(
            name="key-forgotten-early",
            defect="An expired key moved money again (keys were forgotten with their response)",
            edits=[
                Edit(
                    f"{_ASL}ending.py",
                    '":expiration": seconds_from_now(plan.remember_seconds),',
                    '":expiration": seconds_from_now(plan.replay_seconds),',
                )
            ],
            stack="expired",
        ),
        Revert(
            name="other-machine",
            defect="A duplicate was started again on the saga that replaced the first",
            edits=_ANY_MACHINE,
            stack="released",
        ),
        Revert(
            name="stricter-schema",
            defect="A stricter schema refused a retry",
            edits=[
                Edit(
                    f"{_RUNTIME}http/operation.py",
                    "record.forgotten(clock.now_ms()):\n            return refusal",
                    "True:\n            return refusal",
                )
            ],
            stack="released",
        ),
        Revert(
            name="renamed-step",
            defect="A renamed step happened under both names",
            edits=[
                Edit(
                    f"{_ASL}compatible.py",
                    """return f'$substring({RAN_UNDER}, 0, {WAYS_AT}) != "{plan.fingerprint[:WAYS_AT]}"'""",
                    'return "false"',
                ),
                Edit(f"{_ASL}begin.py", 'fits = f"($exists($begun) or {_given_is(plan)})"', 'fits = "true"'),
            ],
            stack="renamed",
        ),
        Revert(
            name="rows-fit",
            defect="A recovery ignored rows of steps that its definition does not have",
            edits=[
                Edit(
                    f"{_ASL}compatible.py",
                    """f" $count($rows[{side} = {a.SIDE}.S]) = $count($rows))\"""",
                    """f" $count($rows[{side} = {a.SIDE}.S]) >= 0)\"""",
                ),
            ],
            stack="renamed",
        ),
        Revert(
            name="renamed-job",
            defect="A queued job of a renamed step was dispatched",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/step.py",
                    "if not served(message.call.step, log=message.call.log_table):",
                    "if False:",
                )
            ],
            stack="renamed",
        ),
        Revert(
            name="changed-conditions",
            defect="After conditions had changed, an interrupted saga took the other path, too",
            edits=[
                Edit(
                    f"{_ASL}compatible.py",
                    """return f'$substring({RAN_UNDER}, {WAYS_AT}) = "{plan.fingerprint[WAYS_AT:]}"'""",
                    'return "true"',
                )
            ],
            stack="reconditioned",
        ),
        Revert(
            name="started-under-another",
            defect="A saga that had been reserved under other conditions started, or continued, under these",
            edits=[Edit(f"{_ASL}begin.py", 'fits = f"($exists($begun) or {_given_is(plan)})"', 'fits = "true"')],
            stack="reconditioned",
        ),
        Revert(
            name="phase-of-another",
            defect="A phase that was called again after its conditions had changed applied both ways",
            edits=[Edit(f"{_ASL}begin.py", """f'({GIVEN} = "{group.shape}")'""", '"true"')],
            stack="reconditioned",
        ),
        Revert(
            name="late-record-expires",
            defect="The record needed to compensate a late effect expired before the effect was compensated",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/saga_reconciler.py",
                    "        _keep_whole(late.saga, record, now_ms)\n",
                    "",
                )
            ],
        ),
        Revert(
            name="one-page-of-outputs",
            defect="A recovery read one page of the log's outputs",
            edits=[
                Edit(
                    f"{_RUNTIME}saga_log/outputs.py",
                    'rows = (row for page in pages for row in page["Items"])',
                    'rows = iter(next(iter(pages))["Items"])',
                )
            ],
            stack="behind-items",
        ),
        Revert(
            name="one-page-of-rows",
            defect="Of a log of several pages, only the first was asked for effects that remain",
            edits=[
                Edit(
                    f"{_ASL}outputs.py",
                    'more = f"$exists(${_REST}.{LogAttribute.SAGA_ID}) and {while_}"',
                    'more = "false"',
                )
            ],
        ),
        Revert(
            name="undo-reads-by-key",
            defect="The compensation of a map's item saw its own item's outputs by item key",
            edits=[
                Edit(
                    f"{_ASL}outputs.py",
                    ":\n        return KNOWN_ON_THE_WAY_BACK",
                    " or group.leaves:\n        return KNOWN_ON_THE_WAY_BACK",
                ),
                Edit(
                    f"{_RUNTIME}saga_log/outputs.py",
                    "return self._row(step, row_name_of(step, self.item_key))",
                    "return self._by_key(step) or None",
                ),
            ],
            stack="items",
        ),
        Revert(
            name="event-id-reused",
            defect="A report under an event id that had come with another job, or outcome, was dropped",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/rows.py",
                    'return found.get(a.JOB_ID) == {"S": self.job_id} and found.get(a.OK) == {"BOOL": self.ok}',
                    "return a.JOB_ID in found",
                )
            ],
        ),
        Revert(
            name="inline-own-failure",
            defect="Two executions of an inline saga gave different reasons for one failure",
            edits=[
                Edit(
                    f"{_ASL}direction.py",
                    'expression(f"$parse($states.result.Attributes.{RecordAttribute.FAILURE}.S)")',
                    'expression("$failure")',
                )
            ],
            stack="inline",
        ),
        Revert(
            name="inline-own-route",
            defect="Two executions that skipped a refused step continued with different outputs",
            edits=[
                Edit(
                    f"{_ASL}fence.py",
                    "    if instead is not None:\n        # Another",
                    "    if False:\n        # Another",
                )
            ],
            stack="inline",
        ),
        Revert(
            name="inline-unrecorded-output",
            defect="Two executions of an inline saga gave later steps different outputs that no row keeps",
            edits=[
                Edit(
                    "constructs_lib/saga/validation/inline.py",
                    'step.direct.output != "{}" and step is not steps[-1]:',
                    "False:",
                ),
                Edit("tests/simulator/drawn/sagas.py", "return not looked_up and not phases", "return not phases"),
                Edit(
                    "tests/simulator/drawn/stack.py",
                    """output=None if self._inline else '{"found": $exists($states.result.Item)}',""",
                    """output='{"found": $exists($states.result.Item)}',""",
                ),
            ],
            stack="inline",
        ),
        Revert(
            name="inline-not-delegated",
            defect="What DynamoDB refused an Express execution was not delegated to Standard",
            edits=[
                Edit(
                    f"{_ASL}inline.py",
                    """    if quick["Type"] == "Task" and name != START_STANDARD""",
                    """    if False and name != START_STANDARD""",
                )
            ],
            stack="inline",
        ),
        Revert(
            name="inline-not-outlived",
            defect="A renamed step of an inline saga was applied twice, by a function of an Express execution",
            edits=[
                Edit(
                    f"{_ASL}begin.py",
                    '"Type": "Wait", "Seconds": OUTLIVE_EXPRESS_SECONDS, "Next": READ_FIRST',
                    '"Type": "Wait", "Seconds": 0, "Next": READ_FIRST',
                )
            ],
            stack="inline-renamed",
        ),
        Revert(
            name="duplicate-elsewhere",
            defect="A duplicate was started again on the machine that replaced the saga's, while that still ran",
            edits=_ANY_MACHINE,
            stack="remade",
        ),
        Revert(
            name="adopted-under-its-owner",
            defect="A saga that was moved kept its owner: what its former machines had started was not fenced",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/adoption.py",
                    '            A.OWNER: {"S": recovery_name(record.saga_id, record.recoveries + 1)},\n',
                    "",
                )
            ],
            stack="remade",
        ),
        Revert(
            name="adopted-while-it-runs",
            defect="A saga was moved while its owner ran",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/adoption.py",
                    "if what_to_do(record, owner, now_ms, log_days=log_days) not in _ADOPTABLE:",
                    "if False:",
                )
            ],
            stack="remade",
        ),
        Revert(
            name="adopted-without-its-rows",
            defect="A saga was moved to machines that write another log, and its steps were repeated",
            edits=[
                Edit(f"{_RUNTIME}recovery/adoption.py", "if log is not None and log != target.log:", "if False:"),
                Edit(f"{_RUNTIME}recovery/adoption.py", "not self._has_rows(record.saga_id)", "False"),
            ],
            stack="remade",
        ),
        Revert(
            name="late-effect-needed",
            defect="A job behind the pivot that its provider refused, and did after all, was undone by the reconciler",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/late_effects.py",
                    "needed = _may_need(record, beyond_a_pivot=beyond)",
                    "needed = False",
                )
            ],
            stack="jobs-behind",
        ),
        Revert(
            name="late-effect-between-pivots",
            defect="A job between two pivots that its provider refused, and did after all, was undone at once",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/late_effects.py",
                    " or (side == Side.PIVOT and status == StepStatus.DONE)",
                    "",
                )
            ],
            stack="between-pivots",
        ),
        Revert(
            name="late-effect-not-recorded",
            defect="A job behind the pivot that its provider refused, and did after all, could not be recorded as done",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/resolution.py",
                    "case StepStatus.APPLIED_LATE if statement.applied and subject.needs_it:\n            # Fenced,",
                    "case StepStatus.APPLIED_LATE if False:\n            # Fenced,",
                )
            ],
            stack="jobs-behind",
        ),
        Revert(
            name="substitutes-not-fenced",
            defect="A recovery saw no substitute output: items of a map over it were not fenced",
            edits=[
                Edit(f"{_ASL}outputs.py", "    if step.going_on:\n        seen =", "    if False:\n        seen ="),
                Edit(f"{_ASL}outputs.py", "    if step.going_on:\n        page =", "    if False:\n        page ="),
            ],
            stack="items-of-outputs",
        ),
        Revert(
            name="substitutes-not-given",
            defect="A compensation at a provider was given no output of a skipped step, or that of its late effect",
            edits=[
                Edit(f"{_RUNTIME}saga_log/outputs.py", "        if a.SUBSTITUTE in row:", "        if False:"),
                Edit(
                    f"{_RUNTIME}saga_log/outputs.py",
                    'if a.ERROR in row and row[a.STATUS]["S"] != StepStatus.DONE:',
                    "if False:",
                ),
            ],
        ),
        Revert(
            name="items-by-reference",
            defect="Steps behind a map were given references in place of its items' large outputs",
            edits=[
                Edit(
                    f"{_RUNTIME}payloads/claim_check.py",
                    "self._payloads.whole(self.raw[step])",
                    "self._payloads.read(self.raw[step])",
                )
            ],
        ),
        Revert(
            name="early-to-the-first-saga",
            defect="Of two sagas with one request table and one step's name, the first one got an early outcome",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/receipt.py",
                    "return of_request[0] if len(of_request) == 1 else None",
                    "return of_request[0] if of_request else None",
                ),
                Edit(
                    f"{_RUNTIME}callbacks/registration.py",
                    "elsewhere = _kept_elsewhere(waiting, row, now_ms) if",
                    "elsewhere: list[Any] = [] if",
                ),
            ],
            stack="waits-behind",
        ),
        Revert(
            name="early-to-the-first-attempt",
            defect="An early outcome was not delivered to a later attempt, if the first registration died",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/registration.py",
                    "took that up.\n                    return _early(waiting, Registration.NEWER)",
                    "took that up.\n                    return Registration.NEWER",
                )
            ],
            stack="waits-behind",
        ),
        Revert(
            name="decided-not-adopted",
            defect="A success that was reported early, and contradicted before its dispatch, stayed an unknown job's",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/dispatch.py",
                    "        adopt_unknown(waiting.job_id, waiting.keep_days)\n",
                    "        pass\n",
                )
            ],
            stack="waits-behind",
        ),
        Revert(
            name="adopted-as-it-was",
            defect="What contradicted an unknown job's outcome was lost if it arrived while that was adopted",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/writes.py",
                    "    change = update(when(unknown, **values), sets, removes=removes)\n",
                    '    change = update(when("#status = :found", found=values["found"]), sets, removes=removes)\n',
                )
            ],
            stack="waits-behind",
        ),
        Revert(
            name="adopted-one-by-one",
            defect="A registration that died between two outcomes of an unknown job left the second one",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/receipt.py",
                    "guard, refusal=refusal)\n",
                    "guard)\n"
                    "    again = Subject.read(job_id, job)\n"
                    "    if again is not None and refusal is not None:\n"
                    '        again.write(refusal, found.event_id, token_check(token_table(), "nothing", None))\n',
                )
            ],
            stack="waits-behind",
        ),
        Revert(
            name="characters-as-they-are",
            defect="A character that SQS refuses, in a text of a client or provider, kept a saga from settling",
            edits=[
                Edit(
                    "lambda_src/handlers/notifier.py",
                    "MessageBody=accepted_text(message),",
                    "MessageBody=message,",
                ),
                Edit(
                    f"{_RUNTIME}callbacks/task_tokens.py",
                    '{"errorMessage": accepted_text(outcome.detail)}',
                    '{"errorMessage": outcome.detail}',
                ),
                Edit(
                    f"{_RUNTIME}idempotency/record.py",
                    r"""    request = request.replace("\ufffe", r"\ufffe").replace("\uffff", r"\uffff")""",
                    "",
                ),
            ],
        ),
        Revert(
            name="outputs-as-they-are",
            defect="A character that SQS refuses, in an output or an item, kept a job from its dispatcher",
            edits=[
                Edit(
                    f"{_ASL}callbacks.py",
                    "    call = call | {CallField.OUTPUTS: expression(_sendable(bare(call[CallField.OUTPUTS])))}\n"
                    "    if CallField.ITEM in call:",
                    "    if False:",
                )
            ],
        ),
        Revert(
            name="doubt-between-pivots",
            defect="A step in doubt between two pivots, the first one applied, was fenced by `--not-applied`",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/resolver.py",
                    "beyond_a_pivot=late_log(self.recoverer, record, self.log_table).needed,",
                    "beyond_a_pivot=False,",
                )
            ],
            stack="advised-between",
        ),
        Revert(
            name="skipped-called-again",
            defect="`inspect` proposed to call a step again that its saga had skipped, and `resolve` did so",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/resolution.py",
                    "        return self.declared is not None and row.error in self.declared.skipped_by",
                    "        return False",
                ),
                Edit(
                    "constructs_lib/cli/saga/inspection.py",
                    "    return declared is not None and error in declared.skipped_by",
                    "    return False",
                ),
            ],
            stack="advised-skipped",
        ),
        Revert(
            name="late-effect-relied-on",
            defect="`--compensation --not-applied` of a job that was skipped made its late effect one to rely on",
            edits=[Edit(f"{_RUNTIME}recovery/resolution.py", " or row.instead is not None or bool(row.error)", "")],
            stack="advised-job-skipped",
        ),
        Revert(
            name="done-besides-by-hand",
            defect="A provider's success was no conflict after an operator had done the refused job by hand",
            edits=[
                Edit(
                    f"{_RUNTIME}callbacks/decisions.py",
                    "if outcome.ok and log is not None and _is_by_hand(log):",
                    "if False:",
                )
            ],
            stack="advised",
        ),
        Revert(
            name="output-replaced",
            defect="`--applied --output` was accepted for a job that its provider had reported as done meanwhile",
            edits=[
                Edit(
                    f"{_RUNTIME}recovery/resolution.py",
                    "            if statement.output not in (None, row.output):",
                    "            if False:",
                ),
                Edit(
                    f"{_RUNTIME}recovery/resolution.py",
                    "                )\n            return Change(to=StepStatus.DONE, written=True)\n",
                    "                )\n"
                    "            return Change(to=StepStatus.DONE, written=True, output=statement.output)\n",
                ),
            ],
            stack="advised",
        ),
        Revert(
            name="parked-on-its-way",
            defect="An event whose first transaction was not answered was parked as refused by the second try",
            edits=[
                Edit(
                    f"{_RUNTIME}webhooks/intake.py", "            if tries.unsure is not None:", "            if False:"
                )
            ],
            stack="wallet",
        ),
        Revert(
            name="refusal-after-its-time",
            defect="A refusal that was stored, and not delivered before its wait was over, was ignored",
            edits=[
                Edit(
                    f"{_ASL}tasks.py",
                    "again=step.name if _is_end_of_wait(step, error) else None,",
                    "again=None,",
                )
            ],
            stack="remade",
        ),
        Revert(
            name="decision-called-late",
            defect="A reviewer was shown that a decision came too late with which the saga continued",
            edits=[
                Edit(
                    f"{_RUNTIME}approvals/html.py",
                    "    if receipt is Receipt.UNDELIVERED:\n        return _UNHEARD\n",
                    "    if receipt is Receipt.UNDELIVERED:\n        return _TOO_LATE\n",
                )
            ],
            stack="reviewed",
        ),
        Revert(
            name="event-not-started",
            defect="The redelivery of an event whose start was lost was answered, and started nothing",
            edits=[
                Edit(
                    f"{_RUNTIME}webhooks/intake.py",
                    "record.due_at > keyed.now_ms and",
                    "False and",
                )
            ],
            stack="cart_fulfilment",
        ),
    )
}
"""By name."""
