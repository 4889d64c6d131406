"""What no parser reads is counted by extension and told before a run starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from rag_cluster.domain.documents import PlannedFile, Receipt, SourceKind
from rag_cluster.ingestion.forecast import forecast
from rag_cluster.ingestion.progress import RunProgress
from rag_cluster.ingestion.report import KEPT_EXTENSIONS, Tally, unsupported_line
from rag_cluster.ingestion.rows import Row
from rag_cluster.ingestion.run import IngestionOptions, Run, RunContext, Stages
from tests.fixtures.write_path import Bench


def write_some(bench: Bench) -> None:
    for name in ("a.txt", "one.EXE", "two.exe", "letter.doc", "README"):
        bench.write(name, "text")


def skipped(uri: str) -> Receipt:
    return Receipt(uri, "", "skipped", stage="plan", error_type="unsupported_document_type", message="no parser")


def test_a_dry_run_counts_what_no_parser_reads(bench: Bench) -> None:
    write_some(bench)
    found = forecast(bench.write_path, bench.base.id, [str(bench.folder)])
    assert found.unsupported == {".exe": 2, ".doc": 1, "(none)": 1}
    assert found.to_dict()["unsupported"] == {".exe": 2, ".doc": 1, "(none)": 1}
    assert found.to_do == 1


def test_a_run_tells_it_before_the_first_document_is_prepared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    write_some(bench)
    events: list[str] = []
    monkeypatch.setattr(RunProgress, "say", lambda _, line: events.append(line))

    def stream(wave: Sequence[PlannedFile]) -> Iterator[Row]:
        for planned in wave:
            events.append("prepared")
            yield Receipt(planned.file.uri, planned.document_id, "ready")

    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    run_id = "11111111-1111-4111-8111-111111111111"
    bench.write_path.ledger.start_run(bench.base.id, [], {}, run_id)
    context = RunContext(run_id, bench.base.id, source.id, None)
    run = Run(bench.write_path, context, IngestionOptions(progress=False), Stages(stream, stream, lambda: False))
    run.execute([str(bench.folder)])
    assert events == ["not read, as no parser is there or allowed: .exe 2, (none) 1, .doc 1", "prepared"]


def test_extensions_without_end_are_counted_in_bounded_memory() -> None:
    tally = Tally()
    for number in range(KEPT_EXTENSIONS + 30):
        tally.add(skipped(f"file:///a.x{number}"))
    assert len(tally.unsupported) == KEPT_EXTENSIONS + 1 and tally.unsupported["other"] == 30


def test_other_reasons_to_skip_do_not_count() -> None:
    tally = Tally()
    tally.add(Receipt("file:///a.pdf", "id", "skipped", stage="plan", error_type="corrupt_document"))
    tally.add(Receipt("file:///a.pdf", "id", "failed", stage="parse", error_type="unsupported_document_type"))
    assert not tally.unsupported


def test_the_line_names_the_most_frequent_first() -> None:
    assert unsupported_line({".b": 1, ".a": 1, ".c": 7}).endswith(": .c 7, .a 1, .b 1")
