"""The one table of prices: us-east-1, on demand, the first tier, free tiers left out. Each line has date and source.

Prices change: a line's ``as_of`` is the month in which its price was last looked up, never a promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

REGION: Final = "us-east-1"

_STEP_FUNCTIONS: Final = "https://aws.amazon.com/step-functions/pricing/"
_LAMBDA: Final = "https://aws.amazon.com/lambda/pricing/"
_DYNAMODB: Final = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
_API_GATEWAY: Final = "https://aws.amazon.com/api-gateway/pricing/"
_SQS: Final = "https://aws.amazon.com/sqs/pricing/"
_EVENTBRIDGE: Final = "https://aws.amazon.com/eventbridge/pricing/"


class Service(StrEnum):
    """Services that bill."""

    STEP_FUNCTIONS = "Step Functions"
    LAMBDA = "Lambda"
    DYNAMODB = "DynamoDB"
    API_GATEWAY = "API Gateway"
    SQS = "SQS"
    EVENTBRIDGE = "EventBridge"


class Meter(StrEnum):
    """Billed units."""

    TRANSITIONS = "Standard transitions"
    EXPRESS_REQUESTS = "Express requests"
    EXPRESS_GB_SECONDS = "Express GB-seconds"
    LAMBDA_REQUESTS = "Lambda requests"
    LAMBDA_GB_SECONDS = "Lambda GB-seconds"
    LAMBDA_GB_SECONDS_X86 = "Lambda GB-seconds, x86"
    WRITE_UNITS = "DynamoDB write units"
    READ_UNITS = "DynamoDB read units"
    REST_REQUESTS = "REST API requests"
    FIFO_REQUESTS = "SQS FIFO requests"
    QUEUE_REQUESTS = "SQS requests"
    EVENTS = "EventBridge events"
    DURABLE_OPERATIONS = "durable operations"
    DURABLE_GB_WRITTEN = "durable data, GB written"
    DURABLE_GB_MONTHS = "durable data, GB-months kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of one meter.

    Attributes:
        meter: what is counted.
        service: who bills it.
        dollars: for ``per`` of them.
        per: how many.
        as_of: year and month in which the price was looked up.
        source: the page with the price.
    """

    meter: Meter
    service: Service
    dollars: Decimal
    per: int
    as_of: str
    source: str

    def of(self, quantity: Decimal) -> Decimal:
        """Dollars for a quantity."""
        return quantity * self.dollars / self.per


def _line(meter: Meter, service: Service, dollars: str, per: int, source: str, as_of: str = "2026-11") -> Price:
    return Price(meter=meter, service=service, dollars=Decimal(dollars), per=per, as_of=as_of, source=source)


_MILLION: Final = 1_000_000

PRICES: Final = {
    price.meter: price
    for price in (
        _line(Meter.TRANSITIONS, Service.STEP_FUNCTIONS, "25.00", _MILLION, _STEP_FUNCTIONS),
        _line(Meter.EXPRESS_REQUESTS, Service.STEP_FUNCTIONS, "1.00", _MILLION, _STEP_FUNCTIONS),
        _line(Meter.EXPRESS_GB_SECONDS, Service.STEP_FUNCTIONS, "0.00001667", 1, _STEP_FUNCTIONS),
        _line(Meter.LAMBDA_REQUESTS, Service.LAMBDA, "0.20", _MILLION, _LAMBDA),
        _line(Meter.LAMBDA_GB_SECONDS, Service.LAMBDA, "0.0000133334", 1, _LAMBDA),
        _line(Meter.LAMBDA_GB_SECONDS_X86, Service.LAMBDA, "0.0000166667", 1, _LAMBDA),
        _line(Meter.WRITE_UNITS, Service.DYNAMODB, "0.625", _MILLION, _DYNAMODB),
        _line(Meter.READ_UNITS, Service.DYNAMODB, "0.125", _MILLION, _DYNAMODB),
        _line(Meter.REST_REQUESTS, Service.API_GATEWAY, "3.50", _MILLION, _API_GATEWAY),
        _line(Meter.FIFO_REQUESTS, Service.SQS, "0.50", _MILLION, _SQS),
        _line(Meter.QUEUE_REQUESTS, Service.SQS, "0.40", _MILLION, _SQS),
        _line(Meter.EVENTS, Service.EVENTBRIDGE, "1.00", _MILLION, _EVENTBRIDGE),
        _line(Meter.DURABLE_OPERATIONS, Service.LAMBDA, "8.00", _MILLION, _LAMBDA, "2026-09"),
        _line(Meter.DURABLE_GB_WRITTEN, Service.LAMBDA, "0.25", 1, _LAMBDA, "2026-09"),
        _line(Meter.DURABLE_GB_MONTHS, Service.LAMBDA, "0.15", 1, _LAMBDA, "2026-09"),
    )
}
