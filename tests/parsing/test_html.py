from __future__ import annotations

import base64
import codecs
import io
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import Mock

import pytest
from PIL import Image

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError
from rag_cluster.parsing import boilerplate
from rag_cluster.parsing.html import HtmlParser, parse_html
from tests.parsing.conftest import MakeSource

Parse = Callable[..., ParsedDocument]


def shape(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(b.type.value, b.content) for b in document.blocks]


def table(document: ParsedDocument) -> list[list[str]]:
    return list(next(b for b in document.blocks if b.type is BlockType.TABLE).metadata["rows"])


def test_headings_open_sections(parse: Parse) -> None:
    document = parse("a.html", "<h1>A</h1><h3>B</h3><p>text</p><h2>C</h2><p>more</p>")
    assert [b.locator.heading_path for b in document.blocks if b.type is BlockType.TEXT] == [("A", "B"), ("A", "C")]


def test_inline_markup_becomes_plain_text(parse: Parse) -> None:
    html = "<p>H<sub>2</sub>O at 10<sup>6</sup> Pa, <b>bold</b> <a href=x>link</a><br>next&nbsp;line <q>said</q></p>"
    assert shape(parse("a.html", html)) == [("text", "H2O at 10⁶ Pa, bold link\nnext line “said”")]


def test_line_breaks_between_chinese_characters_leave_no_blank(parse: Parse) -> None:
    assert shape(parse("a.html", "<p>值班员应\n   巡视泵房 and\nnote</p>")) == [("text", "值班员应巡视泵房 and note")]


def test_what_is_not_content_is_left_out(parse: Parse) -> None:
    html = """
    <html><head><title>Page</title><style>.x{}</style><script>var a="code"</script></head><body>
    <header><a href=/>Home</a></header><nav><a href=/a>Menu</a></nav><div class="cookie-banner">We use cookies</div>
    <div class="breadcrumb"><a href=/>Home</a> &gt; <a href=/x>X</a></div>
    <main><h1>Title</h1><p>Kept</p><p style="display: none">hidden</p><p hidden>hidden</p><!-- comment --></main>
    <aside>Elsewhere</aside><footer>Imprint</footer><noscript>no script</noscript></body></html>"""
    document = parse("a.html", html)
    assert shape(document) == [("heading", "Title"), ("text", "Kept")]
    assert document.metadata["title"] == "Page"


def test_words_in_class_names_do_not_drop_prose(parse: Parse) -> None:
    html = "<div class='content sidebar-layout nav-page'><p>A long paragraph of prose without links stays.</p></div>"
    assert shape(parse("a.html", html)) == [("text", "A long paragraph of prose without links stays.")]


def test_a_section_about_cookies_and_a_note_are_content(parse: Parse) -> None:
    html = "<div class=section id=cookies><h2>Cookies</h2><p>Set them.</p></div><aside class=note>Mind this.</aside>"
    assert [content for _, content in shape(parse("a.html", html))] == ["Cookies", "Set them.", "Mind this."]


def test_a_page_of_nothing_but_navigation_is_read_whole(parse: Parse) -> None:
    assert shape(parse("a.html", "<nav><a href=a>Only this</a></nav>")) == [("text", "Only this")]


def test_lists_are_one_block_per_item_with_level_and_marker(parse: Parse) -> None:
    html = "<ol start=3><li>three<ul><li>inner <b>one</b></li></ul>rest</li><li><p>four</p><p>more</p></li></ol>"
    document = parse("a.html", html)
    assert [(b.content, b.metadata["level"], b.metadata["marker"]) for b in document.blocks] == [
        ("three", 0, "3."),
        ("inner one", 1, "-"),
        ("rest", 0, ""),
        ("four\nmore", 0, "4."),
    ]


def test_a_term_stands_with_its_descriptions(parse: Parse) -> None:
    assert shape(parse("a.html", "<dl><dt>A<dd>one<dd>two<dt>B<dt>C<dd>three</dl>")) == [
        ("list", "A\none\ntwo"),
        ("list", "B\nC\nthree"),
    ]


def test_code_keeps_its_white_space(parse: Parse) -> None:
    html = '<pre><code class="language-python">\ndef f():\n    return 1 &lt; 2\n</code></pre>'
    (block,) = parse("a.html", html).blocks
    assert (block.type, block.content) == (BlockType.CODE, "def f():\n    return 1 < 2")
    assert block.metadata["language"] == "python"


