"""The local answerer: quotes the one to three sentences that answer best, each with its mark. No language model.

A unit's score is a logistic model of four features: cosine to the question, share of the question's terms that the
unit holds (weighted by their rarity in the evidence), reciprocal rank of its source, and whether a number is asked for
but absent. Constants: fitted on one half of XQuAD's English and Chinese questions together. A caption that only
repeats the question's words comes last.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rag_cluster.domain.answers import GenerationRequest
from rag_cluster.domain.marks import mark
from rag_cluster.domain.ports import AsyncEmbedder
from rag_cluster.domain.terms import is_cjk, is_number, question_terms, terms
from rag_cluster.engines.extractive_units import Sentences, Unit, units_of
from rag_cluster.errors import ModelUnavailableError, RagClusterError

Vector = npt.NDArray[np.float64]

log = logging.getLogger(__name__)

MAX_QUOTES = 3
MAX_LIST_ITEMS = 8
MAX_EMBEDDED = 12
MAX_EMBEDDED_TOKENS = 400
"""A CPU embeds about 1,200 tokens a second: this keeps an answer well under a second. 600 answered XQuAD no better."""
MAX_EMBEDDED_CHARS = 400
"""Of one unit; the rest of a very long one hardly changes its vector."""
SHORT_CHARS = 100

_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|far|tall|large|big|high|often)\b|\bwhen\b|\bpercent|"
    r"\bwhat (?:percent\w*|number|amount|share|proportion|year|age|date|day|century|decade|time|price)\b|"
    r"多少|几|何时|什么时候|哪一?[年天日]|多[大长高久远]|年份|日期|百分"
)
_HOLDS_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million|billion|half|third|"
    r"quarter|once|twice)\b|[一二三四五六七八九十百千万亿两]",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?。！？…|][\"'”’」』)）\]]*$")
_POINTS_BACK = re.compile(
    r"(?:it|its|he|his|she|her|they|their|this|these|those|that|such|the cause|the reason)\b|"
    r"(?:[他她它]们?|这|那|该|其|此|原因)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Weights:
    """Logits per feature; `spread` is how much probability the quotes must gather before no further one is added."""

    cosine: float = 25.0
    lexical: float = 4.2
    rank: float = 2.3
    number_missing: float = -1.9
    caption: float = -100.0
    successor: float = 1.5
    spread: float = 0.8


class ExtractiveGenerator:
    """A Generator that copies. sentences: spans of a text's sentences, Chinese and English."""

    name = "extractive"

    def __init__(self, embedder: AsyncEmbedder, sentences: Sentences, weights: Weights | None = None) -> None:
        self._embedder = embedder
        self._sentences = sentences
        self._weights = weights or Weights()

    async def stream(self, request: GenerationRequest) -> AsyncIterator[str]:
        """One delta per quote, best first; nothing when the sources hold no text."""
        chosen = await self.choose(request)
        for at, quote in enumerate(chosen):
            yield ("\n\n" if at else "") + _rendered(quote) + mark(quote[0].source, request.language)

    async def choose(self, request: GenerationRequest) -> list[list[Unit]]:
        """The quotes, best first: each is one unit, or neighbours of one chunk in their order."""
        units = units_of(request.sources, self._sentences)
        if not units:
            return []
        features = LexicalFeatures(request.question, units)
        fixed = np.array([features.logit(unit, at, self._weights) for at, unit in enumerate(units)])
        kept = _preselect(units, fixed)
        cosines = await self._cosines(request, [units[i] for i in kept])
        scores = fixed[kept] + (self._weights.cosine * cosines if cosines is not None else 0.0)
        _favour_successor(units, kept, scores, self._weights.successor)
        ranked = [kept[i] for i in np.argsort(-scores, kind="stable")]
        probabilities = np.exp(np.sort(scores)[::-1] - scores.max())
        count = _how_many(probabilities / probabilities.sum(), self._weights.spread)
        chosen = _with_list(units, _with_antecedent(units, ranked[:count]))
        return _joined(units, chosen)

    async def _cosines(self, request: GenerationRequest, units: Sequence[Unit]) -> Vector | None:
        """Cosine of each unit to the question; None without an embedder that works: then words alone decide."""
        if len(units) == 1:
            return None
        try:
            if request.query_vector is not None:
                query = np.asarray(request.query_vector, dtype=np.float32)
            else:
                query = (await self._embedder.embed_queries([request.question]))[0]
            matrix = await self._embedder.embed_documents([_embedded(unit) for unit in units])
            if matrix.shape != (len(units), len(query)):
                raise ModelUnavailableError(f"vectors of shape {matrix.shape} for {len(units)} sentences")
        except RagClusterError as error:
            log.warning("sentences are ranked without vectors", extra={"reason": error.message})
            return None
        return np.asarray(matrix @ query)


