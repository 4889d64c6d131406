"""What every parser's blocks have in common."""

from __future__ import annotations

from rag_cluster.domain.blocks import BlockType, DocumentSource
from rag_cluster.parsing.base import BlockBuilder, table_markdown


def builder() -> BlockBuilder:
    return BlockBuilder(DocumentSource("doc", 1, "f.txt", "f.txt"))


def test_what_no_store_takes_is_out_of_every_text() -> None:
    parts = builder()
    parts.add(BlockType.TEXT, "a\x00b \ud83d c \U0001f600 中")
    parts.table([["x\x00", "\udc00"], ["1", "2"]], 1)
    parts.image(b"bytes", "image/png", caption="cap\x00 \ud800")
    text, table, image = parts.build().blocks
    assert text.content == "ab \ufffd c \U0001f600 中"
    assert table.metadata["rows"][0] == ["x", "\ufffd"]
    assert image.metadata["caption"] == "cap \ufffd"
    for block in (text, table, image):
        block.content.encode("utf-8")


def test_soft_hyphens_and_blanks_of_no_width_are_out_of_every_text() -> None:
    parts = builder()
    parts.heading("Donau\u00addampf", 1)
    parts.add(BlockType.TEXT, "Schiff\u00adfahrt auf\u200bwärts \u2060und می\u200cشود")
    parts.table([["Ge\u00adsell\u00adschaft"]], 1)
    heading, text, table = parts.build().blocks
    assert heading.locator.heading_path == ("Donaudampf",)
    assert text.content == "Schifffahrt aufwärts und می\u200cشود"
    assert table.metadata["rows"] == [["Gesellschaft"]]


def test_a_heading_closes_its_equals_and_everything_below() -> None:
    parts = builder()
    for text, level in (("A", 1), ("B", 2), ("C", 3), ("D", 2)):
        parts.heading(text, level)
    parts.add(BlockType.TEXT, "body")
    paths = [block.locator.heading_path for block in parts.build().blocks]
    assert paths == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D"), ("A", "D")]


def test_a_markdown_table_escapes_what_would_end_a_cell() -> None:
    assert table_markdown([["a|b", "c\nd"], ["1", "2"]], 1) == "| a\\|b | c<br>d |\n| --- | --- |\n| 1 | 2 |"
    assert table_markdown([["1", "2"]], 0) == "|  |  |\n| --- | --- |\n| 1 | 2 |"


def test_the_same_picture_twice_is_one_asset_and_two_blocks() -> None:
    parts = builder()
    parts.image(b"bytes", "image/png", caption="one")
    parts.image(b"bytes", "image/png", caption="two")
    document = parts.build()
    assert len(document.assets) == 1 and len(document.blocks) == 2
    assert f"asset://{document.assets[0].id}" in document.blocks[1].content