def test_code_inside_a_list_item_is_code_after_the_item(parse: Parse) -> None:
    assert shape(parse("a.html", "<ul><li>Run:<pre>$ go</pre></li></ul>")) == [("list", "Run:"), ("code", "$ go")]


def test_quotations_are_one_block(parse: Parse) -> None:
    assert shape(parse("a.html", "<blockquote><p>one</p><p>two</p></blockquote>")) == [("quote", "one\n\ntwo")]


def test_merged_cells_stand_in_every_cell_that_they_cover(parse: Parse) -> None:
    html = """<table><thead><tr><th rowspan=2>R<th colspan=2>S</tr><tr><th>Q1<th>Q2</tr></thead>
    <tr><td>USA<td>1<td rowspan=2>2</tr><tr><td>EU<td>3</tr><tr><td colspan=3>all</tr></table>"""
    document = parse("a.html", html)
    assert table(document) == [
        ["R", "S", "S"],
        ["R", "Q1", "Q2"],
        ["USA", "1", "2"],
        ["EU", "3", "2"],
        ["all", "all", "all"],
    ]
    assert document.blocks[0].metadata["header_rows"] == 2


def test_rich_cells_keep_their_lines(parse: Parse) -> None:
    html = "<table><tr><th>a<th>b</tr><tr><td><ul><li>x<li>y</ul><td><p>p</p><p>q</p></tr></table>"
    assert table(parse("a.html", html))[1] == ["x\ny", "p\nq"]


def test_a_table_inside_a_cell_is_a_table_too(parse: Parse) -> None:
    html = "<table><tr><th>k<th>v</tr><tr><td>q<td><table><tr><td>s<td>1</tr><tr><td>l<td>2</tr></table></tr></table>"
    document = parse("a.html", html)
    grids = [b.metadata["rows"] for b in document.blocks]
    assert grids == [[["k", "v"], ["q", "s | 1\nl | 2"]], [["s", "1"], ["l", "2"]]]


def test_a_layout_table_is_running_text(parse: Parse) -> None:
    html = "<table><tr><td><h1>Title</h1><p>one</p></td><td><p>two</p></td></tr></table>"
    assert shape(parse("a.html", html)) == [("heading", "Title"), ("text", "one"), ("text", "two")]


@pytest.mark.parametrize(
    ("html", "grid"),
    [
        ("<tr><td>Plan<td>Price<tr><td><h4>Basic</h4><td>10<tr><td><h4>Professional</h4><td>20",
         [["Plan", "Price"], ["Basic", "10"], ["Professional", "20"]]),
        ("<tr><td>Name<td>Detail<tr><td>A<td><table><tr><td>x<td>1</table>", [["Name", "Detail"], ["A", "x | 1"]]),
        ("<tr><td colspan=2>Plans of this year, without tax<tr><td><h4>Basic</h4><td>10<tr><td>Plus<td>20",
         [["Plans of this year, without tax"] * 2, ["Basic", "10"], ["Plus", "20"]]),
    ],
)  # fmt: skip
def test_a_heading_or_a_table_in_a_cell_does_not_tear_a_table_of_data(
    parse: Parse, html: str, grid: list[list[str]]
) -> None:
    assert table(parse("a.html", f"<table>{html}</table>")) == grid


@pytest.mark.parametrize(
    "rows",
    [
        "<tr><td colspan=2><h1>Title</h1><tr><td>Menu<td>{article}",
        "<tr><td>Logo<td><h1>Title</h1><tr><td>Menu<td>{article}",
        "<tr><td>{article}<tr><td>Imprint",
        "<tr><td colspan=2>Port<tr><td>{menu}<td><h2>Part</h2><p>Short.</p><tr><td colspan=2>Imprint",
        "<tr><td>{card}<td>{card}<tr><td>{card}<td>{card}",
    ],
)
def test_a_page_laid_out_as_a_table_is_running_text(parse: Parse, rows: str) -> None:
    article = "<h2>Part</h2><p>" + "A long article. " * 100 + "</p>"
    menu = "<a href=/>Entry of the menu</a><br>" * 100
    card = "<h2>Part</h2><p>" + "A card of prose. " * 20 + "</p><ul><li>x</li></ul>"
    blocks = parse("a.html", f"<table>{rows.format(article=article, menu=menu, card=card)}</table>").blocks
    assert "Part" in [block.content for block in blocks if block.type is BlockType.HEADING]
    assert all(block.type is not BlockType.TABLE for block in blocks)


