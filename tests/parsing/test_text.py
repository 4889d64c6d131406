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


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "第一章 总则\n\n正文。"), ("utf-8-sig", "第一章 总则\n\n正文。"), ("utf-16", "第一章 总则\n\n正文。"),
        ("gb18030", "第一章 总则\n\n值班员应每两小时巡视一次泵房，记录出口压力。"),
        ("cp932", "第1章　総則\n\nポンプ場を二時間ごとに巡視し、圧力を記録すること。"),
        ("big5", "第一章 總則\n\n值班員應每兩小時巡視一次泵房，記錄出口壓力與流量。"),
        ("cp949", "제1장 총칙\n\n당직자는 두 시간마다 펌프장을 순시하고 압력을 기록한다."),
        ("cp1252", "Müller\n\nGröße und Maß – 5 €"),
    ],
)  # fmt: skip
def test_text_of_any_encoding_is_read(parse: Parse, encoding: str, text: str) -> None:
    blocks = parse("a.txt", text.encode(encoding)).blocks
    assert "\n\n".join(b.content for b in blocks) == text.replace("\u3000", " ")


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("第一章 总则", 1),
        ("第一章　总则", 1),
        ("第十二章：附则", 1),
        ("第一章总则", 1),
        ("第三章 值班与交接班制度", 1),
        ("第一节 一般规定", 2),
        ("第二节一般规定", 2),
        ("第五回 贾宝玉神游太虚境", 1),
        ("第一编 总则", 1),
        ("第一百零二回", 1),
        ("第3章 設計", 1),
        ("附录A 术语", 1),
        ("附录一 名词解释", 1),
        ("序言", 1),
        ("前 言", 1),
        ("引言", 1),
        ("后记", 1),
        ("楔子", 1),
        ("Chapter 3", 1),
        ("CHAPTER IV. The Storm", 1),
        ("Chapter One", 1),
        ("PART II", 1),
        ("Appendix B: Units", 1),
        ("제1장 총칙", 1),
    ],
)
def test_chapter_lines_of_plain_text_are_headings(parse: Parse, line: str, level: int) -> None:
    blocks = parse("a.txt", f"开头的一段。\n\n{line}\n正文第一段，讲的是泵站。\n").blocks
    assert [(b.type.value, b.content, b.metadata.get("level")) for b in blocks][1] == (
        "heading",
        " ".join(line.split()),
        level,
    )


@pytest.mark.parametrize(
    "line",
    [
        "第一章我们已经说过，泵站需要巡视",
        "第三章讲的是怎样巡视泵房以及怎样记录出口压力与流量",
        "第二节车厢坏了，请到前面上车",
        "Part of the pump is missing",
        "Chapter and verse",
        "附录中列出了全部参数。",
        "前言不搭后语",
        "第一条 为了加强管理",
        "序言：本书共三卷，讲述了三代人的故事，写于一九八〇年",
    ],
)
def test_lines_that_only_begin_like_a_chapter_are_text(parse: Parse, line: str) -> None:
    assert parse("a.txt", f"{line}\n").blocks[0].type is BlockType.TEXT


def test_form_feeds_part_paragraphs_and_vanish(parse: Parse) -> None:
    blocks = parse("a.txt", "end of page one\n\x0cstart of page two\nmore\x0cthird\n\x0c\n").blocks
    assert [(b.content, b.locator.line_start, b.locator.line_end) for b in blocks] == [
        ("end of page one", 1, 1),
        ("start of page two\nmore", 2, 3),
        ("third", 3, 3),
    ]


def test_lines_that_end_in_any_way_count_once(parse: Parse) -> None:
    blocks = parse("a.txt", "a\r\rb\r\n\r\nc\n\nd").blocks
    assert [(b.content, b.locator.line_start) for b in blocks] == [("a", 1), ("b", 3), ("c", 5), ("d", 7)]


def test_chapters_of_a_book_without_blank_lines_are_headings(parse: Parse) -> None:
    text = "第一章 起\n他来了。\n她说：“好。”\n第二章 承\n他走了，\n第三章没有写完。\n"
    blocks = parse("a.txt", text).blocks
    assert [(b.type.value, b.content, b.locator.line_start) for b in blocks] == [
        ("heading", "第一章 起", 1),
        ("text", "他来了。\n她说：“好。”", 2),
        ("heading", "第二章 承", 4),
        ("text", "他走了，\n第三章没有写完。", 5),
    ]
