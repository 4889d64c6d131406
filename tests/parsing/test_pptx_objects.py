"""PPTX: transformed groups, charts, SmartArt, placeholders, layouts, tables, pictures and what is left out."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pptx
import pytest
from lxml import etree
from PIL import Image
from pptx.chart.data import BubbleChartData, CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.util import Cm

from rag_cluster.domain.blocks import BlockType
from tests.parsing.test_pptx import BLANK, TITLE_AND_BODY, TITLE_ONLY, add_box, new_slide, parse, saved

P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DGM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
PLACE = (Cm(1), Cm(1), Cm(10), Cm(6))


def contents(deck: Any, tmp_path: Path) -> list[str]:
    return [block.content for block in saved(deck, tmp_path).blocks]


def grouped(deck: Any, **transform: str) -> Any:
    """A slide with a group of "left" and "right", the group's frame given attributes such as flipH."""
    slide = new_slide(deck)
    group = slide.shapes.add_group_shape()
    add_box(group.shapes, "left", 1, 2, w=4)
    add_box(group.shapes, "right", 10, 2, w=4)
    frame = group._element.grpSpPr.find(f"{{{A}}}xfrm")
    for name, value in transform.items():
        frame.set(name, value)
    return slide


# -- groups --


@pytest.mark.parametrize(
    ("transform", "order"),
    [({}, ["left", "right"]), ({"flipH": "1"}, ["right", "left"]), ({"flipV": "1"}, ["left", "right"]),
     ({"rot": "10800000"}, ["right", "left"]), ({"rot": "5400000"}, ["left", "right"]),
     ({"rot": "16200000"}, ["right", "left"])],
)  # fmt: skip
def test_a_mirrored_or_turned_group_is_read_as_it_shows(
    tmp_path: Path, transform: dict[str, str], order: list[str]
) -> None:
    deck = pptx.Presentation()
    grouped(deck, **transform)
    assert contents(deck, tmp_path) == order


def test_a_scaled_group_lies_where_it_is_shown(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck)
    add_box(slide.shapes, "middle", 1, 8)
    group = slide.shapes.add_group_shape()
    add_box(group.shapes, "in the group", 1, 1)
    frame = group._element.grpSpPr.find(f"{{{A}}}xfrm")
    frame.find(f"{{{A}}}off").set("y", str(Cm(12)))
    assert contents(deck, tmp_path) == ["middle", "in the group"]


# -- tables --


