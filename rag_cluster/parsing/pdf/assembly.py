"""Pages without their furniture -> the parts of the whole document: paragraphs, tables and figures in reading order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.pdf import captions, continuation, headings, paragraphs
from rag_cluster.parsing.pdf.figures import Figure
from rag_cluster.parsing.pdf.footnotes import NoteLine
from rag_cluster.parsing.pdf.lines import Line
from rag_cluster.parsing.pdf.page import Item, OcrText, PageContent, PlacedTable
from rag_cluster.parsing.pdf.paragraphs import Paragraph
from rag_cluster.parsing.pdf.tagged import Tags

Part = Paragraph | PlacedTable | Figure | OcrText
_KINDS = {"LI": BlockType.LIST, "BlockQuote": BlockType.QUOTE, "Code": BlockType.CODE}
"""Roles of the structure tree that say what a block is."""
_LOOK_BACK = 4
"""Parts among which the paragraph is sought that goes on in the next column or page."""


def assemble(contents: Sequence[PageContent], outline: dict[tuple[int, str], int]) -> list[Part]:
    """Paragraphs over columns and pages, tables over pages, headings and captions marked."""
    code_allowed = _mark_code(contents)
    out: list[Part] = []
    for content in contents:
        for run in _runs(content.items):
            first = run[0]
            if isinstance(first, NoteLine):
                _add_note(out, run, first, content.number)
            elif isinstance(first, Line):
                lines = [item for item in run if isinstance(item, Line)]
                _append(out, _paragraphs(lines, content, code_allowed=code_allowed), content.tags)
            else:
                out.append(first)
    tags = {content.number: content.headings for content in contents if content.headings}
    settled = {content.number: content.tags.settled for content in contents if content.tags is not None}
    headings.mark([p for p in out if isinstance(p, Paragraph)], outline, tags, settled)
    out = continuation.join(out)
    captions.attach(out)
    return out


def _mark_code(contents: Sequence[PageContent]) -> bool:
    """Mark lines in a monospaced font, and say whether they are code: not where the whole document is set so."""
    lines = [item for content in contents for item in content.items if isinstance(item, Line)]
    fixed = {line.font for line in lines if line.mono}
    mono = sum(line.chars for line in lines if line.mono)
    if fixed:
        for line in lines:
            if line.font in fixed and line.font_share > 0.9:
                line.mono = True
    return mono < 0.6 * sum(line.chars for line in lines)


def _runs(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Lines of one region, or of one note, together; everything else alone."""
    run: list[Item] = []
    for item in items:
        if run and not _together(run[-1], item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _together(before: Item, item: Item) -> bool:
    if not isinstance(before, Line) or not isinstance(item, Line) or before.region != item.region:
        return False
    if isinstance(item, NoteLine):
        return isinstance(before, NoteLine) and not item.begins
    return not isinstance(before, NoteLine)


def _paragraphs(lines: Sequence[Line], content: PageContent, *, code_allowed: bool) -> list[Paragraph]:
    """Paragraphs of one region; where the structure tree is followed, its blocks."""
    tags = content.tags
    if tags is None:
        return paragraphs.build(lines, content.number, code_allowed=code_allowed)
    blocks = {mcid: block.order for mcid, block in tags.blocks.items() if block.role}
    found = paragraphs.build(lines, content.number, code_allowed=code_allowed, blocks=blocks)
    for paragraph in found:
        block = tags.blocks.get(paragraph.first.mcid)
        if block is not None and block.role in _KINDS:
            _become(paragraph, _KINDS[block.role], block.level)
    return found


def _become(paragraph: Paragraph, kind: BlockType, level: int) -> None:
    """Make a paragraph what the structure tree says."""
    paragraph.kind, paragraph.marker = kind, ""
    paragraphs.finish(paragraph)
    paragraph.kind = kind
    if kind is BlockType.LIST:
        paragraph.level = level


def _append(out: list[Part], new: Sequence[Paragraph], tags: Tags | None) -> None:
    """Add paragraphs; the first one may go on where an earlier column or page stopped, before the notes there."""
    for index, paragraph in enumerate(new):
        before = _open_paragraph(out) if index == 0 and not continuation.is_label(paragraph.text) else None
        if before is not None and (_one_block(before, paragraph, tags) or paragraphs.continues(before, paragraph)):
            before.lines += paragraph.lines
            before.pages += paragraph.pages
            kind, marker, level = before.kind, before.marker, before.level
            paragraphs.finish(before)
            before.kind, before.marker, before.level = kind, marker, level
        else:
            out.append(paragraph)


def _one_block(before: Paragraph, after: Paragraph, tags: Tags | None) -> bool:
    """Whether the structure tree has both in one block of a page."""
    if tags is None or before.pages[-1] != after.pages[0]:
        return False
    block = tags.blocks.get(before.lines[-1].mcid)
    return block is not None and bool(block.role) and block is tags.blocks.get(after.first.mcid)


def _open_paragraph(out: Sequence[Part]) -> Paragraph | None:
    """The last paragraph but for notes."""
    running = (p for p in reversed(out) if not (isinstance(p, Paragraph) and "footnote" in p.metadata))
    return next((p for p in itertools.islice(running, _LOOK_BACK) if isinstance(p, Paragraph)), None)


def _add_note(out: list[Part], run: Sequence[Item], first: NoteLine, page: int) -> None:
    """A note as a paragraph of its own; one without a mark may go on from the column or page before."""
    lines: list[Line] = [item for item in run if isinstance(item, Line)]
    if not first.mark:
        before = next((p for p in reversed(out) if isinstance(p, Paragraph) and "footnote" in p.metadata), None)
        if before is not None and before.pages[-1] >= page - 1 and paragraphs.goes_on(before.text, lines[0].text):
            before.lines += lines
            before.pages += [page] * len(lines)
            _finish_note(before)
        else:
            for paragraph in paragraphs.build(lines, page):
                paragraph.metadata["footnote"] = ""
                out.append(paragraph)
        return
    note = Paragraph(BlockType.TEXT, lines, [page] * len(lines), metadata={"footnote": first.mark})
    _finish_note(note)
    if note.text:
        out.append(note)


def _finish_note(note: Paragraph) -> None:
    text = paragraphs.join_texts(line.text for line in note.lines)
    mark = note.metadata["footnote"]
    note.text = f"[^{mark}]: {text}" if mark and text else text
