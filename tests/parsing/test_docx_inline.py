"""DOCX: fields, revisions, content controls, text boxes, notes, links, symbols, equations inside paragraphs."""

from __future__ import annotations

from pathlib import Path

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE

from rag_cluster.domain.blocks import BlockType
from tests.parsing.test_docx import REL, W, body_xml, parse, saved, texts, with_parts

BEGIN, SEPARATE, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def code(text: str) -> str:
    return f'<w:r><w:instrText xml:space="preserve">{text}</w:instrText></w:r>'


def field(instruction: str, result: str) -> str:
    return BEGIN + instruction + SEPARATE + result + END


def read(tmp_path: Path, xml: str) -> list[str]:
    document = docx.Document()
    body_xml(document, xml)
    return texts(saved(document, tmp_path))


# -- fields --


def test_a_field_inside_a_field_s_code_is_out_and_the_outer_result_in(tmp_path: Path) -> None:
    inner = field(code(" MERGEFIELD sex "), run("f"))
    instruction = code(" IF ") + inner + code(' = "f" "Ms" "Mr" ')
    assert read(tmp_path, f"<w:p>{run('Dear ')}{field(instruction, run('Ms'))}{run(' Li')}</w:p>") == ["Dear Ms Li"]


def test_a_field_inside_a_field_s_result_shows_its_result_once(tmp_path: Path) -> None:
    inner = field(code(" PAGEREF _Toc1 "), run("7"))
    outer = field(code(' HYPERLINK "http://x" '), run("Chapter, page ") + inner)
    assert read(tmp_path, f"<w:p>{outer}</w:p>") == ["Chapter, page 7"]


def test_a_contents_table_of_many_paragraphs_with_links_inside_is_out(tmp_path: Path) -> None:
    link = (
        '<w:hyperlink w:anchor="_Toc1">' + run("1 Scope") + field(code(" PAGEREF _Toc1 "), run("3")) + "</w:hyperlink>"
    )
    xml = f"<w:p>{BEGIN}{code(' TOC ')}{SEPARATE}{link}</w:p><w:p>{link}</w:p><w:p>{END}</w:p><w:p>{run('Text')}</w:p>"
    assert read(tmp_path, xml) == ["Text"]


def test_a_contents_table_that_never_ends_hides_nothing_after_the_next_heading(tmp_path: Path) -> None:
    xml = (
        f"<w:p>{BEGIN}{code(' TOC ')}{SEPARATE}{run('1 Scope')}</w:p>"
        f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr>{run("Scope")}</w:p><w:p>{run("Text")}</w:p>'
    )
    assert read(tmp_path, xml) == ["Scope", "Text"]


def test_a_contents_table_that_never_ends_hides_only_its_own_lines(tmp_path: Path) -> None:
    line = f'<w:p><w:pPr><w:pStyle w:val="TOC1"/></w:pPr>{run("2 Terms")}</w:p>'
    table = f"<w:tbl><w:tr><w:tc><w:p>{run('cell')}</w:p></w:tc><w:tc><w:p>{run('1')}</w:p></w:tc></w:tr></w:tbl>"
    begin = f"<w:p>{BEGIN}{code(' TOC ')}{SEPARATE}{run('1 Scope')}</w:p>"
    later = f"<w:p>{run('See ')}{field(code(' REF x '), run('Table 3'))}</w:p>"
    for below, shown in ((f"<w:p>{run('Text')}</w:p>{later}", ["Text", "See Table 3"]), (table, ["| cell | 1 |"])):
        document = docx.Document()
        document.styles.add_style("TOC 1", WD_STYLE_TYPE.PARAGRAPH)
        body_xml(document, begin + line + below)
        assert [text.splitlines()[-1] for text in texts(saved(document, tmp_path))] == shown


