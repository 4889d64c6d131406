"""Answers, their citations and what is streamed (design section 6 "Answering", seeds 000/001)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.retrieval import RetrievalResult, RetrievalTrace


@dataclass(frozen=True, slots=True)
class Citation:
    """One numbered source of an answer, built from a result, never from the generator's text."""

    number: int
    document_id: str
    version: int
    filename: str
    chunk_id: str
    heading_path: tuple[str, ...] = ()
    locator: SourceLocator = SourceLocator()
    context_chunk_ids: tuple[str, ...] = ()
    quote: str = ""
    """The sentences of the source that the answer quotes or rests on."""
    uri: str = ""


@dataclass(frozen=True, slots=True)
class ContextSource:
    """One source that fitted into the context, with its number (1-based) and the text that the generator sees."""

    number: int
    result: RetrievalResult
    text: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Everything a generator may use. sources are in result order; prompt strings are for language models."""

    question: str
    language: str
    """"zh" or "en": the question's language."""
    sources: tuple[ContextSource, ...]
    system_prompt: str
    user_prompt: str
    query_vector: tuple[float, ...] | None = None
    temperature: float = 0.2
    max_tokens: int = 1024


class CutShort(str):
    """Ends the deltas of an answer that the limit of its tokens cut; it holds no text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer. refused answers carry no citations."""

    question: str
    text: str
    refused: bool
    citations: tuple[Citation, ...] = ()
    results: tuple[RetrievalResult, ...] = ()
    trace: RetrievalTrace | None = None
    refusal_reason: str = ""
    warnings: tuple[str, ...] = ()
    """Marks that were removed, claims that their source does not hold."""
    message_id: str | None = None
    session_id: str | None = None
    """The session that the message was stored in."""


class AnswerEventKind(StrEnum):
    """SSE events in order: meta, delta*, citation*, then exactly one of done | refuse | error."""

    META = "meta"
    DELTA = "delta"
    CITATION = "citation"
    DONE = "done"
    REFUSE = "refuse"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """One streamed event."""

    kind: AnswerEventKind
    data: Mapping[str, Any]
    answer: Answer | None = None
    """With DONE and REFUSE: the whole answer, for the JSON route and the record."""


@dataclass(frozen=True, slots=True)
class ChatEvidence:
    """What an answer used, stored with the message, so that a restored session still shows its sources."""

    citations: tuple[Citation, ...]
    results: tuple[RetrievalResult, ...]
    trace: RetrievalTrace | None


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One stored message of a session."""

    id: str
    session_id: str
    role: str
    content: str
    evidence: ChatEvidence | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RetrievalRecord:
    """The audit row of every retrieval and every answer, refusals and disconnects included (seed 003)."""

    request_id: str
    principal: str
    knowledge_base_id: str
    query: str
    options: Mapping[str, Any]
    trace: Mapping[str, Any]
    results: tuple[Mapping[str, Any], ...] = ()
    outcome: str = ""
    """retrieved | explained | answered | refused | failed | disconnected."""
    milliseconds: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
