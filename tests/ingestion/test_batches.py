"""How work is cut: into prepare tasks, embed calls and the rows between them."""

from __future__ import annotations

from typing import Any

from rag_cluster.domain.documents import PlanAction, PlannedFile, Receipt, SourceFile
from rag_cluster.ingestion import ray_graph, rows, steps
from rag_cluster.ingestion.rows import PartDone, PreparedPart


def planned(number: int, size: int = 10) -> PlannedFile:
    return PlannedFile(
        SourceFile(f"file:///{number}", f"{number}.txt", size, "1"), str(number), PlanAction.PREPARE, "f"
    )


def batches(wave: list[PlannedFile], actors: int = 1) -> list[list[dict[str, Any]]]:
    return [batch for table in ray_graph._batches(wave, actors) for batch in table["documents"].to_pylist()]


def sizes(wave: list[PlannedFile], actors: int = 1) -> list[int]:
    return [len(batch) for batch in batches(wave, actors)]


def part(number: int, chunks: int) -> PreparedPart:
    return PreparedPart("kb", "file:///a", "d", 1, "run", 1, number, 0, chunks, chunks)


def test_a_large_wave_is_cut_into_full_batches() -> None:
    full = ray_graph.BATCH_DOCUMENTS
    assert sizes([planned(n) for n in range(10 * full + 3)]) == [full] * 10 + [3]


def test_a_small_wave_gives_every_prepare_actor_something_to_do() -> None:
    assert sizes([planned(n) for n in range(8)]) == [1] * 8
    assert sizes([planned(n) for n in range(64)], actors=2) == [4] * 16


def test_large_files_travel_alone() -> None:
    large = ray_graph.BATCH_BYTES + 1
    wave = [planned(n, large if n % 10 == 0 else 10) for n in range(200)]
    cut = batches(wave)
    assert all(len(batch) == 1 for batch in cut if batch[0]["size"] == large)
    assert [row["document_id"] for batch in cut for row in batch] == [str(number) for number in range(200)]


def test_a_wave_is_handed_to_ray_a_thousand_documents_at_a_time() -> None:
    tables = list(ray_graph._batches([planned(n) for n in range(5000)], 1))
    assert len(tables) >= 4 and all(table.num_rows <= 1 + 1000 // ray_graph.BATCH_DOCUMENTS for table in tables)
    assert sum(sizes([planned(n) for n in range(5000)])) == 5000


def test_an_embed_call_is_bounded_by_parts_and_by_chunks() -> None:
    assert [len(batch) for batch in steps.batches([part(n, 5) for n in range(40)], 16)] == [16, 16, 8]
    assert [len(batch) for batch in steps.batches([part(n, 100) for n in range(9)], 16)] == [2, 2, 2, 2, 1]
    assert [len(batch) for batch in steps.batches([part(n, 256) for n in range(3)], 16)] == [1, 1, 1]
    assert list(steps.batches([], 16)) == []


def test_rows_of_every_kind_survive_the_way_between_stages() -> None:
    sent: list[rows.Row] = [
        part(0, 5),
        PartDone("d", 5, 100),
        Receipt("file:///码头", "d", "failed", stage="parse", error_type="parse_crash", warnings=("a", "b")),
    ]
    assert list(rows.from_table(rows.to_table(sent))) == sent
