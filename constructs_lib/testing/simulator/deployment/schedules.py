"""Schedules of EventBridge: the moments of a ``cron(…)`` expression.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_EXPRESSION: Final = re.compile(r"cron\(([^()]+)\)")
_PART: Final = re.compile(r"(\*|[A-Z0-9]+)(?:-([A-Z0-9]+))?(?:/(\d+))?")
_ANY: Final = "?"
_MOST_DAYS: Final = 366 * 8 + 2
"""Within so many days each date has come: a leap day may be eight years away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A ``cron(…)`` expression, in UTC.

    Attributes:
        minutes, hours: of a day.
        days: of a month; None: the weekdays decide.
        months: 1 to 12.
        weekdays: 1 is Sunday; None: the days decide.
        years: four digits each.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    years: frozenset[int]

    def following(self, after: int) -> int | None:
        """The first moment behind another one, in seconds since the epoch; None: no moment for years."""
        begin = datetime.fromtimestamp(after, UTC).replace(second=0) + timedelta(minutes=1)
        for number in range(_MOST_DAYS):
            day = begin.date() + timedelta(days=number)
            if not self._has(day):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    moment = datetime.combine(day, time(hour, minute), UTC)
                    if moment >= begin:
                        return int(moment.timestamp())
        return None

    def _has(self, day: date) -> bool:
        return (
            day.year in self.years
            and day.month in self.months
            and (self.days is None or day.day in self.days)
            and (self.weekdays is None or day.isoweekday() % 7 + 1 in self.weekdays)
        )


def cron_of(text: str) -> Cron | None:
    """The schedule of an expression; None: it has what is not known here, such as ``L``, ``W`` or ``#``."""
    found = _EXPRESSION.fullmatch(text.strip())
    fields = found[1].upper().split() if found is not None else []
    if len(fields) != 6 or (fields[2] == _ANY) == (fields[4] == _ANY):
        return None
    minutes, hours = _numbers(fields[0], 0, 59), _numbers(fields[1], 0, 23)
    days = None if fields[2] == _ANY else _numbers(fields[2], 1, 31)
    months = _numbers(fields[3], 1, 12, _MONTHS)
    weekdays = None if fields[4] == _ANY else _numbers(fields[4], 1, 7, _WEEKDAYS)
    years = _numbers(fields[5], 1970, 2199)
    unknown = (days is None and fields[2] != _ANY) or (weekdays is None and fields[4] != _ANY)
    if minutes is None or hours is None or months is None or years is None or unknown:
        return None
    return Cron(minutes=minutes, hours=hours, days=days, months=months, weekdays=weekdays, years=years)


def _numbers(text: str, least: int, most: int, names: tuple[str, ...] = ()) -> frozenset[int] | None:
    """Numbers of a field; None: it has what is not known here."""
    found: set[int] = set()
    for part in text.split(","):
        matched = _PART.fullmatch(part)
        if matched is None:
            return None
        first, last, step = matched.groups()
        low = least if first == "*" else _number(first, least, names)
        alone = most if first == "*" or step is not None else low
        high = alone if last is None else _number(last, least, names)
        if low is None or high is None or not least <= low <= high <= most or step == "0":
            return None
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, least: int, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + least
    return int(text) if text.isdigit() else None
