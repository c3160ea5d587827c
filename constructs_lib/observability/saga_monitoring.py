"""SagaMonitoring: the alarms of a system, their actions, and its dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aws_cdk import Duration, Validations
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from constructs_lib.api.http_transaction_api import HttpTransactionApi
from constructs_lib.api.transaction_api import TransactionApi
from constructs_lib.callbacks.approval_page import ApprovalPage
from constructs_lib.callbacks.callback_integration import CallbackIntegration
from constructs_lib.callbacks.receivers import Webhook
from constructs_lib.monitoring.alarms import SagaAlarm, require_runbook_url
from constructs_lib.observability.dashboard import DASHBOARD, Parts, dashboard_of
from constructs_lib.observability.service_alarms import (
    api_alarms,
    saga_alarms,
    stage_alarms,
    table_alarms,
)
from constructs_lib.reconciler.timeout_reconciler import HoldTable, TimeoutReconciler
from constructs_lib.rest.rest_api import GATEWAY_SECONDS
from constructs_lib.saga.state_machine import SagaStateMachine
from constructs_lib.shared.accepted import AnyAlarmAction
from constructs_lib.shared.arguments import require_seconds
from constructs_lib.shared.at_synth import WhenAllIsKnown
from constructs_lib.shared.stacks import path_of, stack_of
from constructs_lib.shared.types import checked
from constructs_lib.tables.stateful_table import StatefulTable

_SLOW_AFTER: Final = Duration.seconds(3)
_ALARMS: Final = (cloudwatch.Alarm, cloudwatch.CompositeAlarm)
_APIS: Final = (TransactionApi, HttpTransactionApi)
_WATCHED: Final = (
    *_APIS,
    Webhook,
    ApprovalPage,
    SagaStateMachine,
    CallbackIntegration,
    TimeoutReconciler,
    StatefulTable,
    *_ALARMS,
)


class SagaMonitoring(Construct):
    """Alarms of everything of this library next to it, with your actions, and a dashboard.

    Finds every construct of this library in its parent's tree, as far as it is in the same stack: usually the whole
    stack. Creates the alarms of metrics that AWS emits (functions of operations, APIs, tables, executions), and adds
    your actions to these and to all alarms that are there: the constructs' own, and yours. The description of each
    alarm of this library names the page of the runbook that explains it; with ``runbook_url``, by its address.

    Declare it last: the synth warns of a construct that is declared after it, and has no alarms and actions from it.

    Example::

        SagaMonitoring(self, "Monitoring", alarm_actions=[SnsAction(on_call)])

    Args:
        scope: parent construct: whose tree is monitored.
        id: construct id.
        alarm_actions: what each alarm does when it fires; nothing by default.
        ok_actions: what each alarm does when it clears; nothing by default.
        slow_after: how long the slowest hundredth of the responses may take, in addition to an operation's
            ``max_wait``; 1 s to 28 s in whole seconds, 3 s by default. The sum must be shorter than the timeout of the
            function that answers, and than the 29 s for which API Gateway waits: no response takes longer.
        runbook_url: address of the runbook's pages, for the descriptions of alarms. It ends with ``/``, ``#`` or
            ``=``, and the page's name follows (``https://docs.example/runbook/``), or has ``{page}`` in the name's
            place (``https://git.example/sagas/docs/runbook/{page}.md``). By default descriptions have the page's path
            in this project.
        dashboard: whether to draw a dashboard; True by default.

    Attributes:
        dashboard: requests by answer, sagas, what is in flight and its money, callbacks, conflicts, throttles, alarms.
        alarms: every alarm of the tree: those that it found, and those that it created.

    Raises:
        ValueError: for a wrong argument, naming it, its value and the remedy, and where nothing is found.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        alarm_actions: Sequence[AnyAlarmAction] = (),
        ok_actions: Sequence[AnyAlarmAction] = (),
        slow_after: Duration = _SLOW_AFTER,
        runbook_url: str | None = None,
        dashboard: bool = True,
    ) -> None:
        super().__init__(scope, id)
        require_seconds("slow_after", slow_after, at_least=1, at_most=GATEWAY_SECONDS - 1)
        require_runbook_url(runbook_url)
        self._scope = scope
        found = list(self._watched())
        if not found:
            raise ValueError(
                f"{self.node.path} must be declared after what it monitors, got nothing in {scope.node.path}; "
                "declare it last, in the stack of the sagas"
            )
        self._slow_after = slow_after
        own = [alarm for construct in found for alarm in self._alarms_of(construct, found)]
        self.alarms: list[cloudwatch.AlarmBase] = [*(a for a in found if isinstance(a, _ALARMS)), *own]
        for alarm in self.alarms:
            if alarm_actions:
                alarm.add_alarm_action(*alarm_actions)
            if ok_actions:
                alarm.add_ok_action(*ok_actions)
            if runbook_url is not None and isinstance(alarm, SagaAlarm):
                alarm.link_runbook(runbook_url)
        self.dashboard = (
            dashboard_of(
                self,
                Parts(
                    apis=[part for part in found if isinstance(part, _APIS)],
                    sagas=[part for part in found if isinstance(part, SagaStateMachine)],
                    reconcilers=[part for part in found if isinstance(part, TimeoutReconciler)],
                    integrations=[part for part in found if isinstance(part, CallbackIntegration)],
                    tables=[part for part in found if isinstance(part, StatefulTable)],
                    alarms=self.alarms,
                    linked=runbook_url is not None,
                ),
            )
            if dashboard
            else None
        )
        self._known = {path_of(construct) for construct in (*found, *own)}
        self.node.add_validation(WhenAllIsKnown(self._report_later_ones))

    def _watched(self) -> Iterator[Construct]:
        """Every construct of this library in the scope's tree and in the same stack."""
        stack = stack_of(self)
        for construct in self._scope.node.find_all():
            if isinstance(construct, _WATCHED) and stack_of(construct) is stack:
                yield construct

    def _alarms_of(self, construct: Construct, found: Sequence[Construct]) -> Iterator[SagaAlarm]:
        if isinstance(construct, _APIS):
            of = path_of(construct.api)
            sharing = [part for part in found if isinstance(part, _APIS) and path_of(part.api) == of]
            yield from api_alarms(self._room_of(construct), construct, self._slow_after, sharing)
        elif isinstance(construct, Webhook | ApprovalPage):
            yield from stage_alarms(self._room_of(construct), construct.api)
        elif isinstance(construct, SagaStateMachine):
            yield from saga_alarms(self._room_of(construct), construct)
        elif isinstance(construct, StatefulTable) and not isinstance(construct, HoldTable):
            yield from table_alarms(self._room_of(construct), construct)

    def _room_of(self, construct: Construct) -> Construct:
        """The construct under which its alarms are: named by its path, so that no other one's change moves them."""
        path = path_of(construct).removeprefix(path_of(self._scope)).strip("/")
        name = path.replace("~", "~0").replace("-", "~1").replace("/", "-")
        return Construct(self, f"~{name}" if name in {"", DASHBOARD} else name)

    def _report_later_ones(self) -> None:
        later = [path for construct in self._watched() if (path := path_of(construct)) not in self._known]
        if later:
            Validations.of(self).add_warning(
                "cdk-sagas-monitored-too-early",
                f"{self.node.path} must be declared after what it monitors, got {', '.join(sorted(later))} later; "
                "declare it last",
            )
