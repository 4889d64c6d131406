"""PPTX: slides in order, each in the order in which a person reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pptx
import pytest
from lxml import etree
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Cm

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.parsing.drawing import diagram_lines
from rag_cluster.parsing.limits import ParseLimits
from rag_cluster.parsing.pptx import PptxParser
from rag_cluster.parsing.pptx.order import Item, in_reading_order

TITLE_ONLY, TITLE_AND_BODY, BLANK = 5, 1, 6


def parse(path: Path, limits: ParseLimits = ParseLimits()) -> ParsedDocument:
    return PptxParser(limits=limits).parse(DocumentSource("doc", 1, path.name, str(path)))


def saved(deck, tmp_path: Path) -> ParsedDocument:
    path = tmp_path / "made.pptx"
    deck.save(path)
    return parse(path)


def new_slide(deck, layout: int = BLANK, title: str = ""):
    slide = deck.slides.add_slide(deck.slide_layouts[layout])
    if title:
        slide.shapes.title.text = title
    return slide


def add_box(shapes, text: str, x: float, y: float, w: float = 5, h: float = 1):
    box = shapes.add_textbox(Cm(x), Cm(y), Cm(w), Cm(h))
    box.text_frame.text = text
    return box


def test_shapes_are_read_by_position_with_the_title_first(tmp_path):
    deck = pptx.Presentation()
    slide = new_slide(deck, TITLE_ONLY, "汇报")
    slide.shapes.title.top = Cm(15)
    for text, x, y in (("丁", 12, 10), ("丙", 1, 10), ("乙", 12, 4), ("甲", 1, 4)):
        add_box(slide.shapes, text, x, y)
    parsed = saved(deck, tmp_path)
    assert [b.content for b in parsed.blocks] == ["汇报", "甲", "乙", "丙", "丁"]
    assert parsed.blocks[0].type is BlockType.HEADING
    assert parsed.blocks[1].locator.heading_path == ("汇报",)
    assert {b.locator.slide for b in parsed.blocks} == {1}


def test_two_columns_with_a_heading_each_are_read_column_by_column():
    def item(name, x, y, w, h):
        return Item(name, (x, y, x + w, y + h))

    items = [item("R", 60, 30, 40, 60), item("r", 60, 10, 40, 10), item("L", 0, 30, 40, 60), item("l", 0, 10, 40, 10)]
    assert [i.element for i in in_reading_order(items)] == ["l", "L", "r", "R"]


def test_groups_stay_together_and_their_scale_is_applied(tmp_path):
    deck = pptx.Presentation()
    slide = new_slide(deck)
    add_box(slide.shapes, "below", 1, 12)
    group = slide.shapes.add_group_shape()
    inner = group.shapes.add_group_shape()
    add_box(inner.shapes, "right", 8, 2)
    add_box(inner.shapes, "left", 1, 2)
    add_box(group.shapes, "top", 1, 1, h=0.5)
    assert [b.content for b in saved(deck, tmp_path).blocks] == ["top", "left", "right", "below"]


def test_hidden_slides_are_out_but_count(tmp_path):
    deck = pptx.Presentation()
    for text in ("one", "hidden", "three"):
        add_box(new_slide(deck).shapes, text, 1, 1)
    deck.slides[1]._element.set("show", "0")
    deck.slides[1].notes_slide.notes_text_frame.text = "hidden notes"
    parsed = saved(deck, tmp_path)
    assert [(b.content, b.locator.slide) for b in parsed.blocks] == [("one", 1), ("three", 3)]
    assert parsed.metadata["slides"] == 3


def test_bullets_come_from_the_master_with_their_levels(tmp_path):
    deck = pptx.Presentation()
    slide = new_slide(deck, TITLE_AND_BODY, "T")
    frame = slide.placeholders[1].text_frame
    frame.text = "first"
    paragraph = frame.add_paragraph()
    paragraph.text, paragraph.level = "deeper", 1
    parsed = saved(deck, tmp_path)
    assert [(b.type, b.content, b.metadata.get("level")) for b in parsed.blocks[1:]] == [
        (BlockType.LIST, "first", 0),
        (BlockType.LIST, "deeper", 1),
    ]


def test_automatic_numbers_count_and_plain_paragraphs_are_joined(tmp_path):
    deck = pptx.Presentation()
    frame = add_box(new_slide(deck).shapes, "line one", 1, 1).text_frame
    frame.add_paragraph().text = "line two"
    for text in ("a", "b"):
        paragraph = frame.add_paragraph()
        paragraph.text = text
        properties = paragraph._p.get_or_add_pPr()
        number = etree.SubElement(properties, f"{{{properties.nsmap['a']}}}buAutoNum")
        number.set("type", "romanLcParenR")
    parsed = saved(deck, tmp_path)
    assert [(b.content, b.metadata.get("marker")) for b in parsed.blocks] == [
        ("line one\nline two", None),
        ("a", "i)"),
        ("b", "ii)"),
    ]


def test_merged_table_cells_fill_the_grid(tmp_path):
    deck = pptx.Presentation()
    table = new_slide(deck).shapes.add_table(3, 3, Cm(1), Cm(1), Cm(10), Cm(5)).table
    for row, line in enumerate([["工程", "一期", ""], ["", "土建", "设备"], ["取水口", "310", "95"]]):
        for column, text in enumerate(line):
            table.cell(row, column).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    block = saved(deck, tmp_path).blocks[0]
    assert block.metadata["rows"][:2] == [["工程", "一期", "一期"], ["工程", "土建", "设备"]]
    assert (block.metadata["header_rows"], block.locator.slide) == (2, 1)


def test_charts_give_title_and_data(tmp_path):
    deck = pptx.Presentation()
    data = CategoryChartData(number_format="0%")
    data.categories = ["Q1", "Q2"]
    data.add_series("改造前", (0.41, 0.39))
    place = (Cm(1), Cm(1), Cm(10), Cm(6))
    chart = new_slide(deck).shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "电耗变化"
    parsed = saved(deck, tmp_path)
    assert parsed.blocks[0].content == "电耗变化"
    assert parsed.blocks[1].metadata["rows"] == [["", "改造前"], ["Q1", "41%"], ["Q2", "39%"]]


def test_notes_are_one_marked_block_and_furniture_is_out(tmp_path):
    deck = pptx.Presentation()
    slide = new_slide(deck, TITLE_ONLY, "T")
    for kind in ("dt", "ftr", "sldNum"):
        box = add_box(slide.shapes, f"furniture {kind}", 1, 15)
        properties = box._element.find(".//{*}nvPr")
        etree.SubElement(properties, f"{{{box._element.nsmap['p']}}}ph").set("type", kind)
    slide.notes_slide.notes_text_frame.text = "say hello\nthen go"
    parsed = saved(deck, tmp_path)
    assert [b.content for b in parsed.blocks] == ["T", "say hello\nthen go"]
    assert parsed.blocks[1].metadata["notes"] is True
    assert parsed.blocks[1].locator.slide == 1


def test_pictures_have_their_alt_text_as_caption(tmp_path):
    deck = pptx.Presentation()
    stream = io.BytesIO()
    Image.new("RGB", (80, 60), "green").save(stream, "PNG")
    picture = new_slide(deck).shapes.add_picture(stream, Cm(1), Cm(1))
    properties = picture._element.nvPicPr.cNvPr
    properties.set("descr", "厂区平面图\n\nDescription automatically generated")
    parsed = saved(deck, tmp_path)
    assert parsed.blocks[0].metadata["caption"] == "厂区平面图"
    assert (parsed.assets[0].width, parsed.assets[0].height) == (80, 60)


def test_smartart_reads_in_the_order_of_its_tree():
    dgm = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
    a = "http://schemas.openxmlformats.org/drawingml/2006/main"

    def point(key: str, text: str = "", kind: str = "node") -> str:
        return f'<d:pt modelId="{key}" type="{kind}"><d:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></d:t></d:pt>'

    links = [("root", "b", 1), ("root", "a", 0), ("a", "c", 0)]
    xml = (
        f'<d:dataModel xmlns:d="{dgm}" xmlns:a="{a}"><d:ptLst>{point("root", kind="doc")}{point("c", "child")}'
        f"{point('b', 'second')}{point('a', 'first')}{point('x', 'no', 'parTrans')}</d:ptLst><d:cxnLst>"
        + "".join(f'<d:cxn srcId="{s}" destId="{d}" srcOrd="{o}"/>' for s, d, o in links)
        + "</d:cxnLst></d:dataModel>"
    )
    assert diagram_lines(etree.fromstring(xml)) == [(0, "first"), (1, "child"), (0, "second")]


def test_empty_damaged_and_too_long_decks_have_their_own_errors(tmp_path):
    deck = pptx.Presentation()
    new_slide(deck)
    new_slide(deck)
    path = tmp_path / "blank.pptx"
    deck.save(path)
    with pytest.raises(EmptyDocumentError):
        parse(path)
    with pytest.raises(DocumentTooLargeError):
        parse(path, ParseLimits(max_pages=1))
    (tmp_path / "cut.pptx").write_bytes(path.read_bytes()[:9000])
    with pytest.raises(CorruptDocumentError):
        parse(tmp_path / "cut.pptx")
