"""Raised digits as Unicode has them, so that 10⁶ does not read as 106."""

from __future__ import annotations

import re

_SIGNS = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")
_EXPONENT = re.compile(r"[-+−]?[\dn]+", re.ASCII)


def superscript(text: str) -> str:
    """An exponent or a mark in raised digits; other text as it is."""
    return text.translate(_SIGNS) if _EXPONENT.fullmatch(text) else text
