"""Two charts over the number of topics: the rate, and the time of a send."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

from forebay.bench.topics import Measured

__all__ = ["svg"]

_WIDTH, _HEIGHT = 900, 360
_LEFT, _TOP, _PANEL_WIDTH, _PANEL_HEIGHT, _GAP = 70, 40, 330, 240, 100
_COLOURS = ("#0b6e99", "#d9730d", "#7a9e3c", "#9a3b8f", "#555555")
_TEXT = 'font-family="sans-serif" font-size="12"'


def svg(measured: Iterable[Measured], title: str) -> str:
    """Return a picture of measurements, one line for each engine.

    Parameters
    ----------
    measured
        The runs, at most one for each engine and number of topics.
    title
        What was measured, as text.
    """
    lines: dict[str, list[Measured]] = {}
    for one in measured:
        lines.setdefault(one.engine, []).append(one)
    for line in lines.values():
        line.sort(key=lambda one: one.topics)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_TEXT}>',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    rates = [one.rate / 1e6 for line in lines.values() for one in line]
    times = [one.p99 * 1e6 for line in lines.values() for one in line]
    parts += _panel(
        0, lines, "million messages a second", lambda one: one.rate / 1e6, _linear(rates)
    )
    parts += _panel(1, lines, "p99 of a send, us", lambda one: one.p99 * 1e6, _decades(times))
    for place, name in enumerate(lines):
        x, y = _LEFT + 180 * place, _HEIGHT - 14
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_colour(place)}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


#: Marks of an axis, and the place of a value on it, from 0 to 1.
_Axis = tuple[list[float], Callable[[float], float]]


def _linear(values: Sequence[float]) -> _Axis:
    most = max(values, default=1.0) or 1.0
    step = 10 ** math.floor(math.log10(most))
    step = next(it for it in (step / 5, step / 2, step, 2 * step) if most / it <= 6)
    top = step * math.ceil(most / step)
    marks = [step * number for number in range(round(top / step) + 1)]
    return marks, lambda value: value / top


def _decades(values: Sequence[float]) -> _Axis:
    some = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(some)))
    high = max(math.ceil(math.log10(max(some))), low + 1)
    marks = [10.0**power for power in range(low, high + 1)]
    return marks, lambda value: (math.log10(max(value, 10.0**low)) - low) / (high - low)


def _panel(
    number: int,
    lines: dict[str, list[Measured]],
    label: str,
    value_of: Callable[[Measured], float],
    axis: _Axis,
) -> list[str]:
    left = _LEFT + number * (_PANEL_WIDTH + _GAP)
    bottom = _TOP + _PANEL_HEIGHT
    counts = sorted({one.topics for line in lines.values() for one in line})
    low, high = math.log10(counts[0]), math.log10(counts[-1])

    def x(topics: int) -> float:
        share = (math.log10(topics) - low) / (high - low) if high > low else 0.5
        return left + share * _PANEL_WIDTH

    marks, place = axis
    parts = [f'<text x="{left}" y="{_TOP - 6}">{escape(label)}</text>']
    for mark in marks:
        y = bottom - place(mark) * _PANEL_HEIGHT
        parts.append(
            f'<line x1="{left}" x2="{left + _PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="#dddddd"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for count in counts:
        parts.append(
            f'<text x="{x(count):.1f}" y="{bottom + 18}" text-anchor="middle">{count:,}</text>'
        )
    parts.append(
        f'<text x="{left + _PANEL_WIDTH / 2}" y="{bottom + 36}" text-anchor="middle">topics</text>'
    )
    for number_of_line, line in enumerate(lines.values()):
        colour = _colour(number_of_line)
        points = [(x(one.topics), bottom - place(value_of(one)) * _PANEL_HEIGHT) for one in line]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        dot = f'r="3" fill="{colour}"'
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" {dot}/>' for px, py in points]
    return parts


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
