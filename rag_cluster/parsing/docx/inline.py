"""The text of one DOCX paragraph as the reader of the final document sees it: no deletions, field codes or comments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from rag_cluster.parsing.docx.styles import Styles
from rag_cluster.parsing.equations import equation_text
from rag_cluster.parsing.ooxml import alternatives, find, local_name, on_off, qn
from rag_cluster.parsing.superscripts import superscript

_SKIPPED = frozenset({
    "pPr", "rPr", "del", "moveFrom", "instrText", "delText", "delInstrText", "commentReference", "annotationRef",
    "footnoteRef", "endnoteRef", "separator", "continuationSeparator", "sdtPr", "sdtEndPr", "proofErr", "rt", "fldData",
    "tblPr", "sectPr", "softHyphen", "lastRenderedPageBreak",
})  # fmt: skip
_LITERALS = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}
LONGEST_CODE = 50
"""Paragraphs over which the code of a field (an IF with long texts) may go on."""
_RUN, _TEXT, _FIELD_MARK = qn("w:r"), qn("w:t"), qn("w:fldChar")
_REMOVED = frozenset({"del", "moveFrom"})
_OBJECTS = frozenset({"drawing", "pict", "object"})
_CONTENT = frozenset({"t", "pic", "imagedata", "chart", "relIds", "textpath", "oMath"})
# What the Wingdings faces draw at these places.
_SYMBOLS = {"F0FE": "☒", "F0FD": "☒", "F0A8": "☐", "F06F": "☐", "F0FC": "✓", "F0FB": "✗", "F0E0": "→", "F0DF": "←",
            "F0E8": "→", "F04A": "☺", "F0B7": "•", "F0A7": "▪", "F052": "☑", "F0A3": "☐", "F0B0": "°", "F0B1": "±",
            "F0B3": "≥", "F0B4": "×", "F0D7": "·", "F0B8": "÷", "F0B9": "≠", "F0BB": "≈", "F044": "Δ", "F057": "Ω",
            "F06D": "μ", "F070": "π", "F053": "Σ", "F061": "α", "F062": "β", "F067": "γ"}  # fmt: skip


@dataclass(slots=True)
class Inline:
    """Text and what hangs on it: drawings to be shown after the paragraph, notes that it refers to."""

    parts: list[str] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(kind, id): kind is "footnote" or "endnote"."""
    plain: int = 0
    """Visible characters in a proportional face; 0 with text means that all of it is monospaced."""
    regular: int = 0
    """Visible characters that are not bold."""

    @property
    def text(self) -> str:
        """The paragraph's text, with its line breaks."""
        return "".join(self.parts).strip()

    def prepend(self, other: Inline) -> None:
        """Put another paragraph's content before this one's: the mark between them was deleted."""
        self.parts[:0] = other.parts
        self.objects[:0] = other.objects
        self.notes[:0] = other.notes
        self.plain += other.plain
        self.regular += other.regular


@dataclass(slots=True)
class _Field:
    begin: Any
    instruction: str = ""
    in_result: bool = False
    form: Any = None
    ends: bool = False
    """Whether a table of contents is known to end."""


