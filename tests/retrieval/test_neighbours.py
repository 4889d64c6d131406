"""Small2Big without parents: neighbours become one text in which nothing stands twice."""

from __future__ import annotations

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.retrieval import EvidenceRow, RetrievalOptions, RetrievalResult
from rag_cluster.retrieval.candidates import Candidate
from rag_cluster.retrieval.diversity import paragraph
from rag_cluster.retrieval.expansion import expand
from rag_cluster.retrieval.neighbours import MERGED_CHARS, merged_text
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library


def chunk(index: int, text: str, document: str = "doc", version: int = 1) -> Chunk:
    identity = ids.chunk_id(document, version, "test", index, text)
    return Chunk(identity, KB, document, version, index, text, locator=SourceLocator(page=index + 1))


def results(*chunks: Chunk, top_k: int = 5, expanded: bool = True) -> tuple[RetrievalResult, ...]:
    candidates = [
        Candidate(
            EvidenceRow(one, None, "a.md", "", "s", SourceKind.BULK, "s", 0), paragraph(one.text), score=1 / (n + 1)
        )
        for n, one in enumerate(chunks)
    ]
    return expand(candidates, top_k, expand_parents=expanded, mode="hybrid")


FIRST = "Cranes stop at 72 km/h of wind, and the crew waits in the shelter."
SECOND = "the crew waits in the shelter. It goes on when the wind is below 60 km/h."
WHOLE = "Cranes stop at 72 km/h of wind, and the crew waits in the shelter. It goes on when the wind is below 60 km/h."


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_neighbours_merge_into_the_place_of_the_better_one_without_their_overlap(order: tuple[int, int]) -> None:
    both = [chunk(0, FIRST), chunk(1, SECOND)]
    found = results(*(both[n] for n in order), chunk(7, "Elsewhere the tide is high."), top_k=2)
    assert [result.content for result in found] == [WHOLE, "Elsewhere the tide is high."]
    assert found[0].context_chunk_ids == (both[0].id, both[1].id)
    assert found[0].matched_content == both[order[0]].text and found[0].chunk_id == both[order[0]].id
    assert found[0].locator.page == order[0] + 1 and found[0].context_locator.page == 1


def test_a_chunk_between_two_others_joins_all_three() -> None:
    parts = [chunk(n, f"Part number {n} tells of pier {n}.") for n in range(3)]
    (one,) = results(parts[2], parts[0], parts[1])
    assert one.content == "\n".join(part.text for part in parts)
    assert one.matches[0] == parts[2] and {match.id for match in one.matches} == {part.id for part in parts}


def test_what_is_not_next_to_it_of_another_version_document_or_not_expanded_stays_alone() -> None:
    assert len(results(chunk(0, "a text"), chunk(2, "another text"))) == 2
    assert len(results(chunk(0, "a text"), chunk(1, "another text", "other"))) == 2
    assert len(results(chunk(0, "a text"), chunk(1, "another text", version=2))) == 2
    assert [one.content for one in results(chunk(0, FIRST), chunk(1, SECOND), expanded=False)] == [FIRST, SECOND]


def test_a_merged_text_is_not_longer_than_a_parent() -> None:
    parts = [chunk(n, f"{n} " + "long " * 200) for n in range(8)]
    found = results(*parts, top_k=8)
    assert 1 < len(found) < 8 and all(len(result.content) <= MERGED_CHARS for result in found)
    assert sum(len(result.matches) for result in found) == 8


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        (
            ["岸桥每日检查一次，由班长签字确认。", "由班长签字确认。夜班另行安排。"],
            "岸桥每日检查一次，由班长签字确认。夜班另行安排。",
        ),
        (["It ends with s", "ships are new"], "It ends with s\nships are new"),
        (
            ["| part | days |\n|---|---|\n| rope | 7 |", "| part | days |\n|---|---|\n| hook | 9 |"],
            "| part | days |\n|---|---|\n| rope | 7 |\n| hook | 9 |",
        ),
        (
            ["| part | days |\n|---|---|\n| rope | 7 |", "| ship | crew |\n|---|---|\n| Nord | 9 |"],
            "| part | days |\n|---|---|\n| rope | 7 |\n| ship | crew |\n|---|---|\n| Nord | 9 |",
        ),
    ],
)
def test_nothing_stands_twice_and_nothing_is_lost(texts: list[str], merged: str) -> None:
    assert merged_text([chunk(n, text) for n, text in enumerate(texts)]) == merged


async def test_a_query_finds_neighbours_as_one_result() -> None:
    library = Library()
    library.add("manual", FIRST, SECOND)
    library.add("tides", "The tide is high at noon.")
    retriever = Retriever(library.evidence, library.index, library.embedder)
    run = await retriever.retrieve(LOCAL, KB, "cranes crew wind", RetrievalOptions(top_k=3))
    assert [result.content for result in run.results if result.document_id == "manual"] == [WHOLE]
