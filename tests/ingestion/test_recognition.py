"""Text recognition as a stage of its own: real Ray Data, PostgreSQL, Milvus Lite and files; what is slow sleeps."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import DocumentStatus, PlanAction, PlannedFile, RunStatus, SourceFile, SourceKind
from rag_cluster.domain.ids import bulk_document_id
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion import ray_graph, steps
from rag_cluster.ingestion.pipeline import IngestionOptions, IngestionReport, run_ingestion
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.ray_actors import RecognizeActor
from rag_cluster.ingestion.recognition import Recognition
from rag_cluster.ingestion.rows import AwaitingRecognition, PreparedPart
from rag_cluster.ingestion.write_path import Pools
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.stores.postgres.database import Database
from tests.fixtures.in_process import in_process
from tests.fixtures.write_path import Bench

MIXED = "text|The quay is 400 metres long.\nscan|{seconds}|Berth nine is closed.\ntext|The crane lifts 40 tonnes."


def with_ocr(bench: Bench, mode: OcrMode = OcrMode.AUTO, pools: Pools = Pools()) -> Bench:
    """The bench with an OCR stage, in this process and in the workers."""
    recipe = replace(bench.recipe, ocr=mode, pools=pools)
    return replace(bench, recipe=recipe, write_path=recipe())


def run(bench: Bench, options: IngestionOptions = IngestionOptions(progress=False)) -> IngestionReport:
    return run_ingestion(bench.recipe, bench.base.name, [str(bench.folder)], options)


def run_here(bench: Bench) -> IngestionReport:
    with in_process():
        return run(bench)


def document_id(bench: Bench, name: str) -> str:
    return bulk_document_id(bench.base.id, (bench.folder / name).as_uri())


def ready_at(bench: Bench, name: str) -> datetime:
    """When the published version became READY."""
    with Database(bench.recipe.dsn, pool_size=1, timeout=10).connection() as connection:
        row = connection.execute(
            """SELECT v.updated_at FROM documents d JOIN document_versions v
               ON v.document_id = d.id AND v.version = d.published_version WHERE d.id = %s""",
            (document_id(bench, name),),
        ).fetchone()
    assert row is not None, f"{name} is not published"
    at: datetime = row["updated_at"]
    return at


def published(bench: Bench, name: str) -> tuple[int, str]:
    """(version, the text that queries see)."""
    found = bench.write_path.catalog.document(document_id(bench, name), LOCAL)
    assert found.published_version is not None
    blocks = bench.write_path.snapshots.read_blocks(bench.base.id, found.id, found.published_version)
    return found.published_version, " ".join(block.content for block in blocks)


def fingerprint(bench: Bench, name: str) -> str:
    found = bench.write_path.catalog.document(document_id(bench, name), LOCAL)
    versions = bench.write_path.catalog.versions(found.id)
    return next(v.content_fingerprint for v in versions if v.version == found.published_version)


def outcomes(report: IngestionReport) -> dict[str, int]:
    return {name: count for name, count in report.outcomes.items() if count}


def actors(bench: Bench, stage: str) -> set[str]:
    return {name for name in bench.calls if name.startswith(f"{stage}-by-")}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
class TestRuns:
    @pytest.mark.parametrize("room", [True, False])
    def test_text_is_ready_before_a_scan_of_the_same_run(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, room: bool
    ) -> None:
        monkeypatch.setattr(ray_graph, "room_for_both", lambda _: room)
        bench = with_ocr(bench)
        bench.write("a.scan", "scan|4|Berth nine is closed.")
        bench.write("b.pages", MIXED.format(seconds=4))
        for n in range(12):
            bench.write(f"c{n:02}.txt", f"Berth {n} is {n + 5} metres deep.")
        report = run(bench)
        assert (report.ok, outcomes(report), report.recognized) == (True, {"ready": 14}, 2)
        first_scan = min(ready_at(bench, "a.scan"), ready_at(bench, "b.pages"))
        assert all(ready_at(bench, f"c{n:02}.txt") < first_scan for n in range(12))
        assert published(bench, "b.pages")[1].count("Berth nine is closed.") == 1
        assert not actors(bench, "whole") & actors(bench, "text")

    def test_where_there_is_room_scans_are_recognised_while_text_is_still_prepared(self, bench: Bench) -> None:
        bench = with_ocr(bench)
        bench.recipe = replace(bench.recipe, document_timeout=100.0)
        recognised = bench.folder.parent / "recognised"
        bench.write("a.scan", "scan|0|Berth nine is closed.")
        for n in range(4):
            bench.write(f"b{n}.txt", f"Berth {n} is {n + 5} metres deep.")
        bench.write("c.pages", f"until|{recognised}|The crane lifts 40 tonnes.")
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                with contextlib.suppress(NotFoundError):  # not claimed yet
                    if bench.write_path.catalog.document(document_id(bench, "a.scan"), LOCAL).visible:
                        recognised.touch()
                        return

        watcher = threading.Thread(target=watch)
        watcher.start()
        report = run(bench)
        over.set()
        watcher.join()
        assert recognised.exists(), "the scan waited for the text"
        assert (report.ok, outcomes(report)) == (True, {"ready": 6})

    def test_the_ocr_pool_has_its_own_size(self, bench: Bench) -> None:
        bench = with_ocr(bench, pools=Pools(ocr_actors=2, ocr_cpus=0.25))
        for n in range(8):
            bench.write(f"{n}.scan", "scan|0.5|Berth nine is closed.")
        assert run(bench).ok
        assert (len(actors(bench, "whole")), len(actors(bench, "text"))) == (2, 0)

    def test_only_recognition_sees_a_gpu_and_only_when_it_may(self, bench: Bench) -> None:
        for gpu, seen in ((True, "devices=all"), (False, "devices=")):
            asked = with_ocr(bench, pools=Pools(ocr_gpu=gpu))
            name = f"{gpu}.scan"
            asked.write(name, "gpu|")
            run(asked)
            assert published(asked, name)[1].split()[0] == seen
        text = with_ocr(bench, OcrMode.DEFERRED, Pools(ocr_gpu=True))
        text.write("hidden.pages", "gpu|\ntext|The quay is 400 metres long.")
        partial = steps_of(text, "hidden.pages")
        content = text.write_path.snapshots.read_part(text.base.id, partial[0].slice)
        assert "devices=\n" in content.chunks[0].content + "\n"

    def test_deferred_publishes_the_text_first_and_every_page_then(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ray_graph, "room_for_both", lambda _: False)
        bench = with_ocr(bench, OcrMode.DEFERRED)
        bench.write("a.pages", MIXED.format(seconds=4))
        bench.write("only.pages", "scan|0|Berth ten is open.")
        seen: list[tuple[int, str]] = []
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                try:
                    now = published(bench, "a.pages")
                except Exception:
                    continue  # not there yet, or replaced in between
                if now not in seen:
                    seen.append(now)

        watcher = threading.Thread(target=watch)
        watcher.start()
        report = run(bench)
        done.set()
        watcher.join()
        seen += [now for now in [published(bench, "a.pages")] if now not in seen]
        assert (report.ok, outcomes(report), report.recognized) == (True, {"ready": 2}, 2)
        text = "The quay is 400 metres long. The crane lifts 40 tonnes."
        whole = "The quay is 400 metres long. Berth nine is closed. The crane lifts 40 tonnes."
        assert seen == [(1, text), (2, whole)]
        assert published(bench, "only.pages") == (1, "Berth ten is open.")
        assert set(bench.versions_in_index(document_id(bench, "a.pages"))) == {2}

    def test_a_run_killed_between_text_and_recognition_is_finished_by_the_next(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = with_ocr(bench, OcrMode.DEFERRED)
        bench.write("a.pages", MIXED.format(seconds=0))
        stream = ray_graph.stream_documents

        def killed(*arguments: object) -> object:
            if arguments[-1] is RecognizeActor:
                raise KeyboardInterrupt
            return stream(*arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(ray_graph, "stream_documents", killed)
            with pytest.raises(KeyboardInterrupt):
                run(bench)
        (cancelled,), _ = bench.write_path.ledger.runs()
        assert (cancelled.status, cancelled.counts["ocr_documents_awaiting"]) == (RunStatus.CANCELLED, 1)
        assert published(bench, "a.pages")[0] == 1
        (item,) = plan(bench.write_path, bench.base.id, [str(bench.folder)])
        assert isinstance(item, PlannedFile) and item.action is PlanAction.RECOGNIZE
        bench.recipe.calls.clear()
        report = run_here(bench)
        assert (report.ok, bench.calls["parsed"], actors(bench, "text")) == (True, 1, set())
        assert "Berth nine" in published(bench, "a.pages")[1]
        assert set(bench.versions_in_index(document_id(bench, "a.pages"))) == {2}
        assert outcomes(run_here(bench)) == {"unchanged": 1}

    def test_a_cancelled_run_recognises_nothing_more_and_is_resumed(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = with_ocr(bench)
        for n in range(6):
            bench.write(f"{n}.scan", f"scan|1|Berth {n} is closed.")
        stream = ray_graph.stream_documents

        def interrupted(*arguments: object) -> object:
            yield next(stream(*arguments))  # type: ignore[arg-type]
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ray_graph, "stream_documents", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(bench)
        assert run_here(bench).ok
        for n in range(6):
            assert published(bench, f"{n}.scan")[1] == f"Berth {n} is closed."
            assert bench.versions_in_index(document_id(bench, f"{n}.scan")).total() == 1

    def test_a_failed_recognition_leaves_the_published_text(self, bench: Bench) -> None:
        bench = with_ocr(bench, OcrMode.DEFERRED)
        bench.recipe = replace(bench.recipe, document_timeout=1.0)
        bench.write("a.pages", MIXED.format(seconds=30))
        report = run_here(bench)
        assert report.failures == {"parse_timeout": 1}
        assert published(bench, "a.pages") == (1, "The quay is 400 metres long. The crane lifts 40 tonnes.")

    def test_off_recognises_nothing_says_what_is_missing_and_needs_no_ocr_stage(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = with_ocr(bench, OcrMode.OFF)
        bench.write("a.pages", MIXED.format(seconds=0))
        bench.write("b.scan", "scan|0|Berth nine is closed.")
        bench.write("c.txt", "The quay is 400 metres long.")
        report = run_here(bench)
        assert (outcomes(report), report.failures) == ({"ready": 2, "failed": 1}, {"empty_document": 1})
        assert "--ocr" in report.problems[0].message
        assert not actors(bench, "whole")
        (slow,) = [receipt for receipt in report.slowest if receipt.uri.endswith("a.pages")]
        assert slow.warnings == ("Pages [2] were not recognised",)

    def test_another_mode_redoes_only_what_recognition_concerns(self, bench: Bench) -> None:
        off, auto, force = (with_ocr(bench, mode) for mode in (OcrMode.OFF, OcrMode.AUTO, OcrMode.FORCE))
        bench.write("a.pages", MIXED.format(seconds=0))
        bench.write("b.pages", "text|The crane lifts 40 tonnes.")
        bench.write("c.txt", "The quay is 400 metres long.")
        assert outcomes(run_here(off)) == {"ready": 3}
        assert outcomes(run_here(auto)) == {"ready": 1, "unchanged": 2}
        assert "Berth nine" in published(bench, "a.pages")[1]
        assert outcomes(run_here(with_ocr(bench, OcrMode.DEFERRED))) == {"unchanged": 3}
        report = run_here(force)
        assert (outcomes(report), report.recognized) == ({"ready": 2, "unchanged": 1}, 4)
        assert fingerprint(bench, "b.pages").endswith("+force")

    def test_a_killed_ocr_actor_loses_no_document(self, bench: Bench) -> None:
        bench = with_ocr(bench)
        for n in range(5):
            bench.write(f"{n}.scan", f"scan|0.5|Berth {n} is closed.")
        killed: Counter[str] = Counter()

        def kill() -> None:
            while not killed:
                time.sleep(0.2)
                for name in actors(bench, "whole"):
                    os.kill(int(name.rpartition("-")[2]), 9)
                    killed[name] += 1

        killer = threading.Thread(target=kill)
        killer.start()
        report = run(bench)
        killer.join()
        assert (report.ok, outcomes(report)) == (True, {"ready": 5}), report.to_dict()
        for n in range(5):
            assert bench.versions_in_index(document_id(bench, f"{n}.scan")) == {1: 1}


def steps_of(bench: Bench, name: str, owner: str = "run", *, recognize: bool = False) -> list[PreparedPart]:
    prepared = prepare(bench, name, owner, recognize=recognize)
    assert isinstance(prepared, list), prepared
    return prepared


def prepare(bench: Bench, name: str, owner: str = "run", *, recognize: bool = False) -> steps.Prepared:
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    for item in plan(bench.write_path, bench.base.id, [str(bench.folder)]):
        if isinstance(item, PlannedFile) and item.file.filename == name:
            work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
            return steps.prepare(bench.write_path, work, owner=owner, recognize=recognize)
    raise AssertionError(f"{name} is not planned")


def index(bench: Bench, parts: Sequence[PreparedPart]) -> list[object]:
    return list(steps.index(bench.write_path, steps.open_index(bench.write_path), parts))


class TestSteps:
    def test_a_document_that_awaits_recognition_is_unclaimed_and_may_be_deleted_meanwhile(self, bench: Bench) -> None:
        bench = with_ocr(bench)
        path = bench.write("a.pages", MIXED.format(seconds=0))
        row = prepare(bench, "a.pages")
        assert row == AwaitingRecognition(document_id(bench, "a.pages"), 1, path.stat().st_size)
        found = bench.write_path.catalog.document(row.document_id, LOCAL)
        assert (found.status, found.visible) == (DocumentStatus.PENDING, False)
        bench.write_path.catalog.tombstone(row.document_id)  # no live claim answers "busy"

    def test_the_ocr_stage_goes_on_with_the_same_version(self, bench: Bench) -> None:
        bench = with_ocr(bench)
        bench.write("a.pages", MIXED.format(seconds=0))
        prepare(bench, "a.pages")
        (part,) = steps_of(bench, "a.pages", recognize=True)
        assert (part.version, part.recognized, part.awaiting) == (1, 1, 0)

    def test_a_published_text_is_not_the_end_and_its_unfinished_parts_are_resumed(self, bench: Bench) -> None:
        bench = with_ocr(bench, OcrMode.DEFERRED)
        bench.write("a.pages", MIXED.format(seconds=0))
        parts = steps_of(bench, "a.pages", owner="killed")
        bench.write_path.ledger.release("killed")
        (item,) = plan(bench.write_path, bench.base.id, [str(bench.folder)])
        assert isinstance(item, PlannedFile) and item.action is PlanAction.INDEX
        parsed = bench.calls["parsed"]
        resumed = steps_of(bench, "a.pages", owner="next")
        assert (bench.calls["parsed"], resumed[0].slice, resumed[0].awaiting) == (parsed, parts[0].slice, 1)
        rows = index(bench, resumed)
        assert AwaitingRecognition(parts[0].document_id, 1, 0) in rows
        assert published(bench, "a.pages")[0] == 1

    def test_a_zombie_of_the_text_stage_cannot_give_back_what_another_owner_took(self, bench: Bench) -> None:
        bench = with_ocr(bench)
        bench.write("a.txt", "The quay is 400 metres long.")
        (part,) = steps_of(bench, "a.txt", owner="zombie")
        bench.write_path.ledger.release("zombie")
        (taken,) = steps_of(bench, "a.txt", owner="next")
        bench.write_path.ledger.give_back(part.claim)
        assert published_after(bench, taken)

    def test_with_recognition_off_a_claim_for_the_text_alone_is_superseded(self, bench: Bench) -> None:
        deferred, off = with_ocr(bench, OcrMode.DEFERRED), with_ocr(bench, OcrMode.OFF)
        bench.write("a.pages", MIXED.format(seconds=0))
        steps_of(deferred, "a.pages", owner="killed")
        bench.write_path.ledger.release("killed")
        (part,) = steps_of(off, "a.pages", owner="next")
        assert (part.version, part.awaiting) == (2, 0)


def published_after(bench: Bench, part: PreparedPart) -> bool:
    index(bench, [part])
    return bench.write_path.catalog.document(part.document_id, LOCAL).published_version == part.version


def waiting(number: int) -> PlannedFile:
    file = SourceFile(f"file:///{number}.png", f"扫描{number}.png", 5, "1")
    return PlannedFile(file, f"document-{number}", PlanAction.RECOGNIZE, "f+auto")


class TestQueue:
    def test_documents_come_in_order_in_bounded_batches_and_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rag_cluster.ingestion.recognition.BATCH", 4)
        batches: list[list[PlannedFile]] = []

        def work(batch: list[PlannedFile], last: bool) -> list[PlannedFile]:
            batches.append(batch)
            return batch[:1]

        with Recognition(work, lambda: False) as recognition:
            for n in range(10):
                recognition.add(waiting(n), pages=3)
                recognition.poll()
            assert recognition.counts() == {"ocr_documents_awaiting": 10, "ocr_pages_awaiting": 30}
            assert recognition.finish() == [waiting(0), waiting(4), waiting(8)]
            assert recognition.counts() == {"ocr_documents_awaiting": 0, "ocr_pages_awaiting": 0}
        assert [item for batch in batches for item in batch] == [waiting(n) for n in range(10)]
        assert [len(batch) for batch in batches] == [4, 4, 2]

    def test_an_error_beside_the_text_reaches_the_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rag_cluster.ingestion.recognition.GATHER_SECONDS", 0.01)

        def work(batch: list[PlannedFile], last: bool) -> list[PlannedFile]:
            raise ValueError("the workers could not start")

        with Recognition(work, lambda: True) as recognition:
            recognition.add(waiting(0))
            with pytest.raises(ValueError, match="could not start"):
                for _ in range(500):
                    recognition.poll()
                    time.sleep(0.01)
