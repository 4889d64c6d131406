"""altChunk: a foreign document that Word shows in place. HTML, MHTML, RTF, plain text and Word files are read."""

from __future__ import annotations

import email
import email.policy
import re

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.html import parse_html
from rag_cluster.parsing.html_blocks import HtmlWalker
from rag_cluster.parsing.limits import ParseLimits

_RTF = re.compile(
    r"\\'([0-9a-fA-F]{2})|\\u(-?\d+) ?|\\([a-zA-Z]+)(-?\d+)? ?|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_RTF_HIDDEN = frozenset({"fonttbl", "colortbl", "stylesheet", "info", "pict", "header", "footer", "headerl", "headerr",
                         "footerl", "footerr", "object", "themedata", "datastore", "listtable", "listoverridetable",
                         "fldinst", "generator", "xmlnstbl", "rsidtbl", "latentstyles", "revtbl"})  # fmt: skip
_RTF_SIGNS = {"tab": "\t", "line": "\n", "par": "\n\n", "sect": "\n\n", "cell": "\t", "row": "\n", "emdash": "—",
              "endash": "–", "bullet": "•", "lquote": "‘", "rquote": "’", "ldblquote": "“",
              "rdblquote": "”"}  # fmt: skip


def add_foreign(builder: BlockBuilder, content: bytes, name: str, limits: ParseLimits) -> None:
    """Blocks of an embedded document that is no Word file."""
    start = content[:2048].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"{\\rtf"):
        add_text(builder, rtf_text(content))
    elif start.startswith((b"mime-version", b"from:", b"content-type")):
        _add_mhtml(builder, content, name, limits)
    elif b"<html" in start or b"<!doctype html" in start or b"<body" in start or name.endswith((".htm", ".html")):
        add_html(builder, decode_text(content)[0], limits)
    elif name.endswith((".txt", ".text")) or b"\x00" not in content[:1024]:
        add_text(builder, decode_text(content)[0])
    else:
        builder.warn(f"An embedded document was left out: {name}")


def _add_mhtml(builder: BlockBuilder, content: bytes, name: str, limits: ParseLimits) -> None:
    message = email.message_from_bytes(content, policy=email.policy.default)
    part = message.get_body(preferencelist=("html", "plain"))
    try:
        text = part.get_content() if part is not None else ""
    except (LookupError, ValueError) as error:  # an unknown character set or transfer encoding
        builder.warn(f"An embedded document was left out: {name} ({error})")
        return
    if part is not None and part.get_content_subtype() == "html":
        add_html(builder, text, limits)
    else:
        add_text(builder, text)


def add_text(builder: BlockBuilder, text: str) -> None:
    """Plain text: one TEXT block a paragraph."""
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        builder.add(BlockType.TEXT, paragraph)


def add_html(builder: BlockBuilder, text: str, limits: ParseLimits) -> None:
    """An HTML fragment as Word imports it: everything visible, in order."""
    root = parse_html(text)
    body = root.find(".//body")
    try:
        HtmlWalker(builder, limits, keep_all=True).walk(root if body is None else body)
    except RecursionError:
        builder.warn("An embedded HTML document is nested too deeply and was left out in part")


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
