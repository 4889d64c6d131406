"""Planning on a real ledger: what is to do, without reading a byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import PlanAction, PlannedFile, Receipt, SourceKind
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.manifest import ManifestWriter, read_manifest
from rag_cluster.ingestion.plan import PlanOptions, plan
from tests.fixtures.write_path import Bench


def planned(bench: Bench, options: PlanOptions = PlanOptions()) -> dict[str, PlannedFile | Receipt]:
    found: dict[str, PlannedFile | Receipt] = {}
    for item in plan(bench.write_path, bench.base.id, [str(bench.folder)], options):
        uri = item.uri if isinstance(item, Receipt) else item.file.uri
        found[Path(uri).name] = item
    return found


def ingest(bench: Bench, *names: str) -> None:
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    for name in names:
        item = planned(bench)[name]
        assert isinstance(item, PlannedFile)
        work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
        prepared = steps.prepare(bench.write_path, work, owner="run")
        if isinstance(prepared, list):
            steps.index(bench.write_path, steps.open_index(bench.write_path), prepared)


def test_new_files_are_to_prepare_and_no_byte_is_read(bench: Bench) -> None:
    bench.write("a.txt", "one")
    bench.write("b.md", "two")
    assert {name: item.action for name, item in planned(bench).items()} == {  # type: ignore[union-attr]
        "a.txt": PlanAction.PREPARE,
        "b.md": PlanAction.PREPARE,
    }
    assert not bench.calls


def test_a_file_without_parser_is_a_skipped_row_that_names_its_type(bench: Bench) -> None:
    bench.write("program.exe", "MZ")
    receipt = planned(bench)["program.exe"]
    assert isinstance(receipt, Receipt)
    assert (receipt.outcome, receipt.error_type) == ("skipped", "unsupported_document_type")
    assert ".exe" in receipt.message


def test_what_cannot_be_listed_is_a_failed_row(bench: Bench) -> None:
    bench.folder = bench.folder / "missing"
    (receipt,) = planned(bench).values()
    assert isinstance(receipt, Receipt)
    assert (receipt.outcome, receipt.stage) == ("failed", "list")


def test_a_missing_input_does_not_stop_the_others(bench: Bench) -> None:
    bench.write("a.txt", "one")
    items = list(plan(bench.write_path, bench.base.id, [str(bench.folder / "missing"), str(bench.folder)]))
    assert [type(item) for item in items] == [Receipt, PlannedFile]


def test_a_broken_link_fails_and_a_hidden_file_is_skipped(bench: Bench) -> None:
    (bench.folder / "link.txt").symlink_to(bench.folder / "nothing.txt")
    bench.write(".hidden.txt", "not for the corpus")
    outcomes = {name: item.outcome for name, item in planned(bench).items() if isinstance(item, Receipt)}
    assert outcomes == {"link.txt": "failed", ".hidden.txt": "skipped"}


def test_ingested_files_are_unchanged_until_their_content_or_the_chunking_changes(bench: Bench) -> None:
    bench.write("a.txt", "one")
    ingest(bench, "a.txt")
    unchanged = planned(bench)["a.txt"]
    assert isinstance(unchanged, Receipt)
    assert unchanged.outcome == "unchanged"
    other = bench.recipe.with_small_chunks()()
    (item,) = plan(other, bench.base.id, [str(bench.folder)])
    assert isinstance(item, PlannedFile)
    assert item.action is PlanAction.PREPARE


def test_more_files_than_one_batch_are_each_planned_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_cluster.ingestion.plan.BATCH", 7)
    for n in range(30):
        bench.write(f"{n}.txt", "text")
    assert len(planned(bench)) == 30


def test_attributes_that_differ_are_written_and_owed_to_the_index(bench: Bench) -> None:
    bench.write("a.txt", "one")
    ingest(bench, "a.txt")
    options = PlanOptions(access=AccessAttributes(("crew",), "ops", 2), metadata={"year": 2025})
    receipt = planned(bench, options)["a.txt"]
    assert isinstance(receipt, Receipt)
    assert receipt.outcome == "attributes"
    document = bench.write_path.catalog.document(receipt.document_id, LOCAL)
    assert document.access == AccessAttributes(("crew",), "ops", 2)
    assert document.metadata == {"year": 2025}
    assert bench.write_path.outbox.pending(document.id) == 1
    again = planned(bench, options)["a.txt"]
    assert isinstance(again, Receipt)
    assert again.outcome == "unchanged"


def test_a_document_deleted_before_its_turn_is_left_out_and_the_others_are_planned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        bench.write(name, "text")
    ingest(bench, "a.txt", "b.txt")
    catalog, update, deleted = bench.write_path.catalog, bench.write_path.catalog.update_document, list[str]()

    def update_after_delete(document_id: str, **changes: Any) -> Any:
        if not deleted:
            deleted.append(catalog.tombstone(document_id).filename)
        return update(document_id, **changes)

    monkeypatch.setattr(catalog, "update_document", update_after_delete)
    found = planned(bench, PlanOptions(metadata={"year": 2025}))
    outcomes = {name: (item.outcome, item.error_type) for name, item in found.items() if isinstance(item, Receipt)}
    assert outcomes.pop(deleted[0]) == ("skipped", "deleted_meanwhile")
    assert list(outcomes.values()) == [("attributes", None)]


def test_a_manifest_gives_back_what_was_planned(bench: Bench, tmp_path: Path) -> None:
    bench.write("码头.txt", "one")
    options = PlanOptions(access=AccessAttributes(("crew",), "ops", 2), metadata={"tags": ["a", "b"]})
    items = [item for item in planned(bench, options).values() if isinstance(item, PlannedFile)]
    path = str(tmp_path / "manifest.parquet")
    with ManifestWriter(path) as writer:
        for item in items:
            writer.add(item)
    assert [item.file for item in read_manifest(path)] == [item.file for item in items]