def test_a_contents_table_ends_where_its_end_was_deleted(tmp_path: Path) -> None:
    link = run("2 Terms") + field(code(" PAGEREF _Toc1 "), run("3"))
    removed = f'<w:del w:id="3" w:author="a"><w:r><w:delText>3 Fees</w:delText></w:r>{END}</w:del>'
    xml = (
        f"<w:p>{BEGIN}{code(' TOC ')}{SEPARATE}{run('1 Scope')}</w:p><w:p>{link}</w:p><w:p>{removed}</w:p>"
        f"<w:p>{run('The contract')}</w:p>"
    )
    assert read(tmp_path, xml) == ["The contract"]


def test_a_drop_cap_belongs_to_the_word_that_it_begins(tmp_path: Path) -> None:
    frame = '<w:pPr><w:framePr w:dropCap="{}" w:lines="3" w:wrap="around"/></w:pPr>'
    xml = "".join(
        f"<w:p>{frame.format(kind)}{run('O')}</w:p><w:p>{run('nce upon')}</w:p>" for kind in ("drop", "margin", "none")
    )
    assert read(tmp_path, xml) == ["Once upon", "Once upon", "O", "nce upon"]


def test_a_contents_table_in_a_content_control_is_out(tmp_path: Path) -> None:
    control = (
        '<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent><w:p>{run('目录')}</w:p></w:sdtContent></w:sdt>"
    )
    assert read(tmp_path, control + f"<w:p>{run('正文')}</w:p>") == ["正文"]


def test_simple_fields_captions_and_links_show_their_text(tmp_path: Path) -> None:
    xml = (
        f"<w:p>{run('见表 ')}<w:fldSimple w:instr=' SEQ 表 '>{run('3')}</w:fldSimple>"
        f'<w:hyperlink r:id="x">{run("（链接）")}</w:hyperlink></w:p>'
    )
    assert read(tmp_path, xml) == ["见表 3（链接）"]


# -- revisions --


def test_a_moved_paragraph_stands_only_where_it_went(tmp_path: Path) -> None:
    xml = (
        '<w:moveFromRangeStart w:id="1" w:name="m"/>'
        '<w:p><w:pPr><w:rPr><w:moveFrom w:id="2"/></w:rPr></w:pPr>'
        f'<w:moveFrom w:id="3">{run("moved")}</w:moveFrom></w:p>'
        f'<w:moveFromRangeEnd w:id="1"/><w:p>{run("stays")}</w:p><w:moveToRangeStart w:id="4" w:name="m"/>'
        f'<w:p><w:pPr><w:rPr><w:moveTo w:id="5"/></w:rPr></w:pPr><w:moveTo w:id="6">{run("moved")}</w:moveTo></w:p>'
        '<w:moveToRangeEnd w:id="4"/>'
    )
    assert read(tmp_path, xml) == ["stays", "moved"]


def test_text_before_a_deleted_paragraph_mark_is_kept_where_nothing_follows(tmp_path: Path) -> None:
    last = f'<w:p><w:pPr><w:rPr><w:del w:id="1"/></w:rPr></w:pPr>{run("kept")}</w:p>'
    table = f"<w:tbl><w:tr><w:tc><w:p>{run('a')}</w:p></w:tc><w:tc><w:p>{run('b')}</w:p></w:tc></w:tr></w:tbl>"
    document = docx.Document()
    body_xml(document, last + table + last)
    assert [b.content for b in saved(document, tmp_path).blocks if b.type is BlockType.TEXT] == ["kept", "kept"]


def test_inserted_and_deleted_table_rows_and_cells_follow_the_revisions(tmp_path: Path) -> None:
    def row(text: str, mark: str = "", cell_mark: str = "") -> str:
        return (
            f"<w:tr><w:trPr>{mark}</w:trPr><w:tc><w:p>{run(text)}</w:p></w:tc>"
            f"<w:tc><w:tcPr>{cell_mark}</w:tcPr><w:p>{run(text + '2')}</w:p></w:tc></w:tr>"
        )

    document = docx.Document()
    rows = row("head") + row("new", '<w:ins w:id="1"/>') + row("gone", '<w:del w:id="2"/>')
    rows += row("cut", cell_mark='<w:cellDel w:id="3"/>')
    body_xml(document, f"<w:tbl>{rows}</w:tbl>")
    assert saved(document, tmp_path).blocks[0].metadata["rows"] == [["head", "head2"], ["new", "new2"], ["cut", ""]]