def test_a_table_without_header_and_with_merges_both_ways(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    table = new_slide(deck).shapes.add_table(3, 3, *PLACE).table
    table.first_row = False
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"{row}{column}"
    table.cell(0, 0).merge(table.cell(1, 1))
    block = saved(deck, tmp_path).blocks[0]
    assert block.metadata["rows"][0][:2] == block.metadata["rows"][1][:2]
    assert len({block.metadata["rows"][r][c] for r in (0, 1) for c in (0, 1)}) == 1
    assert block.metadata["header_rows"] == 0


# -- charts --


def test_a_chart_of_categories_has_a_column_a_series(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    data = CategoryChartData()
    data.categories = ["东区", "西区"]
    data.add_series("一月", (1, None))
    data.add_series("二月", (2.5, 3))
    new_slide(deck).shapes.add_chart(XL_CHART_TYPE.LINE, *PLACE, data)
    (block,) = saved(deck, tmp_path).blocks
    assert block.metadata["rows"] == [["", "一月", "二月"], ["东区", "1", "2.5"], ["西区", "", "3"]]


def test_a_chart_of_nested_categories_joins_their_names(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    data = CategoryChartData()
    for year in ("2023", "2024"):
        category = data.add_category(year)
        for half in ("H1", "H2"):
            category.add_sub_category(half)
    data.add_series("s", (1, 2, 3, 4))
    new_slide(deck).shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *PLACE, data)
    rows = saved(deck, tmp_path).blocks[0].metadata["rows"]
    assert [row[0] for row in rows[1:]] == ["2023 / H1", "2023 / H2", "2024 / H1", "2024 / H2"]


def test_charts_of_points_and_bubbles_show_both_coordinates(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    points = XyChartData()
    series = points.add_series("probe")
    for x, y in ((0.5, 10), (1.5, 20)):
        series.add_data_point(x, y)
    new_slide(deck).shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, *PLACE, points)
    bubbles = BubbleChartData()
    bubbles.add_series("tank").add_data_point(1, 2, 30)
    new_slide(deck).shapes.add_chart(XL_CHART_TYPE.BUBBLE, *PLACE, bubbles)
    first, second = (b.metadata["rows"] for b in saved(deck, tmp_path).blocks)
    assert first == [["", "probe"], ["0.5", "10"], ["1.5", "20"]]
    assert second == [["", "tank", "tank (size)"], ["1", "2", "30"]]


# -- SmartArt --


def test_smartart_is_a_list_with_levels(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck)
    frame = (
        f'<p:graphicFrame xmlns:p="{P}" xmlns:a="{A}"><p:nvGraphicFramePr><p:cNvPr id="9" name="d"/>'
        '<p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="9" cy="9"/>'
        f'</p:xfrm><a:graphic><a:graphicData uri="{DGM}"><dgm:relIds xmlns:dgm="{DGM}" xmlns:r="{R}" r:dm="rIdDm"/>'
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )
    slide.shapes._spTree.append(parse_xml(frame))
    deck.save(tmp_path / "plain.pptx")

    def point(key: str, text: str, kind: str = "node") -> str:
        return f'<d:pt modelId="{key}" type="{kind}"><d:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></d:t></d:pt>'

    data = (
        f'<d:dataModel xmlns:d="{DGM}" xmlns:a="{A}"><d:ptLst>{point("0", "", "doc")}'
        f'{point("1", "计划")}{point("2", "分解")}</d:ptLst><d:cxnLst><d:cxn srcId="0" destId="1" srcOrd="0"/>'
        '<d:cxn srcId="1" destId="2" srcOrd="0"/></d:cxnLst></d:dataModel>'
    )
    link = f'<Relationship Id="rIdDm" Type="{R}/diagramData" Target="../diagrams/data1.xml"/></Relationships>'
    with zipfile.ZipFile(tmp_path / "plain.pptx") as old, zipfile.ZipFile(tmp_path / "art.pptx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "ppt/slides/_rels/slide1.xml.rels":
                content = content.replace(b"</Relationships>", link.encode())
            new.writestr(name, content)
        new.writestr("ppt/diagrams/data1.xml", data)
    blocks = parse(tmp_path / "art.pptx").blocks
    assert [(b.type, b.content, b.metadata["level"]) for b in blocks] == [
        (BlockType.LIST, "计划", 0),
        (BlockType.LIST, "分解", 1),
    ]


# -- what is shown and what is not --


def test_prompts_of_layouts_and_empty_placeholders_are_not_shown(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    layout = deck.slide_layouts[TITLE_AND_BODY]
    layout.placeholders[0].text_frame.text = "Click to add a title"
    slide = new_slide(deck, TITLE_AND_BODY)
    add_box(slide.shapes, "only this", 1, 15)
    assert contents(deck, tmp_path) == ["only this"]


def test_notes_of_the_slide_are_marked_and_the_page_s_furniture_is_out(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck, TITLE_ONLY, "T")
    slide.notes_slide.notes_text_frame.text = "讲稿第一段\n第二段"
    number = parse_xml(
        f'<p:sp xmlns:p="{P}" xmlns:a="{A}"><p:nvSpPr><p:cNvPr id="7" name="n"/><p:cNvSpPr/><p:nvPr>'
        "<p:ph type='sldNum'/></p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:p>"
        "<a:fld id='{1}' type='slidenum'><a:t>7</a:t></a:fld></a:p>"
        "</p:txBody></p:sp>"
    )
    slide.notes_slide.shapes._spTree.append(number)
    blocks = saved(deck, tmp_path).blocks
    assert [(b.content, b.metadata.get("notes")) for b in blocks] == [("T", None), ("讲稿第一段\n第二段", True)]


def test_the_number_of_a_slide_is_left_out_of_any_text(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    box = add_box(new_slide(deck).shapes, "Page ", 1, 1)
    field = etree.SubElement(box.text_frame.paragraphs[0]._p, f"{{{A}}}fld", id="{1}", type="slidenum")
    etree.SubElement(field, f"{{{A}}}t").text = "12"
    assert contents(deck, tmp_path) == ["Page"]


def test_hidden_shapes_are_out(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck)
    add_box(slide.shapes, "shown", 1, 1)
    add_box(slide.shapes, "hidden", 1, 3)._element.nvSpPr.cNvPr.set("hidden", "1")
    assert contents(deck, tmp_path) == ["shown"]


def test_a_shape_of_two_versions_is_read_once(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck)
    shape = add_box(slide.shapes, "version", 1, 1)._element
    mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    wrapper = etree.Element(f"{{{mc}}}AlternateContent")
    for name in ("Choice", "Fallback"):
        branch = etree.SubElement(wrapper, f"{{{mc}}}{name}")
        branch.append(etree.fromstring(etree.tostring(shape)))
    shape.getparent().replace(shape, wrapper)
    assert contents(deck, tmp_path) == ["version"]


def test_levels_reach_down_and_bullets_can_be_switched_off(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    frame = new_slide(deck, TITLE_AND_BODY, "T").placeholders[1].text_frame
    frame.text = "0"
    for level in (1, 2, 4):
        paragraph = frame.add_paragraph()
        paragraph.text, paragraph.level = str(level), level
    plain = frame.add_paragraph()
    plain.text = "no bullet"
    etree.SubElement(plain._p.get_or_add_pPr(), f"{{{A}}}buNone")
    blocks = saved(deck, tmp_path).blocks[1:]
    assert [(b.type.value, b.content, b.metadata.get("level")) for b in blocks] == [
        ("list", "0", 0), ("list", "1", 1), ("list", "2", 2), ("list", "4", 4), ("text", "no bullet", None),
    ]  # fmt: skip


def test_decorative_and_tiny_pictures_are_out_and_one_picture_is_one_asset(tmp_path: Path) -> None:
    deck = pptx.Presentation()

    def png(size: tuple[int, int]) -> io.BytesIO:
        stream = io.BytesIO()
        Image.new("RGB", size, "green").save(stream, "PNG")
        stream.seek(0)
        return stream

    for _ in range(2):
        new_slide(deck).shapes.add_picture(png((80, 60)), Cm(1), Cm(1))
    slide = deck.slides[0]
    slide.shapes.add_picture(png((300, 4)), Cm(1), Cm(9))
    marked = slide.shapes.add_picture(png((81, 60)), Cm(1), Cm(12))._element.nvPicPr.cNvPr
    marked.append(
        etree.fromstring(
            f'<a:extLst xmlns:a="{A}"><a:ext uri="x"><d:decorative val="1" '
            'xmlns:d="http://schemas.microsoft.com/office/drawing/2017/decorative"/></a:ext></a:extLst>'
        )
    )
    parsed = saved(deck, tmp_path)
    assert [(b.type, b.locator.slide) for b in parsed.blocks] == [(BlockType.IMAGE, 1), (BlockType.IMAGE, 2)]
    assert len(parsed.assets) == 1


def test_a_strict_deck_reads_like_a_usual_one(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck, TITLE_AND_BODY, "T")
    slide.placeholders[1].text_frame.text = "item"
    slide.notes_slide.notes_text_frame.text = "notes"
    table = slide.shapes.add_table(2, 2, *PLACE).table
    table.cell(0, 0).text = "cell"
    usual = saved(deck, tmp_path)
    with zipfile.ZipFile(tmp_path / "made.pptx") as old, zipfile.ZipFile(tmp_path / "strict.pptx", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            for kind in (b"presentationml", b"drawingml", b"officeDocument"):
                content = content.replace(
                    b"http://schemas.openxmlformats.org/" + kind + b"/2006/",
                    b"http://purl.oclc.org/ooxml/" + kind + b"/",
                )
            new.writestr(name, content)
    strict = parse(tmp_path / "strict.pptx")
    assert [(b.type, b.content) for b in strict.blocks] == [(b.type, b.content) for b in usual.blocks]


def test_three_columns_below_a_wide_box_are_read_one_after_the_other(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    slide = new_slide(deck, BLANK)
    for text, x, y, w, h in (
        ("c1", 17, 4, 7, 10), ("a1", 1, 4, 7, 4), ("b1", 9, 4, 7, 4), ("a2", 1, 9, 7, 5), ("b2", 9, 9, 7, 5),
        ("wide", 1, 1, 23, 2),
    ):  # fmt: skip
        add_box(slide.shapes, text, x, y, w, h)
    assert contents(deck, tmp_path) == ["wide", "a1", "a2", "b1", "b2", "c1"]


def test_raised_digits_stay_raised(tmp_path: Path) -> None:
    deck = pptx.Presentation()
    paragraph = add_box(new_slide(deck).shapes, "10", 1, 1).text_frame.paragraphs[0]
    raised = paragraph.add_run()
    raised.text = "6"
    raised._r.get_or_add_rPr().set("baseline", "30000")
    assert contents(deck, tmp_path) == ["10⁶"]
