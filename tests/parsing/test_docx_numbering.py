"""DOCX: headings by localised and custom styles, and the numbers that Word draws before paragraphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.counters import format_number
from tests.parsing.test_docx import W, body_xml, saved, texts


def level(index: int, text: str, style: str = "decimal", extra: str = "", start: int = 1) -> str:
    return (
        f'<w:lvl w:ilvl="{index}"><w:start w:val="{start}"/><w:numFmt w:val="{style}"/>{extra}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def define(document: Any, levels: str, *overrides: str) -> None:
    """Lists 90, 91, ... of one abstract definition, each with its overrides."""
    numbering = document.part.numbering_part.element
    numbering.insert(0, parse_xml(f'<w:abstractNum {W} w:abstractNumId="90">{levels}</w:abstractNum>'))
    for offset, override in enumerate(overrides or ("",)):
        numbering.append(
            parse_xml(f'<w:num {W} w:numId="{90 + offset}"><w:abstractNumId w:val="90"/>{override}</w:num>')
        )


def numbered(text: str, index: int = 0, number: int = 90) -> str:
    return (
        f'<w:p><w:pPr><w:numPr><w:ilvl w:val="{index}"/><w:numId w:val="{number}"/></w:numPr></w:pPr>'
        f"<w:r><w:t>{text}</w:t></w:r></w:p>"
    )


def markers(document: Any, tmp_path: Path) -> list[str]:
    return [block.metadata["marker"] for block in saved(document, tmp_path).blocks if block.type is BlockType.LIST]


def test_a_marker_of_several_levels_shows_the_numbers_of_all(tmp_path: Path) -> None:
    document = docx.Document()
    define(document, level(0, "%1.") + level(1, "%1.%2") + level(2, "(%1-%2-%3)", "lowerLetter"))
    for index in (0, 1, 1, 2, 2, 0, 1, 2):
        body_xml(document, numbered("item", index))
    assert markers(document, tmp_path) == ["1.", "1.1", "1.2", "(1-2-a)", "(1-2-b)", "2.", "2.1", "(2-1-a)"]


def test_a_start_override_begins_again_and_a_list_without_one_goes_on(tmp_path: Path) -> None:
    document = docx.Document()
    define(document, level(0, "%1)"), "", '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="5"/></w:lvlOverride>', "")
    for number in (90, 90, 91, 91, 92):
        body_xml(document, numbered("item", 0, number))
    assert markers(document, tmp_path) == ["1)", "2)", "5)", "6)", "7)"]


def test_an_overridden_level_is_drawn_its_own_way(tmp_path: Path) -> None:
    document = docx.Document()
    own = f'<w:lvlOverride w:ilvl="0">{level(0, "附件%1：", "chineseCounting")}</w:lvlOverride>'
    define(document, level(0, "%1."), own)
    body_xml(document, numbered("one") + numbered("two"))
    assert markers(document, tmp_path) == ["附件一：", "附件二："]


def test_a_level_that_never_restarts_counts_through(tmp_path: Path) -> None:
    document = docx.Document()
    define(
        document,
        level(0, "第%1章", "chineseCounting") + level(1, "第%2条", "chineseCounting", '<w:lvlRestart w:val="0"/>'),
    )
    for index in (0, 1, 1, 0, 1):
        body_xml(document, numbered("x", index))
    assert markers(document, tmp_path) == ["第一章", "第一条", "第二条", "第二章", "第三条"]


def test_a_start_value_and_a_restart_after_a_higher_level(tmp_path: Path) -> None:
    document = docx.Document()
    define(
        document,
        level(0, "%1", "upperRoman", start=4) + level(1, "%2.") + level(2, "%3)", extra='<w:lvlRestart w:val="1"/>'),
    )
    for index in (0, 1, 2, 1, 2, 0, 1, 2):
        body_xml(document, numbered("x", index))
    assert markers(document, tmp_path) == ["IV", "1.", "1)", "2.", "2)", "V", "1.", "1)"]


def test_numbers_in_table_cells_and_bullets_of_symbol_fonts(tmp_path: Path) -> None:
    document = docx.Document()
    define(document, level(0, "%1.") + level(1, "\uf0d8", "bullet"))
    cell = f"<w:tc>{numbered('wash')}{numbered('dry')}</w:tc><w:tc><w:p><w:r><w:t>note</w:t></w:r></w:p></w:tc>"
    body_xml(document, f"<w:tbl><w:tr>{cell}</w:tr></w:tbl>{numbered('arrow', 1)}")
    parsed = saved(document, tmp_path)
    assert parsed.blocks[0].metadata["rows"] == [["1. wash\n2. dry", "note"]]
    assert parsed.blocks[1].metadata["marker"] == "➢"


def test_number_zero_takes_the_style_s_number_away(tmp_path: Path) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("plain again", style="List Number")
    paragraph._p.get_or_add_pPr().append(parse_xml(f'<w:numPr {W}><w:numId w:val="0"/></w:numPr>'))
    assert saved(document, tmp_path).blocks[0].type is BlockType.TEXT


@pytest.mark.parametrize(
    ("value", "style", "shown"),
    [
        (3, "lowerRoman", "iii"), (1994, "upperRoman", "MCMXCIV"), (26, "upperLetter", "Z"), (27, "upperLetter", "AA"),
        (10, "chineseCounting", "十"), (20, "chineseCounting", "二十"), (101, "chineseCountingThousand", "一百零一"),
        (1010, "chineseCountingThousand", "一千零一十"), (12, "chineseLegalSimplified", "壹拾贰"),
        (12, "ideographLegalTraditional", "壹拾貳"), (12, "ideographDigital", "一二"), (10, "japaneseCounting", "十"),
        (5, "ideographEnclosedCircle", "㊄"), (2, "ideographZodiac", "丑"), (11, "ideographTraditional", "甲"),
        (60, "ideographZodiacTraditional", "癸亥"), (3, "aiueo", "ウ"), (3, "iroha", "ハ"), (2, "ganada", "나"),
        (2, "chosung", "ㄴ"), (4, "numberInDash", "- 4 -"), (3, "decimalEnclosedCircleChinese", "③"),
        (4, "decimalEnclosedParen", "(4)"), (4, "decimalEnclosedFullstop", "4."), (12, "decimalFullWidth", "１２"),
        (3, "russianUpper", "В"), (255, "hex", "FF"), (3, "chicago", "‡"), (11, "ordinal", "11th"),
        (21, "cardinalText", "Twenty-one"), (3, "ordinalText", "Third"), (0, "none", ""), (7, "unknownFormat", "7"),
    ],
)  # fmt: skip
def test_counters_in_the_formats_of_east_and_west(value: int, style: str, shown: str) -> None:
    assert format_number(value, style) == shown


@pytest.mark.parametrize(
    ("name", "depth"),
    [("heading 1", 1), ("Heading 4", 4), ("标题 1", 1), ("标题2", 2), ("標題 3", 3), ("見出し 1", 1), ("제목 2", 2),
     ("Überschrift 1", 1), ("Titre 1", 1), ("Título 2", 2), ("Titolo 3", 3), ("Rubrik 1", 1), ("Kop 2", 2),
     ("Nagłówek 1", 1), ("Заголовок 2", 2), ("Otsikko 1", 1), ("Nadpis 3", 3), ("Cím 1", 1), ("Başlık 2", 2)],
)  # fmt: skip
def test_a_style_with_a_heading_s_name_in_any_language_and_what_is_based_on_it(
    tmp_path: Path, name: str, depth: int
) -> None:
    document = docx.Document()
    # As another program writes them: the name is all there is, the id says nothing.
    document.styles.element.append(
        parse_xml(f'<w:style {W} w:type="paragraph" w:styleId="a9"><w:name w:val="{name}"/></w:style>')
    )
    for key, base in (("b1", "a9"), ("b2", "b1")):
        document.styles.element.append(
            parse_xml(
                f'<w:style {W} w:type="paragraph" w:styleId="{key}"><w:name w:val="自定义 {key}"/>'
                f'<w:basedOn w:val="{base}"/></w:style>'
            )
        )
    for key in ("a9", "b1", "b2"):
        body_xml(document, f'<w:p><w:pPr><w:pStyle w:val="{key}"/></w:pPr><w:r><w:t>总则</w:t></w:r></w:p>')
    assert [b.metadata.get("level") for b in saved(document, tmp_path).blocks] == [min(depth, 6)] * 3


def test_a_style_based_on_a_heading_can_be_body_text(tmp_path: Path) -> None:
    document = docx.Document()
    style = document.styles.add_style("Run-in", WD_STYLE_TYPE.PARAGRAPH)
    style.base_style = document.styles["Heading 1"]
    style.element.get_or_add_pPr().append(parse_xml(f'<w:outlineLvl {W} w:val="9"/>'))
    document.add_paragraph("Only looks like one", style="Run-in")
    assert saved(document, tmp_path).blocks[0].type is BlockType.TEXT


def test_the_built_in_list_styles_tell_the_nesting(tmp_path: Path) -> None:
    document = docx.Document()
    for style in ("List Bullet", "List Bullet 2", "List Bullet 3", "List Number", "List Number 2"):
        document.add_paragraph(style, style=style)
    levels = [block.metadata["level"] for block in saved(document, tmp_path).blocks]
    assert levels == [0, 1, 2, 0, 1]


def test_headings_take_their_numbers_from_the_style_s_list(tmp_path: Path) -> None:
    document = docx.Document()
    define(
        document,
        level(0, "%1", extra='<w:pStyle w:val="Heading1"/>') + level(1, "%1.%2", extra='<w:pStyle w:val="Heading2"/>'),
    )
    for name in ("Heading 1", "Heading 2"):
        document.styles[name].element.get_or_add_pPr().append(
            parse_xml(f'<w:numPr {W}><w:numId w:val="90"/></w:numPr>')
        )
    for text, depth in (("Scope", 1), ("Terms", 2), ("Units", 2), ("Tests", 1), ("Load", 2)):
        document.add_heading(text, depth)
    assert texts(saved(document, tmp_path)) == ["1 Scope", "1.1 Terms", "1.2 Units", "2 Tests", "2.1 Load"]


def test_the_title_is_a_heading_and_the_subtitle_none(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("Handbook", 0)
    document.add_paragraph("Third edition", style="Subtitle")
    blocks = saved(document, tmp_path).blocks
    assert [(b.type, b.metadata.get("level"), b.metadata.get("role")) for b in blocks] == [
        (BlockType.HEADING, 1, None),
        (BlockType.TEXT, None, "subtitle"),
    ]