def test_comments_and_their_marks_are_out(tmp_path: Path) -> None:
    comments = f'<w:comments {W}><w:comment w:id="0"><w:p>{run("please check")}</w:p></w:comment></w:comments>'
    body = (
        f'<w:p><w:commentRangeStart w:id="0"/>{run("Text")}<w:commentRangeEnd w:id="0"/>'
        '<w:r><w:commentReference w:id="0"/></w:r></w:p>'
    )
    path = with_parts(
        tmp_path, body, {"word/comments.xml": comments.encode()}, REL.format("k1", "comments", "comments.xml")
    )
    assert texts(parse(path)) == ["Text"]


def test_headers_and_footers_of_all_kinds_are_out(tmp_path: Path) -> None:
    document = docx.Document()
    section = document.sections[0]
    section.different_first_page_header_footer = True
    for part in (section.header, section.footer, section.first_page_header, section.even_page_footer):
        part.paragraphs[0].text = "running line"
    document.add_paragraph("Text")
    assert texts(saved(document, tmp_path)) == ["Text"]


# -- content controls --


def test_drop_downs_dates_and_repeated_controls_show_their_value(tmp_path: Path) -> None:
    choice = (
        '<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText="高" w:value="h"/><w:listItem w:displayText="低" '
        f'w:value="l"/></w:dropDownList></w:sdtPr><w:sdtContent>{run("高")}</w:sdtContent></w:sdt>'
    )
    date = (
        '<w:sdt><w:sdtPr><w:date w:fullDate="2025-03-01T00:00:00Z"/></w:sdtPr>'
        f"<w:sdtContent>{run('2025年3月1日')}</w:sdtContent></w:sdt>"
    )
    inner = f"<w:sdt><w:sdtContent>{run('text')}</w:sdtContent></w:sdt>"
    block = f"<w:sdt><w:sdtContent><w:p>{run('nested ')}{inner}</w:p></w:sdtContent></w:sdt>"
    assert read(tmp_path, f"<w:p>{run('级别 ')}{choice}{run('，日期 ')}{date}</w:p>{block}") == [
        "级别 高，日期 2025年3月1日",
        "nested text",
    ]


def test_a_control_around_table_rows_and_cells_hides_none(tmp_path: Path) -> None:
    cell = f"<w:tc><w:p>{run('{}')}</w:p></w:tc>"
    row = f"<w:tr>{cell.format('a')}<w:sdt><w:sdtContent>{cell.format('b')}</w:sdtContent></w:sdt></w:tr>"
    document = docx.Document()
    body_xml(document, f"<w:tbl>{row}<w:sdt><w:sdtContent>{row}</w:sdtContent></w:sdt></w:tbl>")
    assert saved(document, tmp_path).blocks[0].metadata["rows"] == [["a", "b"], ["a", "b"]]


def test_legacy_form_fields_show_their_state_and_choice(tmp_path: Path) -> None:
    box = (
        '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData>'
        "</w:fldChar></w:r>"
    )
    choice = (
        '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:result w:val="1"/><w:listEntry w:val="no"/>'
        '<w:listEntry w:val="yes"/></w:ddList></w:ffData></w:fldChar></w:r>'
    )
    xml = f"<w:p>{box}{code(' FORMCHECKBOX ')}{END}{run(' agreed: ')}{choice}{code(' FORMDROPDOWN ')}{END}</w:p>"
    assert read(tmp_path, xml) == ["☒ agreed: yes"]


# -- text boxes, symbols, ruby --


