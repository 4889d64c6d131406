"""DOCX: what a reader of the printed document sees becomes blocks."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from PIL import Image

from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, EmptyDocumentError, EncryptedDocumentError
from rag_cluster.parsing.counters import format_number
from rag_cluster.parsing.docx import DocxParser
from rag_cluster.parsing.docx.alt_chunk import rtf_text

W = nsdecls("w")
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
WPS = 'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'


def parse(path: Path) -> ParsedDocument:
    return DocxParser().parse(DocumentSource("doc", 1, path.name, str(path)))


def saved(document, tmp_path: Path) -> ParsedDocument:
    path = tmp_path / "made.docx"
    document.save(path)
    return parse(path)


def texts(parsed: ParsedDocument, kind: BlockType | None = None) -> list[str]:
    return [block.content for block in parsed.blocks if kind in (None, block.type)]


def body_xml(document, xml: str) -> None:
    """Insert raw body elements before the section properties."""
    wrapper = parse_xml(f"<w:body {W} {MC} {WPS} {nsdecls('m', 'a', 'wp', 'pic', 'r')}>{xml}</w:body>")
    for child in list(wrapper):
        document.element.body.insert_element_before(child, "w:sectPr")


def png(width: int = 60, height: int = 40, color: str = "red") -> io.BytesIO:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), color).save(stream, "PNG")
    stream.seek(0)
    return stream


def rewritten(source: Path, target: Path, change) -> Path:
    """A copy of a package whose XML parts went through change(name, bytes)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return target


def test_headings_follow_style_inheritance_and_outline_levels(tmp_path):
    document = docx.Document()
    custom = document.styles.add_style("章节", WD_STYLE_TYPE.PARAGRAPH)
    custom.base_style = document.styles["Heading 2"]
    document.add_heading("总则", 1)
    document.add_paragraph("范围", style="章节")
    body_xml(document, '<w:p><w:pPr><w:outlineLvl w:val="2"/></w:pPr><w:r><w:t>细则</w:t></w:r></w:p>')
    document.add_paragraph("正文。")
    parsed = saved(document, tmp_path)
    assert [(b.content, b.metadata["level"]) for b in parsed.blocks[:3]] == [("总则", 1), ("范围", 2), ("细则", 3)]
    assert parsed.blocks[3].locator.heading_path == ("总则", "范围", "细则")


def test_localised_heading_style_names_are_headings(tmp_path):
    document = docx.Document()
    for name in ("Überschrift 2", "标题 3"):
        document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH).base_style = None
        document.add_paragraph(f"text in {name}", style=name)
    assert [b.metadata.get("level") for b in saved(document, tmp_path).blocks] == [2, 3]


def test_list_items_carry_level_and_marker(tmp_path):
    document = docx.Document()
    for text, style in (("one", "List Number"), ("two", "List Number"), ("dot", "List Bullet")):
        document.add_paragraph(text, style=style)
    blocks = saved(document, tmp_path).blocks
    assert [(b.type, b.content, b.metadata["marker"]) for b in blocks] == [
        (BlockType.LIST, "one", "1."),
        (BlockType.LIST, "two", "2."),
        (BlockType.LIST, "dot", "•"),
    ]


def test_numbered_headings_show_their_number(tmp_path):
    document = docx.Document()
    numbering = document.part.numbering_part.element
    numbering.insert(
        0,
        parse_xml(
            f'<w:abstractNum {W} w:abstractNumId="90"><w:lvl w:ilvl="0"><w:start w:val="1"/>'
            '<w:numFmt w:val="chineseCounting"/><w:lvlText w:val="第%1章"/></w:lvl>'
            '<w:lvl w:ilvl="1"><w:start w:val="1"/>'
            '<w:numFmt w:val="decimal"/><w:isLgl/><w:lvlText w:val="%1.%2"/></w:lvl></w:abstractNum>'
        ),
    )
    numbering.append(parse_xml(f'<w:num {W} w:numId="90"><w:abstractNumId w:val="90"/></w:num>'))
    for level, text in ((0, "总则"), (1, "目的"), (1, "范围"), (0, "计算"), (1, "方法")):
        paragraph = document.add_heading(text, level + 1)
        paragraph._p.get_or_add_pPr().append(
            parse_xml(f'<w:numPr {W}><w:ilvl w:val="{level}"/><w:numId w:val="90"/></w:numPr>')
        )
    assert texts(saved(document, tmp_path)) == ["第一章 总则", "1.1 目的", "1.2 范围", "第二章 计算", "2.1 方法"]


