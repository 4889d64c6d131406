"""Documents for chunking tests: built by hand, or drawn by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument, SourceLocator
from rag_cluster.parsing.base import BlockBuilder

WORDS = "alpha Beta gamma, delta. Epsilon! zeta? 3.14 Dr. e.g. 中文 句子。 测试！ 你好； 再见… “引用。” (x) https://a.b/c?d=1"


def builder() -> BlockBuilder:
    return BlockBuilder(DocumentSource(document_id="doc", version=1, filename="f.md", path="f.md"))


texts = st.lists(
    st.one_of(st.sampled_from(WORDS.split()), st.text(alphabet="ab字句。.!\n ,，", min_size=1, max_size=30)),
    min_size=1,
    max_size=60,
).flatmap(lambda words: st.sampled_from([" ", "", "\n"]).map(lambda glue: glue.join(words)))
cells = st.one_of(st.text(alphabet="ab1 字", max_size=6), st.text(alphabet="cd2 句。", min_size=20, max_size=200))
tables = st.tuples(st.integers(1, 5), st.integers(1, 30)).flatmap(
    lambda shape: st.lists(st.lists(cells, min_size=shape[0], max_size=shape[0]), min_size=shape[1], max_size=shape[1])
)
operations = st.one_of(
    st.tuples(st.just("heading"), st.text(alphabet="Hh 标题", min_size=1, max_size=80), st.integers(1, 4)),
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("code"), texts),
    st.tuples(st.just("list"), texts),
    st.tuples(st.just("notes"), texts),
    st.tuples(st.just("image"), st.text(alphabet="cap 图", max_size=20), texts),
    st.tuples(st.just("table"), tables, st.integers(0, 2)),
)


@st.composite
def documents(draw: st.DrawFn) -> ParsedDocument:
    parts = builder()
    for page, operation in enumerate(draw(st.lists(operations, min_size=1, max_size=12)), start=1):
        _add(parts, operation, SourceLocator(page=page, bbox=(0, 0, page, page)))
    parts.add(BlockType.TEXT, "The end.")
    return parts.build()


def _add(parts: BlockBuilder, operation: tuple, locator: SourceLocator) -> None:
    kind, value, *rest = operation
    if kind == "heading":
        parts.heading(value, rest[0], locator)
    elif kind == "table":
        parts.table(value, rest[0], locator)
    elif kind == "image":
        parts.image(value.encode(), "image/png", caption=value, text=rest[0], locator=locator)
    elif kind == "list":
        parts.add(BlockType.LIST, value, locator, {"level": 1, "marker": "•"})
    elif kind == "notes":
        parts.add(BlockType.TEXT, value, locator, {"notes": True})
    else:
        parts.add(BlockType(kind), value, locator)


def visible(text: str) -> str:
    return "".join(text.split())


def words_of(block: Block) -> str:
    """The visible characters of a block that a chunk must hold."""
    if block.type is BlockType.TABLE:
        return visible("".join(cell for row in block.metadata["rows"] for cell in row))
    if block.type is BlockType.IMAGE:
        _, _, words = block.content.partition("\n")
        return visible(words)
    return visible(block.content)


def is_subsequence(needle: str, hay: str) -> bool:
    position = 0
    for character in needle:
        position = hay.find(character, position) + 1
        if not position:
            return False
    return True
