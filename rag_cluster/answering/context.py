"""Results -> numbered sources within a token budget, in result order, so that numbers mean the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rag_cluster.domain.answers import ContextSource
from rag_cluster.domain.marks import without_marks
from rag_cluster.domain.retrieval import RetrievalResult
from rag_cluster.domain.terms import is_cjk

SEPARATOR = "\n\n---\n\n"
UNKNOWN_PLACE = "未提供原文定位"
HIDDEN_NAME = "（已隐藏）"
_TAG = re.compile(r"<(?=\s*(?:/\s*)?knowledge_context\b)", re.IGNORECASE)

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Context:
    """The sources that fit, and the text that a language model reads."""

    sources: tuple[ContextSource, ...]
    text: str


def estimate_tokens(text: str) -> int:
    """An upper estimate without a tokenizer: one per Chinese character, one per three others."""
    chinese = sum(map(is_cjk, text))
    return chinese + (len(text) - chinese + 2) // 3


def build_context(
    results: Sequence[RetrievalResult],
    max_tokens: int,
    *,
    count_tokens: CountTokens = estimate_tokens,
    hide_source_filename: bool = False,
    include_metadata: bool = True,
) -> Context:
    """Number the results that fit, 1, 2, 3 ... in their order.

    A result whose parent is too long for what is left falls back to what was matched; the first result is cut rather
    than lost; the first one that fits in no form ends the context. include_metadata: number, document and place above
    each text.
    """
    sources: list[ContextSource] = []
    sections: list[str] = []
    left = max_tokens
    for number, result in enumerate(results, start=1):
        head = _head(number, result, hide_source_filename) if include_metadata else ""
        texts = [
            as_read(text, result.filename, hide_source_filename) or HIDDEN_NAME
            for text in dict.fromkeys((result.content, result.matched_content))
        ]
        text = _fitting(texts, left - count_tokens(head + SEPARATOR), count_tokens, may_cut=number == 1)
        if text is None:
            break
        section = head + text
        sources.append(ContextSource(number, result, text))
        sections.append(section)
        left -= count_tokens(section + SEPARATOR)
    return Context(tuple(sources), SEPARATOR.join(sections))


def escape(text: str) -> str:
    """Make a document's text harmless: it neither opens nor closes our tags, cites nobody and begins no source."""
    return without_marks(_TAG.sub("&lt;", text))


def as_read(text: str, filename: str, hide_source_filename: bool) -> str:
    """A document's text as a language model reads it; "" where it says its hidden name alone."""
    return _without_name(escape(text), filename) if hide_source_filename else escape(text)


def _head(number: int, result: RetrievalResult, hide_filename: bool) -> str:
    name = HIDDEN_NAME if hide_filename else result.filename
    place = result.locator.display() or result.context_locator.display() or UNKNOWN_PLACE
    return f"[来源 {number}]\n文档：{escape(name)}\n位置：{escape(place)}\n内容：\n"


def _without_name(text: str, filename: str) -> str:
    """Without the caption that a picture's file gets of its name: in the reference, and on a line of its own."""
    caption = " ".join(PurePath(filename).stem.split())
    alt = caption.replace("[", "(").replace("]", ")")
    named = rf"(?<=!\[){re.escape(alt)}(?:, \d+)?(?=\]\()|^{re.escape(caption)}(?:, \d+)?$"
    return re.sub(named, "", text, flags=re.MULTILINE)


def _fitting(texts: Sequence[str], budget: int, count_tokens: CountTokens, *, may_cut: bool) -> str | None:
    for text in texts:
        if text and count_tokens(text) <= budget:
            return text
    return _cut(texts[-1], budget, count_tokens) if may_cut else None


def _cut(text: str, budget: int, count_tokens: CountTokens) -> str | None:
    """The longest beginning within the budget."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) <= budget:
            low = middle
        else:
            high = middle - 1
    return text[:low] or None
