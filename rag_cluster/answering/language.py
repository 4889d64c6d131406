"""What is said in the question's language."""

from __future__ import annotations

from rag_cluster.domain.terms import language

REFUSALS = {
    "zh": "根据当前知识库无法确定",
    "en": "This cannot be determined from the current knowledge base.",
}


def question_language(question: str) -> str:
    """ "zh" or "en"."""
    return language(question)


def refusal_text(question: str) -> str:
    """The refusal sentence in the question's language."""
    return REFUSALS[question_language(question)]
