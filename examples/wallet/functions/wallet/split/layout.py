"""Layout of the split: from the customer's one record to the wallet's items."""

from __future__ import annotations

import os
from typing import Final

from saga_runtime.migration import Concern, History, Layout, Store

from ..keys import ECOPAY, HISTORY, JCREDIT, METRICS, POINT, PROFILE, balance_type
from ..operations import TABLE

RECORD: Final = "customer"
"""Sort key of the record that holds everything."""
OLD_FORM: Final = "tx#"
"""Begin of the sort keys of the history's rows, before they get new ones."""
PILOTS: Final = ("c-000", "c-001", "c-002")
BALANCES: Final = {
    unit.code: Concern(name=unit.code, item=balance_type(unit), attributes={"balance": unit.code.lower()})
    for unit in (ECOPAY, POINT, JCREDIT)
}
LAYOUT: Final = Layout(
    name="wallet",
    old_item=RECORD,
    partition_key="uuid",
    sort_key="type",
    groups=(
        # Phase 3 separates profile and balance, phase 9 points and credits from the metrics.
        (Concern(name="PROFILE", item=PROFILE, attributes={n: n for n in ("name", "email", "phone_number", "since")}),),
        (*BALANCES.values(), Concern(name="METRICS", item=METRICS, attributes={"co2_saved": "co2_saved"})),
    ),
    pilots=PILOTS,
    histories=(History(old_prefix=OLD_FORM, new_prefix=HISTORY, id_attribute="operation_id", order_attribute="ms"),),
)


def store() -> Store:
    """The wallet's table."""
    return Store(layout=LAYOUT, table=os.environ[TABLE])
