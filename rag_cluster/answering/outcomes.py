"""From a question with its evidence to its answer or refusal, and what is told of it before and afterwards."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from rag_cluster.answering.citations import build_citations
from rag_cluster.answering.claims import check_claims
from rag_cluster.answering.context import Context
from rag_cluster.answering.language import refusal_text, says_nothing
from rag_cluster.answering.marks import MarkFilter
from rag_cluster.answering.refusal import Assessment
from rag_cluster.domain.answers import Answer, Citation, ContextSource, GenerationRequest
from rag_cluster.domain.retrieval import RetrievalRun

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A question with its evidence. request is None when the evidence does not suffice."""

    run: RetrievalRun
    assessment: Assessment
    context: Context = Context((), "")
    request: GenerationRequest | None = None
    warnings: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[ContextSource, ...]:
        """What the generator is given."""
        return self.context.sources


def refusal(question: str, prepared: Prepared) -> Answer:
    """What is answered when the evidence does not suffice."""
    log.info("question refused", extra={"reason": prepared.assessment.reason})
    return Answer(
        question=question,
        text=refusal_text(question),
        refused=True,
        results=prepared.run.results,
        trace=prepared.run.trace,
        refusal_reason=prepared.assessment.reason,
    )


def mark_filter(prepared: Prepared) -> MarkFilter:
    """What takes marks and assets that stand for nothing out of the generator's text."""
    assets = frozenset(asset.id for source in prepared.sources for asset in source.result.assets)
    language = prepared.request.language if prepared.request is not None else "en"
    return MarkFilter(len(prepared.sources), assets, language)


def finished(question: str, text: str, prepared: Prepared, cleaner: MarkFilter) -> Answer:
    """The answer with its citations; a model that says it cannot tell has refused, and so has an empty text."""
    text = text.strip()
    run = prepared.run
    if says_nothing(text):
        reason = "the generator found no answer in the evidence"
        return Answer(
            question, refusal_text(question), True, results=run.results, trace=run.trace, refusal_reason=reason
        )
    cut = ["the answer ends where the generator reached its limit of tokens"] if cleaner.cut_short else []
    removed = [f"removed mark {mark}" for mark in cleaner.removed]
    warnings = [*prepared.warnings, *cut, *removed, *check_claims(text, prepared.sources)]
    return Answer(
        question=question,
        text=text,
        refused=False,
        citations=build_citations(text, prepared.sources),
        results=run.results,
        trace=run.trace,
        warnings=tuple(warnings),
    )


def meta(prepared: Prepared) -> dict[str, Any]:
    """What is known before the first word: how much was found and what it was called."""
    return {
        "results": len(prepared.run.results),
        "sources": [
            {
                "number": source.number,
                "document_id": source.result.document_id,
                "filename": source.result.filename,
                "locator": source.result.locator.to_dict(),
            }
            for source in prepared.sources
        ],
        "degradations": list(prepared.run.trace.degradations),
    }


def facts(answer: Answer, prepared: Prepared) -> dict[str, Any]:
    """What the audit row says of an answer."""
    cited: tuple[Citation, ...] = answer.citations
    assessment = prepared.assessment
    return {
        "answer": answer.text,
        "citations": [{"number": one.number, "chunk_id": one.chunk_id, "quote": one.quote} for one in cited],
        "refusal_reason": answer.refusal_reason,
        "warnings": list(answer.warnings),
        "strength": round(assessment.strength, 4) if prepared.run.results else None,
        "coverage": round(assessment.best_coverage, 4),
        "best_cosine": assessment.best_cosine,
    }
