"""Every claim of an answer is compared with the sources that it cites; what they do not hold is told to a person."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rag_cluster.answering.marks import stretches
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import ContextSource
from rag_cluster.domain.numerals import Number, bare_numbers, months, numbers, without_months
from rag_cluster.domain.terms import CJK, normalize

_CAPITALISED = rf"[A-Z](?:['’-]*[^\W{CJK}])+"
_NAME = re.compile(rf"(?<![^\W{CJK}])(?<!['’]){_CAPITALISED}(?:\s+{_CAPITALISED})*|《[^》]{{1,60}}》")
_IMAGE = re.compile(r"!?\[[^\[\]\n]*\]\(asset://[^()\s]*\)")
_LIST_MARK = re.compile(
    r"^(?:[^\S\n]|[#>])*(?:[-*+•]\s+)?[*_]{0,2}(?:\d{1,3}[.)．）、](?!\d)|[(（]\d{1,3}[)）]|[\u2460-\u249b])(?=[^\S\n]*\S)",
    re.MULTILINE,
)
"""Of a line that goes on: "1. ", "**2.**", "（3）", "④"."""
_CLAUSE_END = re.compile(r"[,，;；:：。！？!?\n|]|\.(?!\w)")
_NEGATION = re.compile(
    r"不(?!仅|但|只|锈|同|断|少|管|论|过|久)|没|未(?!来)|[無无](?!线|论|锡)|非(?!洲|常)|勿|"
    r"\bin no (?:case|way|event)\b|\b(?:not|no|never|neither|nor|without)\b|(?<=\bcan)not\b|n['’]t\b",
    re.IGNORECASE,
)
_NOT = "\0"
_BESIDE_CHINESE = re.compile(rf" (?=[{CJK}])|(?<=[{CJK}]) ")
_SHORTEST_CLAUSE = 4


def check_claims(answer: str, sources: Sequence[ContextSource]) -> list[str]:
    """What the sources that a sentence cites do not hold of it, as warnings for a person.

    Its numbers and names, and whether it denies where they affirm in the same words, or affirms where they deny.
    """
    parts = list(stretches(answer))
    marked = {number for part in parts for number in part.numbers}
    everything = any(not part.numbers for part in parts)
    held = {source.number: _Held(source) for source in sources if everything or source.number in marked}
    warnings: list[str] = []
    for part in parts:
        cited = [held[number] for number in part.numbers or held if number in held]
        where = f"source {', '.join(map(str, part.numbers))}" if part.numbers else "any source"
        claimed = _LIST_MARK.sub("", _IMAGE.sub("", part.text))
        for sentence in (claimed[start:end] for start, end in sentences(claimed)):
            if missing := [word for word in _stated(sentence) if not any(one.holds(word) for one in cited)]:
                named = dict.fromkeys(word if isinstance(word, str) else word.written for word in missing)
                warnings.append(f'not in {where}: {", ".join(named)} ("{sentence[:120]}")')
            if any(_turned(clause, cited) for clause in _clauses(sentence)):
                warnings.append(f'{where} says the contrary ("{sentence[:120]}")')
    if not marked and answer.strip():
        warnings.append("the answer carries no citation mark")
    return warnings


class _Held:
    """What a source holds, in the forms in which claims are compared with it."""

    def __init__(self, source: ContextSource) -> None:
        result = source.result
        texts = [source.text, result.content, *(chunk.content for chunk in result.matches)]
        text = "\n".join([result.filename, *result.heading_path, *dict.fromkeys(texts)])
        self._values = {value for number in numbers(text) for value in (number.value, *number.others)}
        self._values.update(months(text).values())
        self._bare = bare_numbers(text)
        self._words = _squeezed(text)
        self.clauses = {clause: _bare(clause) for clause in _clauses(text)}

    def holds(self, word: str | Number) -> bool:
        """A name as whole words, in any case, plural or genitive; a number by its value."""
        if isinstance(word, Number):
            return not self._values.isdisjoint((word.value, *word.others)) or word.bare in self._bare
        return months(word).get(word) in self._values or _among(
            re.sub("['’]?s$", "", _squeezed(word)), self._words, ending="(?:['’]?s|es)?"
        )


def _stated(sentence: str) -> list[str | Number]:
    """The numbers and names of a sentence.

    Names: capitalised words that do not open it, words of Latin letters inside Chinese, titles in 《》.
    """
    found: list[str | Number] = [number for number in numbers(sentence) if number.certain]
    sentence = without_months(sentence)
    for match in _NAME.finditer(sentence):
        name = match[0].strip("《》")
        opens = not sentence[: match.start()].strip(" \t\"'“‘’([-*#>|0123456789.)")
        if opens and not match[0].startswith("《"):
            name = " ".join(name.split()[1:])
        if name:
            found.append(name)
    return found


def _squeezed(text: str) -> str:
    """Without what may be written otherwise: blanks beside Chinese, accents, curled apostrophes, capitals."""
    return _BESIDE_CHINESE.sub("", " ".join(normalize(text).replace("’", "'").split()))


def _among(words: str, text: str, ending: str = "") -> bool:
    """Whether words are in a text, both normalised, and not as a part of longer Latin ones."""
    return words in text and bool(re.search(rf"(?<![a-z0-9]){re.escape(words)}{ending}(?![a-z0-9])", text))


def _clauses(text: str) -> Iterator[str]:
    """The words of each clause, with _NOT where they are negated."""
    for clause in _CLAUSE_END.split(text):
        yield re.sub(f" ?{_NOT} ?", _NOT, _squeezed(_NEGATION.sub(f" {_NOT} ", clause)))


def _turned(claim: str, cited: Sequence[_Held]) -> bool:
    """Whether the sources say a clause's words, and everywhere negate what it affirms, or affirm what it negates.

    A negation counts for the words that it stands directly before or among; two affirm.
    """
    words = _bare(claim)
    if len(words) < _SHORTEST_CLAUSE:
        return False
    held = [clause for one in cited for clause, bare in one.clauses.items() if words in bare]
    if not held:  # the most often, and an expression takes long to make
        return False
    between = f"[{_NOT} ]*"
    literal = re.compile(rf"(?:{_NOT}+|(?<![a-z0-9{_NOT}])){between.join(map(re.escape, words))}(?![a-z0-9])")
    said, claimed = (
        {found[0].count(_NOT) % 2 for clause in clauses for found in literal.finditer(clause)}
        for clauses in (held, [claim])
    )
    return bool(said) and said.isdisjoint(claimed)


def _bare(clause: str) -> str:
    return clause.replace(_NOT, "").replace(" ", "")
