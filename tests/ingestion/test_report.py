"""A run's report: as JSON, as rows, and as a page that shows names as they are and runs nothing of them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rag_cluster.domain.documents import Receipt, RunStatus
from rag_cluster.errors import InvalidRequestError
from rag_cluster.ingestion.report import IngestionReport, Tally
from rag_cluster.ingestion.report_files import METADATA_KEY, SCHEMA, save
from rag_cluster.ingestion.report_page import page, picture
from rag_cluster.ingestion.stage_times import StageSpan, TimelineBuilder

HOSTILE = "file:///docs/%3Cscript%3Ealert(1)%3C%2Fscript%3E%20%22x%22.pdf"


@pytest.fixture
def report() -> IngestionReport:
    tally = Tally()
    tally.timeline = TimelineBuilder(begun=0.0)
    tally.add(Receipt("file:///docs/%E7%A0%81%E5%A4%B4.pdf", "d1", "ready", 1, chunks=9, pages=4, bytes=7, seconds=2.5))
    tally.add(
        Receipt("s3://docs/berth.txt", "d2", "ready", 1, chunks=1, bytes=1, seconds=0.5, warnings=("small", "警告"))
    )
    tally.add(
        Receipt(HOSTILE, "d3", "failed", stage="parse", error_type="corrupt_document", message="<b>torn</b> & 损坏")
    )
    tally.add(Receipt("file:///docs/a.exe", "", "skipped", stage="plan", error_type="unsupported_document_type"))
    tally.timeline.add([StageSpan("parse", 0.0, 2.0, 3.0, 3), StageSpan("embed", 1.0, 4.0, 3.0, 2)])
    return tally.report("11111111-1111-1111-1111-111111111111", "港口 <harbour>", RunStatus.SUCCEEDED)


class Page(HTMLParser):
    """Tags and visible text of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_person_sees_the_run_to_ask_for_later_and_what_lies_there_twice() -> None:
    tally = Tally()
    tally.add(Receipt("file:///docs/copy.pdf", "d1", "ready", 1, duplicate_of="d0"))
    run_id = "11111111-1111-1111-1111-111111111111"
    console = Console(record=True, width=100, file=io.StringIO())
    tally.report(run_id, "harbour", RunStatus.SUCCEEDED).print(console)
    shown = console.export_text()
    assert f"rag-cluster runs show {run_id}" in shown
    assert re.search(r"duplicates\W+1\W", shown)
    report = tally.report(run_id, "harbour", RunStatus.SUCCEEDED)
    texts = Page(page(report)).texts
    repeated = texts.index("The same bytes as another document")
    assert texts[repeated + 5 : repeated + 8] == ["/docs/copy.pdf", "d1", "d0"]
    assert IngestionReport.from_dict(json.loads(report.to_json())).copies == report.copies


def test_a_report_survives_json(report: IngestionReport) -> None:
    again = IngestionReport.from_dict(json.loads(report.to_json()))
    assert again == replace(report, seconds=again.seconds)


def test_the_page_shows_names_messages_failures_and_the_slowest_as_they_are(report: IngestionReport) -> None:
    texts = Page(page(report)).texts
    for text in (
        "/docs/码头.pdf",
        "s3://docs/berth.txt",
        '/docs/<script>alert(1)</script> "x".pdf',
        "<b>torn</b> & 损坏",
        "corrupt_document",
        "unsupported_document_type",
        "港口 <harbour>: ingestion SUCCEEDED",
    ):
        assert text in texts, text
    slowest = texts.index("Slowest documents")
    assert texts.index("/docs/码头.pdf", slowest) < texts.index("s3://docs/berth.txt", slowest)


def test_the_page_runs_nothing_and_loads_nothing(report: IngestionReport) -> None:
    markup = page(report)
    tags = Page(markup).tags
    assert not {"script", "link", "img", "iframe", "object", "b"} & {tag for tag, _ in tags}
    assert not [
        name for _, attributes in tags for name in attributes if name.startswith("on") or name in ("src", "href")
    ]
    assert not re.search(r"@import|url\(", markup)


def test_the_picture_has_a_lane_for_each_stage_as_high_as_it_was_busy(report: IngestionReport) -> None:
    drawn = re.search(r"<svg.*?</svg>", picture(report.timeline), re.DOTALL)
    assert drawn is not None
    lanes = ElementTree.fromstring(drawn.group()).findall("g")
    assert [lane.findtext("text") for lane in lanes] == ["parse", "embed"]
    assert lanes[0].findtext("title") == "parse: 3 times, 3.0 s by all workers together"

    def heights(lane: ElementTree.Element) -> list[float]:
        path = lane.find("path")
        assert path is not None
        floor = float(path.attrib["d"].split(",")[1].split("V")[0])
        return [floor - float(up) for up in re.findall(r"V([\d.]+)H", path.attrib["d"])]

    parse, embed = map(heights, lanes)
    assert parse[5] == pytest.approx(1.5 * embed[15], rel=0.05), "1.5 at once and one at once"
    assert parse[-1] == 0 and embed[0] == 0


def test_a_run_that_did_nothing_has_a_page_too() -> None:
    nothing = Tally().report("r", "kb", RunStatus.FAILED, "store_unavailable: gone")
    texts = Page(page(nothing)).texts
    assert "store_unavailable: gone" in texts and "Stages" not in texts


@pytest.mark.parametrize("name", ["run.json", "运行.JSON"])
def test_a_json_file_is_the_report(report: IngestionReport, tmp_path: Path, name: str) -> None:
    report.save(tmp_path / name)
    assert json.loads((tmp_path / name).read_text(encoding="utf-8")) == json.loads(report.to_json())


def test_a_parquet_file_has_a_row_for_each_problem_and_each_of_the_slowest(
    report: IngestionReport, tmp_path: Path
) -> None:
    save(report, tmp_path / "run.parquet", [*report.problems, Receipt("half \udcff", "d9", "busy")])
    table = pq.read_table(tmp_path / "run.parquet")
    assert table.schema.equals(SCHEMA, check_metadata=False)
    rows = table.to_pylist()
    assert [(row["section"], row["document_id"]) for row in rows] == [
        ("problem", "d3"),
        ("problem", ""),
        ("problem", "d9"),
        ("slowest", "d1"),
        ("slowest", "d2"),
    ]
    assert (rows[0]["message"], rows[2]["uri"], rows[4]["warnings"]) == (
        "<b>torn</b> & 损坏",
        "half ?",
        ["small", "警告"],
    )
    assert json.loads(table.schema.metadata[METADATA_KEY])["run_id"] == report.run_id


@pytest.mark.parametrize("path", ["run.txt", "run", "missing/run.html"])
def test_what_cannot_be_written_is_said_before_a_run(report: IngestionReport, tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidRequestError):
        report.save(tmp_path / path)
