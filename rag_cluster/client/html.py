"""Pieces of HTML for notebooks. Every text is escaped: documents, questions and errors are what strangers wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = "max-width:60em;line-height:1.5;overflow-wrap:anywhere"
MUTED = "opacity:.65;font-size:.9em"
MAX_ROWS = 50
MAX_TEXT = 300


def frame(*parts: str) -> str:
    """A view's outermost element. MathJax must not make formulas of texts with dollar signs."""
    return f'<div class="rag-cluster tex2jax_ignore mathjax_ignore" style="{STYLE}">{"".join(parts)}</div>'


def text(value: object, limit: int | None = None) -> str:
    """Escaped; None is nothing; cut at `limit` characters."""
    if value is None:
        return ""
    shown = str(value)
    if limit is not None and len(shown) > limit:
        shown = shown[:limit].rstrip() + "…"
    return escape(shown)


def paragraph(markup: str, style: str = "") -> str:
    """Markup whose line breaks are kept."""
    return f'<p style="white-space:pre-wrap;margin:.3em 0;{style}">{markup}</p>'


def heading(value: object) -> str:
    """A title."""
    return f"<div><b>{text(value)}</b></div>"


def note(value: object) -> str:
    """A remark."""
    return f'<div style="{MUTED}">{text(value)}</div>' if value else ""


def link(label: object, target: str) -> str:
    """A link for web addresses only; any other target, as `javascript:`, leaves the label alone."""
    if not target.lower().startswith(("https://", "http://")):
        return text(label)
    return f'<a href="{escape(target)}" target="_blank" rel="noopener noreferrer">{text(label)}</a>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are escaped and cut; the first `MAX_ROWS` rows."""
    head = "".join(f'<th style="text-align:left">{text(name)}</th>' for name in columns)
    body: list[str] = []
    left_out = 0
    for row in rows:
        if len(body) == MAX_ROWS:
            left_out += 1
            continue
        cells = "".join(
            f'<td style="text-align:left;vertical-align:top;white-space:pre-wrap">{text(cell, MAX_TEXT)}</td>'
            for cell in row
        )
        body.append(f"<tr>{cells}</tr>")
    more = note(f"{left_out} more: to_pandas() has all" if left_out else "")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"
