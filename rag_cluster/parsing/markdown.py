"""Markdown (CommonMark with tables, strikethrough, footnotes, front matter), by way of HTML that knows its lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.html import parse_html
from rag_cluster.parsing.html_blocks import LINES, HtmlWalker
from rag_cluster.parsing.limits import ParseLimits

MAX_FRONT_MATTER = 64 * 1024
MAX_NESTING = 200
"""Of elements; a list item counts twice."""
_TOML = re.compile(r"\ufeff?\+\+\+[ \t]*\n(.*?\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)


class MarkdownParser:
    """Blocks with heading paths and line numbers; HTML inside becomes text like the rest."""

    name = "markdown"
    version = "3"
    extensions = frozenset({".md", ".markdown"})

    def __init__(self, *, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when nothing is left to read."""
        text, encoding = decode_text(Path(source.path).read_bytes())
        markdown = _markdown()
        text, stated = _toml_front_matter(text.replace("\x00", "").replace("\r\n", "\n"))
        tokens = markdown.parse(text)
        builder = BlockBuilder(source)
        metadata = {"encoding": encoding, **stated, **_yaml_front_matter(tokens, builder)}
        if max((token.level for token in tokens), default=0) >= MAX_NESTING - 1:
            builder.warn(
                f"Lists or quotes are nested deeper than {MAX_NESTING // 2} levels; what lies deeper was left out"
            )
        _number_lines(tokens)
        html = markdown.renderer.render(tokens, markdown.options, {})
        if html.strip():
            HtmlWalker(builder, self._limits, keep_all=True).walk(parse_html(f"<html><body>{html}</body></html>"))
        return builder.build(metadata)


def _markdown() -> Any:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.footnote import footnote_plugin
    from mdit_py_plugins.front_matter import front_matter_plugin

    markdown = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    markdown.use(front_matter_plugin).use(footnote_plugin)
    # A note that is referred to again has the same number, not "1:1".
    markdown.add_render_rule("footnote_caption", lambda self, tokens, index, *_: f"[^{tokens[index].meta['id'] + 1}]")
    return markdown


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


def _toml_front_matter(text: str) -> tuple[str, dict[str, Any]]:
    """(text with as many lines, metadata) of a page that begins with +++. What is no TOML is text."""
    found = _TOML.match(text)
    if found is None or len(found[1]) > MAX_FRONT_MATTER:
        return text, {}
    try:
        data = tomllib.loads(found[1])
    except tomllib.TOMLDecodeError:
        return text, {}
    return "\n" * found[0].count("\n") + text[found.end() :], _flat({key: _plain(value) for key, value in data.items()})


def _plain(value: Any) -> Any:
    """Values of TOML as YAML's base loader gives them: strings, and lists of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, dict) else str(value)


def _yaml_front_matter(tokens: Sequence[Any], builder: BlockBuilder) -> dict[str, Any]:
    """Of the YAML block at the beginning; it is metadata and no text."""
    import yaml

    content = next((token.content for token in tokens if token.type == "front_matter"), "")
    if not content or len(content) > MAX_FRONT_MATTER:
        return {}
    try:
        data = yaml.load(content, Loader=yaml.BaseLoader)  # noqa: S506 - strings, lists and mappings only
    except yaml.YAMLError:
        builder.warn("The front matter is not valid YAML and was left out")
        return {}
    return _flat(data) if isinstance(data, dict) else {}


def _flat(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Scalars and lists of scalars alone."""
    flat = {str(key): value for key, value in data.items() if isinstance(value, str)}
    lists = {
        str(key): [item for item in value if isinstance(item, str)]
        for key, value in data.items()
        if isinstance(value, list)
    }
    return {**lists, **flat}