@pytest.mark.parametrize(
    ("value", "style", "shown"),
    [(4, "upperRoman", "IV"), (28, "lowerLetter", "bb"), (21, "chineseCountingThousand", "二十一"),
     (12, "chineseCounting", "十二"),
     (105, "chineseCountingThousand", "一百零五"), (3, "ideographTraditional", "丙"), (7, "decimalZero", "07"),
     (2, "decimalEnclosedCircle", "②"), (22, "ordinal", "22nd"), (110, "chineseCounting", "一百一十")],
)  # fmt: skip
def test_counters_are_written_in_words_number_formats(value, style, shown):
    assert format_number(value, style) == shown


def test_insertions_are_in_and_deletions_moves_and_comments_out(tmp_path):
    document = docx.Document()
    body_xml(
        document,
        '<w:p><w:r><w:t xml:space="preserve">规模为</w:t></w:r><w:ins w:id="1"><w:r><w:t>五万</w:t></w:r></w:ins>'
        '<w:del w:id="2"><w:r><w:delText>三万</w:delText></w:r></w:del>'
        '<w:moveFrom w:id="3"><w:r><w:t>旧处</w:t></w:r></w:moveFrom>'
        '<w:moveTo w:id="4"><w:r><w:t>吨</w:t></w:r></w:moveTo></w:p>',
    )
    assert texts(saved(document, tmp_path)) == ["规模为五万吨"]


def test_a_deleted_paragraph_mark_joins_two_paragraphs(tmp_path):
    document = docx.Document()
    body_xml(
        document,
        '<w:p><w:pPr><w:rPr><w:del w:id="1"/></w:rPr></w:pPr><w:r><w:t xml:space="preserve">first </w:t></w:r></w:p>'
        "<w:p><w:r><w:t>second</w:t></w:r></w:p>",
    )
    assert texts(saved(document, tmp_path)) == ["first second"]


def test_field_codes_are_out_results_in_and_contents_tables_out(tmp_path):
    document = docx.Document()
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    field = mark.format("begin") + "<w:r><w:instrText> {} </w:instrText></w:r>" + mark.format("separate")
    body_xml(
        document,
        f"<w:p>{field.format('TOC')}<w:r><w:t>Contents line</w:t></w:r></w:p><w:p>{mark.format('end')}</w:p>"
        f"<w:p><w:r><w:t xml:space='preserve'>See </w:t></w:r>{field.format('REF x')}<w:r><w:t>Table 3</w:t></w:r>"
        f"{mark.format('end')}</w:p>",
    )
    assert texts(saved(document, tmp_path)) == ["See Table 3"]


def test_hidden_text_prompts_and_headers_are_out(tmp_path):
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "running header"
    document.add_paragraph("shown")
    document.add_paragraph().add_run("hidden").font.hidden = True
    body_xml(
        document,
        "<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr>"
        "<w:sdtContent><w:p><w:r><w:t>Click here</w:t></w:r></w:p></w:sdtContent></w:sdt>"
        "<w:sdt><w:sdtPr/><w:sdtContent><w:p><w:r><w:t>filled</w:t></w:r></w:p></w:sdtContent></w:sdt>",
    )
    assert texts(saved(document, tmp_path)) == ["shown", "filled"]


def test_a_text_box_stands_once_although_it_is_stored_twice(tmp_path):
    document = docx.Document()
    box = "<w:txbxContent><w:p><w:r><w:t>旁注</w:t></w:r></w:p></w:txbxContent>"
    body_xml(
        document,
        '<w:p><w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wp:anchor><a:graphic><a:graphicData>'
        f"<wps:wsp><wps:txbx>{box}</wps:txbx></wps:wsp></a:graphicData></a:graphic></wp:anchor></w:drawing></mc:Choice>"
        f"<mc:Fallback><w:pict>{box}</w:pict></mc:Fallback></mc:AlternateContent></w:r><w:r><w:t>正文</w:t></w:r></w:p>",
    )
    parsed = saved(document, tmp_path)
    assert texts(parsed) == ["正文", "旁注"]
    assert parsed.blocks[1].metadata["text_box"] is True


def test_merged_cells_fill_every_cell_and_extend_the_header(tmp_path):
    document = docx.Document()
    table = document.add_table(3, 3)
    values = [["分区", "年度", ""], ["", "供水量", "漏损率"], ["东城区", "1280", "9.6%"]]
    for row, line in zip(table.rows, values, strict=True):
        for cell, text in zip(row.cells, line, strict=True):
            cell.text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    block = saved(document, tmp_path).blocks[0]
    assert block.metadata["rows"][:2] == [["分区", "年度", "年度"], ["分区", "供水量", "漏损率"]]
    assert block.metadata["header_rows"] == 2


