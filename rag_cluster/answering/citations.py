"""Citations are built from results, never from the generator's text: a quote is whole sentences of its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_cluster.answering.cells import TABLE_RULE, rows_locator
from rag_cluster.answering.marks import stretches
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import Citation, ContextSource
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.terms import terms

_RESTS_ON = 0.5
"""Share of a sentence's terms that a source sentence must hold to count as what it rests on."""


def build_citations(answer: str, sources: Sequence[ContextSource]) -> tuple[Citation, ...]:
    """One citation per source that the cleaned answer marks, in order of number.

    An answer without any mark rests on everything it was given: then every source is cited, without a quote.
    """
    cited: dict[int, list[str]] = {}
    for stretch in stretches(answer):
        for number in stretch.numbers:
            cited.setdefault(number, []).append(stretch.text)
    if not cited:
        return tuple(_citation(source, []) for source in sources)
    return tuple(_citation(source, cited[source.number]) for source in sources if source.number in cited)


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@dataclass(frozen=True, slots=True)
class _Quote:
    text: str
    chunk_id: str
    locator: SourceLocator


def _citation(source: ContextSource, claims: Sequence[str]) -> Citation:
    result = source.result
    quotes = [quote for claim in claims for quote in _quotes(claim, source)]
    place = quotes[0] if quotes else _Quote("", result.chunk_id, result.locator)
    return Citation(
        number=source.number,
        document_id=result.document_id,
        version=result.version,
        filename=result.filename,
        chunk_id=place.chunk_id,
        heading_path=place.locator.heading_path or result.heading_path,
        locator=place.locator,
        context_chunk_ids=result.context_chunk_ids,
        quote="\n".join(dict.fromkeys(quote.text for quote in quotes)),
        uri=result.document_origin,
    )


def _quotes(claim: str, source: ContextSource) -> list[_Quote]:
    """What of the source each sentence of a claim repeats word for word, else the source sentence that it rests on."""
    lines = [line.strip() for line in claim.strip().split("\n") if line.strip()]
    found: list[_Quote] = []
    rule = next((at for at, line in enumerate(lines) if TABLE_RULE.fullmatch(line)), None)
    if rule and (table := _table(lines, rule, source)) is not None:
        before = lines[: rule - 1]
        found, lines = [table], before + [line for line in lines[rule + 1 :] if not line.startswith("|")]
    for line in (line for line in lines if not TABLE_RULE.fullmatch(line)):
        whole = _place(line, source)
        pieces = _sentences(line) if whole is None else ()
        quotes = [whole, *(_place(piece, source) or _nearest(piece, source) for piece in pieces)]
        found.extend(quote for quote in quotes if quote is not None)
    return found


def _table(lines: Sequence[str], rule: int, source: ContextSource) -> _Quote | None:
    """Quoted rows, whole ones, with the header line above the rule, placed at the cells of the rows."""
    rows = [line for line in lines[rule + 1 :] if line.startswith("|")]
    for chunk in source.result.matches if rows else ():
        held = {_squeezed(line) for line in chunk.text.split("\n")}
        if all(_squeezed(row) in held for row in rows):
            quoted = [line for line in (lines[rule - 1], *rows) if _squeezed(line) in held]
            return _Quote("\n".join(quoted), chunk.id, rows_locator(chunk.locator, chunk.text, rows))
    return None


def _place(text: str, source: ContextSource) -> _Quote | None:
    """The sentences that hold a literal text: of a matched chunk, else of the wider context; None when nowhere.

    Of several places the one that says the least beside it: "refunds are possible" before "in no case ...".
    """
    if not text.split():
        return None
    literal = _literal(text)
    result = source.result
    found = [
        _Quote(chunk.text[start:end], chunk.id, chunk.locator_of(start, end))
        for chunk in result.matches
        for start, end in _whole_sentences(literal, chunk.text)
    ]
    if not found:
        found = [
            _Quote(wide[start:end], result.chunk_id, result.context_locator)
            for wide in (source.text, result.content)
            for start, end in _whole_sentences(literal, wide)
        ]
    return min(found, key=lambda quote: len(quote.text), default=None)


def _literal(text: str) -> re.Pattern[str]:
    """A text in any spacing, but not as a part of a longer word or number."""
    words = text.split()
    before = r"(?<![A-Za-z0-9])(?<!\d[.,])" if words[0][0].isascii() and words[0][0].isalnum() else ""
    after = r"(?![A-Za-z0-9])(?![.,]\d)" if words[-1][-1].isascii() and words[-1][-1].isalnum() else ""
    return re.compile(before + r"\s+".join(map(re.escape, words)) + after)


def _whole_sentences(literal: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where a text is found, widened to the sentences that it touches."""
    places = [found.span() for found in literal.finditer(text)]
    spans = sentences(text) if places else []
    for first, last in places:
        touched = [(start, end) for start, end in spans if start < last and first < end]
        yield touched[0][0], touched[-1][1]


def _nearest(claim: str, source: ContextSource) -> _Quote | None:
    wanted = set(terms(claim))
    if not wanted:
        return None
    best, best_share = "", 0.0
    for sentence in _sentences(source.text):
        share = len(wanted & set(terms(sentence))) / len(wanted)
        if share > best_share:
            best, best_share = sentence, share
    return _place(best, source) if best_share >= _RESTS_ON else None


def _squeezed(text: str) -> str:
    return " ".join(text.split())
