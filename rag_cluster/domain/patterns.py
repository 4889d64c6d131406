"""Texts as regular expressions that PostgreSQL (in the collation "C", case-insensitively) and Python read alike."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict

from rag_cluster.domain.terms import is_cjk

_LETTERS = "a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f\uff21-\uff3a\uff41-\uff5a"
_DIGITS = "0-9\uff10-\uff19"
_HYPHENS = "-\u2010\u2011\u2012\u2013\u2212\uff0d"
# Between a run of letters (not a lone one, which may be a word: "a 4 hour shift") and a number.
_CODE_SEAM = re.compile(r"(?<=[^\W\d_]{2})-?(?=\d)|(?<=\d)-?(?=[^\W\d_]{2})")


def _compatible() -> dict[str, str]:
    """ASCII character -> its full-width, raised and lowered forms: Ｄ, ², ₂."""
    forms: defaultdict[str, str] = defaultdict(str)
    for code in (*range(0xFF01, 0xFF5F), 0xB2, 0xB3, 0xB9, *range(0x2070, 0x208F)):
        plain = unicodedata.normalize("NFKC", chr(code))
        if plain.isascii():
            forms[plain] += chr(code)
    return dict(forms)


_FORMS = _compatible()


def literal_pattern(text: str) -> str:
    """Matches the text as it is, whatever the case and the width of its characters."""
    return "".join(map(_character, text))


def keyword_pattern(keyword: str) -> str:
    """Matches a keyword of `terms.keywords` wherever it stands. Codes may be written apart: "ISO9001" is in "ISO 9001"
    and in "ISO-9001"."""
    return rf"[{_HYPHENS}\s]?".join(map(literal_pattern, _CODE_SEAM.split(keyword)))


def word_pattern(keyword: str) -> str:
    """Matches it as a word of its own: "ddp" is in "DDP条款", not in "addpoint". Letters end where no letter stands,
    numbers where no digit does: "iso" is in "ISO9001", "9001" not in "19001". Chinese is matched as it is."""
    pattern = keyword_pattern(keyword)
    return pattern if is_cjk(keyword) else f"(?<![{_alike(keyword[0])}]){pattern}(?![{_alike(keyword[-1])}])"


def _alike(one: str) -> str:
    """What continues a keyword that begins or ends with this character. A sign, as in "C++", ends anywhere."""
    return _DIGITS if one.isdigit() else _LETTERS if one.isalpha() else one


def _character(one: str) -> str:
    if one == "-":
        return f"[{_HYPHENS}]"
    # The collation knows the cases of ASCII letters only.
    cases = {form for form in (one, one.lower(), one.upper()) if len(form) == 1}
    forms = cases.union(*(_FORMS.get(form, "") for form in cases))
    if len(forms) > 1:
        return f"[{''.join(re.escape(form) for form in sorted(forms))}]"
    return one if one.isalnum() or one.isspace() or not one.isascii() else f"\\{one}"