def test_marked_header_rows_are_counted_and_deleted_rows_left_out(tmp_path):
    document = docx.Document()
    table = document.add_table(4, 2)
    for number, row in enumerate(table.rows):
        row.cells[0].text = f"r{number}"
        properties = row._tr.get_or_add_trPr()
        if number < 2:
            properties.append(parse_xml(f"<w:tblHeader {W}/>"))
        if number == 3:
            properties.append(parse_xml(f'<w:del {W} w:id="9"/>'))
    block = saved(document, tmp_path).blocks[0]
    assert (block.metadata["header_rows"], len(block.metadata["rows"])) == (2, 3)


def test_a_nested_table_is_a_table_of_its_own(tmp_path):
    document = docx.Document()
    outer = document.add_table(1, 2)
    outer.cell(0, 0).text = "outer"
    inner = outer.cell(0, 1).add_table(2, 2)
    inner.cell(1, 1).text = "inner"
    tables = [b.metadata["rows"] for b in saved(document, tmp_path).blocks if b.type is BlockType.TABLE]
    assert tables == [[["outer", ""]], [["", ""], ["", "inner"]]]


def test_a_frame_of_one_cell_is_no_table(tmp_path):
    document = docx.Document()
    cell = document.add_table(1, 1).cell(0, 0)
    cell.text = "Note"
    cell.add_paragraph("Mind the gap.")
    assert texts(saved(document, tmp_path), BlockType.TEXT) == ["Note", "Mind the gap."]


def test_pictures_become_assets_with_alt_text_and_caption(tmp_path):
    document = docx.Document()
    document.add_picture(png())
    properties = document.element.body.find(f".//{qn('wp:docPr')}")
    properties.set("descr", "厂区平面图")
    document.add_paragraph("图 1 厂区", style="Caption")
    parsed = saved(document, tmp_path)
    (block,) = parsed.blocks
    assert block.type is BlockType.IMAGE
    assert block.content == f"![厂区平面图](asset://{parsed.assets[0].id})\n图 1 厂区"
    assert (parsed.assets[0].width, parsed.assets[0].height, parsed.assets[0].media_type) == (60, 40, "image/png")


def test_small_and_decorative_pictures_are_dropped(tmp_path):
    document = docx.Document()
    document.add_paragraph("text")
    document.add_picture(png(400, 3))
    parsed = saved(document, tmp_path)
    assert (texts(parsed), parsed.assets) == (["text"], ())


def test_equations_read_as_one_line(tmp_path):
    document = docx.Document()
    run = "<m:r><m:t>{}</m:t></m:r>"
    body_xml(
        document,
        f"<w:p><m:oMath><m:f><m:num>{run.format('a+b')}</m:num><m:den>{run.format('2')}</m:den></m:f>{run.format('=')}"
        f"<m:sSup><m:e>{run.format('x')}</m:e><m:sup>{run.format('2')}</m:sup></m:sSup></m:oMath></w:p>",
    )
    assert texts(saved(document, tmp_path)) == ["(a+b)/2=x^2"]


def test_monospaced_paragraphs_with_code_are_one_code_block_and_prose_stays_text(tmp_path):
    document = docx.Document()
    for line in ("def f(n):", "    return n + 1"):
        document.add_paragraph().add_run(line).font.name = "Consolas"
    document.add_paragraph("between")
    document.add_paragraph().add_run("A memo in a typewriter face").font.name = "Courier New"
    parsed = saved(document, tmp_path)
    assert texts(parsed, BlockType.CODE) == ["def f(n):\n    return n + 1"]
    assert texts(parsed, BlockType.TEXT) == ["between", "A memo in a typewriter face"]


def test_quote_styles_are_quotes(tmp_path):
    document = docx.Document()
    document.add_paragraph("To be.", style="Intense Quote")
    assert saved(document, tmp_path).blocks[0].type is BlockType.QUOTE


def test_check_boxes_show_their_state(tmp_path):
    document = docx.Document()
    w14 = 'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"'
    body_xml(
        document,
        f'<w:p><w:sdt><w:sdtPr><w14:checkbox {w14}><w14:checked w14:val="1"/></w14:checkbox></w:sdtPr><w:sdtContent>'
        '<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r></w:sdtContent></w:sdt>'
        '<w:r><w:t xml:space="preserve"> juice</w:t></w:r></w:p>',
    )
    assert texts(saved(document, tmp_path)) == ["☒ juice"]


def with_parts(tmp_path: Path, body: str, parts: dict[str, bytes], links: str) -> Path:
    """A document with extra parts behind extra relationships."""
    plain = tmp_path / "plain.docx"
    document = docx.Document()
    body_xml(document, body)
    document.save(plain)

    def change(name: str, content: bytes) -> bytes:
        if name == "word/_rels/document.xml.rels":
            return content.replace(b"</Relationships>", links.encode() + b"</Relationships>")
        return content

    path = rewritten(plain, tmp_path / "parts.docx", change)
    with zipfile.ZipFile(path, "a") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


