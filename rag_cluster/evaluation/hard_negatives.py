"""What was ranked high and does not answer: training pairs for a reranker or an embedder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.evaluation.datasets import Question
from rag_cluster.evaluation.measures import holds
from rag_cluster.evaluation.runner import Asked

MOST = 5


def mine(asked: Sequence[Asked], names: Mapping[str, str], most: int = MOST) -> Iterator[dict[str, Any]]:
    """A line a question that has any: id, question, positives, negatives ({"text", "document", "rank", "score"}).

    A negative is of a document that does not answer and holds none of the gold strings: a paragraph that happens to
    hold one may answer as well.
    names: document id -> name in the data set.
    """
    for one in asked:
        ranked = list(enumerate(one.results, start=1))
        negatives = [
            {
                "text": result.matched_content,
                "document": names.get(result.document_id, result.document_id),
                "rank": rank,
                "score": round(result.score, 6),
            }
            for rank, result in ranked
            if not _may_answer(one.question, names.get(result.document_id, result.document_id), result)
        ]
        positives = [
            result.matched_content
            for _, result in ranked
            if names.get(result.document_id, result.document_id) in one.question.documents
            and (not one.question.answers or holds(one.question.answers, [result.matched_content]))
        ]
        if negatives:
            yield {
                "id": one.question.id,
                "question": one.question.text,
                "positives": positives[:most],
                "negatives": negatives[:most],
            }


def _may_answer(question: Question, document: str, result: RetrievalResult) -> bool:
    return document in question.documents or holds(question.answers, [result.content, result.matched_content])


def write(lines: Iterator[dict[str, Any]], path: Path) -> int:
    """JSON lines; how many."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
    return count
