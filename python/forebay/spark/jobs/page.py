"""A report as one HTML page: plots by Plotly, whose script stands in the page, and tables."""

from __future__ import annotations

import html
import importlib
import os
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.spark.jobs.figures import Report

#: Topics with lines of their own; the others are one.
_TOPICS_MAX = 12
#: Rows of a table, and bars of a plot.
_ROWS_MAX = 1000
_BARS_MAX = 40

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .8rem; text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def check_plotly() -> None:
    """Fail where Plotly is missing."""
    try:
        _plotly()
    except ImportError as error:
        raise ImportError("a page needs Plotly: pip install 'forebay[report]'") from error


def _plotly() -> Any:
    return importlib.import_module("plotly.graph_objects")


def write_page(report: Report, path: str) -> None:
    """Write the page, in place of one that is there."""
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(_page(report))
    os.replace(temporary, path)


def _page(report: Report) -> str:
    title = f"{html.escape(os.path.basename(report.path))} on {report.taken:%Y-%m-%d %H:%M} UTC"
    figures = [
        _by_hour(report, "messages", "Messages an hour"),
        _by_hour(report, "bytes", "Bytes an hour"),
        _bars(
            "Messages by queue",
            [(f"{row.topic} {row.queue}", row.messages) for row in report.queues],
        ),
        _bars(
            "Keys with the most messages",
            [(f"{row.topic} {row.key}", row.messages) for row in report.keys],
        ),
        _bars("Lag", [(f"{row.group} {row.topic} {row.queue}", row.lag) for row in report.lag]),
    ]
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{report.messages:,} messages, {report.bytes:,} bytes,",
        f"in {html.escape(report.path)}</p>",
    ]
    script: bool = True
    for figure in figures:
        if figure is None:
            continue
        # The script once, in the page: nothing is loaded when it is opened.
        config = {"displaylogo": False, "responsive": True}
        parts.append(figure.to_html(full_html=False, include_plotlyjs=script, config=config))
        script = False
    for name in ("topics", "queues", "hours", "keys", "lag"):
        parts.append(_table(name, getattr(report, name)))
    return "\n".join([*parts, "</body></html>", ""])


def _by_hour(report: Report, what: str, title: str) -> Any:
    totals: Counter[str] = Counter()
    for row in report.hours:
        totals[row.topic] += getattr(row, what)
    if not totals:
        return None
    largest = [topic for topic, _ in totals.most_common(_TOPICS_MAX)]
    series: dict[str, Counter[datetime]] = {topic: Counter() for topic in largest}
    for row in report.hours:
        name = row.topic if row.topic in series else "others"
        series.setdefault(name, Counter())[row.hour] += getattr(row, what)
    hours = sorted({row.hour for row in report.hours})
    figure = _plotly().Figure()
    for name, values in series.items():
        figure.add_bar(x=hours, y=[values[hour] for hour in hours], name=html.escape(name))
    figure.update_layout(title=title, barmode="stack", template="plotly_white")
    return figure


def _bars(title: str, bars: list[tuple[str, int]]) -> Any:
    chosen = sorted(bars, key=lambda bar: -bar[1])[:_BARS_MAX]
    if not chosen:
        return None
    names = [html.escape(name) for name, _ in chosen]
    figure = _plotly().Figure()
    figure.add_bar(x=[value for _, value in chosen], y=names, orientation="h")
    figure.update_layout(
        title=title, template="plotly_white", height=160 + 22 * len(chosen),
        yaxis={"autorange": "reversed", "type": "category", "automargin": True},
    )  # fmt: skip
    return figure


def _table(name: str, rows: tuple[Any, ...]) -> str:
    if not rows:
        return ""
    number = [isinstance(value, int | float) for value in rows[0]]
    kinds = [' class="number"' if is_number else "" for is_number in number]
    head = "".join(
        f"<th{kind}>{field.replace('_', ' ')}</th>"
        for field, kind in zip(rows[0]._fields, kinds, strict=True)
    )
    lines = []
    for row in rows[:_ROWS_MAX]:
        cells = (f"<td{kind}>{_cell(v)}</td>" for v, kind in zip(row, kinds, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    more = ""
    if len(rows) > _ROWS_MAX:
        more = f"<p>and {len(rows) - _ROWS_MAX:,} more</p>"
    return f"<h2>{name}</h2><table><tr>{head}</tr>{''.join(lines)}</table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else html.escape(str(value))
