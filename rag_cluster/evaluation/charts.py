"""Charts as inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_COLORS = ("#1971c2", "#e8590c", "#2f9e44", "#9c36b5", "#c2255c", "#0c8599", "#f08c00", "#5f3dc4", "#868e96", "#66a80f")
_WIDTH, _HEIGHT = 960, 240
_LEFT, _TOP, _BOTTOM = 56, 12, 36
_TICKS = 5
_PER_ROW = 3
"""Entries of the legend beside each other."""


def bars(groups: Sequence[str], series: Mapping[str, Sequence[float]], unit: str = "") -> str:
    """A group of bars for each name, one bar a series."""
    top = _ceiling(value for values in series.values() for value in values)
    width = (_WIDTH - _LEFT) / max(len(groups), 1)
    bar = min(width * 0.8 / max(len(series), 1), 48.0)
    drawn = []
    for group, name in enumerate(groups):
        middle = _LEFT + (group + 0.5) * width
        drawn.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(name)}</text>')
        for number, (label, values) in enumerate(series.items()):
            height = _span(values[group], top)
            x = middle + (number - len(series) / 2) * bar
            drawn.append(
                f'<rect x="{x:.1f}" y="{_HEIGHT - _BOTTOM - height:.1f}" width="{max(bar - 1, 1):.1f}" '
                f'height="{height:.1f}" fill="{_color(number)}"><title>{escape(label)}, {escape(name)}: '
                f"{values[group]:g}{' ' + unit if unit else ''}</title></rect>"
            )
    return _figure("".join(drawn), top, list(series))


def lines(places: Sequence[float], series: Mapping[str, Sequence[float]], x_name: str, y_name: str) -> str:
    """A line a series, over places that stand at equal distances."""
    top = _ceiling(value for values in series.values() for value in values)
    step = (_WIDTH - _LEFT - 60) / max(len(places) - 1, 1)
    at = [_LEFT + 30 + number * step for number in range(len(places))]
    drawn = [
        f'<text x="{x:.0f}" y="{_HEIGHT - 18}" text-anchor="middle">{place:g}</text>'
        for x, place in zip(at, places, strict=True)
    ]
    drawn.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 3}" text-anchor="middle">{escape(x_name)}</text>')
    for number, (label, values) in enumerate(series.items()):
        points = [(x, _HEIGHT - _BOTTOM - _span(value, top)) for x, value in zip(at, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{_color(number)}" stroke-width="2"/>')
        drawn.extend(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_color(number)}">'
            f"<title>{escape(label)}: {escape(y_name)} {value:g} at {place:g}</title></circle>"
            for (x, y), value, place in zip(points, values, places, strict=True)
        )
    return _figure("".join(drawn), top, list(series))


def _figure(drawn: str, top: float, labels: Sequence[str]) -> str:
    grid = []
    for tick in range(_TICKS + 1):
        y = _HEIGHT - _BOTTOM - _span(top * tick / _TICKS, top)
        grid.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        grid.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{top * tick / _TICKS:g}</text>')
    legend = "".join(
        f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_color(number)}"/>'
        f'<text x="{x + 18}" y="{y}">{escape(label)}</text>'
        for number, label in enumerate(labels)
        for x, y in [(_LEFT + number % _PER_ROW * 300, _HEIGHT + 18 + number // _PER_ROW * 20)]
    )
    height = _HEIGHT + 12 + 20 * -(-len(labels) // _PER_ROW)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(grid)}{drawn}{legend}</svg>'


def _color(number: int) -> str:
    return _COLORS[number % len(_COLORS)]


def _span(value: float, top: float) -> float:
    return (_HEIGHT - _TOP - _BOTTOM) * value / top


def _ceiling(values: Iterable[float]) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is no smaller than every value."""
    highest = max(values, default=0.0)
    steps = (round(factor * 10.0**power, 6) for power in range(-3, 12) for factor in (1, 2, 5))
    return next(step for step in steps if step >= highest)
