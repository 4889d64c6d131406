"""Contract of the Conversations port."""

from __future__ import annotations

import pytest

from rag_cluster.domain.access import LOCAL, Principal
from rag_cluster.domain.answers import ChatEvidence, Citation, RetrievalRecord
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.documents import SourceKind
from rag_cluster.domain.ports import Catalog, Conversations
from rag_cluster.domain.retrieval import AssetReference, RetrievalMode, RetrievalResult, RetrievalTrace, StageTrace
from rag_cluster.errors import NotFoundError

NOWHERE = "00000000-0000-0000-0000-000000000000"
LOCATOR = SourceLocator(("章", "节"), 7, (1.0, 2.0, 3.5, 4.0), ((7, (1.0, 2.0, 3.5, 4.0)),), sheet="表", slide=1)


@pytest.fixture
def base(catalog: Catalog) -> str:
    return catalog.create_knowledge_base("kb").id


def full_evidence() -> ChatEvidence:
    result = RetrievalResult(
        chunk_id="c",
        document_id="d",
        version=2,
        knowledge_base_id="k",
        filename="f.pdf",
        content="全文",
        matched_content="文",
        score=0.1,
        dense_score=0.9,
        retrieval_sources=("dense", "sparse"),
        heading_path=("章",),
        locator=LOCATOR,
        context_chunk_ids=("c", "c2"),
        assets=(AssetReference("a", "image/png", "图"),),
        source_kind=SourceKind.UPLOAD,
        matches=(Chunk("c", "k", "d", 2, 0, "文", metadata={"n": [1, {"m": None}]}),),
        metadata={"年": 2024},
    )
    trace = RetrievalTrace(
        RetrievalMode.HYBRID, ("q", "q2"), (StageTrace("dense", 1.5, {"out": 3}),), ("rerank: no reranker",), 12.0
    )
    citation = Citation(1, "d", 2, "f.pdf", "c", ("章",), LOCATOR, ("c",), "引文", "file:///f.pdf")
    return ChatEvidence((citation,), (result,), trace)


async def test_a_restored_session_still_shows_its_sources(conversations: Conversations, base: str) -> None:
    question = await conversations.add_message(None, "user", "问 \x00?", principal=LOCAL, knowledge_base_id=base)
    answer = await conversations.add_message(
        question.session_id, "assistant", "答", principal=LOCAL, knowledge_base_id=base, evidence=full_evidence()
    )
    messages = await conversations.messages(question.session_id, LOCAL)
    assert [(message.role, message.content) for message in messages] == [("user", "问 \ufffd?"), ("assistant", "答")]
    assert messages[1] == answer
    assert messages[1].evidence == full_evidence()


async def test_a_session_belongs_to_its_principal_and_knowledge_base(
    conversations: Conversations, catalog: Catalog, base: str
) -> None:
    message = await conversations.add_message(None, "user", "q", principal=LOCAL, knowledge_base_id=base)
    stranger = Principal("stranger", None)
    other = catalog.create_knowledge_base("other").id
    await conversations.require_session(message.session_id, LOCAL, base)
    with pytest.raises(NotFoundError):
        await conversations.messages(message.session_id, stranger)
    for principal, knowledge_base in ((stranger, base), (LOCAL, other)):
        with pytest.raises(NotFoundError):
            await conversations.require_session(message.session_id, principal, knowledge_base)
        with pytest.raises(NotFoundError):
            await conversations.add_message(
                message.session_id, "user", "q", principal=principal, knowledge_base_id=knowledge_base
            )


@pytest.mark.parametrize("name", [NOWHERE, "no-uuid", "\x00"])
async def test_unknown_sessions_and_knowledge_bases_are_not_found(
    conversations: Conversations, base: str, name: str
) -> None:
    with pytest.raises(NotFoundError):
        await conversations.messages(name, LOCAL)
    with pytest.raises(NotFoundError):
        await conversations.require_session(name, LOCAL, base)
    with pytest.raises(NotFoundError):
        await conversations.add_message(name, "user", "q", principal=LOCAL, knowledge_base_id=base)
    with pytest.raises(NotFoundError):
        await conversations.add_message(None, "user", "q", principal=LOCAL, knowledge_base_id=name)


async def test_the_audit_trail_takes_any_text(conversations: Conversations, base: str) -> None:
    await conversations.record(
        RetrievalRecord(
            request_id="r",
            principal="p",
            knowledge_base_id=base,
            query="\x00\ud800 查询",
            options={"filters": {"k": "\x00"}},
            trace={"milliseconds": float("nan")},
            results=({"chunk_id": "c", "score": 0.5},),
            outcome="retrieved",
            milliseconds=1.5,
        )
    )
