"""HTML and XHTML: the page's content, without navigation, banners, scripts and what is hidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.errors import CorruptDocumentError
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.boilerplate import main_content, measure
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.html_blocks import HtmlWalker
from rag_cluster.parsing.illustrated import IllustratedParser

_DECLARED = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}?encoding=["']([\w.:-]+)""",
    re.IGNORECASE,
)
_HEADER = re.compile(r"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")


class HtmlParser(IllustratedParser):
    """HTML by libxml2, as forgiving as a browser."""

    name = "html"
    version = "5"
    extensions = frozenset({".html", ".htm", ".xhtml"})

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when a page shows no text."""
        data = Path(source.path).read_bytes()
        text, encoding = decode_text(data, _declared(source.mime_type, data))
        warnings: list[str] = []
        tree = parse_html(text, warnings.append)
        body = tree.find(".//body")
        body = tree if body is None else body
        builder = self._blocks(source, main_content(body), keep_all=False)
        if builder is None:
            # Everything looked like boilerplate: then it is the content.
            builder = self._blocks(source, body, keep_all=True) or BlockBuilder(source)
        for warning in warnings:
            builder.warn(warning)
        return builder.build({"encoding": encoding, **_metadata(tree)})

    def _blocks(self, source: DocumentSource, root: Any, *, keep_all: bool) -> BlockBuilder | None:
        builder = self._builder(source)
        try:
            HtmlWalker(builder, self._limits, keep_all=keep_all).walk(root)
        except RecursionError as error:
            raise CorruptDocumentError(f"The elements of {source.filename!r} are nested too deeply") from error
        return builder if builder.has_blocks else None


def parse_html(text: str, warn: Callable[[str], None] | None = None) -> Any:
    """The document element; `warn` is told when elements are nested too deeply to be read to the end.
    CorruptDocumentError when there is none at all."""
    from lxml import etree

    # Control characters end libxml2's reading; what they stand for is not text anyway.
    text = _CONTROLS.sub("", _XML_DECLARATION.sub("", text))
    # huge_tree lifts the depth limit from 256 to 2048, beyond which the rest is lost; the size is limited already.
    parser = etree.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True, remove_pis=True, remove_comments=True)
    try:
        root = etree.fromstring(f"<!DOCTYPE html>{text}".encode("utf-8", "replace"), parser)
    except etree.XMLSyntaxError as error:
        raise CorruptDocumentError(f"The HTML cannot be read: {error}") from error
    if root is None:
        raise CorruptDocumentError("The HTML holds no element")
    if warn is not None and any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        warn("The page's elements are nested too deeply; what stands behind the 2048th level was left out")
    measure(root)
    return root


def _declared(mime_type: str, data: bytes) -> str | None:
    """The encoding that the HTTP header states, else the document itself."""
    if header := _HEADER.search(mime_type):
        return header[1]
    found = _DECLARED.search(data[:4096])
    return (found[1] or found[2]).decode("ascii") if found else None


def _metadata(tree: Any) -> dict[str, str]:
    """Title, language, author and description, where the page states them."""
    out: dict[str, str] = {}
    title = tree.find(".//head/title")
    if title is not None and title.text and title.text.strip():
        out["title"] = " ".join(title.text.split())
    if language := tree.get("lang"):
        out["language"] = language
    for meta in tree.iter("meta"):
        name, content = (meta.get("name") or "").lower(), (meta.get("content") or "").strip()
        if name in ("author", "description", "keywords") and content:
            out[name] = content[:1000]
    return out
