"""From a question to a cited answer, a refusal, or an error: events, messages and the audit trail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rag_cluster.answering import records
from rag_cluster.answering.answerer import Answerer, AnswerLimits
from rag_cluster.answering.language import refusal_text
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.answers import AnswerEvent, CutShort, GenerationRequest
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.deadlines import Deadline
from rag_cluster.domain.retrieval import AssetReference
from rag_cluster.engines.extractive import ExtractiveGenerator
from rag_cluster.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ModelUnavailableError,
    NotFoundError,
    StoreUnavailableError,
)
from rag_cluster.retrieval.retriever import Retriever
from tests.retrieval.memory import KB, Library, MemoryConversations

OFF_TOPIC = "Who won the football championship?"
QUESTION = "How much does storage cost per day?"


class Scripted:
    """A generator that says what it is told, delta by delta, and remembers that it was asked and closed."""

    name = "scripted"

    def __init__(self, *deltas: str | Exception, hang: bool = False) -> None:
        self.deltas, self.hang = deltas, hang
        self.requests: list[GenerationRequest] = []
        self.closed = False

    async def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        self.requests.append(request)
        try:
            for delta in self.deltas:
                if isinstance(delta, Exception):
                    raise delta
                yield delta
            if self.hang:
                await asyncio.sleep(3600)
        finally:
            self.closed = True


class Awaited(Scripted):
    """Its deadline comes soon after it is asked, however long the retrieval before it takes."""

    asked = False
    seconds = 0.05

    def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        self.asked = True
        return super().stream(request)

    def deadline(self) -> Any:
        self.asked = False
        return self

    @property
    def at(self) -> float:
        return asyncio.get_running_loop().time() + (self.seconds if self.asked else 600)


@pytest.fixture
def library() -> Library:
    library = Library()
    library.add(
        "tariff",
        "Storage costs 12 euros per day. The first three days are free.",
        locators=[SourceLocator(page=7)],
        assets=(AssetReference("a1", "image/png"),),
    )
    library.add("台风", "台风红色预警时，岸桥必须停止作业并锚定。")
    return library


@pytest.fixture
def conversations() -> MemoryConversations:
    return MemoryConversations()


def answerer(library: Library, conversations: MemoryConversations, generator: Any = None, **options: Any) -> Answerer:
    retriever = Retriever(library.evidence, library.index, library.embedder)
    generator = generator or ExtractiveGenerator(library.embedder, sentences)
    return Answerer(retriever, generator, conversations, **options)


async def events(stream: AsyncIterator[AnswerEvent]) -> list[AnswerEvent]:
    return [event async for event in stream]


async def test_an_answer_quotes_its_source_with_mark_and_place(library: Library, conversations: Any) -> None:
    answer = await answerer(library, conversations).answer(LOCAL, KB, QUESTION)
    assert "Storage costs 12 euros per day." in answer.text and "[Source 1](citation://1)" in answer.text
    assert answer.citations[0].locator.page == 7 and answer.citations[0].filename == "tariff.md"
    assert not answer.refused and answer.warnings == ()


async def test_a_chinese_question_gets_chinese_marks(library: Library, conversations: Any) -> None:
    answer = await answerer(library, conversations).answer(LOCAL, KB, "台风红色预警时岸桥必须怎样？")
    assert answer.text == "台风红色预警时，岸桥必须停止作业并锚定。[来源 1](citation://1)"


async def test_events_come_in_order_and_end_once(library: Library, conversations: Any) -> None:
    found = await events(answerer(library, conversations).stream(LOCAL, KB, QUESTION))
    kinds = [event.kind.value for event in found]
    assert kinds[0] == "meta" and kinds[-1] == "done"
    assert kinds == sorted(kinds, key=["meta", "delta", "citation", "done"].index)
    text = "".join(event.data["text"] for event in found if event.kind == "delta")
    assert found[-1].answer is not None and found[-1].answer.text == text.strip()


async def test_json_and_stream_give_the_same_answer(library: Library, conversations: Any) -> None:
    one = answerer(library, conversations)
    told = await one.answer(LOCAL, KB, QUESTION)
    streamed = (await events(one.stream(LOCAL, KB, QUESTION)))[-1].answer
    assert streamed is not None
    assert (told.text, told.citations) == (streamed.text, streamed.citations)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (OFF_TOPIC, "This cannot be determined from the current knowledge base."),
        ("足球冠军赛谁夺冠？", "根据当前知识库无法确定"),
    ],
)
async def test_weak_evidence_is_refused_in_the_questions_language_without_a_generator(
    library: Library, conversations: Any, question: str, text: str
) -> None:
    generator = Scripted("never")
    found = await events(answerer(library, conversations, generator).stream(LOCAL, KB, question))
    assert [event.kind.value for event in found] == ["meta", "refuse"]
    answer = found[-1].answer
    assert answer is not None and answer.refused and answer.text == text and answer.citations == ()
    assert generator.requests == []


async def test_no_evidence_is_refused_without_a_generator(library: Library, conversations: Any) -> None:
    library.evidence.access_keys = ()
    generator = Scripted("never")
    answer = await answerer(library, conversations, generator).answer(LOCAL, KB, QUESTION)
    assert answer.refusal_reason == "no evidence" and generator.requests == []


@pytest.mark.parametrize(
    "said",
    [
        "",
        "This cannot be determined from the current knowledge base.",
        "Based on the documents, this cannot be determined from the current knowledge base.",
        "This cannot be determined from the current knowledge base. [Source 1](citation://1)",
        "根据当前知识库无法确定。",
    ],
)
@pytest.mark.parametrize("question", [QUESTION, "台风红色预警时岸桥必须怎样？"])
async def test_a_generator_that_finds_nothing_has_refused(
    library: Library, conversations: Any, said: str, question: str
) -> None:
    answer = await answerer(library, conversations, Scripted(said)).answer(LOCAL, KB, question)
    assert answer.refused and answer.citations == () and answer.text == refusal_text(question)


async def test_one_that_answers_a_part_with_its_source_has_not(library: Library, conversations: Any) -> None:
    said = "根据当前知识库无法确定由谁发布，但岸桥必须停止作业。[来源 1](citation://1)"
    answer = await answerer(library, conversations, Scripted(said)).answer(LOCAL, KB, "台风红色预警时岸桥必须怎样？")
    assert not answer.refused and answer.text == said and len(answer.citations) == 1


async def test_the_generator_sees_rules_sources_and_the_question(library: Library, conversations: Any) -> None:
    generator = Scripted("12 euros. [Source 1](citation://1)")
    await answerer(library, conversations, generator).answer(LOCAL, KB, QUESTION)
    (request,) = generator.requests
    assert "untrusted" in request.system_prompt
    assert request.user_prompt.startswith("<knowledge_context>\n[来源 1]\n文档：tariff.md\n位置：p. 7\n内容：\nStorage")
    assert request.user_prompt.endswith(QUESTION)
    assert request.query_vector is not None


async def test_marks_and_assets_that_do_not_exist_are_removed_and_reported(
    library: Library, conversations: Any
) -> None:
    generator = Scripted(
        "12 euros per day. [Source 9](cita", "tion://9)[Source 1](citation://1) ![x](asset://a1)", "![](asset://b)"
    )
    found = await events(answerer(library, conversations, generator).stream(LOCAL, KB, QUESTION))
    text = "".join(event.data["text"] for event in found if event.kind == "delta")
    assert text == "12 euros per day. [Source 1](citation://1) ![x](asset://a1)"
    answer = found[-1].answer
    assert answer is not None and "removed mark [Source 9](citation://9)" in answer.warnings


async def test_an_answer_that_was_cut_says_so_and_shows_no_torn_mark(library: Library, conversations: Any) -> None:
    said = Scripted("Storage costs 12 euros per day. [Source 1](cita", CutShort())
    found = await events(answerer(library, conversations, said).stream(LOCAL, KB, QUESTION))
    text = "".join(event.data["text"] for event in found if event.kind == "delta")
    answer = found[-1].answer
    assert answer is not None and answer.text == text == "Storage costs 12 euros per day. [Source 1](citation://1)"
    assert answer.warnings == ("the answer ends where the generator reached its limit of tokens",)


async def test_a_claim_that_its_source_does_not_hold_is_a_warning(library: Library, conversations: Any) -> None:
    answer = await answerer(library, conversations, Scripted("It is 99 euros. [Source 1](citation://1)")).answer(
        LOCAL, KB, QUESTION
    )
    assert any("99" in warning for warning in answer.warnings)


# -- messages and the audit trail -------------------------------------------------------------------------------------


async def test_question_and_answer_are_stored_with_the_evidence(
    library: Library, conversations: MemoryConversations
) -> None:
    answer = await answerer(library, conversations).answer(LOCAL, KB, QUESTION, session_id="s7")
    asked, told = conversations.stored
    assert (asked.role, asked.content, told.role, told.content) == ("user", QUESTION, "assistant", answer.text)
    assert told.evidence is not None and told.evidence.citations == answer.citations
    assert told.evidence.results == answer.results and told.evidence.trace == answer.trace
    assert (answer.message_id, answer.session_id) == (told.id, "s7")


@pytest.mark.parametrize(("question", "outcome"), [(QUESTION, "answered"), (OFF_TOPIC, "refused")])
async def test_answers_and_refusals_are_recorded(
    library: Library, conversations: MemoryConversations, question: str, outcome: str
) -> None:
    await answerer(library, conversations).answer(LOCAL, KB, question, request_id="r1")
    (record,) = conversations.records
    assert (record.outcome, record.request_id, record.query, record.principal) == (outcome, "r1", question, "local")
    assert record.trace["stages"] and record.results and record.milliseconds > 0


async def test_a_retrieval_is_recorded(library: Library, conversations: MemoryConversations) -> None:
    run = await answerer(library, conversations).retrieve(LOCAL, KB, QUESTION, request_id="r2")
    (record,) = conversations.records
    assert record.outcome == "retrieved" and record.results[0]["chunk_id"] == run.results[0].chunk_id


async def test_a_failure_is_recorded_and_raised_or_streamed_as_the_error_event(
    library: Library, conversations: MemoryConversations
) -> None:
    one = answerer(library, conversations, Scripted("Twelve", ModelUnavailableError("the model is away")))
    with pytest.raises(ModelUnavailableError):
        await one.answer(LOCAL, KB, QUESTION)
    found = await events(one.stream(LOCAL, KB, QUESTION, request_id="r3"))
    assert [event.kind.value for event in found] == ["meta", "delta", "error"]
    assert found[-1].data["error"]["type"] == "model_unavailable"
    assert [record.outcome for record in conversations.records] == ["failed", "failed"]
    assert conversations.records[0].metadata["error_type"] == "model_unavailable"


async def test_a_fault_of_the_program_shows_no_details(library: Library, conversations: Any) -> None:
    found = await events(answerer(library, conversations, Scripted(RuntimeError("secret"))).stream(LOCAL, KB, QUESTION))
    assert found[-1].data["error"]["type"] == "internal_error" and "secret" not in str(found[-1].data)


async def test_a_client_that_leaves_stops_the_generator_and_is_recorded(
    library: Library, conversations: MemoryConversations
) -> None:
    generator = Scripted("Twelve.", hang=True)
    stream = answerer(library, conversations, generator).stream(LOCAL, KB, QUESTION)
    async for event in stream:
        if event.kind == "delta":
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert generator.closed
    assert [record.outcome for record in conversations.records] == ["disconnected"]


async def test_a_cancelled_request_stops_the_generator_and_is_recorded(library: Library) -> None:
    conversations = MemoryConversations(delay=0.05)
    generator = Scripted("Twelve.", hang=True)
    task = asyncio.create_task(answerer(library, conversations, generator).answer(LOCAL, KB, QUESTION))
    while not generator.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert generator.closed
    assert [record.outcome for record in conversations.records] == ["disconnected"]


@pytest.mark.parametrize("before", [(), ("Twelve",)])
async def test_a_deadline_stops_the_generator_and_is_recorded_as_a_failure(
    library: Library, conversations: MemoryConversations, before: tuple[str, ...]
) -> None:
    generator = Awaited(*before, hang=True)
    one = answerer(library, conversations, generator)
    with pytest.raises(DeadlineExceededError):
        await one.answer(LOCAL, KB, QUESTION, deadline=generator.deadline())
    assert generator.closed
    found = await events(one.stream(LOCAL, KB, QUESTION, deadline=generator.deadline()))
    assert found[0].kind == "meta" and found[-1].kind == "error"
    assert found[-1].data["error"]["type"] == "deadline_exceeded"
    assert [record.outcome for record in conversations.records] == ["failed", "failed"]
    assert {record.metadata["error_type"] for record in conversations.records} == {"deadline_exceeded"}


async def test_a_retrieval_past_its_deadline_is_recorded_as_a_failure(
    library: Library, conversations: MemoryConversations
) -> None:
    with pytest.raises(DeadlineExceededError):
        await answerer(library, conversations).retrieve(LOCAL, KB, QUESTION, deadline=Deadline.after(-1))
    assert [record.outcome for record in conversations.records] == ["failed"]


async def test_a_session_that_is_not_there_is_said_before_anything_is_generated(
    library: Library, conversations: MemoryConversations
) -> None:
    generator = Scripted("Twelve.")
    with pytest.raises(NotFoundError):
        await answerer(library, conversations, generator).answer(LOCAL, KB, QUESTION, session_id="no session")
    assert generator.requests == [] and conversations.stored == []


async def test_a_record_that_cannot_be_written_in_time_does_not_hold_the_answer_back(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "WRITE_SECONDS", 0.05)
    conversations = MemoryConversations(delay=3)
    started = time.perf_counter()
    await answerer(library, conversations).answer(LOCAL, KB, QUESTION)
    assert time.perf_counter() - started < 3 and conversations.records == []
    await asyncio.sleep(3)
    assert len(conversations.records) == 1


async def test_a_record_outlives_a_second_cancellation(library: Library) -> None:
    conversations = MemoryConversations(delay=0.2)
    generator = Scripted("Twelve.", hang=True)
    task = asyncio.create_task(answerer(library, conversations, generator).answer(LOCAL, KB, QUESTION))
    while not generator.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.3)
    assert len(conversations.records) == 1


async def test_an_answer_stands_when_nothing_can_be_stored(library: Library) -> None:
    conversations = MemoryConversations(broken=StoreUnavailableError("PostgreSQL is away"))
    answer = await answerer(library, conversations).answer(LOCAL, KB, QUESTION)
    assert "12 euros" in answer.text and answer.message_id is None
    assert answer.warnings == ("the message was not stored: store_unavailable",)


@pytest.mark.parametrize("question", ["", " \n", "x" * 101])
async def test_an_empty_or_endless_question_is_refused_as_invalid(
    library: Library, conversations: Any, question: str
) -> None:
    one = answerer(library, conversations, limits=AnswerLimits(max_question_chars=100))
    with pytest.raises(InvalidRequestError):
        await one.answer(LOCAL, KB, question)
