from __future__ import annotations

from collections.abc import Callable

import pytest

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.errors import EmptyDocumentError

Parse = Callable[..., ParsedDocument]


def test_paragraphs_are_text_blocks_with_their_lines(parse: Parse) -> None:
    blocks = parse("a.txt", "one\ntwo\r\n\r\n\r\nthree\n").blocks
    assert [(b.content, b.locator.line_start, b.locator.line_end) for b in blocks] == [
        ("one\ntwo", 1, 2),
        ("three", 5, 5),
    ]


def test_chapters_and_sections_are_headings(parse: Parse) -> None:
    blocks = parse("a.txt", "第一章 值班职责\n值班员应每两小时巡视一次泵房。\n\n第二节 记录\n\n记录出口压力。").blocks
    assert [b.type for b in blocks] == [BlockType.HEADING, BlockType.TEXT, BlockType.HEADING, BlockType.TEXT]
    assert blocks[-1].locator.heading_path == ("第一章 值班职责", "第二节 记录")


def test_underlined_lines_are_headings(parse: Parse) -> None:
    blocks = parse("a.txt", "Title\n=====\n\nText\n\nPart\n----\nMore").blocks
    assert [(b.type.value, b.content, b.metadata.get("level")) for b in blocks] == [
        ("heading", "Title", 1),
        ("text", "Text", None),
        ("heading", "Part", 2),
        ("text", "More", None),
    ]


@pytest.mark.parametrize(
    "line", ["第一章规定了适用范围。", "第一章 总则 ........ 3", "Chapter 3 says that pumps are safe.", "第一次会议"]
)
def test_a_sentence_is_no_heading(parse: Parse, line: str) -> None:
    assert parse("a.txt", line).blocks[0].type is BlockType.TEXT


def test_nul_bytes_go_and_line_numbers_stay(parse: Parse) -> None:
    blocks = parse("a.txt", b"first\n\nsec\x00ond\x00\n").blocks
    assert blocks[1].content == "second" and blocks[1].locator.line_start == 3


def test_one_very_long_line_is_kept_whole(parse: Parse) -> None:
    text = " ".join(f"token{i:06d}" for i in range(30_000))
    assert parse("a.txt", text).blocks[0].content == text


def test_a_log_without_blank_lines_is_cut_between_lines(parse: Parse) -> None:
    lines = [f"2025-01-01 12:00:{i % 60:02d} line {i}" for i in range(5000)]
    blocks = parse("a.log", "\n".join(lines)).blocks
    assert max(len(b.content) for b in blocks) < 5000
    assert "\n".join(b.content for b in blocks).split("\n") == lines
    assert blocks[-1].locator.line_end == 5000


def test_only_white_space_is_an_empty_document(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError):
        parse("a.txt", " \n\t\n\x00")