class InlineReader:
    """Reads paragraphs one after the other: a field such as a table of contents may span many of them."""

    def __init__(self, styles: Styles) -> None:
        self._styles = styles
        self._fields: list[_Field] = []
        self.note_marks: dict[tuple[str, str], str] = {}

    def read(self, paragraph: Any, style_id: str | None) -> Inline:
        """A w:p of a paragraph style."""
        if self._outside_contents(style_id):
            self._fields = [f for f in self._fields if not is_contents_field(f.instruction)]
        inline = Inline()
        for child in paragraph:
            self._walk(child, inline, style_id)
        # A field whose code ends nowhere is damaged; what follows it is text again.
        while self._fields and not self._fields[-1].in_result and not _code_ends_below(paragraph):
            self._fields.pop()
        return inline

    def _outside_contents(self, style_id: str | None) -> bool:
        """Whether a table of contents is open that a paragraph is not in: a heading, or one without an end."""
        contents = next((field for field in self._fields if is_contents_field(field.instruction)), None)
        if contents is None:
            return False
        if self._styles.heading_level(style_id) is not None:
            return True
        if not contents.ends and self._styles.role(style_id) != "toc":
            contents.ends = _ends_below(contents.begin)
            return not contents.ends
        return False

    @property
    def _hidden(self) -> bool:
        return bool(self._fields) and any(not f.in_result or is_contents_field(f.instruction) for f in self._fields)

    def _walk(self, node: Any, inline: Inline, style_id: str | None) -> None:
        if node.tag == _RUN:
            self._run(node, inline, style_id)
            return
        name = local_name(node)
        if name in _REMOVED:
            # A field that began before ends here all the same.
            for mark in node.iter(_FIELD_MARK):
                self._field_mark(mark, Inline())
        if name in _SKIPPED:
            return
        if name in ("oMath", "oMathPara"):
            if not self._hidden:
                text = equation_text(node)
                inline.parts.append(text)
                inline.plain += len(text)
                inline.regular += len(text)
        elif name == "AlternateContent":
            for child in shown_branch(node):
                self._walk(child, inline, style_id)
        elif name == "sdt":
            self._content_control(node, inline, style_id)
        elif name == "fldSimple":
            if not is_contents_field(node.get(qn("w:instr"), "")):
                for child in node:
                    self._walk(child, inline, style_id)
        elif name in _OBJECTS:
            inline.objects.append(node)
        else:
            for child in node:
                self._walk(child, inline, style_id)

    def _content_control(self, node: Any, inline: Inline, style_id: str | None) -> None:
        properties = find(node, "w:sdtPr")
        box = find(properties, "w14:checkbox")
        if box is not None:
            checked = find(box, "w14:checked")
            inline.parts.append("☒" if checked is not None and checked.get(qn("w14:val")) in ("1", "true") else "☐")
            inline.plain += 1
        elif not is_placeholder(properties):
            for child in find(node, "w:sdtContent") if find(node, "w:sdtContent") is not None else ():
                self._walk(child, inline, style_id)

    def _run(self, run: Any, inline: Inline, style_id: str | None) -> None:
        properties = find(run, "w:rPr")
        run_style = raised = None
        if properties is not None:
            raised = find(properties, "w:vertAlign")
            character_style = find(properties, "w:rStyle")
            run_style = None if character_style is None else character_style.get(qn("w:val"))
        if self._styles.switch("w:vanish", style_id, run_style, properties):
            return
        before = len(inline.parts)
        is_raised = raised is not None and raised.get(qn("w:val")) == "superscript"
        for child in run:
            if child.tag == _TEXT and not self._hidden:
                text = child.text or ""
                inline.parts.append(superscript(text) if is_raised else text)
            elif child is not properties:
                self._run_child(child, inline, style_id)
        written = sum(len("".join(part.split())) for part in inline.parts[before:])
        if written and not self._styles.monospace(style_id, run_style, properties):
            inline.plain += written
        if written and not self._styles.switch("w:b", style_id, run_style, properties):
            inline.regular += written

    def _run_child(self, node: Any, inline: Inline, style_id: str | None) -> None:
        name = local_name(node)
        if name == "fldChar":
            self._field_mark(node, inline)
        elif name == "instrText":
            if self._fields:
                self._fields[-1].instruction += node.text or ""
        elif name in _SKIPPED or self._hidden:
            return
        elif name == "t":
            inline.parts.append(node.text or "")
        elif name in _LITERALS:
            inline.parts.append(_LITERALS[name])
        elif name == "br":
            inline.parts.append("\n" if node.get(qn("w:type"), "textWrapping") == "textWrapping" else " ")
        elif name == "sym":
            inline.parts.append(_symbol(node.get(qn("w:char"), "")))
        elif name in ("footnoteReference", "endnoteReference"):
            self._note(node, name.removesuffix("Reference"), inline)
        elif name in _OBJECTS:
            inline.objects.append(node)
        elif name == "AlternateContent":
            for child in shown_branch(node):
                self._run_child(child, inline, style_id)
        elif name == "r":
            self._run(node, inline, style_id)
        else:
            for child in node:
                self._run_child(child, inline, style_id)

    def _field_mark(self, node: Any, inline: Inline) -> None:
        kind = node.get(qn("w:fldCharType"))
        if kind == "begin":
            self._fields.append(_Field(node, form=find(node, "w:ffData")))
        elif kind == "separate" and self._fields:
            self._fields[-1].in_result = True
        elif kind == "end" and self._fields:
            ended = self._fields.pop()
            if ended.form is not None and not self._hidden:
                inline.parts.append(_form_value(ended.form, written=ended.in_result))

    def _note(self, node: Any, kind: str, inline: Inline) -> None:
        key = (kind, node.get(qn("w:id"), ""))
        if key not in self.note_marks:
            count = 1 + sum(1 for known, _ in self.note_marks if known == kind)
            self.note_marks[key] = str(count) if kind == "footnote" else f"e{count}"
        inline.notes.append(key)
        if node.get(qn("w:customMarkFollows"), "0") not in ("1", "true", "on"):
            inline.parts.append(f"[^{self.note_marks[key]}]")


