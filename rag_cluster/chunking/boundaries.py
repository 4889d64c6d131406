"""Sentence boundaries of Chinese and English text, by rules, in one pass of a compiled expression.

Where the rules must guess they keep text together: a quote of two sentences is still right, half a sentence is not.
"""

from __future__ import annotations

import re

_CLOSERS = "\"'”’」』）)】》〉〗］\\]｣"
_HAN = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"

# A candidate is a run of terminators with its closing quotes and note marks ("[12]"), or a run of line breaks.
_CANDIDATE = re.compile(
    # " . " is the period of a text in which a blank stands between all tokens.
    rf"(?P<stop>[。！？；｡．।؟۔!?…⋯]+|(?<=[^\s.])\.(?![^\W{_HAN}]|\.)|(?<=[^\s.] )\.(?= )|\.{{2,}}(?![^\W{_HAN}]))"
    rf"(?P<more>[。！？!?….]*[{_CLOSERS}]*(?:\[\d{{1,3}}\])*)"
    r"|(?P<line>\n\s*)"
)
_HAN_CHARACTER = re.compile(rf"[{_HAN}“「『《（【]")
_NEXT = re.compile(r"\s*(\S)")
_WORD_BEFORE = re.compile(r"(?:^|(?<=[\s(\[\"'“‘,;:/–—-]))[^\s(\[\"'“‘,;:/–—-]+$")
_NEXT_WORD = re.compile(r"\s*[\"'“‘(\[]*([A-Za-z']+)")
_LIST_NUMBER = re.compile(r"(?:^|\n)[^\S\n]*[(\[]?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[ivxIVX]{1,5})$")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]$")
_WRAPPED_FROM = re.compile(rf"[^\W_]|[,，、{_HAN}“\"'‘(（-]")
_STARTS_ITEM = re.compile(
    r"(?:[-*+•·▪◦‣–—|#>]|\(?\d{1,3}[.)、）]|[A-Za-z][.)]\s|[（(][一二三四五六七八九十\d]{1,3}[)）]|[一二三四五六七八九十]{1,3}、|第[一二三四五六七八九十百\d]+[章节条款])"
)

# Never the last word of a sentence, so far as a rule can know.
_NEVER_LAST = (
    "mr mrs ms dr prof st sr jr rev hon gen col lt sgt capt cmdr adm maj gov sen rep pres mt ft fig figs eq eqs sec "
    "secs ch chap art no nos vol vols pp pg par para ed eds approx ca cf vs viz al tab ref refs app dept univ jan feb "
    "mar apr jun jul aug sep sept oct nov dec e.g i.e eg ie a.k.a w.r.t ph.d m.sc b.sc op cit est"
)
_SOMETIMES_LAST = frozenset(("etc", "inc", "ltd", "co", "corp", "bros", "llc", "plc", "a.m", "p.m"))
# Words that, capitalised, begin a sentence far more often than they continue a name.
_BEGINNERS = (
    "The A An In On At By For From With As If When While After Before Since Because Although However But And Or So Yet "
    "It Its He She They We You I This That These Those There Here His Her Their Our My Your What Who Why How Where "
    "Not No Both Each Some Many Most All Other Such One Two According During Under Over Between Then Thus Moreover "
    "Furthermore Meanwhile Instead Also Today"
)
_ABBREVIATIONS = frozenset(_NEVER_LAST.split())
_STARTERS = frozenset(_BEGINNERS.split())


def sentences(text: str) -> list[tuple[int, int]]:
    """Character spans (start, end) of the sentences, in order, without the blanks around them.

    Every non-blank character is in exactly one span. Line breaks end a sentence unless the line looks wrapped; blank
    lines always do.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _CANDIDATE.finditer(text):
        if match["line"] is not None:
            if not _line_ends(text, start, match):
                continue
        elif not _stop_ends(text, start, match):
            continue
        _append(spans, text, start, match.end())
        start = match.end()
    _append(spans, text, start, len(text))
    return spans


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        start += len(piece) - len(piece.lstrip())
        spans.append((start, start + len(stripped)))


def _stop_ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the terminators found end a sentence that began at or after `start`."""
    end = match.end()
    following = _NEXT.match(text, end)
    if following is None:
        return True
    after = following[1]
    if after in ",，、:：;；":
        return False
    spaced = following.start(1) > end
    stop = match["stop"]
    if stop[0] in "。！？；｡।؟۔":
        return True
    if stop[0] in "…⋯":
        return _is_han(after) or (spaced and not after.islower())
    if not spaced:
        # "a?b=c", "Yahoo!7"; but 你好!再见, and 完成.下一步 where a Chinese text uses the Western stop.
        return _is_han(after) and (stop[0] != "." or _is_han(text[match.start() - 1 : match.start()]))
    if after.islower():
        return False
    if stop[0] == "." and len(stop) == 1 and not match["more"]:
        return _period_ends(text, max(start, match.start() - 40), match.start(), end)
    return True


def _period_ends(text: str, start: int, stop: int, end: int) -> bool:
    """Whether the single period at `stop`, followed by a blank and no lower-case letter, ends a sentence."""
    before = text[start:stop].rstrip()
    if _LIST_NUMBER.search(before):
        return False
    found = _WORD_BEFORE.search(before)
    word = found[0] if found else ""
    lowered = word.lower()
    if lowered in _ABBREVIATIONS:
        return False
    if lowered in _SOMETIMES_LAST or (_INITIALS.match(word) and (len(word) > 1 or word.isupper())):
        # "U.S. Army" goes on, "in the U.S. The" does not; "J. Smith" goes on, "plan B. The" does not.
        following = _NEXT_WORD.match(text, end)
        return following is not None and following[1] in _STARTERS
    return True


def _line_ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a line break ends a sentence: not where a long line runs on in the next."""
    if match["line"].count("\n") > 1 or match.end() >= len(text):
        return True
    line_start = max(start, text.rfind("\n", 0, match.start()) + 1)
    line = text[line_start : match.start()].rstrip()
    after = text[match.end()]
    if not line or _STARTS_ITEM.match(text, match.end()):
        return True
    if after.islower() or line[-1] in ",，、":
        return False
    # Full lines of hard-wrapped text: about 60 columns, of which a Chinese character takes two.
    columns = len(line) if line.isascii() else len(line) + sum("\u2e80" <= c <= "\uffef" for c in line)
    return not (columns >= 56 and _WRAPPED_FROM.match(line[-1]) and _WRAPPED_FROM.match(after))


def _is_han(character: str) -> bool:
    return bool(character) and _HAN_CHARACTER.match(character) is not None
