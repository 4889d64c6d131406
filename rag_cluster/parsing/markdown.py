"""Markdown (CommonMark with tables, strikethrough, footnotes, front matter), by way of HTML that knows its lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.html import parse_html
from rag_cluster.parsing.html_blocks import LINES, HtmlWalker
from rag_cluster.parsing.limits import ParseLimits

MAX_FRONT_MATTER = 64 * 1024


class MarkdownParser:
    """Blocks with heading paths and line numbers; HTML inside becomes text like the rest."""

    name = "markdown"
    version = "1"
    extensions = frozenset({".md", ".markdown"})

    def __init__(self, *, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when nothing is left to read."""
        text, encoding = decode_text(Path(source.path).read_bytes())
        markdown = _markdown()
        tokens = markdown.parse(text.replace("\x00", ""))
        builder = BlockBuilder(source)
        metadata = {"encoding": encoding, **_front_matter(tokens, builder)}
        _number_lines(tokens)
        html = markdown.renderer.render(tokens, markdown.options, {})
        if html.strip():
            HtmlWalker(builder, self._limits, keep_all=True).walk(parse_html(f"<html><body>{html}</body></html>"))
        return builder.build(metadata)


def _markdown() -> Any:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    markdown = MarkdownIt("commonmark", {"maxNesting": 200}).enable(["table", "strikethrough"])
    return markdown.use(front_matter_plugin).use(footnote_plugin)


def _number_lines(tokens: Sequence[Any]) -> None:
    """Put the source lines (1-based, inclusive) of every block into its HTML."""
    for position, token in enumerate(tokens):
        if token.map is None:
            continue
        first, last = token.map[0] + 1, max(token.map[1], token.map[0] + 1)
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        if token.type == "list_item_open" and following is not None and following.map is not None:
            # The item's map spans its nested lists as well; its own text ends earlier.
            last = max(following.map[1], first)
        if token.type == "html_block":
            token.content = f'<span {LINES}="{first}-{last}"></span>{token.content}'
        elif token.nesting >= 0:
            token.attrSet(LINES, f"{first}-{last}")


def _front_matter(tokens: Sequence[Any], builder: BlockBuilder) -> dict[str, Any]:
    """Scalars and lists of scalars of the YAML block; it is metadata and no text."""
    import yaml

    content = next((token.content for token in tokens if token.type == "front_matter"), "")
    if not content or len(content) > MAX_FRONT_MATTER:
        return {}
    try:
        data = yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - strings, lists and mappings only
    except yaml.YAMLError:
        builder.warn("The front matter is not valid YAML and was left out")
        return {}
    if not isinstance(data, dict):
        return {}
    flat = {str(key): value for key, value in data.items() if isinstance(value, str)}
    lists = {
        str(key): [item for item in value if isinstance(item, str)]
        for key, value in data.items()
        if isinstance(value, list)
    }
    return {**lists, **flat}
