"""A run's report as one HTML page that needs nothing else: tables, and a picture of its stages.

Every text is escaped: names and messages are what strangers wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from rag_cluster.domain.documents import Receipt
from rag_cluster.ingestion.report import IngestionReport, readable
from rag_cluster.ingestion.stage_times import StageUse, Timeline

WIDTH, LABELS, LANE, AXIS = 960, 96, 30, 22
"""Pixels of the picture: as a whole, of the stages' names, of one stage, of the times below."""
TICKS = 6
_BLUE = "#3b7dd8"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
  max-width: 62em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; margin-bottom: .2em; } h2 { font-size: 1.1em; margin: 1.6em 0 .4em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .25em .8em .25em 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; } .muted { opacity: .65; }
"""


def page(report: IngestionReport) -> str:
    """The whole document."""
    title = f"{report.knowledge_base}: ingestion {report.status}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(report.headline())}</p>",
        f'<p class="muted">run {escape(report.run_id)}</p>',
        f"<p>{escape(report.error_message)}</p>" if report.error_message else "",
        _section("Outcomes", _counts(report)),
        _section("Failures by type", _by_kind(report.failures)),
        _section("Skipped by type", _by_kind(report.skips)),
        _section("No parser reads", _by_kind(report.unsupported)),
        _section(
            "Stages", picture(report.timeline) + _stages(report.timeline.stages) if report.timeline.stages else ""
        ),
        _section("Slowest documents", _slowest(report.slowest)),
        _section(_problems_title(report), _problems(report.problems)),
        _section("The same bytes as another document", _copies(report.copies)),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, parts))
        + "\n</body>\n</html>\n"
    )


def picture(timeline: Timeline) -> str:
    """The stages over time as SVG: one lane each, as high as workers and threads were at it at once."""
    slices = max(len(use.slices) for use in timeline.stages)
    most = max((value for use in timeline.stages for value in use.slices), default=0.0) or 1.0
    step = (WIDTH - LABELS) / slices
    height = LANE * len(timeline.stages) + AXIS
    lanes = [_lane(use, index * LANE, step, most, slices) for index, use in enumerate(timeline.stages)]
    total = slices * timeline.slice_seconds
    ticks = [_tick(tick / TICKS, total, height) for tick in range(TICKS + 1)]
    label = f"Stages over {_seconds(total)}; a full lane is {most:.1f} at once"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="100%" font-size="12" fill="currentColor" role="img" '
        f'aria-label="{escape(label)}">'
        f'{"".join(lanes)}{"".join(ticks)}</svg>\n<p class="muted">{escape(label)}.</p>'
    )


def _lane(use: StageUse, top: int, step: float, most: float, slices: int) -> str:
    floor = top + LANE - 4
    points = [f"M{LABELS},{floor}"]
    for index, value in enumerate((*use.slices, *[0.0] * (slices - len(use.slices)))):
        # What was there at all is seen.
        up = floor - (max(value / most * (LANE - 8), 1.0) if value else 0.0)
        points.append(f"V{up:.1f}H{LABELS + (index + 1) * step:.1f}")
    told = f"{use.stage}: {use.count} times, {use.seconds:.1f} s by all workers together"
    return (
        f'<g><title>{escape(told)}</title><text x="0" y="{floor - 6}">{escape(use.stage)}</text>'
        f'<line stroke="#8884" x1="{LABELS}" x2="{WIDTH}" y1="{floor}" y2="{floor}"/>'
        f'<path fill="{_BLUE}" d="{"".join(points)}V{floor}Z"/></g>'
    )


def _tick(share: float, total: float, height: int) -> str:
    x = LABELS + share * (WIDTH - LABELS)
    anchor = "end" if share == 1 else "start" if share == 0 else "middle"
    return f'<text x="{x:.0f}" y="{height - 4}" text-anchor="{anchor}">{_seconds(share * total)}</text>'


def _seconds(value: float) -> str:
    if value < 100:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Numbers stand right."""

    def cell(tag: str, value: object) -> str:
        numeric = ' class="n"' if isinstance(value, int | float) else ""
        return f"<{tag}{numeric}>{escape(str(value))}</{tag}>"

    body = [f"<tr>{''.join(cell('td', value) for value in row)}</tr>" for row in rows]
    if not body:
        return ""
    return f"<table><tr>{''.join(cell('th', name) for name in head)}</tr>{''.join(body)}</table>"


def _counts(report: IngestionReport) -> str:
    facts = [(name, count) for name, count in report.outcomes.items() if count]
    facts += [("chunks", report.chunks), ("chunks embedded", report.embedded_chunks)]
    facts += [("bytes read", report.bytes_read)]
    if report.recognized:
        facts.append(("pages and pictures recognised", report.recognized))
    if report.duplicates:
        facts.append(("duplicates of other documents", report.duplicates))
    return _table(("", "count"), [("listed", report.listed), *facts])


def _by_kind(counts: Mapping[str, int]) -> str:
    most_first = sorted((-count, kind) for kind, count in counts.items())
    return _table(("type", "documents"), [(kind, -count) for count, kind in most_first])


def _stages(uses: Sequence[StageUse]) -> str:
    rows = [(use.stage, use.count, round(use.seconds, 2), round(1000 * use.seconds / use.count, 1)) for use in uses]
    return _table(("stage", "times", "seconds, all workers", "ms each"), rows)


def _slowest(receipts: Sequence[Receipt]) -> str:
    rows = [(readable(r.uri), round(r.seconds, 2), r.pages, r.chunks, r.bytes) for r in receipts]
    return _table(("document", "seconds", "pages", "chunks", "bytes"), rows)


def _problems(receipts: Sequence[Receipt]) -> str:
    rows = [(r.outcome, readable(r.uri), r.stage, r.error_type or "", r.message) for r in receipts]
    return _table(("outcome", "document", "stage", "type", "message"), rows)


def _copies(receipts: Sequence[Receipt]) -> str:
    rows = [(readable(r.uri), r.document_id, r.duplicate_of or "") for r in receipts]
    return _table(("document", "id", "repeats"), rows)


def _problems_title(report: IngestionReport) -> str:
    total = sum(report.outcomes.get(name, 0) for name in ("failed", "skipped", "busy"))
    left_out = total > len(report.problems)
    return "Not ready" + (f": the first {len(report.problems)} of {total}" if left_out else "")
