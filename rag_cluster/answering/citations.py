"""Citations are built from results, never from the generator's text; every claim is compared with what it cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rag_cluster.answering.cells import TABLE_RULE, rows_locator
from rag_cluster.answering.marks import Cited, stretches
from rag_cluster.chunking.boundaries import sentences
from rag_cluster.domain.answers import Citation, ContextSource
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.terms import normalize, numbers, terms

_NAME = re.compile(r"(?<![\w'’])[A-Z][\w'’-]*[A-Za-z0-9](?:\s+[A-Z][\w'’-]*[A-Za-z0-9])*|《[^》]{1,60}》")
_IMAGE = re.compile(r"!?\[[^\[\]\n]*\]\(asset://[^()\s]*\)")
_LIST_MARK = re.compile(r"^\s*(?:(?:#{1,6}|[-*+•]|\d{1,3}[.)])\s+|\d{1,3}、)", re.MULTILINE)
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


def check_claims(answer: str, sources: Sequence[ContextSource]) -> list[str]:
    """Numbers and names of each sentence that the sources it cites do not hold, as warnings for a person."""
    texts = {source.number: _searchable(source) for source in sources}
    warnings: list[str] = []
    marked = False
    for stretch in stretches(answer):
        marked = marked or bool(stretch.numbers)
        text = "\n".join(texts[number] for number in stretch.numbers or texts if number in texts)
        held_numbers, held = set(numbers(text)), normalize(text)
        for sentence in _sentences(_LIST_MARK.sub("", _IMAGE.sub("", stretch.text))):
            missing = [number for number in numbers(sentence) if number not in held_numbers]
            missing += [name for name in _names(sentence) if normalize(name) not in held]
            if missing:
                where = _where(stretch)
                warnings.append(f'not in {where}: {", ".join(dict.fromkeys(missing))} ("{sentence[:120]}")')
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
        opens = not sentence[: match.start()].strip(" \t\"'“”‘’([-*#>|0123456789.)")
        if opens and not match[0].startswith("《"):
            name = " ".join(name.split()[1:])
        if name:
            found.append(name)
    return found


def _sentences(text: str) -> list[str]:
    pieces = [text[start:end].strip() for start, end in sentences(text)]
    return [piece for piece in pieces if piece]


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
    """What of the source a claim repeats word for word, else the source sentence that it rests on."""
    lines = [line.strip() for line in claim.strip().split("\n") if line.strip()]
    found: list[_Quote] = []
    rule = next((at for at, line in enumerate(lines) if TABLE_RULE.fullmatch(line)), None)
    if rule and (table := _table(lines, rule, source)) is not None:
        before = lines[: rule - 1]
        found, lines = [table], before + [line for line in lines[rule + 1 :] if not line.startswith("|")]
    for line in lines:
        whole = _place(line, source)
        pieces = [whole] if whole is not None else [_place(piece, source) for piece in _sentences(line)]
        found.extend(piece for piece in pieces if piece is not None)
    return found or [quote for line in lines for quote in _nearest(line, source)][:1]


def _table(lines: Sequence[str], rule: int, source: ContextSource) -> _Quote | None:
    """Quoted rows with the header line above the rule, placed at the cells of the rows."""
    rows = [line for line in lines[rule + 1 :] if line.startswith("|")]
    chunks = source.result.matches
    chunk = next((one for one in chunks if rows and all(_squeezed(row) in _squeezed(one.text) for row in rows)), None)
    if chunk is None:
        return None
    return _Quote("\n".join([lines[rule - 1], *rows]), chunk.id, rows_locator(chunk.locator, chunk.text, rows))


def _place(text: str, source: ContextSource) -> _Quote | None:
    """Where a literal text stands: in a matched chunk, else in the wider context; None when nowhere."""
    wanted = _squeezed(text)
    if not wanted:
        return None
    literal = re.compile(r"\s+".join(map(re.escape, wanted.split(" "))))
    for chunk in source.result.matches:
        if found := literal.search(chunk.text):
            return _Quote(text, chunk.id, chunk.locator_of(*found.span()))
    if wanted in _squeezed(source.text) or wanted in _squeezed(source.result.content):
        return _Quote(text, source.result.chunk_id, source.result.context_locator)
    return None


def _nearest(claim: str, source: ContextSource) -> list[_Quote]:
    wanted = set(terms(claim))
    if not wanted:
        return []
    best, best_share = "", 0.0
    for sentence in _sentences(source.text):
        share = len(wanted & set(terms(sentence))) / len(wanted)
        if share > best_share:
            best, best_share = sentence, share
    place = _place(best, source) if best_share >= _RESTS_ON else None
    return [place] if place is not None else []


def _squeezed(text: str) -> str:
    return " ".join(text.split())
