"""Every claim of an answer is compared with the sources that it cites; what they do not hold is told to a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rag_cluster.answering.marks import Cited, stretches
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import ContextSource
from rag_cluster.domain.numerals import cells, numbers, without_months
from rag_cluster.domain.terms import normalize

_NAME = re.compile(r"(?<![\w'’])[A-Z][\w'’-]*[A-Za-z0-9](?:\s+[A-Z][\w'’-]*[A-Za-z0-9])*|《[^》]{1,60}》")
_IMAGE = re.compile(r"!?\[[^\[\]\n]*\]\(asset://[^()\s]*\)")
_LIST_MARK = re.compile(
    r"^[\s#>]*(?:[-*+•]\s+)?[*_]{0,2}(?:\d{1,3}[.)．）、](?!\d)|[(（]\d{1,3}[)）]|[\u2460-\u249b])(?=[^\S\n]*\S)",
    re.MULTILINE,
)
"""Of a line that goes on: "1. ", "**2.**", "（3）", "④"."""
_CLAUSE_END = re.compile(r"[,，;；:：。！？!?\n|]|\.(?!\w)")
_NEGATION = re.compile(
    r"不(?!仅|但|只|锈|同|断|少|管|论|过|久)|没|未(?!来)|[無无](?!线|论|锡)|非(?!洲|常)|勿|"
    r"\bin no (?:case|way|event)\b|\b(?:not|no|never|neither|nor|without)\b|(?<=\bcan)not\b|n['’]t\b",
    re.IGNORECASE,
)
_SHORTEST_CLAUSE = 4


def check_claims(answer: str, sources: Sequence[ContextSource]) -> list[str]:
    """What the sources that a sentence cites do not hold of it, as warnings for a person.

    Its numbers and names, and whether it denies where they affirm in the same words, or affirms where they deny.
    """
    texts = {source.number: _searchable(source) for source in sources}
    warnings: list[str] = []
    marked = False
    for stretch in stretches(answer):
        marked = marked or bool(stretch.numbers)
        text = "\n".join(texts[number] for number in stretch.numbers or texts if number in texts)
        values, in_cells = {number.value for number in numbers(text)}, cells(text)
        words, clauses = _squeezed(text), list(_clauses(text))
        claimed = _LIST_MARK.sub("", _IMAGE.sub("", stretch.text))
        for sentence in (claimed[start:end] for start, end in sentences(claimed)):
            missing = [
                number.written
                for number in numbers(sentence)
                if number.certain and number.value not in values and number.bare not in in_cells
            ]
            missing += [name for name in _names(without_months(sentence)) if not _holds(words, name)]
            if missing:
                warnings.append(f'not in {_where(stretch)}: {", ".join(dict.fromkeys(missing))} ("{sentence[:120]}")')
            if any(_turned(clause, clauses) for clause in _clauses(sentence)):
                warnings.append(f'{_where(stretch)} says the contrary ("{sentence[:120]}")')
    if not marked and answer.strip():
        warnings.append("the answer carries no citation mark")
    return warnings


def _where(stretch: Cited) -> str:
    return f"source {', '.join(map(str, stretch.numbers))}" if stretch.numbers else "any source"


def _searchable(source: ContextSource) -> str:
    result = source.result
    matched = (chunk.content for chunk in result.matches)
    return "\n".join([result.filename, *result.heading_path, source.text, result.content, *matched])


def _names(sentence: str) -> list[str]:
    """Capitalised words that do not open the sentence, words of Latin letters inside Chinese, titles in 《》."""
    found = []
    for match in _NAME.finditer(sentence):
        name = match[0].strip("《》")
        opens = not sentence[: match.start()].strip(" \t\"'“‘’([-*#>|0123456789.)")
        if opens and not match[0].startswith("《"):
            name = " ".join(name.split()[1:])
        if name:
            found.append(name)
    return found


def _holds(words: str, name: str) -> bool:
    """Whether a name is among the words as a whole one, in any number and case."""
    whole = re.escape(re.sub("['’]s$", "", _squeezed(name)))
    return re.search(rf"(?<![a-z0-9]){whole}(?:['’]?s|es)?(?![a-z0-9])", words) is not None


def _squeezed(text: str) -> str:
    return " ".join(normalize(text).split())


def _clauses(text: str) -> Iterator[tuple[str, int]]:
    """(words without what negates, how often it negates) of each clause."""
    for clause in _CLAUSE_END.split(text):
        words, negations = _NEGATION.subn(" ", clause)
        yield "".join(words.split()).casefold(), negations


def _turned(claim: tuple[str, int], clauses: Sequence[tuple[str, int]]) -> bool:
    """Whether the sources say a clause's words, and nowhere negate them as often."""
    words, negations = claim
    held = [count for source_words, count in clauses if words in source_words]
    return len(words) >= _SHORTEST_CLAUSE and bool(held) and negations not in held
