"""DOCX: tables with ragged and merged rows, charts, SmartArt, pictures and their captions, embedded documents."""

from __future__ import annotations

import zipfile
from email.message import EmailMessage
from pathlib import Path

import docx
import pytest
from docx.oxml.ns import nsdecls

from rag_cluster.domain.blocks import Block, BlockType, ParsedDocument
from tests.parsing.test_docx import REL, W, body_xml, parse, png, saved, texts, with_parts

C = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
DGM = 'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
A = nsdecls("a")


def paragraph(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def span(columns: int) -> str:
    return f'<w:gridSpan w:val="{columns}"/>'


DOWN, GOES_ON = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"


def rows_of(tmp_path: Path, *rows: str) -> list[list[str]]:
    document = docx.Document()
    body_xml(document, "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>")
    return list(next(b for b in saved(document, tmp_path).blocks if b.type is BlockType.TABLE).metadata["rows"])


# -- tables --


def test_spans_over_both_directions_fill_the_block(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path,
        cell("A", span(2) + DOWN) + cell("b"),
        cell("", span(2) + GOES_ON) + cell("c"),
        cell("x") + cell("y") + cell("z"),
    )
    assert rows == [["A", "A", "b"], ["A", "A", "c"], ["x", "y", "z"]]


def test_ragged_rows_are_filled_and_their_indents_counted(tmp_path: Path) -> None:
    before = '<w:trPr><w:gridBefore w:val="1"/></w:trPr>'
    rows = rows_of(
        tmp_path, cell("a") + cell("b") + cell("c"), before + cell("indented"), cell("alone"), cell("w", span(3))
    )
    assert rows == [["a", "b", "c"], ["", "indented", ""], ["alone", "", ""], ["w", "w", "w"]]


def test_a_merge_that_goes_on_over_rows_of_other_widths(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path,
        cell("区", DOWN) + cell("一") + cell("二"),
        cell("", GOES_ON) + cell("both", span(2)),
        cell("", GOES_ON) + cell("only"),
        cell("新", DOWN) + cell("1") + cell("2"),
    )
    assert rows == [["区", "一", "二"], ["区", "both", "both"], ["区", "only", ""], ["新", "1", "2"]]


def test_old_horizontal_merges_and_several_paragraphs_in_a_cell(tmp_path: Path) -> None:
    rows = rows_of(
        tmp_path,
        cell("wide", '<w:hMerge w:val="restart"/>') + cell("", "<w:hMerge/>"),
        f"<w:tc>{paragraph('one')}{paragraph('two')}</w:tc>" + cell("x"),
    )
    assert rows == [["wide", "wide"], ["one\ntwo", "x"]]


def test_tables_inside_cells_of_any_depth_are_tables_after_the_outer_one(tmp_path: Path) -> None:
    inner = f"<w:tbl><w:tr>{cell('deep')}{cell('est')}</w:tr></w:tbl>"
    middle = f"<w:tbl><w:tr>{cell('mid')}<w:tc>{inner}<w:p/></w:tc></w:tr></w:tbl>"
    document = docx.Document()
    body_xml(document, f"<w:tbl><w:tr>{cell('out')}<w:tc>{middle}<w:p/></w:tc></w:tr></w:tbl>")
    tables = [b.metadata["rows"] for b in saved(document, tmp_path).blocks]
    assert tables == [[["out", ""]], [["mid", ""]], [["deep", "est"]]]


def test_a_caption_above_a_table_is_its_caption(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("表 2 水量", style="Caption")
    document.add_table(2, 2).cell(0, 0).text = "x"
    table = saved(document, tmp_path).blocks[-1]
    assert (table.type, table.metadata["caption"]) == (BlockType.TABLE, "表 2 水量")


# -- charts and SmartArt --


def drawing(graphic: str, properties: str = "") -> str:
    return (
        f"<w:p><w:r><w:drawing><wp:inline><wp:docPr id='1' name='x' {properties}/><a:graphic><a:graphicData>{graphic}"
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )


def values(tag: str, texts: list[str], kind: str, code: str = "") -> str:
    points = "".join(f'<c:pt idx="{i}"><c:v>{t}</c:v></c:pt>' for i, t in enumerate(texts))
    shown = f"<c:formatCode>{code}</c:formatCode>" if code else ""
    return (
        f"<c:{tag}><c:{kind}Ref><c:f>S!A1</c:f><c:{kind}Cache>{shown}{points}</c:{kind}Cache></c:{kind}Ref></c:{tag}>"
    )


def chart_space(chart: str) -> str:
    return f"<c:chartSpace {C}><c:chart>{chart}</c:chart></c:chartSpace>"


def test_a_chart_gives_its_titles_and_its_values_by_category(tmp_path: Path) -> None:
    series = "".join(
        f"<c:ser>{values('tx', [name], 'str')}{values('cat', ['一月', '二月'], 'str')}"
        f"{values('val', own, 'num', '0.0%')}</c:ser>"
        for name, own in (("漏损率", ["0.096", "0.1"]), ("目标", ["0.09", "0.09"]))
    )
    title = f"<c:title><c:tx><c:rich><a:p {A}><a:r><a:t>漏损</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    chart = chart_space(f"{title}<c:plotArea><c:lineChart>{series}</c:lineChart></c:plotArea>")
    path = with_parts(
        tmp_path,
        drawing(f'<c:chart {C} r:id="c1"/>'),
        {"word/charts/chart1.xml": chart.encode()},
        REL.format("c1", "chart", "charts/chart1.xml"),
    )
    title_block, table = parse(path).blocks
    assert title_block.content == "漏损"
    assert table.metadata["rows"] == [["", "漏损率", "目标"], ["一月", "9.6%", "9.0%"], ["二月", "10.0%", "9.0%"]]
    assert table.metadata["caption"] == "漏损"


def test_smartart_gives_its_texts_as_a_list(tmp_path: Path) -> None:
    def point(key: str, text: str, kind: str = "node") -> str:
        return (
            f'<dgm:pt modelId="{key}" type="{kind}"><dgm:t><a:p {A}><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        )

    links = "".join(
        f'<dgm:cxn srcId="{a}" destId="{b}" srcOrd="{n}"/>' for a, b, n in (("0", "2", 1), ("0", "1", 0), ("1", "3", 0))
    )
    data = (
        f"<dgm:dataModel {DGM}><dgm:ptLst>{point('0', '', 'doc')}{point('2', '结算')}{point('1', '申请')}"
        f"{point('3', '审核')}</dgm:ptLst><dgm:cxnLst>{links}</dgm:cxnLst></dgm:dataModel>"
    )
    path = with_parts(
        tmp_path,
        drawing(f'<dgm:relIds {DGM} r:dm="d1"/>'),
        {"word/diagrams/data1.xml": data.encode()},
        REL.format("d1", "diagramData", "diagrams/data1.xml"),
    )
    assert [(b.content, b.metadata["level"]) for b in parse(path).blocks] == [("申请", 0), ("审核", 1), ("结算", 0)]


# -- pictures --


def pictured(tmp_path: Path, *after: tuple[str, str | None]) -> list[Block]:
    document = docx.Document()
    document.add_paragraph("Before.")
    document.add_picture(png())
    for text, style in after:
        document.add_paragraph(text, style=style)
    return list(saved(document, tmp_path).blocks)


@pytest.mark.parametrize("caption", [("Figure 3: The weir", None), ("图3 泵站", None), ("Weir", "Caption")])
def test_the_caption_below_a_picture_is_its_caption(tmp_path: Path, caption: tuple[str, str | None]) -> None:
    blocks = pictured(tmp_path, caption, ("After.", None))
    assert [(b.type, b.metadata.get("caption")) for b in blocks] == [
        (BlockType.TEXT, None),
        (BlockType.IMAGE, caption[0]),
        (BlockType.TEXT, None),
    ]


def test_text_that_follows_a_picture_is_no_caption(tmp_path: Path) -> None:
    blocks = pictured(tmp_path, ("The weir was built in 1950.", None))
    assert [b.type for b in blocks] == [BlockType.TEXT, BlockType.IMAGE, BlockType.TEXT]
    assert blocks[1].metadata["caption"] == ""


def test_pictures_inside_cells_and_text_boxes_are_kept_once_each(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    table.cell(0, 0).paragraphs[0].add_run().add_picture(png())
    table.cell(1, 1).text = "text"
    table.cell(1, 0).paragraphs[0].add_run().add_picture(png(70, 50, "blue"))
    parsed = saved(document, tmp_path)
    assert sorted(b.type.value for b in parsed.blocks) == ["image", "image", "table"]
    assert len(parsed.assets) == 2


def test_a_picture_used_twice_is_one_asset_of_two_blocks(tmp_path: Path) -> None:
    document = docx.Document()
    for _ in range(2):
        document.add_picture(png())
    parsed = saved(document, tmp_path)
    assert (len(parsed.blocks), len(parsed.assets)) == (2, 1)
    assert {b.metadata["asset_id"] for b in parsed.blocks} == {parsed.assets[0].id}


# -- embedded documents --


def embedded(tmp_path: Path, name: str, content: bytes) -> ParsedDocument:
    body = f'{paragraph("before")}<w:altChunk r:id="h1"/>{paragraph("after")}'
    return parse(with_parts(tmp_path, body, {f"word/{name}": content}, REL.format("h1", "aFChunk", name)))


def test_embedded_text_rtf_and_mail_archives_are_read_in_place(tmp_path: Path) -> None:
    message = EmailMessage()
    message.set_content("<html><body><p>第一段</p><ul><li>项</li></ul></body></html>", subtype="html")
    mail = b"MIME-Version: 1.0\n" + message.as_bytes()
    for name, content, shown in (
        ("a.txt", "第一段\n\n第二段".encode("gb18030"), ["第一段", "第二段"]),
        ("a.rtf", rb"{\rtf1\ansi\ansicpg936 \'d6\'d0\'ce\'c4\par text}", ["中文", "text"]),
        ("a.mht", mail, ["第一段", "项"]),
    ):
        assert texts(embedded(tmp_path, name, content)) == ["before", *shown, "after"]


def test_a_document_inside_a_document_keeps_its_tables_and_headings(tmp_path: Path) -> None:
    inner = docx.Document()
    inner.add_heading("Annex", 1)
    inner.add_table(2, 2).cell(0, 0).text = "x"
    inner.save(tmp_path / "inner.docx")
    kinds = [b.type.value for b in embedded(tmp_path, "in.docx", (tmp_path / "inner.docx").read_bytes()).blocks]
    assert kinds == ["text", "heading", "table", "text"]


def test_documents_inside_documents_end_at_a_depth(tmp_path: Path) -> None:
    content = b""
    for depth in range(8):
        body = f'{paragraph(f"level {depth}")}<w:altChunk r:id="h1"/>'
        parts = {"word/in.docx": content} if content else {}
        path = with_parts(tmp_path, body, parts, REL.format("h1", "aFChunk", "in.docx"))
        content = path.read_bytes()
    assert texts(parse(path)) == ["level 7", "level 6", "level 5", "level 4"]


# -- strict --


def test_a_strict_document_with_chart_notes_and_pictures_reads_like_a_usual_one(tmp_path: Path) -> None:
    notes = f'<w:footnotes {W}><w:footnote w:id="1">{paragraph("note")}</w:footnote></w:footnotes>'
    series = f"<c:ser>{values('cat', ['a'], 'str')}{values('val', ['1.50'], 'num')}</c:ser>"
    chart = chart_space(f"<c:plotArea><c:pieChart>{series}</c:pieChart></c:plotArea>")
    body = (
        '<w:p><w:r><w:t>text</w:t></w:r><w:r><w:footnoteReference w:id="1"/></w:r></w:p>'
        + drawing(f'<c:chart {C} r:id="c1"/>')
        + "<w:p><m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
        + "</m:oMath></w:p>"
    )
    usual = with_parts(
        tmp_path,
        body,
        {"word/footnotes.xml": notes.encode(), "word/charts/chart1.xml": chart.encode()},
        REL.format("n1", "footnotes", "footnotes.xml") + REL.format("c1", "chart", "charts/chart1.xml"),
    )
    strict = tmp_path / "strict.docx"
    with zipfile.ZipFile(usual) as old, zipfile.ZipFile(strict, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            for kind in (b"wordprocessingml", b"drawingml", b"officeDocument"):
                content = content.replace(
                    b"http://schemas.openxmlformats.org/" + kind + b"/2006/",
                    b"http://purl.oclc.org/ooxml/" + kind + b"/",
                )
            new.writestr(name, content)
    assert texts(parse(strict)) == texts(parse(usual))
    assert texts(parse(strict))[:2] == ["text[^1]", "[^1]: note"] and "x^2" in texts(parse(strict))


def test_a_document_embedded_in_a_cell_stands_after_the_table(tmp_path: Path) -> None:
    body = f'<w:tbl><w:tr>{cell("a")}<w:tc>{paragraph("b")}<w:altChunk r:id="h1"/><w:p/></w:tc></w:tr></w:tbl>'
    parsed = parse(with_parts(tmp_path, body, {"word/a.txt": b"inside"}, REL.format("h1", "aFChunk", "a.txt")))
    assert [(b.type.value, b.metadata.get("rows", b.content)) for b in parsed.blocks] == [
        ("table", [["a", "b"]]), ("text", "inside"),
    ]  # fmt: skip
