"""What results look like in a notebook: documents are what strangers wrote."""

from __future__ import annotations

import dataclasses
from typing import Any

from rag_cluster.client import html
from rag_cluster.client.reports import ReportView
from rag_cluster.client.views import AnswerView
from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.ingestion.report import Tally
from rag_cluster.ingestion.stage_times import StageSpan
from rag_cluster.serving.schemas import RunDetail

HOSTILE = "<img src=x onerror=alert(1)>"


def answer(**changes: Any) -> AnswerView:
    citation = {
        "number": 1,
        "document_id": "d",
        "version": 1,
        "filename": f"{HOSTILE}.txt",
        "chunk_id": "c",
        "heading_path": [],
        "locator": {"page": 7, "display": f'p. 7 "{HOSTILE}'},
        "context_chunk_ids": [],
        "quote": f"Quoted {HOSTILE}",
        "uri": "javascript:alert(1)",
    }
    fields = {
        "question": f"Why {HOSTILE}?",
        "answer": f"Because {HOSTILE} [来源 1](citation://1) and [9].",
        "refused": False,
        "refusal_reason": "",
        "citations": [citation],
        "results": [],
        "trace": None,
        "warnings": [HOSTILE],
        "request_id": "r",
    }
    return AnswerView.model_validate(fields | changes)


def test_an_answer_shows_its_marks_and_citations_with_place_and_quote() -> None:
    page = answer()._repr_html_()
    assert "<b>[1]</b></sup>" in page and "<b>[1]</b> " in page
    assert "p. 7" in page and "Quoted" in page
    assert "and [9]." in page  # what only looks like a mark stays text
    assert str(answer()).splitlines()[1].startswith("  [1] ")


def test_a_note_of_a_documents_own_is_not_shown_as_a_citation_of_ours() -> None:
    page = answer(answer="Built in 2019.[1] [Source 1](citation://1)")._repr_html_()
    assert "Built in 2019.[1] <sup" in page and page.count("</sup>") == 1


def test_nothing_that_a_document_holds_becomes_markup_a_link_or_a_formula() -> None:
    page = answer()._repr_html_()
    assert "<img" not in page and "javascript:" not in page and 'class="rag-cluster tex2jax_ignore' in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_only_web_addresses_become_links() -> None:
    assert html.link("a", "https://example.com/?a=1&b=<2>").startswith(
        '<a href="https://example.com/?a=1&amp;b=&lt;2&gt;"'
    )
    for target in ("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "s3://bucket/key", ""):
        assert html.link("a", target) == "a"


def test_a_long_table_is_cut_and_says_so() -> None:
    page = html.table(["n"], ([number] for number in range(60)))
    assert page.count("<tr>") == 51 and "10 more" in page


def test_a_refused_answer_says_why() -> None:
    page = answer(refused=True, refusal_reason="no_evidence", citations=[], answer="I cannot tell.")._repr_html_()
    assert "refused: no_evidence" in page and "<ol" not in page


def test_a_report_survives_the_way_through_a_jobs_log_and_shows_its_problems() -> None:
    tally = Tally()
    tally.add(
        Receipt("file:///a%20b.pdf", "d", "failed", stage="parse", error_type="corrupt_document", message=HOSTILE)
    )
    tally.add(Receipt("file:///c.txt", "e", "ready", chunks=3, seconds=0.5, warnings=("w",)))
    report = tally.report("run", "base", RunStatus.SUCCEEDED)
    view = ReportView.from_dict({**report.to_dict(), "new_field": 1})
    assert {**dataclasses.asdict(view), "seconds": 0} == {**dataclasses.asdict(report), "seconds": 0}
    assert not view.ok and view.to_pandas().loc[0, "error_type"] == "corrupt_document"
    page = view._repr_html_()
    assert "<img" not in page and "a b.pdf" in page and "corrupt_document" in page


def test_a_run_seen_over_http_is_the_report_that_was_kept_with_it_and_shows_its_stages() -> None:
    tally = Tally()
    tally.add(Receipt("file:///slow.pdf", "e", "ready", chunks=3, seconds=9.5))
    tally.timeline.add([StageSpan("parse", 0.0, 1.0, 1.0, 1)])
    report = tally.report("run", "base", RunStatus.SUCCEEDED)
    fields: dict[str, Any] = {
        "id": "run", "knowledge_base_id": "b", "status": "SUCCEEDED", "inputs": [], "counts": {"listed": 1, "ready": 1},
        "started_at": None, "updated_at": None, "finished_at": None, "error_message": None, "receipts": [],
    }  # fmt: skip
    going_on = ReportView.of_run(RunDetail(**{**fields, "status": "RUNNING"}))
    assert (going_on.listed, going_on.slowest) == (1, ()) and "<svg" not in going_on._repr_html_()
    ended = ReportView.of_run(RunDetail(**fields, report=report.to_dict()))
    assert ended.slowest == report.slowest and ended.timeline == report.timeline
    assert "<svg" in ended._repr_html_() and "<script" not in ended._repr_html_()
