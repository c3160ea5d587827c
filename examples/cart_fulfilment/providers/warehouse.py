"""A warehouse: picks goods for an order, and keeps the parcel for the carrier.

    POST /picks             {reference, lines, tracking, pick_within}   202, 422
    POST /picks/{id}/cancel {reference}                                 200, 404
    GET  /picks?key=…       what was asked for under a key              200
    GET  /effects?key=…     what happened under a key                   200

A webhook reports a pick's progress and outcome, under the caller's `reference`. A pick that is not done
within `pick_within` seconds is canceled. A parcel that is ready is given to the carrier,
whose driver fetches it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Final
from urllib.request import Request, urlopen

from examples.cart_fulfilment.providers.books import Answer, Job, Page, problem
from examples.cart_fulfilment.providers.business import Asked, Business, Operation, shown
from examples.cart_fulfilment.providers.courier import sign_standard
from examples.cart_fulfilment.providers.troubles import Plan

UNLISTED: Final = "unlisted"
"""Goods that the warehouse does not know, if their SKU begins so: refused at once."""
EMPTY: Final = "empty-shelf"
"""Prefix of the SKUs of goods whose shelf turns out to be empty: refused when the picker arrives there."""
WALK_SECONDS: Final = 2
PICK_SECONDS: Final = 4
PICKED: Final = "pick.completed"
REJECTED: Final = "pick.rejected"
WALKING: Final = "pick.progress"
_TRIES: Final = 5


class Warehouse(Business):
    """The warehouse.

    Args:
        plan: what goes wrong.
        carrier: where the carrier listens, who fetches parcels; without one, they stay.
    """

    events: ClassVar[Mapping[str, str]] = {PICKED: REJECTED, REJECTED: PICKED, WALKING: ""}

    def __init__(self, plan: Plan, *, carrier: str | None = None) -> None:
        super().__init__(plan, sign=sign_standard)
        self._carrier = carrier
        wanted = {"reference": str, "lines": list, "tracking": str, "pick_within": int}
        self.operations = (
            Operation(name="pick", method="POST", path="/picks", run=self._pick, fields=wanted, job=True),
            Operation(
                name="cancel", method="POST", path="/picks/{id}/cancel", run=self._cancel, fields={"reference": str}
            ),
            Operation(name="find-pick", method="GET", path="/picks", run=self.find, acts=False),
            Operation(name="find-effects", method="GET", path="/effects", run=self.find_effects, acts=False),
        )

    def on_timer(self, page: Page, job: Job, name: str) -> None:
        """Handle the picker's arrival, the finished pick, its end, or the correction of a wrong event."""
        if name == REJECTED:
            self.tell(page, REJECTED, job)
        if name == PICKED:
            page.happened("picked", key=job.key, job=job)
            self.tell(page, PICKED, page.change(job, "picked", parcel=f"{job.reference}/1"))
        if job.status != "queued":
            return
        if name == "expire":
            self.tell(page, REJECTED, page.change(job, "rejected", why="too_late"))
        elif job.body["refused"]:
            self.tell(page, REJECTED, page.change(job, "rejected", why="shelf_empty"))
        elif name == "walk":
            self.tell(page, WALKING, job)
            page.wake(job, "take", PICK_SECONDS - WALK_SECONDS, key=job.key)
        else:
            page.happened("picked", key=job.key, job=job)
            picked = page.change(job, "picked", parcel=f"{job.reference}/1")
            self.tell(page, PICKED, picked)
            if self._carrier is not None:
                page.errands.append(partial(_hand_over, self._carrier, picked))

    def document(
        self,
        type: str,
        job: Job,
        event: str,  # noqa: ARG002 - it is sent in a header
        now_ms: int,
    ) -> Mapping[str, Any]:
        """An event as Standard Webhooks advises."""
        told = {
            "pick": job.id,
            "reference": job.reference,
            "parcel": job.body.get("parcel"),
            "why": job.body.get("why"),
        }
        return {"type": type, "timestamp": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(), "data": told}

    def _pick(self, page: Page, asked: Asked) -> Answer:
        skus = [str(line["sku"]) for line in asked.body["lines"]]
        if any(sku.startswith(UNLISTED) for sku in skus):
            return problem(422, "sku_unknown", "the warehouse does not know these goods")
        refused = asked.refused or any(sku.startswith(EMPTY) for sku in skus)
        body = {**asked.body, "refused": refused}
        job = page.add_job("pick", kind="pick", key=asked.key, status="queued", body=body)
        page.wake(job, "walk", WALK_SECONDS, key=asked.key)
        page.wake(job, "expire", asked.body["pick_within"], key=asked.key, ends=True)
        return Answer(status=202, document=shown(job))

    def _cancel(self, page: Page, asked: Asked) -> Answer:
        """Put the goods back onto their shelf."""
        job = page.job(asked.id)
        if job is None:
            return problem(404, "pick_unknown", "there is no such pick")
        page.happened("put_back", key=asked.key, job=job)
        return Answer(status=200, document=shown(page.change(job, "canceled")))


def _hand_over(carrier: str, job: Job) -> None:
    """Notify the carrier that a parcel is ready; again, if it does not answer."""
    body = json.dumps({"tracking": job.body["tracking"], "reference": job.reference}).encode()
    for attempt in range(_TRIES):
        # The address is an argument of the test that started this process.
        request = Request(f"{carrier}/handovers", data=body, headers={"Idempotency-Key": f"{job.id}-ready"})  # noqa: S310
        try:
            with urlopen(request, timeout=5):  # noqa: S310 - address given by the test
                return
        except OSError:
            time.sleep(0.1 * 2**attempt)