def test_a_card_beside_the_content_is_not_taken_for_the_page(parse: Parse) -> None:
    html = (
        "<h1>Opening hours</h1><p>Monday to Friday, nine to five.</p>"
        "<article><h2>News</h2><p>The clinic has a new roof since May, and a new lift.</p></article>"
        "<p>Emergency phone 555-1234</p><nav><a href=/>Home</a></nav>"
    )
    assert [content for _, content in shape(parse("a.html", html))] == [
        "Opening hours", "Monday to Friday, nine to five.", "News",
        "The clinic has a new roof since May, and a new lift.", "Emergency phone 555-1234",
    ]  # fmt: skip


def test_teasers_beside_the_main_content_are_left_out(parse: Parse) -> None:
    teasers = "<li><a href=/1>A teaser about another subject that is rather long indeed</a></li>" * 8
    text = " ".join(["The quay opens at nine."] * 20)
    html = f"<main><h2>Article</h2><p>{text}</p></main><div class=col-right><ul>{teasers}</ul></div>"
    assert [content for _, content in shape(parse("a.html", html))] == ["Article", text]


def test_a_page_of_many_links_is_read_with_them(parse: Parse) -> None:
    links = "".join(f"<li><a href=/{number}>Report number {number}</a></li>" for number in range(9))
    html = f"<article><p>All reports of the port.</p></article><ul>{links}</ul>"
    assert len(shape(parse("a.html", html))) == 10


def test_every_text_is_measured_once_however_deep_it_stands(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    depth, measured = 200, Mock(wraps=boilerplate._characters)
    monkeypatch.setattr(boilerplate, "_characters", measured)
    level = "<div class=page-header><header><a href=/>Home</a> and <b>prose</b> that is longer.</header>"
    document = parse("a.html", f"<main>{level * depth}{'</div>' * depth}</main>")
    assert document.blocks and measured.call_count < depth * 40


def test_lengths_count_links_and_titles_of_everything_below() -> None:
    page = "<p>one <a href=/><b>two</b></a> three</p><script>x</script><header><h1>T</h1></header>"
    body = parse_html(page).find("body")
    assert [boilerplate.text_length(element) for element in (body, body[0], body[0][0])] == [13, 11, 3]
    assert [boilerplate.link_density(element) for element in body] == [3 / 11, 0.0, 0.0]
    assert boilerplate._holds_title(body[2]) and not boilerplate._holds_title(body[0])


@pytest.mark.parametrize("content", ["main", "article"])
@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("<header><h1>Q3 Report</h1><p>By the audit team</p></header>", ["Q3 Report", "By the audit team"]),
        ("<div><h1>Q3 Report</h1></div>", ["Q3 Report"]),
        ("<header role=banner><h1>Our site</h1></header>", []),
        ("<div hidden><h1>Dialog</h1></div>", []),
    ],
)
def test_the_title_of_a_page_is_kept_where_it_stands_outside_the_main_content(
    parse: Parse, content: str, title: str, kept: list[str]
) -> None:
    text = " ".join(["The body of the report."] * 20)
    html = f"{title}<{content}>Lead.<p>{text}</p></{content}><div>Tel. 555-1234</div>"
    assert [content for _, content in shape(parse("a.html", html))] == [*kept, "Lead.", text]


def test_the_caption_of_a_table_stands_before_it(parse: Parse) -> None:
    document = parse("a.html", "<table><caption>Facts</caption><tr><th>a<th>b</tr><tr><td>1<td>2</tr></table>")
    assert document.blocks[0].content == "Facts" and document.blocks[1].metadata["caption"] == "Facts"


def test_a_linked_picture_keeps_its_caption(parse: Parse) -> None:
    html = (
        "<figure><img src=d.jpg alt='A brown duck'><figcaption>Mallard</figcaption></figure><img src=x.png alt=Chart>"
    )
    assert shape(parse("a.html", html)) == [("image", "Mallard\nA brown duck"), ("image", "Chart")]


