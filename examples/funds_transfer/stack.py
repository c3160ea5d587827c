"""Transfers within one ledger (one transaction) and to a partner's ledger (a saga): both ways, one operation."""

from pathlib import Path

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from constructs_lib import (
    IdempotencyTable,
    LedgerTable,
    MoneyField,
    Notify,
    Operation,
    Run,
    SagaMonitoring,
    SagaStateMachine,
    Step,
    StepFunction,
    TimeoutReconciler,
    TransactionApi,
)
from examples.dead_letters import dead_letter_queue
from examples.on_call import on_call

FUNCTIONS = Path(__file__).parent / "functions"
INLINE_DEFINITION = Path(__file__).parent / "inline.json"
LONGEST_WAIT = Duration.seconds(10)
"""For a client that prefers to wait for its response."""

TRANSFER_SCHEMA = {
    "type": "object",
    "required": ["from", "to", "amount", "currency"],
    "additionalProperties": False,
    "properties": {
        "from": {"type": "string", "minLength": 1, "maxLength": 64},
        "to": {"type": "string", "minLength": 1, "maxLength": 64},
        "to_ledger": {"type": "string", "enum": ["main", "partner"], "description": "main, when left out"},
        "amount": {"type": "integer", "minimum": 1, "description": "minor units, e.g. cents"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
}

MOST_IN_FLIGHT = {"EUR": 50_000_000}
"""Alarm threshold in minor units: a transfer takes seconds, so that half a million euros are many at once."""
TO_PARTNER = '$request.to_ledger = "partner"'

MOVED = '$merge([$outputs.Transfer, $outputs.Credit]).{"amount": amount, "currency": currency}'
"""What clients are shown of either way."""


class FundsTransferStack(Stack):
    """``POST /transfers`` moves money once per Idempotency-Key; ``GET /transfers/{saga_id}`` returns the transfer.

    Args:
        scope: parent construct.
        id: construct id.
        due_after: when a transfer in progress is reconciled, as for ``IdempotencyTable``; tests set it short.
        run: in which type of state machine transfers begin; a client of an inline one may wait for its response.
    """

    def __init__(
        self, scope: Construct, id: str, *, due_after: Duration | None = None, run: Run = Run.STANDARD
    ) -> None:
        super().__init__(scope, id, description="Transfers that happen at most once")
        ledger = LedgerTable(self, "Ledger")
        partner = LedgerTable(self, "PartnerLedger")
        requests = IdempotencyTable(self, "Requests", due_after=due_after)
        notices = self._notices()

        transfer = self._function("TransferFunction", "transfer.handler", ledger)
        debit = self._function("DebitFunction", "debit.handler", ledger)
        refund = self._function("RefundFunction", "debit.refund", ledger)
        credit = self._function("CreditFunction", "credit.handler", partner)

        saga = SagaStateMachine(
            self,
            "Transfer",
            requests=requests,
            steps=[
                Step.atomic("Transfer", fn=transfer, pivot=True, when=f"$not({TO_PARTNER})"),
                Step.atomic("Debit", fn=debit, compensate=refund, when=TO_PARTNER),
                Step.atomic("Credit", fn=credit, pivot=True, when=TO_PARTNER),
                Step.notify("Receipt", queue=notices),
            ],
            result=MOVED,
            on_failed=Notify(queue=notices),
            http_status_by_error={"InsufficientFunds": 402, "AccountNotFound": 404},
            run=run,
            definition_file=INLINE_DEFINITION if run is not Run.STANDARD else None,
        )
        reconciler = TimeoutReconciler(self, "Reconciler", sagas=[saga], max_money_in_flight=MOST_IN_FLIGHT)
        transfers = Operation(
            saga=saga,
            schema=TRANSFER_SCHEMA,
            money=MoneyField(amount="/amount", currency="/currency"),
            max_wait=LONGEST_WAIT if run is Run.INLINE else None,
        )
        front_door = TransactionApi(self, "Api", operations={"transfers": transfers}, waf=True)
        self._outputs(
            ApiId=front_door.api.rest_api_id,
            ApiStage=front_door.api.deployment_stage.stage_name,
            LedgerTableName=ledger.table.table_name,
            PartnerLedgerTableName=partner.table.table_name,
            RequestTableName=requests.table.table_name,
            LogTableName=saga.log.table.table_name,
            NoticeQueueUrl=notices.queue_url,
            **({"ExpressMachineArn": saga.express_machine.state_machine_arn} if saga.express_machine else {}),
            StateMachineArn=saga.state_machine.state_machine_arn,
            RecoveryMachineArn=saga.recovery_machine.state_machine_arn,
            ReconcilerName=reconciler.function.function.function_name,
            ReconcilerEndedRule=reconciler.ended.rule_name,
            ReconcilerScheduleRule=reconciler.schedule.rule_name,
            ReconcilerMeasureRule=reconciler.measure.rule_name,
            ReconcilerQueueUrl=reconciler.queue.queue_url,
        )
        SagaMonitoring(self, "Monitoring", alarm_actions=on_call(self))

    def _function(self, id: str, handler: str, ledger: LedgerTable) -> StepFunction:
        """A step function that may post to one ledger."""
        function = StepFunction(self, id, code=FUNCTIONS, handler=handler, environment=ledger.environment)
        ledger.grant_post(function)
        return function

    def _notices(self) -> sqs.Queue:
        """Create the queue of receipts and failures, for the service that notifies the customer."""
        undelivered = dead_letter_queue(self, "UndeliveredNotices", fifo=True)
        return sqs.Queue(
            self,
            "Notices",
            fifo=True,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            dead_letter_queue=sqs.DeadLetterQueue(queue=undelivered, max_receive_count=5),
        )

    def _outputs(self, **values: str) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)
