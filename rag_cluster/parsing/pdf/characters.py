"""A page's characters: its text with one character per pdfium index, and where words begin and end in it."""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt

from rag_cluster.parsing.pdf import native

Codes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
"""Code points; 16 bits wide where all fit."""
Indices = npt.NDArray[np.int64]

_BULLET = re.compile("(?:(?<=\\n)|^)[\x01-\x08\x0e-\x1f](?=\\s)")
"""A glyph without Unicode at the start of a line: a bullet, by its place."""

_BLANK, _NOTHING, _SOFT, _INK = range(4)
"""Kinds of characters: white space, invisible, a hyphen that pdfium took for a line-end hyphenation, visible."""
_KINDS = np.full(0x10000, _INK, np.uint8)
_KINDS[:0x20] = _KINDS[[0x7F, 0x200B, 0xFEFF, 0xFFFF]] = _NOTHING
_KINDS[[0x02, 0xAD, 0xFFFE]] = _SOFT
_KINDS[[code for code in range(0x3001) if chr(code).isspace()]] = _BLANK
_LEFTWARD = np.zeros(0x10000, np.bool_)
_LEFTWARD[0x590:0x900] = _LEFTWARD[0xFB1D:0xFE00] = _LEFTWARD[0xFE70:0xFEFF] = True
_LEFTWARD[[0x200F, 0x202B, 0x202E, 0x2067, 0xFFFF]] = True  # 0xFFFF stands for all beyond the first plane


def page_text(textpage: int) -> tuple[str, Codes]:
    """The text at the address of an open text page with one character per pdfium character index, and code points."""
    count = max(native.char_count(textpage), 0)
    units = np.zeros(count + 1, np.uint16)
    got = native.char_text(textpage, 0, count, units.ctypes.data) if count else 0
    if got == count + 1:
        units = units[:count]
        text = units.tobytes().decode("utf-16-le", "replace")
        if len(text) == count:
            return _with_bullets(text, units)
    # Characters without Unicode or beyond the first plane: positions differ, so ask for each.
    codes = np.array(list(map(native.char_unicode, itertools.repeat(textpage, count), range(count))), np.uint32)
    codes[(codes >= 0x110000) | ((codes >= 0xD800) & (codes < 0xE000))] = 0
    return _with_bullets(codes.tobytes().decode("utf-32-le"), codes)


def _with_bullets(text: str, codes: Codes) -> tuple[str, Codes]:
    low = codes[codes < 0x20]
    if _KINDS[low].max(initial=_BLANK) == _BLANK:
        return text, codes
    text = _BULLET.sub("•", text)
    return text, np.frombuffer(text.encode("utf-32-le"), np.uint32)


def word_spans(codes: Codes) -> tuple[Indices, Indices, Indices]:
    """(starts, ends, 1 where the last character is a hyphenation mark) of the words of a text.

    A mark ends a word that goes on; what follows it is a word of its own.
    """
    kinds = np.zeros(len(codes) + 2, np.uint8)  # blank at both ends
    known = codes if codes.dtype == np.uint16 else np.where(codes > 0xFFFF, 0xE000, codes)
    _KINDS.take(known, out=kinds[1:-1], mode="clip")
    ink = kinds == _INK
    edges = np.flatnonzero(ink[1:] != ink[:-1])
    starts, ends = edges[::2], edges[1::2]
    soft = kinds == _SOFT
    if not soft.any():
        return starts, ends, np.zeros(len(starts), np.int64)
    marks = (soft[ends + 1] & (kinds[np.minimum(ends + 2, len(codes) + 1)] != _BLANK)).astype(np.int64)
    return starts, ends + marks, marks


def reads_leftward(codes: Codes) -> bool:
    """Whether any letter is Hebrew, Arabic or of another script that runs from right to left."""
    return codes.max(initial=0) >= 0x590 and bool(_LEFTWARD[np.minimum(codes, 0xFFFF)].any())