def test_a_data_uri_becomes_an_asset(parse: Parse) -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (20, 10)).save(encoded, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(encoded.getvalue()).decode()
    document = parse("a.html", f"<p>before <img src='{uri}' alt=Logo> after</p>")
    (asset,) = document.assets
    assert (asset.media_type, asset.width, asset.height, asset.caption) == ("image/png", 20, 10, "Logo")
    assert document.blocks[1].content == f"![Logo](asset://{asset.id})"


def test_a_broken_data_uri_is_a_warning(parse: Parse) -> None:
    document = parse("a.html", "<p>text</p><img src='data:image/png;base64,AAAA' alt='Lost picture'>")
    assert document.warnings and shape(document)[1] == ("image", "Lost picture")


@pytest.mark.parametrize("declared", ["gb2312", "gbk"])
def test_the_declared_encoding_is_used(parse: Parse, declared: str) -> None:
    html = f'<meta http-equiv="Content-Type" content="text/html; charset={declared}"><p>玥湖泵站</p>'
    assert shape(parse("a.html", html.encode("gbk"))) == [("text", "玥湖泵站")]


def test_unclosed_and_malformed_markup_is_read_like_a_browser_does(parse: Parse) -> None:
    html = "<html><head><script>cool script</script language></head><p>one<p>two<ul><li>a<li>b</ul><td>stray"
    assert [content for _, content in shape(parse("a.html", html))][:4] == ["one", "two", "a", "b"]


def test_a_page_without_text_is_empty(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError):
        parse("a.html", "<html><head><title>Only a title</title></head><body><script>x</script></body></html>")


def test_absurd_spans_are_refused_before_they_fill_the_memory(parse: Parse) -> None:
    html = "<table><tr>" + "<th colspan=1000 rowspan=1000>a" * 100 + "</tr>" + "<tr><td>x</tr>" * 100 + "</table>"
    with pytest.raises(DocumentTooLargeError):
        parse("a.html", html)


def test_absurd_nesting_ends_in_an_error_or_a_result(parse: Parse) -> None:
    try:
        parse("a.html", "<p>start</p>" + "<div>" * 1500 + "deep" + "</div>" * 1500)
    except CorruptDocumentError as error:
        assert "nested too deeply" in error.message


def stated(make_source: MakeSource, data: bytes, header: str) -> str:
    source = replace(make_source("a.html", data), mime_type=header)
    return HtmlParser().parse(source).blocks[0].content


def test_the_header_s_charset_wins_over_the_page_s_and_the_content_over_a_wrong_one(make_source: MakeSource) -> None:
    body = "<p>値班員 café</p>"
    wrong = '<meta charset="iso-8859-1">'
    assert stated(make_source, (wrong + "<p>玥湖泵站</p>").encode("gbk"), "text/html; charset=gb2312") == "玥湖泵站"
    assert stated(make_source, (wrong + body).encode(), "text/html") == "値班員 café"
    assert stated(make_source, body.encode(), 'text/html;charset="windows-1251"') == "値班員 café"
    assert stated(make_source, codecs.BOM_UTF8 + body.encode(), "text/html; charset=gbk") == "値班員 café"
    assert stated(make_source, "<p>Größe</p>".encode("cp1252"), "text/html; charset=iso-8859-1") == "Größe"


def test_an_xml_declaration_states_the_encoding_too(parse: Parse) -> None:
    xhtml = '<?xml version="1.0" encoding="gb2312"?><html xmlns="http://www.w3.org/1999/xhtml"><p>玥湖泵站</p></html>'
    assert shape(parse("a.xhtml", xhtml.encode("gbk"))) == [("text", "玥湖泵站")]


def test_a_rowspan_of_zero_reaches_to_the_end_of_its_group_and_no_further(parse: Parse) -> None:
    html = """<table><thead><tr><th rowspan=9>g<th>h</tr></thead><tbody><tr><td rowspan=0>a<td>1</tr><tr><td>2</tr>
</tbody>
    <tbody><tr><td>b<td>3</tr></tbody><tfoot><tr><td>sum<td>6</tr></tfoot></table>"""
    assert table(parse("a.html", html)) == [["g", "h"], ["a", "1"], ["a", "2"], ["b", "3"], ["sum", "6"]]


def test_a_cell_that_runs_into_one_from_above_hides_it_in_its_row_alone(parse: Parse) -> None:
    html = "<table><tr><td>a<td rowspan=3>b<td>c</tr><tr><td colspan=2>d<td>e</tr><tr><td>f<td>g</tr></table>"
    assert table(parse("a.html", html)) == [["a", "b", "c"], ["d", "d", "e"], ["f", "b", "g"]]


def test_rows_of_spans_beyond_the_width_are_filled(parse: Parse) -> None:
    html = "<table><tr><td>a<td>b</tr><tr><td colspan=4>wide</tr><tr><td rowspan=2>c</tr><tr><td>d<td>e<td>f</table>"
    assert table(parse("a.html", html)) == [
        ["a", "b", "", ""], ["wide", "wide", "wide", "wide"], ["c", "", "", ""], ["c", "d", "e", "f"],
    ]  # fmt: skip


def test_lists_of_mixed_kinds_nest_and_count(parse: Parse) -> None:
    html = """<ol type=a><li>one<ol><li>deep<ul><li>deeper</ul></ol><li value=7>seven<li>eight</ol>
    <ul><ul><li>wrongly nested</ul></ul>"""
    blocks = parse("a.html", html).blocks
    assert [(b.content, b.metadata["level"], b.metadata["marker"]) for b in blocks] == [
        ("one", 0, "1."), ("deep", 1, "1."), ("deeper", 2, "-"), ("seven", 0, "7."), ("eight", 0, "8."),
        ("wrongly nested", 1, "-"),
    ]  # fmt: skip


def test_preformatted_text_keeps_blank_lines_tabs_and_markup_inside(parse: Parse) -> None:
    html = "<pre>\n  a\n\n\tb <b>bold</b>\n  <span>c</span>&nbsp;d<br>e\n</pre>"
    assert parse("a.html", html).blocks[0].content == "  a\n\n    b bold\n  c\xa0d\ne"


@pytest.mark.parametrize(
    "html",
    ["<pre class='lang-sql'>x</pre>", "<pre><code class='hljs language-sql'>x</code></pre>",
     "<div class='highlight highlight-source-sql'><pre>x</pre></div>", "<pre class='brush: sql'>x</pre>",
     "<div class='highlight-sql notranslate'><div class='highlight'><pre>x</pre></div></div>"],
)  # fmt: skip
def test_the_language_of_code_is_found_where_highlighters_put_it(parse: Parse, html: str) -> None:
    assert parse("a.html", html).blocks[0].metadata["language"] == "sql"


def test_hidden_elements_of_every_kind_are_out(parse: Parse) -> None:
    html = """<p>shown</p><p hidden>1</p><p style="display:none">2</p><p style="visibility: hidden">3</p>
    <p aria-hidden="true">4</p><span class="sr-only">5</span><template><p>6</p></template><noscript>7</noscript>
    <div style="DISPLAY : NONE"><p>8</p></div><details><summary>folded</summary>but there</details>
<p hidden=until-found>found</p>"""
    assert [c for _, c in shape(parse("a.html", html))] == ["shown", "folded", "but there", "found"]


def test_a_pixel_that_stands_in_for_a_later_picture_is_its_caption_alone(parse: Parse) -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (1, 1)).save(encoded, "GIF")
    uri = "data:image/gif;base64," + base64.b64encode(encoded.getvalue()).decode()
    later = f"<img src='{uri}' data-src='weir.jpg' alt='The weir'>"
    document = parse("a.html", f"<p>x</p>{later}<img src='{uri}' alt=''>")
    assert shape(document) == [("text", "x"), ("image", "The weir")] and document.assets == ()


