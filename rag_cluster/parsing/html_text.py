"""Pieces of HTML as text: laid out, preformatted, mathematical."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rag_cluster.parsing.boilerplate import DROPPED, is_hidden
from rag_cluster.parsing.reading_order import CJK

ICON = 32
"""Pixels: a linked picture that is not larger is decoration, whatever its alt text says."""
BREAK = "\ue000"
"""A forced line break inside collected text; white space around it is collapsed like any other."""

_SPACE = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_CJK_BREAK = re.compile(f"(?<=[{CJK}])[ \t]*[\r\n]+[ \t\r\n]*(?=[{CJK}])")


def is_icon(image: Any) -> bool:
    """Whether a picture states a size so small that it is decoration."""
    sizes = [image.get(name, "").removesuffix("px") for name in ("width", "height")]
    return all(size.isascii() and size.isdigit() and int(size[:6]) <= ICON for size in sizes)


def tidy(text: str) -> str:
    """Collected text as a browser would show it: white space collapsed, forced breaks as line breaks."""
    text = _CJK_BREAK.sub("", text.replace("\x00", ""))
    text = _SPACE.sub(" ", text)
    return "\n".join(line for part in text.split(BREAK) if (line := part.strip()))


def preformatted(element: Any) -> Iterator[str]:
    """The pieces of a preformatted element's text, white space as it stands."""
    if element.text:
        yield element.text
    for child in element:
        if isinstance(child.tag, str) and child.tag not in DROPPED and not is_hidden(child):
            yield "\n" if child.tag == "br" else ""
            yield from preformatted(child)
        if child.tail:
            yield child.tail


def dedent(text: str) -> str:
    """Common indentation goes, which only mirrors the markup around; blank lines at both ends too."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[0].strip():
        lines = lines[1:]
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip(" ")) for line in filled), default=0)
    return "\n".join(line[indent:].rstrip() for line in lines).rstrip()


def formula(element: Any) -> str:
    """A MathML element as TeX where it says so, otherwise as its alternative or bare text."""
    for annotation in element.iter("annotation", "{*}annotation"):
        if "tex" in (annotation.get("encoding") or "") and annotation.text:
            return f"${annotation.text.strip()}$"
    return element.get("alttext") or "".join(element.itertext())
