"""Paragraph and character styles of a DOCX, resolved along basedOn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rag_cluster.parsing.ooxml import find, on_off, qn

# Word writes built-in names in English whatever its language; other programs translate them.
_HEADING = re.compile(
    r"^(?:heading|标题|標題|見出し|제목|überschrift|titre|título|titolo|titel|rubrik|kop|nagłówek|заголовок|otsikko|"
    r"overskrift|başlık|nadpis|cím|encabezado|ttulo|berschrift|kopf)\s*([1-9])(?:\s*(?:char|字符)?)?$",
    re.IGNORECASE,
)
_LIST = re.compile(r"^list(?: bullet| number)? ([2-5])$")
_ROLES = {
    "title": "title|titel|titre|título|titolo|标题|標題|文档标题|表題|제목|название|document title|book title",
    "subtitle": "subtitle|副标题|untertitel|sous-titre|subtítulo|sottotitolo|副題",
    "caption": "caption|table caption|image caption|figure caption|题注|標號|图注|表注|图题|表题|図表番号|캡션|"
    "beschriftung|légende|epígrafe|didascalia|legenda",
    "quote": "quote|intense quote|block text|block quote|blockquote|quotation|quotations|引用|明显引用|"
    "zitat|intensives zitat|citation|citation intense|cita|citazione",
}
_ROLE_OF_NAME = {name: role for role, names in _ROLES.items() for name in names.split("|")}
_CODE = re.compile(
    r"^(?:source ?code|code(?: ?block| ?text| ?listing| ?sample| ?snippet| ?example)?|program(?: ?listing| ?code)?|"
    r"html preformatted|preformatted(?: ?text)?|macro(?: text)?|plain ?code|verbatim|listing|"
    r"代码|源代码|代码块|程序代码)$",
    re.IGNORECASE,
)
_MONOSPACE = re.compile(
    r"^(?:courier|consolas|monaco|menlo|lucida console|lucida sans typewriter|andale mono|inconsolata|source code|"
    r"fira (?:code|mono)|"
    r"jetbrains mono|cascadia|dejavu sans mono|liberation mono|ubuntu mono|droid sans mono|roboto mono|sf mono|"
    r"noto (?:sans )?mono|ibm plex mono|nsimsun mono|terminal|fixedsys)",
    re.IGNORECASE,
)
_LONGEST_CHAIN = 20


class Styles:
    """Answers about a style id; unknown ids say nothing."""

    def __init__(self, root: Any) -> None:
        self._styles: dict[str, Any] = {}
        self._default = ""
        for style in () if root is None else root.iter(qn("w:style")):
            style_id = style.get(qn("w:styleId"), "")
            self._styles[style_id] = style
            if style.get(qn("w:type")) == "paragraph" and style.get(qn("w:default")) in ("1", "true", "on"):
                self._default = style_id
        self._mono_default = is_monospace(find(root, "w:docDefaults/w:rPrDefault/w:rPr")) or False
        self._switches: dict[tuple[str, str], bool | None] = {}
        self._numbers: dict[str, tuple[str | None, str | None]] = {}
        self._levels: dict[str, int | None] = {}
        self._roles: dict[str, str] = {}

    def chain(self, style_id: str | None) -> Iterator[Any]:
        """The style and what it is based on, nearest first."""
        for _ in range(_LONGEST_CHAIN):
            style = self._styles.get(style_id or "")
            if style is None:
                return
            yield style
            based = find(style, "w:basedOn")
            style_id = None if based is None else based.get(qn("w:val"))

    def heading_level(self, style_id: str | None) -> int | None:
        """1-9 where the style is a heading by name or outline level, else None."""
        key = style_id or self._default
        if key not in self._levels:
            self._levels[key] = self._heading_level(key)
        return self._levels[key]

    def _heading_level(self, style_id: str) -> int | None:
        if style_id not in self._styles and (match := _HEADING.match(style_id)):
            return int(match[1])
        for style in self.chain(style_id):
            outline = find(style, "w:pPr/w:outlineLvl")
            if outline is not None:
                return outline_level(outline)
            if match := _HEADING.match(style_name(style)):
                return int(match[1])
        return None

    def role(self, style_id: str | None) -> str:
        """title, subtitle, caption, quote, code, toc, or ""."""
        key = style_id or self._default
        if key not in self._roles:
            self._roles[key] = next(filter(None, (_role(style_name(style)) for style in self.chain(key))), "")
        return self._roles[key]

    def numbering(self, style_id: str | None) -> tuple[str | None, str | None]:
        """(numId, ilvl) of the style's list, each None where nothing says it."""
        key = style_id or self._default
        if key not in self._numbers:
            self._numbers[key] = self._numbering(key)
        return self._numbers[key]

    def _numbering(self, style_id: str) -> tuple[str | None, str | None]:
        num_id = level = None
        for style in self.chain(style_id):
            properties = find(style, "w:pPr/w:numPr")
            if properties is not None:
                num_id = num_id or _val(find(properties, "w:numId"))
                level = level or _val(find(properties, "w:ilvl"))
        return num_id, level

    def list_level(self, style_id: str | None) -> int:
        """0-based nesting that the name of a built-in list style tells: 1 for "List Bullet 2"."""
        names = (_LIST.match(style_name(style)) for style in self.chain(style_id or self._default))
        return next((int(match[1]) - 1 for match in names if match), 0)

    def monospace(self, style_id: str | None, run_style: str | None, properties: Any) -> bool:
        """Whether a run is set in a fixed-width face."""
        own = None if properties is None else is_monospace(properties)
        return own if own is not None else self._inherited("", style_id, run_style, self._mono_default)

    def switch(self, name: str, style_id: str | None, run_style: str | None, properties: Any) -> bool:
        """A run's switch such as w:vanish or w:b, from the run, its style, the paragraph's style."""
        own = None if properties is None else on_off(find(properties, name))
        return own if own is not None else self._inherited(name, style_id, run_style, False)

    def _inherited(self, name: str, style_id: str | None, run_style: str | None, default: bool) -> bool:
        for key in (run_style, style_id or self._default):
            if not key:
                continue
            if (name, key) not in self._switches:
                self._switches[name, key] = self._said(name, key)
            if (said := self._switches[name, key]) is not None:
                return said
        return default

    def _said(self, name: str, style_id: str) -> bool | None:
        """What a style's chain says about a switch; name "" asks for a fixed-width face."""
        for style in self.chain(style_id):
            said = on_off(find(style, f"w:rPr/{name}")) if name else is_monospace(find(style, "w:rPr"))
            if said is not None:
                return said
        return None


def style_name(style: Any) -> str:
    """Displayed name of a style, in lower case."""
    name = find(style, "w:name")
    return " ".join((_val(name) or style.get(qn("w:styleId"), "")).lower().split())


def outline_level(element: Any) -> int | None:
    """1-9 for w:outlineLvl 0-8; None for body text."""
    text = _val(element) or ""
    return int(text) + 1 if text.isdecimal() and int(text) < 9 else None


def is_monospace(properties: Any) -> bool | None:
    """Whether run properties name a fixed-width face; None where they name none."""
    fonts = find(properties, "w:rFonts")
    face = None if fonts is None else fonts.get(qn("w:ascii")) or fonts.get(qn("w:hAnsi"))
    return None if not face else _MONOSPACE.match(face) is not None


def _val(element: Any) -> str | None:
    return None if element is None else element.get(qn("w:val"))


def _role(name: str) -> str:
    if name in _ROLE_OF_NAME:
        return _ROLE_OF_NAME[name]
    if name.startswith(("toc ", "table of figures", "目录 ", "目錄 ")):
        return "toc"
    return "code" if _CODE.match(name) else ""
