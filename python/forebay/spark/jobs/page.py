"""A report as one HTML page, with tables and plots; Plotly's script is part of the page."""

from __future__ import annotations

import html
import importlib
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.durable import written_whole

if TYPE_CHECKING:
    from forebay.spark.jobs.figures import Report

#: Maximum number of topics shown separately; the rest are combined.
_TOPICS_MAX = 12
#: Maximum rows of a table, and bars of a plot.
_ROWS_MAX = 1000
_BARS_MAX = 40

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .8rem; text-align: left; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.marked td { background: #fde8e4; }
.wide { overflow-x: auto; }
"""

#: Headings of table columns whose names need a unit or another wording.
_LABELS = {
    "bytes": "size",
    "rate": "messages/s",
    "peak_rate": "peak messages/s",
    "first": "first (UTC)",
    "last": "last (UTC)",
    "hour": "hour (UTC)",
    "lag": "lag in messages",
    "remark": "",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def check_plotly() -> None:
    """Raise `ImportError` if Plotly is missing."""
    try:
        _plotly()
    except ImportError as error:
        raise ImportError("an HTML report needs Plotly: pip install 'forebay[report]'") from error


def _plotly() -> Any:
    return importlib.import_module("plotly.graph_objects")


def write_page(report: Report, path: str) -> None:
    """Write the page, replacing an existing one. Other processes may write the same page."""
    page = _page(report)
    with written_whole(Path(path)) as file:
        file.write(page.encode())


def _page(report: Report) -> str:
    title = f"{html.escape(os.path.basename(report.path))} on {report.taken:%Y-%m-%d %H:%M} UTC"
    scale, unit = _scale(max((row.bytes for row in report.hours), default=0))
    figures = [
        _by_hour(report, "messages", "Messages per hour", 1),
        _by_hour(report, "bytes", f"Size per hour, {unit}", scale),
        _bars(
            "Messages by queue",
            [(f"{row.topic} {row.queue}", row.messages) for row in report.queues],
        ),
        _bars(
            "Keys with the most messages",
            [(f"{row.topic} {row.key}", row.messages) for row in report.keys],
        ),
        _bars(
            "Lag of groups, messages",
            [(f"{row.group} {row.topic} {row.queue}", row.lag or 0) for row in report.lag],
        ),
    ]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{report.messages:,} messages, {_size(report.bytes)},",
        f"in {html.escape(report.path)}</p>",
    ]
    marked = Counter(row.remark for row in report.lag if row.remark is not None)
    for remark, count in sorted(marked.items()):
        parts.append(f"<p>Groups, {html.escape(remark)}: {count:,} (marked in the lag table)</p>")
    script: bool = True
    for figure in figures:
        if figure is None:
            continue
        # Embed the script once, so that opening the page loads nothing.
        config = {"displaylogo": False, "responsive": True}
        parts.append(figure.to_html(full_html=False, include_plotlyjs=script, config=config))
        script = False
    for name in ("topics", "queues", "hours", "keys", "lag"):
        parts.append(_table(name, getattr(report, name), report.taken))
    return "\n".join([*parts, "</body></html>", ""])


def _scale(size: int) -> tuple[int, str]:
    """Return the unit to show a number of bytes in: its size in bytes, and its name."""
    place = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return 1 << (10 * place), _UNITS[place]


def _size(size: int) -> str:
    scale, unit = _scale(size)
    return f"{size:,} {unit}" if scale == 1 else f"{size / scale:,.1f} {unit}"


def _age(seconds: float) -> str:
    """Return an age in the largest unit in which it is at least 2."""
    for length, unit in _AGES:
        if seconds >= 2 * length or length == 1:
            return f"{max(seconds, 0) // length:,.0f} {unit}"
    return ""


def _by_hour(report: Report, what: str, title: str, scale: int) -> Any:
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
        heights = [values[hour] / scale for hour in hours]
        figure.add_bar(x=hours, y=heights, name=html.escape(name))
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


def _table(name: str, rows: tuple[Any, ...], taken: datetime) -> str:
    if not rows:
        return ""
    fields = rows[0]._fields
    numbers = [
        any(isinstance(row[place], int | float) for row in rows) for place in range(len(fields))
    ]
    kinds = [' class="number"' if is_number else "" for is_number in numbers]
    head = "".join(
        f"<th{kind}>{_LABELS.get(field, field.replace('_', ' '))}</th>"
        for field, kind in zip(fields, kinds, strict=True)
    )
    # Problems come first, because long tables are truncated.
    ordered = sorted(rows, key=lambda row: getattr(row, "remark", None) is None)
    lines = []
    for row in ordered[:_ROWS_MAX]:
        cells = zip(fields, row, kinds, strict=True)
        texts = (f"<td{kind}>{_cell(field, value, taken)}</td>" for field, value, kind in cells)
        mark = "" if getattr(row, "remark", None) is None else ' class="marked"'
        lines.append(f"<tr{mark}>{''.join(texts)}</tr>")
    more = ""
    if len(rows) > _ROWS_MAX:
        more = f"<p>and {len(rows) - _ROWS_MAX:,} more</p>"
    table = f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
    return f"<h2>{name}</h2>{table}{more}"


def _cell(field: str, value: object, taken: datetime) -> str:
    if field == "bytes" and isinstance(value, int):
        return _size(value)
    if field == "last" and isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}, {_age((taken - value).total_seconds())} ago"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else html.escape(str(value))
