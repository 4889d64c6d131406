"""`--sync`: what disappeared from the inputs is deleted, and nothing else."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import PlannedFile, Receipt, SourceKind
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.forecast import forecast
from rag_cluster.ingestion.listing import Patterns
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.rows import Row
from rag_cluster.ingestion.run import IngestionOptions, Run, RunContext, Stages
from rag_cluster.ingestion.sync import Sync
from rag_cluster.stores import inputs
from tests.fixtures.write_path import Bench


def ingest(bench: Bench, source: str = "bulk") -> None:
    record = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, source)
    for item in plan(bench.write_path, bench.base.id, [str(bench.folder)]):
        if isinstance(item, PlannedFile):
            work = steps.Work(bench.base.id, record.id, item.document_id, item.file, item.content_fingerprint)
            prepared = steps.prepare(bench.write_path, work, owner="run")
            assert isinstance(prepared, list)
            steps.index(bench.write_path, steps.open_index(bench.write_path), prepared)


def synced(
    bench: Bench, *locations: Path, manifests: tuple[str, ...] = (), patterns: Patterns = Patterns()
) -> dict[str, str]:
    """Outcome by file name."""
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    places = [str(location) for location in locations]
    sync = Sync(bench.write_path, bench.base.id, source.id, places, manifests)
    for item in plan(bench.write_path, bench.base.id, places, PlanOptions(manifests=manifests, patterns=patterns)):
        sync.note(item)
    return {Path(receipt.uri).name: receipt.outcome for receipt in sync.remove()}


def names(bench: Bench) -> set[str]:
    page, _ = bench.write_path.catalog.list_documents(bench.base.id, LOCAL)
    return {document.filename for document in page}


@pytest.fixture
def folder(bench: Bench) -> Path:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (bench.folder / name).parent.mkdir(parents=True, exist_ok=True)
        bench.write(name, f"text of {name}")
    ingest(bench)
    return bench.folder


def test_a_file_that_disappeared_is_removed_and_the_others_stay(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    assert synced(bench, folder) == {"a.txt": "removed"}
    assert names(bench) == {"b.txt", "c.txt"}


def test_a_dry_run_counts_what_would_be_removed_and_removes_nothing(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    sync = Sync(bench.write_path, bench.base.id, source.id, [str(folder)], dry_run=True)
    found = forecast(bench.write_path, bench.base.id, [str(folder)], sync=sync)
    assert (found.to_remove, found.to_do) == (1, 0)
    assert names(bench) == {"a.txt", "b.txt", "c.txt"}


def test_nothing_is_removed_where_everything_is_there(bench: Bench, folder: Path) -> None:
    assert synced(bench, folder) == {}


def test_what_the_inputs_do_not_cover_stays(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    bench.write("sub/d.txt", "new")
    assert synced(bench, folder / "sub") == {}
    assert "a.txt" in names(bench)


def test_a_folder_beside_with_the_same_beginning_is_not_covered(bench: Bench, folder: Path) -> None:
    bench.write("submarine.txt", "text")
    ingest(bench)
    (folder / "submarine.txt").unlink()
    assert synced(bench, folder / "sub") == {}


def test_another_sources_documents_stay(bench: Bench, folder: Path) -> None:
    bench.write("other.txt", "of another source")
    ingest(bench, source="other")
    (folder / "other.txt").unlink()
    assert synced(bench, folder) == {}


def test_a_location_that_lost_everything_is_refused(bench: Bench, folder: Path) -> None:
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (folder / name).unlink()
    assert synced(bench, folder) == {folder.name: "failed"}
    assert names(bench) == {"a.txt", "b.txt", "c.txt"}


def test_a_location_that_cannot_be_listed_keeps_its_documents(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    folder.rename(folder.with_name("moved"))
    assert synced(bench, folder) == {}
    assert len(names(bench)) == 3


def test_a_subfolder_that_cannot_be_read_keeps_its_documents_and_the_rest_is_removed(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refusing(path: Path) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(inputs.os, "scandir", refusing)
    (folder / "a.txt").unlink()
    assert synced(bench, folder) == {"a.txt": "removed"}
    assert names(bench) == {"b.txt", "c.txt"}


def test_what_a_pattern_leaves_out_stays(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    assert synced(bench, folder, patterns=Patterns(exclude=("sub/**",))) == {"a.txt": "removed"}


def test_a_glob_covers_what_it_matches(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "sub" / "c.txt").unlink()
    bench.write("sub/d.txt", "new")
    assert synced(bench, folder / "*.txt") == {"a.txt": "removed"}


def test_a_document_that_is_being_ingested_stays_busy(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").write_text("changed")
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    (item,) = [
        item for item in plan(bench.write_path, bench.base.id, [str(folder / "a.txt")]) if isinstance(item, PlannedFile)
    ]
    claim = bench.write_path.ledger.claim(
        bench.base.id, source.id, item.file, item.content_fingerprint, owner="another run", lease_seconds=60
    )
    assert claim is not None
    (folder / "a.txt").unlink()
    assert synced(bench, folder) == {"a.txt": "busy"}


def test_what_a_later_run_brought_in_or_made_anew_meanwhile_stays(bench: Bench, folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "b.txt").rename(folder / "away")
    bench.write("sub/c.txt", "changed")
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    run_id = str(uuid.uuid4())
    bench.write_path.ledger.start_run(bench.base.id, [], {}, run_id)

    def text(files: Sequence[PlannedFile]) -> Iterator[Row]:
        bench.write("new.txt", "brought in while the run goes on")
        bench.write("b.txt", "put back with another text")
        ingest(bench)
        for item in files:
            yield Receipt(item.file.uri, item.document_id, "ready")

    options = IngestionOptions(sync=True, progress=False)
    stages = Stages(text, lambda _: iter(()), lambda: False)
    run = Run(bench.write_path, RunContext(run_id, bench.base.id, source.id, None), options, stages)
    run.execute([str(folder)])
    assert run.tally.counts()["removed"] == 1
    assert names(bench) == {"b.txt", "c.txt", "new.txt"}


def test_a_manifest_is_the_truth_about_the_whole_source(bench: Bench, folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(f"uri\n{folder}/a.txt\n{folder}/sub\n")
    assert synced(bench, manifests=(str(listed),)) == {"b.txt": "removed"}


def test_a_manifest_with_a_bad_row_removes_nothing(bench: Bench, folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.csv"
    listed.write_text(f"uri,security_level\n{folder}/a.txt,high\n{folder}/sub,\n")
    assert synced(bench, manifests=(str(listed),)) == {}