REL = (
    '<Relationship Id="{}" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{}" Target="{}"/>'
)


def test_footnotes_stand_marked_behind_their_paragraph(tmp_path):
    notes = (
        f'<w:footnotes {W}><w:footnote w:id="-1" w:type="separator"><w:p/></w:footnote><w:footnote w:id="7"><w:p><w:r>'
        "<w:footnoteRef/></w:r><w:r><w:t>按最高日计算。</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    body = (
        '<w:p><w:r><w:t>规模</w:t></w:r><w:r><w:footnoteReference w:id="7"/></w:r></w:p>'
        "<w:p><w:r><w:t>后文</w:t></w:r></w:p>"
    )
    path = with_parts(
        tmp_path, body, {"word/footnotes.xml": notes.encode()}, REL.format("n1", "footnotes", "footnotes.xml")
    )
    parsed = parse(path)
    assert texts(parsed) == ["规模[^1]", "[^1]: 按最高日计算。", "后文"]
    assert parsed.blocks[1].metadata["footnote"] == "1"


def test_embedded_html_is_read_in_place(tmp_path):
    html = (
        "<html><head><style>x{}</style></head><body><h2>Title</h2><p>Hello <b>you</b></p>"
        "<table><tr><th>A</th><th>B</th></tr><tr><td colspan=2>both</td></tr></table>"
        "<ul><li>item</li></ul></body></html>"
    )
    path = with_parts(
        tmp_path,
        '<w:altChunk r:id="h1"/>',
        {"word/chunk.html": html.encode()},
        REL.format("h1", "aFChunk", "chunk.html"),
    )
    parsed = parse(path)
    assert [block.type.value for block in parsed.blocks] == ["heading", "text", "table", "list"]
    assert parsed.blocks[2].metadata["rows"] == [["A", "B"], ["both", "both"]]


def test_embedded_word_files_are_read_in_place(tmp_path):
    inner = docx.Document()
    inner.add_paragraph("inner text")
    stream = io.BytesIO()
    inner.save(stream)
    path = with_parts(
        tmp_path, '<w:altChunk r:id="h1"/>', {"word/in.docx": stream.getvalue()}, REL.format("h1", "aFChunk", "in.docx")
    )
    assert texts(parse(path)) == ["inner text"]


def test_rtf_gives_its_visible_text():
    rtf = rb"{\rtf1\ansi\ansicpg936{\fonttbl{\f0 Arial;}}Hello \b world\b0\par \'d6\'d0\'ce\'c4 \u20013?\u25991? end}"
    assert rtf_text(rtf) == "Hello world\n\n中文 中文 end"


def test_strict_namespaces_read_like_transitional_ones(tmp_path):
    document = docx.Document()
    document.add_heading("Strict", 1)
    document.add_paragraph("Some text")
    document.save(tmp_path / "usual.docx")

    def strict(name: str, content: bytes) -> bytes:
        for kind in (b"wordprocessingml", b"drawingml", b"officeDocument"):
            content = content.replace(
                b"http://schemas.openxmlformats.org/" + kind + b"/2006/", b"http://purl.oclc.org/ooxml/" + kind + b"/"
            )
        return content

    path = rewritten(tmp_path / "usual.docx", tmp_path / "strict.docx", strict)
    assert texts(parse(path)) == ["Strict", "Some text"]


def test_damaged_files_are_corrupt_and_empty_ones_empty(tmp_path):
    docx.Document().save(tmp_path / "blank.docx")
    with pytest.raises(EmptyDocumentError):
        parse(tmp_path / "blank.docx")
    cut = tmp_path / "cut.docx"
    cut.write_bytes((tmp_path / "blank.docx").read_bytes()[:3000])
    with pytest.raises(CorruptDocumentError):
        parse(cut)
    broken = rewritten(
        tmp_path / "blank.docx",
        tmp_path / "broken.docx",
        lambda name, content: content[:-20] if name == "word/document.xml" else content,
    )
    with pytest.raises(CorruptDocumentError):
        parse(broken)


def test_a_password_protected_file_is_named_as_such(tmp_path):
    path = tmp_path / "locked.docx"
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1024) + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(EncryptedDocumentError):
        parse(path)


def test_entities_are_never_expanded(tmp_path):
    document = docx.Document()
    document.add_paragraph("x")
    document.save(tmp_path / "usual.docx")

    def bomb(name: str, content: bytes) -> bytes:
        if name != "word/document.xml":
            return content
        head, _, rest = content.partition(b"?>")
        return head + b'?><!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + rest.replace(b">x<", b">y&e;<")

    path = rewritten(tmp_path / "usual.docx", tmp_path / "bomb.docx", bomb)
    assert texts(parse(path)) == ["y"]
