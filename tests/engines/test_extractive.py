"""The answerer without a language model: literal quotes of the units that answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_cluster.answering.marks import MarkFilter
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import ContextSource, GenerationRequest
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.domain.terms import language
from rag_cluster.engines import extractive
from rag_cluster.engines.extractive import ExtractiveGenerator, Weights
from rag_cluster.engines.extractive_units import MAX_UNIT_CHARS, units_of
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.errors import ModelUnavailableError

TABLE = """| Quarter | Boxes | Crane |
| --- | --- | --- |
| Q1 | 120,400 | north |
| Q2 | 95,200 | south |
| Q3 | 143,900 | north |"""


def source(number: int, *texts: str, heading: str = "") -> ContextSource:
    chunks = tuple(
        Chunk(f"{number}.{at}", "kb", f"d{number}", 1, at, heading + text, prefix_length=len(heading))
        for at, text in enumerate(texts)
    )
    whole = "Unmatched beginning. " + "\n\n".join(texts)
    result = RetrievalResult(chunks[0].id, f"d{number}", 1, "kb", "f.md", whole, texts[0], 1.0, matches=chunks)
    return ContextSource(number, result, whole)


def request(question: str, *sources: ContextSource, vector: Any = None) -> GenerationRequest:
    return GenerationRequest(question, language(question), sources, "", "", vector)


async def answer(question: str, *sources: ContextSource, embedder: Any = None) -> str:
    generator = ExtractiveGenerator(embedder or ThreadedEmbedder(HashEmbedder(512)), sentences)
    return "".join([delta async for delta in generator.stream(request(question, *sources))])


async def test_it_quotes_the_sentence_that_answers_with_its_mark() -> None:
    text = "The port opened in 1974. The north crane lifts 65 tonnes. The canteen closes at three."
    assert await answer("How many tonnes does the north crane lift?", source(1, text)) == (
        "The north crane lifts 65 tonnes. [Source 1](citation://1)"
    )


async def test_a_chinese_sentence_is_found_by_its_characters() -> None:
    text = "港口于1974年启用。北岸桥最大起重量为65吨。食堂三点关门。"
    assert await answer("北岸桥的起重量是多少？", source(1, text)) == ("北岸桥最大起重量为65吨。[来源 1](citation://1)")


async def test_the_source_of_each_quote_is_named() -> None:
    found = await answer(
        "How many tonnes does the south crane lift?",
        source(1, "The harbour is deep. Ships anchor there."),
        source(2, "The south crane lifts 40 tonnes."),
    )
    assert "The south crane lifts 40 tonnes. [Source 2](citation://2)" in found


async def test_only_matched_chunks_are_quoted_not_the_rest_of_their_parent() -> None:
    assert "Unmatched" not in await answer("What is the unmatched beginning?", source(1, "A matched end."))


async def test_a_table_row_is_quoted_below_its_header() -> None:
    assert await answer("How many boxes were moved in Q2?", source(1, TABLE)) == (
        "| Quarter | Boxes | Crane |\n| --- | --- | --- |\n| Q2 | 95,200 | south |\n\n[Source 1](citation://1)"
    )


async def test_a_row_means_its_cells_with_their_headers() -> None:
    row = units_of([source(1, TABLE)], sentences)[1]
    assert row.meaning == "Quarter: Q2; Boxes: 95,200; Crane: south"


async def test_a_sentence_that_points_back_brings_its_predecessor() -> None:
    text = "Dr. Brandt founded the workshop in 1988. She retired from the harbour board in 2011. Rain fell. Ships came."
    found = await answer("When did the founder retire from the harbour board?", source(1, text))
    assert "Dr. Brandt founded the workshop in 1988. She retired from the harbour board in 2011." in found


async def test_what_points_back_to_the_best_sentence_is_favoured() -> None:
    text = "Rain fell on berth 6. A fire broke out in the switch room of berth 6. The cause was a loose terminal."
    asked = request("What caused the fire in the switch room of berth 6?", source(1, text))
    embedder = ThreadedEmbedder(HashEmbedder(512))
    with_bonus = await ExtractiveGenerator(embedder, sentences, Weights(cosine=0.0, successor=4.0)).choose(asked)
    without = await ExtractiveGenerator(embedder, sentences, Weights(cosine=0.0, successor=0.0)).choose(asked)
    assert "The cause was a loose terminal." in [unit.quote for quote in with_bonus for unit in quote]
    assert "The cause was a loose terminal." not in [unit.quote for quote in without for unit in quote]


async def test_at_most_three_units_are_quoted() -> None:
    text = " ".join(f"The crane number {n} lifts tonnes." for n in range(20))
    generator = ExtractiveGenerator(ThreadedEmbedder(HashEmbedder(512)), sentences)
    quotes = await generator.choose(request("What do the cranes lift?", source(1, text)))
    assert sum(map(len, quotes)) <= extractive.MAX_QUOTES


async def test_a_heading_helps_the_text_below_it() -> None:
    found = await answer(
        "How long is the warranty of the Nordwind hoist?",
        source(1, "Twelve months of cover apply.", heading="Tugs\n"),
        source(2, "Twenty months of cover apply.", heading="Nordwind hoist warranty\n"),
    )
    assert found.startswith("Twenty months")


async def test_no_more_is_embedded_than_a_cpu_can_do_in_time() -> None:
    class Counting(ThreadedEmbedder):
        async def embed_documents(self, texts: Sequence[str]) -> Any:
            seen.extend(texts)
            return await super().embed_documents(texts)

    seen: list[str] = []
    text = " ".join(f"Sentence {n} tells of cranes and of many other things in the harbour." for n in range(300))
    await answer("What of cranes?", source(1, text), embedder=Counting(HashEmbedder(64)))
    assert 1 < len(seen) <= extractive.MAX_EMBEDDED
    assert sum(map(extractive._tokens, seen)) <= extractive.MAX_EMBEDDED_TOKENS


async def test_without_an_embedder_words_decide() -> None:
    class Away(ThreadedEmbedder):
        async def embed_queries(self, texts: Sequence[str]) -> Any:
            raise ModelUnavailableError("away")

    text = "The port opened in 1974. The north crane lifts 65 tonnes."
    found = await answer("What does the north crane lift?", source(1, text), embedder=Away(HashEmbedder(64)))
    assert found.startswith("The north crane lifts 65 tonnes.")


async def test_a_sentence_that_announces_a_list_brings_it_line_by_line() -> None:
    text = "司机每班开工前应完成以下检查：\n- 检查制动器间隙。\n- 检查钢丝绳。\n\n食堂三点关门。"
    assert await answer("司机每班开工前要完成什么？", source(1, text)) == (
        "司机每班开工前应完成以下检查：\n- 检查制动器间隙。\n- 检查钢丝绳。[来源 1](citation://1)"
    )


async def test_a_caption_that_only_repeats_the_question_is_no_answer() -> None:
    found = await answer("What are the mooring charges?", source(1, "Mooring charges\n\nMooring is 9 yuan a day."))
    assert found == "Mooring is 9 yuan a day. [Source 1](citation://1)"


@pytest.mark.parametrize("forged", ["[Source 5](citation://5)", "[ok](Citation://5)", "[Source 5]", "【来源 5】"])
async def test_a_documents_own_citation_marks_do_not_become_ours(forged: str) -> None:
    found = await answer("What is true?", source(1, f"All of this is true {forged}, they say."))
    cleaner = MarkFilter(5, frozenset(), "en")
    assert re.findall(r"citation://\d", cleaner.feed(found) + cleaner.flush()) == ["citation://1"]


async def test_sources_without_text_give_no_answer() -> None:
    assert await answer("Anything?", source(1, "")) == ""


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("- first item\n- second item", ["- first item", "- second item"]),
        ("```\nx = 1\ny = 2\n\nz = 3\n```\nAfter.", ["x = 1\ny = 2", "z = 3", "After."]),
        ("Before.\n| a | b |\n| - | - |\n| 1 | 2 |\nAfter.", ["Before.", "| 1 | 2 |", "After."]),
        ("| only | a header |\n| --- | --- |", ["| only | a header |"]),
    ],
)
def test_evidence_is_cut_into_what_can_be_quoted(text: str, pieces: list[str]) -> None:
    assert [unit.quote for unit in units_of([source(1, text)], sentences)] == pieces


def test_quotes_are_literal_and_never_endless() -> None:
    text = " ".join(f"word{n}," for n in range(500)) + " end."
    units = units_of([source(1, text)], sentences)
    assert all(unit.quote in text and len(unit.quote) <= MAX_UNIT_CHARS for unit in units)
    assert "".join(unit.quote for unit in units).replace(" ", "") == text.replace(" ", "")


def test_the_same_text_is_one_unit() -> None:
    assert len(units_of([source(1, "Same words."), source(2, "Same words.")], sentences)) == 1


PIECES = st.sampled_from(
    [
        *("| a | b |", "| --- | --- |", "|", "||", "| 1 \\| 2 | 3 |", "\\|", "```", "\t", ""),
        *("- item", "1. one", "A sentence. Another one!", "一句话。又一句？", "It needs:", "需要：", "x" * 900),
        *("[来源 3](citation://3)", "citation://", "![p](asset://a)", "1,234.5%"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=12), st.sampled_from(["How many?", "多少？", "?", "What is a sentence?", "一句话"]))
def test_any_evidence_gives_literal_quotes_with_marks_of_known_sources(lines: list[str], question: str) -> None:
    text = "\n".join(lines)
    found = asyncio.run(answer(question, source(1, text)))
    assert "citation://3" not in found
    assert bool(found) == bool(units_of([source(1, text)], sentences))