class LexicalFeatures:
    """What words say about each unit."""

    def __init__(self, question: str, units: Sequence[Unit]) -> None:
        self._wanted = question_terms(question)
        self._held = [set(terms(unit.meaning)) for unit in units]
        frequency = Counter(term for held in self._held for term in held)
        self._weight = {
            term: _rarity(frequency[term], len(units)) * (1.5 if is_number(term) else 1.0) for term in self._wanted
        }
        self._total = sum(self._weight.values())
        self._number_asked = _ASKS_NUMBER.search(question.lower()) is not None
        self._question_numbers = {term for term in self._wanted if is_number(term)}

    def coverage(self, unit: Unit, at: int) -> float:
        """Share (0-1) of the question's weight that the unit holds; a term of its headings counts half."""
        if not self._total:
            return 0.0
        headings = set(terms(unit.heading)) if unit.heading else set()
        held = self._held[at]
        return (
            sum(
                weight * (1.0 if term in held else 0.5 if term in headings else 0.0)
                for term, weight in self._weight.items()
            )
            / self._total
        )

    def number_missing(self, unit: Unit, at: int) -> bool:
        """A number is asked for, and the unit has none but the question's own."""
        if not self._number_asked:
            return False
        if any(is_number(term) and term not in self._question_numbers for term in self._held[at]):
            return False
        return not _HOLDS_NUMBER.search(re.sub(r"\d+", "", unit.meaning))

    def repeats_question(self, unit: Unit, at: int) -> bool:
        """A title or caption all of whose words are the question's: it tells nothing."""
        return self._held[at].issubset(self._weight) and _SENTENCE_END.search(unit.quote) is None

    def logit(self, unit: Unit, at: int, weights: Weights) -> float:
        """The score without the cosine."""
        return (
            weights.lexical * self.coverage(unit, at)
            + weights.rank / unit.source
            + weights.number_missing * self.number_missing(unit, at)
            + weights.caption * self.repeats_question(unit, at)
        )


def _rarity(frequency: int, total: int) -> float:
    return math.log(1.0 + (total - frequency + 0.5) / (frequency + 0.5))


def _tokens(text: str) -> float:
    chinese = sum(map(is_cjk, text))
    return 0.75 * chinese + 0.27 * (len(text) - chinese)


def _embedded(unit: Unit) -> str:
    """What stands for a unit in the embedder: a short one (a list item, a row) means little without its heading."""
    meaning = unit.meaning[:MAX_EMBEDDED_CHARS]
    short = len(meaning) <= SHORT_CHARS // (2 if is_cjk(meaning) else 1)
    return f"{unit.heading.strip()[-SHORT_CHARS:]}: {meaning}" if unit.heading and short else meaning


def _preselect(units: Sequence[Unit], scores: Vector) -> list[int]:
    """Units that are worth embedding, within the budget of tokens."""
    kept: list[int] = []
    budget = float(MAX_EMBEDDED_TOKENS)
    for at in np.argsort(-scores, kind="stable"):
        cost = _tokens(_embedded(units[at])) + 4
        if kept and (len(kept) == MAX_EMBEDDED or cost > budget):
            break
        kept.append(int(at))
        budget -= cost
    return kept


def _favour_successor(units: Sequence[Unit], kept: Sequence[int], scores: Vector, bonus: float) -> None:
    """What follows the best unit and points back to it ("The cause was ...") says more about the same thing."""
    best = kept[int(np.argmax(scores))]
    if best + 1 in kept and _neighbours(units[best], units[best + 1]) and _POINTS_BACK.match(units[best + 1].quote):
        scores[kept.index(best + 1)] += bonus


def _how_many(probabilities: Vector, spread: float) -> int:
    """Fewest quotes that gather `spread` of the probability, at most MAX_QUOTES."""
    gathered = np.cumsum(probabilities)
    return min(MAX_QUOTES, int(np.searchsorted(gathered, spread)) + 1, len(probabilities))


def _with_antecedent(units: Sequence[Unit], chosen: list[int]) -> list[int]:
    """The best sentence's predecessor joins when that sentence starts with a word that points back."""
    best = chosen[0]
    previous = best - 1
    if (
        len(chosen) < MAX_QUOTES
        and previous >= 0
        and previous not in chosen
        and _POINTS_BACK.match(units[best].quote)
        and _neighbours(units[previous], units[best])
        and not units[previous].is_row
    ):
        return [*chosen, previous]
    return chosen


def _with_list(units: Sequence[Unit], chosen: list[int]) -> list[int]:
    """A sentence that announces a list ("the following:") brings the items below it."""
    for at in list(chosen):
        if not units[at].quote.endswith((":", "：")):
            continue
        for following in range(at + 1, min(at + 1 + MAX_LIST_ITEMS, len(units))):
            if not units[following].is_item or not _neighbours(units[following - 1], units[following]):
                break
            if following not in chosen:
                chosen = [*chosen, following]
    return chosen


def _neighbours(first: Unit, second: Unit) -> bool:
    same = (first.source, first.chunk, first.header) == (second.source, second.chunk, second.header)
    return same and second.position == first.position + 1


def _joined(units: Sequence[Unit], chosen: list[int]) -> list[list[Unit]]:
    """Chosen units best first, those that stand next to each other (or are rows of one table) as one quote."""
    quotes: list[list[int]] = []
    for at in chosen:
        home = next((quote for quote in quotes if any(_belong(units[at], units[other]) for other in quote)), None)
        if home is None:
            quotes.append([at])
        else:
            home.append(at)
    return [[units[at] for at in sorted(quote)] for quote in quotes]


def _belong(one: Unit, other: Unit) -> bool:
    if one.is_row and other.is_row:
        return (one.source, one.chunk, one.header) == (other.source, other.chunk, other.header)
    return _neighbours(one, other) or _neighbours(other, one)


def _rendered(quote: Sequence[Unit]) -> str:
    """The quote's text up to its mark: rows stand below their header, the mark of a table on its own line."""
    if quote[0].is_row:
        return "\n".join([quote[0].header, *(unit.quote for unit in quote)]) + "\n\n"
    text = quote[0].quote
    for before, unit in itertools.pairwise(quote):
        text += ("\n" if unit.block != before.block else _space_after(before)) + unit.quote
    return text + _space_after(quote[-1])


def _space_after(unit: Unit) -> str:
    return "" if is_cjk(unit.quote[-2:]) else " "
