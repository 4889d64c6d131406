"""The whole bulk job: real Ray Data, PostgreSQL, Milvus Lite and files, with a hashing embedder."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, replace

import pytest

from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import (
    DocumentStatus,
    IndexRecord,
    PlanAction,
    PlannedFile,
    RunStatus,
    SourceFile,
    SourceKind,
)
from rag_cluster.domain.ids import bulk_document_id
from rag_cluster.errors import InvalidSettingError, ModelUnavailableError, NotFoundError
from rag_cluster.ingestion import ray_graph, steps
from rag_cluster.ingestion.pipeline import IngestionOptions, IngestionReport, run_ingestion
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.ray_actors import PrepareActor, RecognizeActor
from rag_cluster.ingestion.rows import PreparedPart
from rag_cluster.ingestion.write_path import Pools, WritePath
from tests.fixtures.in_process import in_process
from tests.fixtures.write_path import Bench, Recipe

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]
QUIET = IngestionOptions(progress=False)


def run(bench: Bench, options: IngestionOptions = QUIET, recipe: Recipe | None = None) -> IngestionReport:
    return run_ingestion(recipe or bench.recipe, bench.base.name, [str(bench.folder)], options)


def run_here(bench: Bench, options: IngestionOptions = QUIET) -> IngestionReport:
    with in_process():
        return run(bench, options)


def corpus(bench: Bench, count: int = 20) -> None:
    for n in range(count):
        bench.write(f"docs/{n:03}.txt", f"Berth {n} is {n + 5} metres deep. 泊位{n}水深{n + 5}米。")


def document_id(bench: Bench, name: str) -> str:
    return bulk_document_id(bench.base.id, (bench.folder / name).as_uri())


def test_every_file_is_accounted_for_good_ones_ready_and_poison_with_a_stable_type(bench: Bench) -> None:
    corpus(bench)
    bench.write("guide.md", "# Guide\n\nThe quay is 400 metres long.\n\n# 指南\n\n码头长四百米。")
    bench.write("empty.txt", "")
    bench.write("refused.txt", "POISON")
    bench.write("dies.exit", "anything")
    bench.write("program.exe", "MZ")
    (bench.folder / "broken.docx").write_bytes(b"no archive")
    report = run(bench)
    assert report.listed == 26
    assert {name: n for name, n in report.outcomes.items() if n} == {"ready": 21, "failed": 4, "skipped": 1}
    assert report.failures["parse_crash"] == report.failures["empty_document"] == 1
    assert report.failures["model_unavailable"] == 1
    assert report.skips == {"unsupported_document_type": 1}
    assert not report.ok
    kept = {receipt.uri.rpartition("/")[2]: receipt for receipt in bench.write_path.ledger.run_receipts(report.run_id)}
    assert kept.keys() == {"empty.txt", "refused.txt", "dies.exit", "program.exe", "broken.docx"}
    assert kept["dies.exit"].stage == "parse"


def test_the_run_row_tells_another_machine_how_it_went(bench: Bench) -> None:
    corpus(bench, 3)
    report = run_here(bench)
    stored = bench.write_path.ledger.run(report.run_id)
    assert stored.status is RunStatus.SUCCEEDED
    assert stored.counts["ready"] == stored.counts["listed"] == 3
    assert stored.counts["embedded_chunks"] == report.embedded_chunks == report.chunks
    assert json.loads(report.to_json())["outcomes"]["ready"] == 3


def test_the_run_row_names_manifests_besides_inputs(bench: Bench) -> None:
    manifest = str(bench.write("list.csv", "uri\nmissing.txt\n"))
    report = run_ingestion(bench.recipe, bench.base.name, [], replace(QUIET, manifests=(manifest,)))
    assert bench.write_path.ledger.run(report.run_id).inputs == (manifest,)


def test_a_second_run_reads_nothing_embeds_nothing_and_starts_no_dataset(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(bench)
    assert run_here(bench).ok
    bench.recipe.calls.clear()
    monkeypatch.setattr(ray_graph, "stream_documents", lambda *_: pytest.fail("Ray Data was started"))
    started = time.monotonic()
    report = run(bench)
    assert time.monotonic() - started < 20
    assert report.ok
    assert report.outcomes["unchanged"] == 20
    assert (report.bytes_read, report.embedded_chunks) == (0, 0)
    assert report.headline() == "nothing to do: 20 listed, 0 bytes read, 0 chunks embedded"
    assert not bench.calls


def test_one_changed_file_is_one_new_version_of_one_document(bench: Bench) -> None:
    corpus(bench, 5)
    run_here(bench)
    bench.recipe.calls.clear()
    bench.write("docs/002.txt", "Berth 2 was dredged and is 19 metres deep now.")
    report = run_here(bench)
    assert {name: n for name, n in report.outcomes.items() if n} == {"ready": 1, "unchanged": 4}
    assert bench.calls["fetched"] == 1
    changed = document_id(bench, "docs/002.txt")
    assert bench.write_path.catalog.document(changed, LOCAL).published_version == 2
    assert set(bench.versions_in_index(changed)) == {2}
    assert set(bench.versions_in_index(document_id(bench, "docs/001.txt"))) == {1}


def test_a_changed_acl_takes_effect_without_parsing_or_embedding(bench: Bench) -> None:
    corpus(bench, 3)
    run_here(bench)
    bench.recipe.calls.clear()
    report = run_here(bench, replace(QUIET, access=AccessAttributes(("crew",))))
    assert report.outcomes["attributes"] == 3
    assert not bench.calls
    assert bench.write_path.catalog.document(document_id(bench, "docs/000.txt"), LOCAL).access.acl == ("crew",)
    assert bench.write_path.outbox.pending() == 0


def test_a_run_that_states_no_access_keeps_what_was_set_even_for_changed_files(bench: Bench) -> None:
    corpus(bench, 2)
    run_here(bench)
    closed = document_id(bench, "docs/000.txt")
    bench.write_path.catalog.update_document(closed, access=AccessAttributes(("crew",)), metadata={"year": 2025})
    bench.write("docs/000.txt", "Berth 0 is secret now.")
    report = run_here(bench)
    assert report.outcomes["ready"] == report.outcomes["unchanged"] == 1
    document = bench.write_path.catalog.document(closed, LOCAL)
    assert (document.access.acl, document.metadata) == (("crew",), {"year": 2025})


def test_a_run_after_a_crash_between_snapshot_and_index_parses_nothing(bench: Bench) -> None:
    corpus(bench, 4)
    prepare_all(bench, owner="killed")
    bench.write_path.ledger.release("killed")
    parsed = bench.calls["parsed"]
    report = run_here(bench)
    assert report.ok
    assert report.outcomes["ready"] == 4
    assert bench.calls["parsed"] == parsed
    assert report.bytes_read == 0


def test_a_run_after_a_crash_between_two_parts_embeds_only_the_rest(bench: Bench) -> None:
    recipe = bench.recipe.with_small_chunks()
    bench.write_path = recipe()
    bench.write("long.txt", "\n\n".join(f"Paragraph {n} tells how berth {n} was dredged." for n in range(1800)))
    parts = prepare_all(bench, owner="killed")
    assert len(parts) > 2
    steps.index(bench.write_path, steps.open_index(bench.write_path), parts[:1])
    bench.write_path.ledger.release("killed")
    bench.recipe.calls.clear()
    report = run(bench, recipe=recipe)
    assert report.ok
    assert bench.calls["embedded"] == sum(part.end - part.start for part in parts[1:])
    assert bench.versions_in_index(parts[0].document_id) == {1: parts[0].chunks}


def test_documents_of_a_dead_owner_are_taken_over_when_its_lease_ends(bench: Bench) -> None:
    corpus(bench, 3)
    prepare_all(bench, owner="dead")
    report = run_here(bench)
    assert report.ok
    assert report.outcomes["ready"] == 3


def test_documents_of_a_living_owner_are_reported_busy(bench: Bench) -> None:
    corpus(bench, 2)
    prepare_all(bench, owner="alive")
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.5):
            bench.write_path.ledger.extend("alive", bench.recipe.lease_seconds)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        report = run_here(bench)
    finally:
        stop.set()
        thread.join()
    assert report.outcomes["busy"] == 2
    assert not report.ok


def test_a_permanent_failure_is_skipped_by_the_next_run_unless_it_is_asked_for(bench: Bench) -> None:
    bench.write("empty.txt", "")
    assert run_here(bench).failures == {"empty_document": 1}
    again = run_here(bench)
    assert (again.outcomes["skipped"], again.skips) == (1, {"empty_document": 1})
    assert "--retry-failed" in again.problems[0].message
    assert run_here(bench, replace(QUIET, retry_failed=True)).failures == {"empty_document": 1}


def test_verify_content_reads_everything_and_parses_nothing_that_is_unchanged(bench: Bench) -> None:
    corpus(bench, 3)
    run_here(bench)
    bench.recipe.calls.clear()
    report = run_here(bench, replace(QUIET, verify_content=True))
    assert report.outcomes["unchanged"] == 3
    assert (bench.calls["fetched"], bench.calls["parsed"], bench.calls["embedded"]) == (3, 0, 0)
    assert report.bytes_read == bench.calls["bytes"]


def test_an_input_listed_twice_is_ingested_once(bench: Bench) -> None:
    corpus(bench, 2)
    with in_process():
        report = run_ingestion(bench.recipe, bench.base.id, [str(bench.folder), str(bench.folder / "docs")], QUIET)
    assert (report.outcomes["ready"], report.outcomes["skipped"]) == (2, 2)
    assert bench.calls["parsed"] == 2


def test_an_interrupted_run_is_cancelled_gives_its_claims_back_and_is_resumed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(bench, 12)
    stream = ray_graph.stream_documents

    def interrupted(*arguments: object) -> object:
        yield next(stream(*arguments))  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ray_graph, "stream_documents", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(bench)
    (cancelled,), _ = bench.write_path.ledger.runs()
    assert cancelled.status is RunStatus.CANCELLED
    started = time.monotonic()
    report = run_here(bench)
    assert time.monotonic() - started < 30
    assert report.ok
    assert report.outcomes["ready"] + report.outcomes["unchanged"] == 12
    assert all(
        bench.write_path.catalog.document(document_id(bench, f"docs/{n:03}.txt"), LOCAL).status is DocumentStatus.READY
        for n in range(12)
    )


def test_a_run_ends_when_somebody_asks_for_it_from_another_machine(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus(bench, 12)
    stream = ray_graph.stream_documents

    def asked(*arguments: object) -> object:
        yield next(stream(*arguments))  # type: ignore[arg-type]
        (running,), _ = bench.write_path.ledger.runs()
        bench.recipe().ledger.request_cancel(running.id)
        time.sleep(60)

    started = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(ray_graph, "stream_documents", asked)
        report = run(bench)
    assert time.monotonic() - started < 50
    assert (report.status, report.ok) == (RunStatus.CANCELLED, False)
    (cancelled,), _ = bench.write_path.ledger.runs()
    assert cancelled.status is RunStatus.CANCELLED and "by request" in (cancelled.error_message or "")
    assert run_here(bench).ok


def test_a_killed_index_worker_loses_no_document(bench: Bench) -> None:
    corpus(bench, 40)
    for n in range(0, 40, 8):
        bench.write(f"docs/{n:03}.txt", f"KILL-ONCE berth {n}")
    report = run(bench)
    assert report.ok, report.to_dict()
    assert report.outcomes["ready"] == 40
    assert bench.calls["killed"] == 1
    for n in range(40):
        assert bench.versions_in_index(document_id(bench, f"docs/{n:03}.txt")) == {1: 1}


def test_an_empty_folder_is_not_ok(bench: Bench) -> None:
    report = run(bench)
    assert not report.ok
    assert report.headline().startswith("nothing was listed")


def test_an_unknown_strategy_or_knowledge_base_ends_the_run_before_it_begins(bench: Bench) -> None:
    corpus(bench, 1)
    with pytest.raises(InvalidSettingError):
        run(bench, replace(QUIET, chunking_strategy="by_magic"))
    with pytest.raises(NotFoundError):
        run_ingestion(bench.recipe, "nowhere", [str(bench.folder)], QUIET)
    assert bench.write_path.ledger.runs() == ([], None)


def prepare_all(bench: Bench, owner: str) -> list[PreparedPart]:
    """Every file up to its committed snapshot, as a run does that is killed right then."""
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    parts: list[PreparedPart] = []
    for item in plan(bench.write_path, bench.base.id, [str(bench.folder)]):
        todo = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)  # type: ignore[union-attr]
        prepared = steps.prepare(bench.write_path, todo, owner=owner)
        assert isinstance(prepared, list)
        parts += prepared
    return parts


@dataclass(frozen=True)
class BrokenInWorkers:
    """A recipe that works in the driver only: as when a model cannot be loaded by the actors."""

    recipe: Recipe
    driver: int

    def __call__(self) -> WritePath:
        if os.getpid() != self.driver:
            raise ModelUnavailableError("the model cannot be loaded")
        return self.recipe()


def test_a_run_whose_workers_cannot_start_says_why_and_leaves_no_claim(bench: Bench) -> None:
    corpus(bench, 1)
    with pytest.raises(ModelUnavailableError, match="cannot be loaded"):
        run_ingestion(BrokenInWorkers(bench.recipe, os.getpid()), bench.base.name, [str(bench.folder)], QUIET)
    (failed,), _ = bench.write_path.ledger.runs()
    assert failed.status is RunStatus.FAILED
    assert failed.error_message == "model_unavailable: the model cannot be loaded"


def test_every_pool_of_both_graphs_may_have_gpus(bench: Bench) -> None:
    pools = Pools(prepare_gpus=0.5, index_gpus=1.0, ocr_gpus=0.5)
    file = SourceFile("file:///a.txt", "a.txt", 10, "1")
    wave = [PlannedFile(file, "d", PlanAction.PREPARE, "f")]
    ray_graph._dataset({}, wave, pools, PrepareActor)
    ray_graph._dataset({}, wave, pools.for_recognition, RecognizeActor)
    record = IndexRecord(1, "chunks", "f", 8, "active")
    part = PreparedPart("kb", file.uri, "d", 1, "run", 1, 0, 0, 3, 3)
    ray_graph._fill_dataset(bench.recipe, record, "run", [part], pools)