def test_boxes_in_groups_and_tables_and_of_the_old_kind_stand_once(tmp_path: Path) -> None:
    content = f"<w:txbxContent><w:p>{run('box')}</w:p></w:txbxContent>"
    shape = f"<wps:wsp><wps:txbx>{content}</wps:txbx></wps:wsp>"
    both = (
        '<w:r><mc:AlternateContent><mc:Choice Requires="wpg"><w:drawing><wp:anchor><a:graphic><a:graphicData>'
        f"{shape}{shape}</a:graphicData></a:graphic></wp:anchor></w:drawing></mc:Choice><mc:Fallback><w:pict>{content}"
        f"{content}</w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )
    old = f"<w:r><w:pict>{content}</w:pict></w:r>"
    cells = f"<w:tc><w:p>{both}{run('cell')}</w:p></w:tc><w:tc><w:p>{run('other')}</w:p></w:tc>"
    document = docx.Document()
    body_xml(document, f"<w:p>{both}</w:p><w:p>{old}</w:p><w:tbl><w:tr>{cells}</w:tr></w:tbl>")
    parsed = saved(document, tmp_path)
    assert [b.content for b in parsed.blocks if b.metadata.get("text_box")] == ["box"] * 5
    assert next(b for b in parsed.blocks if b.type is BlockType.TABLE).metadata["rows"] == [["cell", "other"]]


def test_symbols_breaks_tabs_and_ruby_read_as_text(tmp_path: Path) -> None:
    symbol = '<w:r><w:sym w:font="Symbol" w:char="F0B3"/></w:r>'
    ruby = f"<w:r><w:ruby><w:rt>{run('dōng')}</w:rt><w:rubyBase>{run('東')}</w:rubyBase></w:ruby></w:r>"
    breaks = "<w:r><w:br/></w:r><w:r><w:tab/></w:r>"
    assert read(tmp_path, f"<w:p>{run('p ')}{symbol}{run(' 2')}{breaks}{ruby}{run('京')}</w:p>") == ["p ≥ 2\n\t東京"]


# -- notes --


def test_endnotes_and_notes_in_cells_stand_marked_behind_what_refers_to_them(tmp_path: Path) -> None:
    foot = (
        f'<w:footnotes {W}><w:footnote w:id="1"><w:p>{run("first")}</w:p><w:p>{run("second line")}</w:p></w:footnote>'
        f'<w:footnote w:id="2"><w:p>{run("of a cell")}</w:p></w:footnote></w:footnotes>'
    )
    end = f'<w:endnotes {W}><w:endnote w:id="5"><w:p>{run("at the end")}</w:p></w:endnote></w:endnotes>'
    mark = '<w:r><w:{}Reference w:id="{}"/></w:r>'
    cells = f"<w:tc><w:p>{run('a')}{mark.format('footnote', 2)}</w:p></w:tc><w:tc><w:p>{run('b')}</w:p></w:tc>"
    body = (
        f"<w:p>{run('one')}{mark.format('footnote', 1)}</w:p><w:tbl><w:tr>{cells}</w:tr></w:tbl>"
        f"<w:p>{run('two')}{mark.format('endnote', 5)}{run(' again')}{mark.format('endnote', 5)}</w:p>"
    )
    path = with_parts(
        tmp_path,
        body,
        {"word/footnotes.xml": foot.encode(), "word/endnotes.xml": end.encode()},
        REL.format("n1", "footnotes", "footnotes.xml") + REL.format("n2", "endnotes", "endnotes.xml"),
    )
    parsed = parse(path)
    assert [b.content for b in parsed.blocks if b.type is BlockType.TEXT] == [
        "one[^1]",
        "[^1]: first\nsecond line",
        "[^2]: of a cell",
        "two[^e1] again[^e1]",
        "[^e1]: at the end",
    ]
    assert parsed.blocks[-1].metadata["endnote"] == "e1"


def test_a_heading_with_a_note_keeps_the_note_under_it(tmp_path: Path) -> None:
    notes = f'<w:footnotes {W}><w:footnote w:id="1"><w:p>{run("said")}</w:p></w:footnote></w:footnotes>'
    body = (
        f'<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr>{run("Title")}<w:r><w:footnoteReference w:id="1"/></w:r></w:p>'
    )
    path = with_parts(
        tmp_path, body, {"word/footnotes.xml": notes.encode()}, REL.format("n1", "footnotes", "footnotes.xml")
    )
    assert texts(parse(path)) == ["Title[^1]", "[^1]: said"]


# -- equations --


def m(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("xml", "shown"),
    [
        (f"<m:rad><m:radPr><m:degHide m:val='1'/></m:radPr><m:deg/><m:e>{m('x+1')}</m:e></m:rad>", "√(x+1)"),
        (f"<m:rad><m:deg>{m('3')}</m:deg><m:e>{m('x')}</m:e></m:rad>", "^3√(x)"),
        (f"<m:nary><m:naryPr><m:chr m:val='∑'/></m:naryPr><m:sub>{m('i=1')}</m:sub><m:sup>{m('n')}</m:sup>"
         f"<m:e>{m('i')}</m:e></m:nary>", "∑_{i=1}^n i"),
        (f"<m:sSubSup><m:e>{m('x')}</m:e><m:sub>{m('1')}</m:sub><m:sup>{m('2')}</m:sup></m:sSubSup>", "x_1^2"),
        (f"<m:d><m:dPr><m:begChr m:val='['/><m:endChr m:val=']'/></m:dPr><m:e>{m('a')}</m:e><m:e>{m('b')}</m:e></m:d>",
         "[a|b]"),
        (f"<m:func><m:fName>{m('sin')}</m:fName><m:e>{m('x')}</m:e></m:func>", "sin x"),
        (f"<m:m><m:mr><m:e>{m('1')}</m:e><m:e>{m('2')}</m:e></m:mr><m:mr><m:e>{m('3')}</m:e><m:e>{m('4')}</m:e></m:mr></m:m>",
         "[1, 2; 3, 4]"),
        (f"<m:acc><m:accPr><m:chr m:val='&#x20d7;'/></m:accPr><m:e>{m('v')}</m:e></m:acc>", "vec(v)"),
        (f"<m:limLow><m:e>{m('lim')}</m:e><m:lim>{m('n→∞')}</m:lim></m:limLow>", "lim_{n→∞}"),
        (f"<m:eqArr><m:e>{m('x=1')}</m:e><m:e>{m('y=2')}</m:e></m:eqArr>", "x=1; y=2"),
    ],
)  # fmt: skip
def test_equations_of_every_kind_read_as_one_line(tmp_path: Path, xml: str, shown: str) -> None:
    assert read(tmp_path, f"<w:p>{run('当 ')}<m:oMath>{xml}</m:oMath>{run(' 时')}</w:p>") == [f"当 {shown} 时"]


def test_a_displayed_equation_is_a_paragraph(tmp_path: Path) -> None:
    assert read(tmp_path, f"<w:p><m:oMathPara><m:oMath>{m('E=mc')}</m:oMath></m:oMathPara></w:p>") == ["E=mc"]


def test_raised_digits_stay_raised(tmp_path: Path) -> None:
    raised = '<w:vertAlign w:val="superscript"/>'
    assert read(
        tmp_path, f"<w:p>{run('10')}{run('6', raised)}{run(' Pa, m')}{run('-2', raised)}{run('th', raised)}</w:p>"
    ) == ["10⁶ Pa, m⁻²th"]


def test_a_field_s_code_may_go_on_over_paragraphs(tmp_path: Path) -> None:
    xml = (
        f"<w:p>{run('a ')}{BEGIN}{code(' IF 1 = 1 ')}{run('code')}</w:p>"
        f"<w:p>{run('more code')}{SEPARATE}{run('shown')}{END}{run(' after')}</w:p>"
    )
    assert read(tmp_path, xml) == ["a", "shown after"]


def test_a_field_s_code_that_ends_nowhere_hides_nothing_else(tmp_path: Path) -> None:
    assert read(tmp_path, f"<w:p>{run('a')}{BEGIN}{code(' IF ')}</w:p><w:p>{run('b')}</w:p>") == ["a", "b"]
