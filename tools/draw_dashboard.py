"""Draws the dashboard of the example AgenticPayout from the metrics of a soak on local AWS: docs/images/dashboard.svg.

    python tools/draw_dashboard.py [--seconds N] [--seed S]

The widgets are those of the deployed template. Their metrics are what the functions printed (embedded metric format),
and for Step Functions' own metrics, its executions; settled sagas are read from the request table. Local AWS evaluates
no alarms.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from constructs_lib.testing import LocalAws  # noqa: E402  # after the path
from constructs_lib.testing.invariants import read_table  # noqa: E402  # likewise
from saga_runtime.protocol import Look, LookField  # noqa: E402  # likewise
from tests.soak.run import Settings, soak  # noqa: E402  # likewise
from tests.soak.world import World  # noqa: E402  # likewise

PICTURE: Final = ROOT / "docs" / "images" / "dashboard.svg"
STACK: Final = "AgenticPayout"
BINS: Final = 24
_MEASURED_EVERY: Final = 2.0
SCALE: Final = 38
"""Pixels of a dashboard's column."""
ROW: Final = 30
COLOURS: Final = ("#1f77b4", "#2ca02c", "#ff7f0e", "#d62728", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
END_OF: Final = {"COMPLETED": "Settle completed", "FAILED": "Settle failed"}

Identity = tuple[str, frozenset[tuple[str, str]]]


@dataclass(slots=True)
class Measured:
    """Values by metric, each with its time.

    Attributes:
        points: by name and dimensions, time and value.
        ended: by the state in which sagas ended, times.
    """

    points: dict[Identity, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    widgets: list[dict[str, Any]] = field(default_factory=list)

    def read(self, aws: LocalAws, outputs: Mapping[str, str]) -> None:
        """Read everything that the widgets show."""
        physical = {one.logical_id: one.physical_id for one in aws.resources() if one.stack == STACK}
        document: Mapping[str, Any] = aws.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
        (body,) = (
            resource["Properties"]["DashboardBody"]
            for resource in document["Resources"].values()
            if resource["Type"] == "AWS::CloudWatch::Dashboard"
        )
        self.widgets = json.loads(_text(body, physical))["widgets"]
        for function in aws.functions():
            for log in aws.function_logs(function.physical_id) if function.stack == STACK else ():
                for line in log.lines:
                    self._read_line(line)
        base, speed = map(float, aws.clock.split(":"))

        def real(moment: float) -> float:
            """Local AWS's time is faster; functions print their metrics with the process's own."""
            return base + (moment - base) / speed

        states = aws.client("stepfunctions")
        for machine in (outputs["StateMachineArn"], outputs.get("ExpressMachineArn")):
            if machine is None:
                continue
            dimensions = frozenset({("StateMachineArn", machine)})
            for page in states.get_paginator("list_executions").paginate(stateMachineArn=machine):
                for execution in page["executions"]:
                    self.points["ExecutionsStarted", dimensions].append((real(execution["startDate"].timestamp()), 1))
        for record in read_table(aws.client("dynamodb"), outputs["RequestTableName"]):
            status = record["status"]["S"]
            if status in END_OF:
                self.ended[END_OF[status]].append(real(float(record["updated_at"]["N"]) / 1_000))

    def _read_line(self, line: str) -> None:
        if '"_aws"' not in line:
            return
        entry = json.loads(line)
        at = entry["_aws"]["Timestamp"] / 1_000
        for directive in entry["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = frozenset((name, str(entry[name])) for name in names)
                for metric in directive["Metrics"]:
                    values = entry[metric["Name"]]
                    for value in values if isinstance(values, list) else [values]:
                        self.points[metric["Name"], dimensions].append((at, float(value)))


def _text(value: Any, physical: Mapping[str, str]) -> str:
    """Text of a template's value, with references as what they refer to."""
    if isinstance(value, str):
        return value
    ((kind, argument),) = value.items()
    if kind == "Fn::Join":
        return str(argument[0]).join(_text(part, physical) for part in argument[1])
    name = argument if kind == "Ref" else argument[0]
    return physical.get(name, "eu-west-1" if name == "AWS::Region" else name)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a graph: a label, and a value for each bin that has one."""

    label: str
    values: dict[int, float]


def lines_of(widget: Mapping[str, Any], measured: Measured, first: float, seconds: float) -> list[Line]:
    """The lines of a widget, as CloudWatch would compute them from the metrics."""
    properties = widget["properties"]
    if widget["type"] == "log":
        ends = [(state, [(at, 1.0) for at in times]) for state, times in measured.ended.items()]
        return [Line(label, _binned(points, "Sum", first, seconds)) for label, points in ends]
    found: list[Line] = []
    by_id: dict[str, dict[int, float]] = {}
    for metric in properties.get("metrics", []):
        options = metric[-1] if isinstance(metric[-1], dict) else {}
        if "expression" not in options:
            _, name, *rest = [part for part in metric if isinstance(part, str)]
            points = measured.points.get((name, frozenset(zip(rest[::2], rest[1::2], strict=True))), [])
            values = _binned(points, options.get("stat", "Average"), first, seconds)
            by_id[options.get("id", "")] = values
            if options.get("visible", True):
                found.append(Line(options.get("label", name), values))
    for metric in properties.get("metrics", []):
        options = metric[-1] if isinstance(metric[-1], dict) else {}
        expression = options.get("expression", "")
        if expression.startswith("SEARCH"):
            name = re.findall(r'MetricName="([^"]+)"', expression)[0]
            service = re.findall(r'service="([^"]+)"', expression)[0]
            for (known, dimensions), points in sorted(measured.points.items(), key=str):
                if known == name and ("service", service) in dimensions:
                    label = next(value for key, value in dimensions if key != "service")
                    found.append(Line(label, _binned(points, "Maximum", first, seconds)))
        elif expression:
            total: dict[int, float] = defaultdict(float)
            for name in re.findall(r"FILL\((\w+), 0\)", expression):
                for number, value in by_id[name].items():
                    total[number] += value
            found.append(Line(options.get("label", ""), dict(total)))
    return found


def _binned(points: Sequence[tuple[float, float]], statistic: str, first: float, seconds: float) -> dict[int, float]:
    bins: dict[int, list[float]] = defaultdict(list)
    for at, value in points:
        bins[min(BINS - 1, max(0, int((at - first) / seconds * BINS)))].append(value)
    return {number: sum(values) if statistic == "Sum" else max(values) for number, values in bins.items()}


def draw(measured: Measured) -> str:
    """The picture."""
    times = [at for points in measured.points.values() for at, _ in points if at > 1e9]
    first, seconds = min(times), max(1.0, max(times) - min(times))
    shown = [widget for widget in measured.widgets if widget["type"] in {"text", "metric", "log"}]
    height = max(widget["y"] + widget["height"] for widget in shown) * ROW
    parts = list(_head(24 * SCALE, height))
    for widget in shown:
        x, y, w, h = widget["x"] * SCALE, widget["y"] * ROW, widget["width"] * SCALE, widget["height"] * ROW
        if widget["type"] == "text":
            sentences = re.split(r"(?<=\.) ", widget["properties"]["markdown"].replace("`", ""))
            parts += [f'<text x="10" y="{20 + 17 * n}">{escape(text)}</text>' for n, text in enumerate(sentences[:3])]
        else:
            parts += _graph(widget["properties"]["title"], lines_of(widget, measured, first, seconds), (x, y, w, h))
    return "\n".join([*parts, "</svg>", ""])


def _head(width: int, height: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="title desc">'
    )
    yield '<title id="title">The dashboard of the example AgenticPayout during a soak on local AWS</title>'
    yield (
        '<desc id="desc">Graphs of requests by answer, sagas started and settled, sagas and money in flight, ages, '
        "conflicts, recoveries and throttles, over the minutes of a soak.</desc>"
    )
    yield (
        '<style>text{font-family:system-ui,-apple-system,"Segoe UI",Arial,sans-serif;font-size:11px;fill:#1f2328}'
        ".b{font-weight:700;font-size:12px}.s{font-size:10px;fill:#57606a}</style>"
    )
    yield f'<rect width="{width}" height="{height}" fill="#f6f8fa"/>'


def _graph(title: str, lines: Sequence[Line], box: tuple[int, int, int, int]) -> Iterator[str]:
    x, y, w, h = box
    yield f'<rect x="{x + 3}" y="{y + 3}" width="{w - 6}" height="{h - 6}" rx="4" fill="#fff" stroke="#d0d7de"/>'
    yield f'<text class="b" x="{x + 12}" y="{y + 20}">{escape(title)}</text>'
    drawn = [line for line in lines if line.values]
    most = max((value for line in drawn for value in line.values.values()), default=0.0)
    columns = 3 if all(len(line.label) < 16 for line in lines) else 2
    rows = (len(lines) + columns - 1) // columns
    left, top, right, bottom = x + 44, y + 32, x + w - 14, y + h - 14 - 13 * rows
    for share in (0.0, 0.5, 1.0):
        at = bottom - share * (bottom - top)
        yield f'<line x1="{left}" y1="{at:.0f}" x2="{right}" y2="{at:.0f}" stroke="#eaeef2"/>'
        yield f'<text class="s" x="{left - 5}" y="{at + 3:.0f}" text-anchor="end">{_short(most * share)}</text>'
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (
                left + (right - left) * (bin_ + 0.5) / BINS,
                bottom - (bottom - top) * (value / most if most else 0.0),
            )
            for bin_, value in sorted(line.values.items())
        ]
        if points:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
            yield from (f'<circle cx="{px:.1f}" cy="{py:.1f}" r="1.8" fill="{colour}"/>' for px, py in points)
        lx, ly = x + 14 + (number % columns) * (w - 24) / columns, bottom + 17 + 13 * (number // columns)
        yield f'<rect x="{lx:.0f}" y="{ly - 7:.0f}" width="8" height="8" fill="{colour}"/>'
        yield f'<text class="s" x="{lx + 11:.0f}" y="{ly:.0f}">{escape(line.label)[:34]}</text>'


def _short(value: float) -> str:
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


@contextmanager
def watching(world: World, measured: Measured) -> Iterator[None]:
    """Measure what is in flight, as the reconciler's schedule does, more often; read all metrics at the end."""
    outputs, ended = world.payouts.outputs, threading.Event()
    functions = world.aws.client("lambda")
    event = json.dumps({LookField.LOOK: Look.IN_FLIGHT}).encode()

    def look() -> None:
        while not ended.wait(_MEASURED_EVERY):
            functions.invoke(FunctionName=outputs["ReconcilerName"], Payload=event)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
    measured.read(world.aws, outputs)


def main() -> int:
    """Run the soak, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    measured = Measured()
    ended = soak(Settings(seed=options.seed, seconds=options.seconds), print, partial(watching, measured=measured))
    PICTURE.write_text(draw(measured), encoding="utf-8")
    print("\n".join([*ended.problems(), f"drawn: {PICTURE.relative_to(ROOT)}"]))
    return 1 if ended.problems() else 0


if __name__ == "__main__":
    sys.exit(main())
