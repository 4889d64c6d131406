"""A run as one HTML page: tables and charts (inline SVG), no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from rag_cluster.evaluation.charts import bars, lines
from rag_cluster.evaluation.gates import Verdict
from rag_cluster.evaluation.measures import means
from rag_cluster.evaluation.results import ArmResult, Evaluation
from rag_cluster.evaluation.tables import COST_COLUMNS, EXCERPTS, cost_row, figure

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --soft: #66727f; --line: #d5dce3; --paper: #fff; --stripe: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ee; --soft: #98a4b0; --line: #37424d; --paper: #161c22; --stripe: #1d252d }
}
body { font: 15px/1.5 system-ui, "Noto Sans CJK SC", sans-serif; color: var(--ink); background: var(--paper);
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p, .soft { color: var(--soft) } .scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } tbody tr:nth-child(even) { background: var(--stripe) }
.best { font-weight: 700 } .failed { color: #c92a2a; font-weight: 700 } .passed { color: #2b8a3e; font-weight: 700 }
svg { display: block; max-width: 100%; height: auto } svg text { fill: var(--ink); font: 12px system-ui, sans-serif }
svg .grid { stroke: var(--line) }
"""


def page(evaluation: Evaluation, verdicts: Sequence[Verdict] = ()) -> str:
    """The HTML."""
    title = f"{evaluation.dataset}: {len(evaluation.questions)} questions, {evaluation.documents} documents"
    sections = [
        _gates(verdicts),
        _measures("Ranking", evaluation, excerpts=False),
        _measures("Excerpts at equal returned tokens", evaluation, excerpts=True),
        _groups(evaluation),
        _latency(evaluation.arms),
        _cost(evaluation.arms),
        _answers(evaluation.answers),
        _notes(evaluation),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(' · '.join(f'{k}: {v}' for k, v in evaluation.system.items()))}</p>"
        + "".join(sections)
        + "</body></html>\n"
    )


def _gates(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    rows = "".join(
        f"<tr><td>{escape(one.gate.text)}</td><td>{one.found:.4f}</td>"
        f'<td class="{"passed" if one.passed else "failed"}">{"passed" if one.passed else "failed"}</td></tr>'
        for one in verdicts
    )
    head = "<thead><tr><th>gate</th><th>found</th><th></th></tr></thead>"
    return f"<h2>Gates</h2><table>{head}<tbody>{rows}</tbody></table>"


def _measures(title: str, evaluation: Evaluation, *, excerpts: bool) -> str:
    names = [
        name
        for name in dict.fromkeys(name for arm in evaluation.arms for name in arm.means)
        if name.startswith(EXCERPTS) == excerpts
    ]
    if not names:
        return ""
    rows = {arm.name: [arm.means.get(name) for name in names] for arm in evaluation.arms}
    return f"<h2>{title}</h2>{_chart(names, rows, excerpts=excerpts)}{_table(['arm', *names], rows)}"


def _chart(names: Sequence[str], rows: Mapping[str, Sequence[float | None]], *, excerpts: bool) -> str:
    if not excerpts:
        return bars(names, {arm: [value or 0.0 for value in values] for arm, values in rows.items()})
    recall = [position for position, name in enumerate(names) if name.startswith("token_recall@")]
    budgets = [int(names[position].partition("@")[2]) for position in recall]
    series = {arm: [values[position] or 0.0 for position in recall] for arm, values in rows.items()}
    return lines(budgets, series, "returned tokens", "token recall")


def _table(columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> str:
    best = [
        max((value for value in column if value is not None), default=None)
        for column in zip(*rows.values(), strict=True)
    ]
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(_cell(value, bold=len(rows) > 1 and value == top) for value, top in zip(values, best, strict=True))
        + "</tr>"
        for name, values in rows.items()
    )
    return f'<div class="scroll"><table>{_head(columns)}<tbody>{body}</tbody></table></div>'


def _head(columns: Iterable[str]) -> str:
    return "<thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr></thead>"


def _cell(value: float | None, *, bold: bool) -> str:
    if value is None:
        return "<td></td>"
    return f'<td class="best">{figure(value)}</td>' if bold else f"<td>{figure(value)}</td>"


def _groups(evaluation: Evaluation) -> str:
    parts = []
    for group, numbers in evaluation.groups.items():
        found = {arm.name: means(arm.scores, numbers) for arm in evaluation.arms}
        names = list(dict.fromkeys(name for values in found.values() for name in values))
        rows = {arm: [values.get(name) for name in names] for arm, values in found.items()}
        parts.append(f"<h2>{escape(group)}: {len(numbers)} questions</h2>{_table(['arm', *names], rows)}")
    return "".join(parts)


def _latency(arms: Sequence[ArmResult]) -> str:
    timed = {arm.name: arm.latency for arm in arms if arm.latency}
    if not timed:
        return ""
    names = ["p50_ms", "p95_ms", "p99_ms"]
    body = "".join(
        f"<tr><td>{escape(arm)}</td>" + "".join(f"<td>{found[name]:.1f}</td>" for name in names) + "</tr>"
        for arm, found in timed.items()
    )
    chart = bars(names, {arm: [found[name] for name in names] for arm, found in timed.items()}, "ms")
    queries = int(next(iter(timed.values())).get("queries", 0))
    return (
        f'<h2>Latency</h2><p>{queries} queries one after the other, each embedded anew.</p>{chart}<div class="scroll">'
        f"<table>{_head(['arm', *names])}<tbody>{body}</tbody></table></div>"
    )


def _cost(arms: Sequence[ArmResult]) -> str:
    costs = {arm.variant: arm.cost for arm in arms if arm.cost}
    if not costs:
        return ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cost_row(variant, cost)) + "</tr>"
        for variant, cost in costs.items()
    )
    return f"<h2>Cost</h2><table>{_head(COST_COLUMNS)}<tbody>{body}</tbody></table>"


def _answers(answers: Mapping[str, object]) -> str:
    scalars = {name: value for name, value in answers.items() if not isinstance(value, list)}
    if not scalars:
        return ""
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in scalars.items())
    return f"<h2>Answers</h2><table><tbody>{body}</tbody></table>"


def _notes(evaluation: Evaluation) -> str:
    notes = [f"{arm.name}: {note}" for arm in evaluation.arms for note in arm.notes]
    return "".join(f"<p>{escape(note)}</p>" for note in notes)
