"""Markdown (CommonMark with tables, strikethrough, footnotes, front matter), by way of HTML that knows its lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.boilerplate import DROPPED
from rag_cluster.parsing.encoding import decode_text
from rag_cluster.parsing.html import parse_html
from rag_cluster.parsing.html_blocks import BLOCK_TAGS, LINES, HtmlWalker
from rag_cluster.parsing.limits import ParseLimits

MAX_FRONT_MATTER = 64 * 1024
MAX_NESTING = 200
"""Of elements; a list item counts twice."""
_FRONT_MATTER = re.compile(r"\ufeff?(---|\+\+\+)[ \t]*\n(?![ \t]*\n|\1)(.*?\n)\1[ \t]*(?:\n|\Z)", re.DOTALL)
"""A blank line or a second mark behind the first one makes it a rule, as for Pandoc."""
_ENTRY = re.compile(r"^(?=[\w.-]+:(?:[ \t]|$))", re.MULTILINE)
_ENTRIES = re.compile(r"(?:(?:#.*)?\n)*(?:[\w.-]+:(?:[ \t].*)?\n(?:(?:-(?:[ \t].*)?|[# \t].*)?\n)*)+")
_FORMULA = re.compile(
    r"\$\$.+?\$\$|(?:(?<![A-Za-z\d])\$(?!\s)|\$(?=[\\^_{]))(?:\\.|(?!\]\()[^\\$`])+?(?<!\s)\$(?!\d)", re.DOTALL
)
"""A dollar behind a letter or digit belongs to a price (US$5), unless TeX follows (10$^{-3}$); a link is no formula."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)([^>]*)")
_HTML = ("html_block", "html_inline")
_INLINE_TAGS = """
a abbr acronym b bdi bdo big br cite code del dfn em font i img input ins kbd label mark math nobr q rb rp rt rtc ruby
s samp small span strike strong sub sup time tt u var wbr
"""
_MARKUP = BLOCK_TAGS.union(_INLINE_TAGS.split()) - DROPPED
_NEVER_CLOSED = frozenset({"br", "dd", "dt", "hr", "img", "input", "li", "p", "td", "th", "tr", "wbr"})


class MarkdownParser:
    """Blocks with heading paths and line numbers; HTML inside becomes text like the rest."""

    name = "markdown"
    version = "4"
    extensions = frozenset({".md", ".markdown"})

    def __init__(self, *, limits: ParseLimits = ParseLimits()) -> None:
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """EmptyDocumentError when nothing is left to read."""
        text, encoding = decode_text(Path(source.path).read_bytes())
        markdown = _markdown()
        builder = BlockBuilder(source)
        text, stated = _front_matter(text.replace("\x00", "").replace("\r\n", "\n"), builder.warn)
        tokens = markdown.parse(text)
        if max((token.level for token in tokens), default=0) >= MAX_NESTING - 1:
            builder.warn(
                f"Lists or quotes are nested deeper than {MAX_NESTING // 2} levels; what lies deeper was left out"
            )
        _keep_mentioned_tags(tokens)
        _number_lines(tokens)
        html = markdown.renderer.render(tokens, markdown.options, {})
        if html.strip():
            HtmlWalker(builder, self._limits, keep_all=True).walk(parse_html(f"<html><body>{html}</body></html>"))
        return builder.build({"encoding": encoding, **stated})


def _markdown() -> Any:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath.index import math_block_dollar
    from mdit_py_plugins.footnote import footnote_plugin

    markdown = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).enable(["table", "strikethrough"])
    markdown.use(footnote_plugin)
    markdown.block.ruler.before("fence", "math_block", math_block_dollar(allow_labels=False, allow_blank_lines=False))
    markdown.inline.ruler.before("escape", "formula", _formula)
    markdown.add_render_rule("math_block", _formula_block)
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


def _formula(state: Any, silent: bool) -> bool:
    """An inline rule: what stands between dollars is TeX, in which * and \\ are no markup. It is text as it stands."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("text", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _formula_block(renderer: Any, tokens: Sequence[Any], index: int, *_: Any) -> str:
    lines = escape(f"$${tokens[index].content}$$").split("\n")
    return f"<p{renderer.renderAttrs(tokens[index])}>{'<br>'.join(lines)}</p>"


def _keep_mentioned_tags(tokens: Sequence[Any]) -> None:
    """What only looks like HTML is text: List<String>, "git show <object>". HTML would drop it, or all that follows."""
    pieces = (piece for token in tokens for piece in (token, *(token.children or ())))
    html = [(piece, tag) for piece in pieces if piece.type in _HTML and (tag := _TAG.match(piece.content.lstrip()))]
    closed = {name for piece, _ in html for name in re.findall(r"</([A-Za-z][\w-]*)", piece.content)}
    stated = {tag[2] for _, tag in html if "=" in tag[3]}
    for piece, tag in html:
        closing, name, attributes = tag.groups()
        if (name.lower() if name.isupper() else name) in _MARKUP:
            is_markup = piece.block or closing or name in closed or name.lower() in _NEVER_CLOSED
        else:
            is_markup = name in (closed if piece.block else stated if closing else ())
        if is_markup or "=" in attributes:
            continue
        if piece.block:
            piece.content = f"<p>{escape(piece.content)}</p>"
        else:
            piece.type = "text"


def _front_matter(text: str, warn: Callable[[str], None]) -> tuple[str, dict[str, Any]]:
    """(text with as many lines, metadata) of a page that begins with YAML or TOML. What is no mapping is text."""
    found = _FRONT_MATTER.match(text)
    if found is None or len(found[2]) > MAX_FRONT_MATTER:
        return text, {}
    try:
        if found[1] == "+++":
            data = {key: _plain(value) for key, value in tomllib.loads(found[2]).items()}
        else:
            data = _yaml(found[2], warn)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError):
        return text, {}
    if not isinstance(data, dict):
        return text, {}
    return "\n" * found[0].count("\n") + text[found.end() :], _flat(data)


def _yaml(text: str, warn: Callable[[str], None]) -> Any:
    """A YAML document. If it is none but all its lines look like entries, each is read by itself, as YAML or text."""
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - strings, lists and mappings only
    except yaml.YAMLError:
        if not _ENTRIES.fullmatch(text):
            raise
    data: dict[str, Any] = {}
    for entry in _ENTRY.split(text)[1:]:
        try:
            data |= yaml.load(entry.expandtabs(2), Loader=yaml.BaseLoader)  # noqa: S506
        except yaml.YAMLError:
            key, _, rest = entry.partition(":")
            data[key] = " ".join(rest.split())
    warn("The front matter is not valid YAML; its entries were read one by one")
    return data


def _plain(value: Any) -> Any:
    """Values of TOML as YAML's base loader gives them: strings, and lists of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, dict) else str(value)


def _flat(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Scalars and lists of scalars alone."""
    flat = {str(key): value for key, value in data.items() if isinstance(value, str)}
    lists = {
        str(key): [item for item in value if isinstance(item, str)]
        for key, value in data.items()
        if isinstance(value, list)
    }
    return {**lists, **flat}
