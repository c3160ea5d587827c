"""A carrier: makes labels, fetches parcels, and reports where they were scanned.

    POST /labels             {reference, address}      201, 422
    POST /labels/{id}/void   {reference}               200, 404, 409
    POST /handovers          {tracking, reference}     200, 404
    GET  /labels?key=…       what was asked for under a key    200
    GET  /effects?key=…      what happened under a key         200

`reference` is the caller's: the webhook that reports scans repeats it. A label is void
until the parcel is scanned; afterwards it cannot be voided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from examples.cart_fulfilment.providers.books import Answer, Job, Page, problem
from examples.cart_fulfilment.providers.business import Asked, Business, Operation, shown
from examples.cart_fulfilment.providers.courier import sign_plainly
from examples.cart_fulfilment.providers.troubles import Plan

NOWHERE: Final = "nowhere"
"""An address that the carrier does not deliver to, if it begins so."""
ROUND_SECONDS: Final = 3
SCANNED: Final = "parcel.picked_up"
LOST: Final = "parcel.lost"


class Carrier(Business):
    """The carrier."""

    events: ClassVar[Mapping[str, str]] = {SCANNED: LOST, LOST: SCANNED}

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, sign=sign_plainly)
        self.operations = (
            Operation(
                name="label", method="POST", path="/labels", run=self._label, fields={"reference": str, "address": str}
            ),
            Operation(
                name="void", method="POST", path="/labels/{id}/void", run=self._void, fields={"reference": str}
            ),
            Operation(
                name="handover", method="POST", path="/handovers", run=self._take_over, job=True,
                fields={"tracking": str, "reference": str},
            ),
            Operation(name="find-label", method="GET", path="/labels", run=self.find, acts=False),
            Operation(name="find-effects", method="GET", path="/effects", run=self.find_effects, acts=False),
        )  # fmt: skip

    def on_timer(self, page: Page, job: Job, name: str) -> None:
        """Handle the driver's arrival, or the correction of a wrong event."""
        if name in self.events:
            self.tell(page, name, job)
        if job.status == "labelled":
            lost = bool(job.body.get("refused"))
            self.tell(page, LOST if lost else SCANNED, page.change(job, "lost" if lost else "in_transit"))

    def document(self, type: str, job: Job, event: str, now_ms: int) -> Mapping[str, Any]:
        """An event as this carrier has them."""
        return {
            "event": event, "type": type, "tracking": job.body["tracking"], "reference": job.reference,
            "place": "dock 4", "at": now_ms,
        }  # fmt: skip

    def _label(self, page: Page, asked: Asked) -> Answer:
        if str(asked.body["address"]).startswith(NOWHERE):
            return problem(422, "address_unknown", "no driver serves this address")
        job = page.add_job("lb", kind="label", key=asked.key, status="labelled", body=asked.body)
        page.happened("labelled", key=asked.key, job=job)
        return Answer(
            status=201, document=shown(page.change(job, "labelled", tracking=f"TRK-{job.reference[:12]}-{job.id[-6:]}"))
        )

    def _void(self, page: Page, asked: Asked) -> Answer:
        job = page.job(asked.id)
        if job is None:
            return problem(404, "label_unknown", "there is no such label")
        if job.status == "in_transit":
            return problem(409, "in_transit", "the parcel is on its way")
        page.happened("voided", key=asked.key, job=job)
        return Answer(status=200, document=shown(page.change(job, "void")))

    def _take_over(self, page: Page, asked: Asked) -> Answer:
        found = page.jobs_with("tracking", asked.body["tracking"])
        if not found:
            return problem(404, "label_unknown", "there is no such label")
        job = page.change(found[0], found[0].status, refused=asked.refused)
        page.wake(job, "scan", ROUND_SECONDS, key=asked.key)
        return Answer(status=200, document=shown(job))