def _code_ends_below(paragraph: Any) -> bool:
    """Whether the code of the field that is open at a paragraph's end ends in one of the next paragraphs."""
    depth = 0
    for following in islice(paragraph.itersiblings(), LONGEST_CODE):
        for mark in following.iter(_FIELD_MARK):
            kind = mark.get(qn("w:fldCharType"))
            if depth == 0 and kind in ("separate", "end"):
                return True
            depth += {"begin": 1, "end": -1}.get(kind, 0)
    return False


def _ends_below(begin: Any) -> bool:
    """Whether a field ends anywhere behind its first mark."""
    depth = 1
    for node in (begin, *begin.iterancestors()):
        for mark in chain.from_iterable(sibling.iter(_FIELD_MARK) for sibling in node.itersiblings()):
            depth += {"begin": 1, "end": -1}.get(mark.get(qn("w:fldCharType")), 0)
            if depth == 0:
                return True
    return False


def is_contents_field(instruction: str) -> bool:
    """Whether a field generates a table of contents, whose lines only repeat headings."""
    return instruction.split()[:1] in (["TOC"], ["TOA"])


def is_placeholder(properties: Any) -> bool:
    """Whether a content control shows its prompt ("Click here to enter text") and not a value."""
    return bool(on_off(find(properties, "w:showingPlcHdr")))


def shown_branch(node: Any) -> Iterator[Any]:
    """Children of the branch of an mc:AlternateContent that is shown: the first one with content."""
    for branch in alternatives(node):
        if any(local_name(child) in _CONTENT for child in branch.iter()):
            yield from branch
            return


def _symbol(code: str) -> str:
    code = code.upper()
    if code in _SYMBOLS:
        return _SYMBOLS[code]
    try:
        char = chr(int(code, 16))
    except (ValueError, OverflowError):
        return ""
    return "" if "\ue000" <= char <= "\uf8ff" else char


def _form_value(form: Any, *, written: bool) -> str:
    """What a legacy form field shows: a check box always, a list where it wrote no result."""
    box = find(form, "w:checkBox")
    if box is not None:
        state = find(box, "w:checked")
        return "☒" if on_off(state if state is not None else find(box, "w:default")) else "☐"
    choices = [entry.get(qn("w:val"), "") for entry in form.iter(qn("w:listEntry"))]
    result = find(form, "w:ddList/w:result")
    index = result.get(qn("w:val"), "0") if result is not None else "0"
    return choices[int(index)] if not written and index.isdecimal() and int(index) < len(choices) else ""
