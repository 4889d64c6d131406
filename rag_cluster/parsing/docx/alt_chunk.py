"""altChunk: a foreign document that Word shows in place. HTML, MHTML, RTF, plain text and Word files are read."""

from __future__ import annotations

import email
import email.policy
import re
from typing import Any

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_DROPPED = frozenset({"script", "style", "head", "template", "noscript", "title", "meta"})
_TEXT_BLOCKS = frozenset({"p", "pre", "blockquote", "li", "caption", "dt", "dd"})
_CONTAINERS = frozenset({
    "html", "body", "div", "section", "article", "main", "ul", "ol", "dl", "center", "form", "header", "footer", "nav",
    "aside", "figure", "blockquote", "li", "dd",
})  # fmt: skip
MAX_SPAN = 1000
_RTF = re.compile(
    r"\\'([0-9a-fA-F]{2})|\\u(-?\d+) ?|\\([a-zA-Z]+)(-?\d+)? ?|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_RTF_HIDDEN = frozenset({"fonttbl", "colortbl", "stylesheet", "info", "pict", "header", "footer", "headerl", "headerr",
                         "footerl", "footerr", "object", "themedata", "datastore", "listtable", "listoverridetable",
                         "fldinst", "generator", "xmlnstbl", "rsidtbl", "latentstyles", "revtbl"})  # fmt: skip
_RTF_SIGNS = {"tab": "\t", "line": "\n", "par": "\n\n", "sect": "\n\n", "cell": "\t", "row": "\n", "emdash": "—",
              "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“",
              "rdblquote": "”"}  # fmt: skip


def add_foreign(builder: BlockBuilder, content: bytes, name: str) -> None:
    """Blocks of an embedded document that is no Word file."""
    start = content[:2048].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"{\\rtf"):
        add_text(builder, rtf_text(content))
    elif start.startswith((b"mime-version", b"from:", b"content-type")):
        message = email.message_from_bytes(content, policy=email.policy.default)
        part = message.get_body(preferencelist=("html", "plain"))
        if part is not None:
            text = part.get_content()
            add_html(builder, text) if part.get_content_subtype() == "html" else add_text(builder, text)
    elif b"<html" in start or b"<!doctype html" in start or b"<body" in start or name.endswith((".htm", ".html")):
        add_html(builder, decode_text(content)[0])
    elif name.endswith((".txt", ".text")) or b"\x00" not in content[:1024]:
        add_text(builder, decode_text(content)[0])
    else:
        builder.warn(f"An embedded document was left out: {name}")


def add_text(builder: BlockBuilder, text: str) -> None:
    """Plain text: one TEXT block a paragraph."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        builder.add(BlockType.TEXT, paragraph)


def add_html(builder: BlockBuilder, text: str) -> None:
    """An HTML fragment as Word imports it: everything visible, in order."""
    from lxml import etree, html

    try:
        root = html.document_fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    except (etree.ParserError, ValueError):
        return
    _html_blocks(builder, root, 0)


def _html_blocks(builder: BlockBuilder, element: Any, level: int) -> None:
    loose: list[str] = [element.text or ""]

    def flush() -> None:
        builder.add(BlockType.TEXT, " ".join("".join(loose).split()))
        loose.clear()

    for child in element:
        tag = child.tag if isinstance(child.tag, str) else ""
        if tag in _HEADINGS or tag == "table" or tag in _TEXT_BLOCKS or tag in _CONTAINERS:
            flush()
            _html_block(builder, child, tag, level)
        elif tag == "br":
            loose.append("\n")
        elif tag and tag not in _DROPPED:
            loose.append(_visible(child))
        loose.append(child.tail or "")
    flush()


def _html_block(builder: BlockBuilder, child: Any, tag: str, level: int) -> None:
    if tag in _HEADINGS:
        builder.heading(_visible(child), _HEADINGS[tag])
    elif tag == "table":
        rows, header_rows = _html_grid(child)
        builder.table(rows, header_rows)
    elif tag == "pre":
        builder.add(BlockType.CODE, child.text_content())
    elif any(inner.tag in _CONTAINERS or inner.tag in ("table", "p") for inner in child.iterdescendants()):
        _html_blocks(builder, child, level + (tag in ("ul", "ol")))
    elif tag in ("ul", "ol"):
        _html_blocks(builder, child, level + 1)
    elif tag == "li":
        builder.add(BlockType.LIST, _visible(child), metadata={"level": max(level - 1, 0), "marker": "•"})
    else:
        kind = BlockType.QUOTE if tag == "blockquote" else BlockType.TEXT
        builder.add(kind, _visible(child))


def _visible(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _html_grid(table: Any) -> tuple[list[list[str]], int]:
    """Rows with col- and rowspans filled, and the count of leading rows made of th cells."""
    rows: list[dict[int, str]] = []
    header_rows = 0
    lines = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
    for index, line in enumerate(lines):
        cells = [cell for cell in line if cell.tag in ("td", "th")]
        if index == header_rows and cells and all(cell.tag == "th" for cell in cells):
            header_rows += 1
        while len(rows) <= index:
            rows.append({})
        column = 0
        for cell in cells:
            while column in rows[index]:
                column += 1
            width, height = _span(cell, "colspan"), min(_span(cell, "rowspan"), len(lines) - index)
            for down in range(height):
                while len(rows) <= index + down:
                    rows.append({})
                rows[index + down].update(dict.fromkeys(range(column, column + width), _visible(cell)))
            column += width
    return [[row.get(column, "") for column in range(max(row, default=-1) + 1)] for row in rows], header_rows


def _span(cell: Any, name: str) -> int:
    text = cell.get(name, "1")
    return min(max(int(text), 1), MAX_SPAN) if text.isdecimal() else 1


def rtf_text(content: bytes) -> str:
    """Visible text of an RTF file, paragraphs separated by blank lines. Code page as \\ansicpg says."""
    source = content.decode("latin-1")
    page = re.search(r"\\ansicpg(\d+)", source)
    encoding = f"cp{page[1]}" if page else "cp1252"
    out: list[bytes | str] = []
    stack: list[tuple[bool, int]] = []
    hidden, skip_after_unicode, skip = False, 1, 0
    for match in _RTF.finditer(source):
        byte, code, word, argument, sign, brace, text = match.groups()
        if brace == "{":
            stack.append((hidden, skip_after_unicode))
        elif brace == "}":
            hidden, skip_after_unicode = stack.pop() if stack else (False, 1)
        elif sign == "*" or word in _RTF_HIDDEN:
            hidden = True
        elif word == "uc":
            skip_after_unicode = int(argument or 1)
        elif not hidden:
            if code is not None:
                out.append(chr(int(code) % 65536))
                skip = skip_after_unicode
            elif byte is not None:
                skip, shown = (skip - 1, b"") if skip else (0, bytes([int(byte, 16)]))
                out.append(shown)
            elif text is not None:
                text, skip = text[skip:], max(skip - len(text), 0)
                out.append(text.encode("latin-1"))
            else:
                out.append(_RTF_SIGNS.get(word or "", "") or {"~": " ", "_": "-"}.get(sign or "", sign or ""))
    return _decoded(out, encoding)


def _decoded(parts: list[bytes | str], encoding: str) -> str:
    """Bytes joined before they are decoded: a Chinese character is two of them."""
    text, pending = "", b""
    for part in [*parts, ""]:
        if isinstance(part, bytes):
            pending += part
            continue
        if pending:
            try:
                text += pending.decode(encoding, "replace")
            except LookupError:
                text += pending.decode("cp1252", "replace")
            pending = b""
        text += part
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