def test_the_same_data_uri_twice_is_one_asset(parse: Parse) -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (20, 10)).save(encoded, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(encoded.getvalue()).decode()
    document = parse("a.html", f"<img src='{uri}' alt=One><img src='{uri}' alt=Two>")
    assert (len(document.blocks), len(document.assets)) == (2, 1)


def test_a_small_picture_without_words_is_a_decoration(parse: Parse) -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (300, 3)).save(encoded, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(encoded.getvalue()).decode()
    document = parse("a.html", f"<p>x</p><img src='{uri}'>")
    assert shape(document) == [("text", "x")] and document.assets == ()


def test_a_linked_mark_of_a_note_is_no_digit_of_the_word_before_it(parse: Parse) -> None:
    page = (
        '<p>Built in 1997<sup><a href="#fn-1">12</a></sup> of 10<sup>3</sup> stones.<sup><a href="#c">[3]</a></sup></p>'
    )
    assert parse("a.html", page).blocks[0].content == "Built in 1997¹² of 10³ stones.[3]"


def test_elements_nested_too_deeply_cost_a_warning() -> None:
    warnings: list[str] = []
    parse_html("<p>top</p>" + "<div>" * 1000 + "<p>deep</p>", warnings.append)
    assert warnings == []
    parse_html("<p>top</p>" + "<div>" * 3000 + "<p>deep</p>", warnings.append)
    assert "nested too deeply" in warnings[0]
