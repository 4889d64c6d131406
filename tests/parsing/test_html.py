from __future__ import annotations

import base64
import io
from collections.abc import Callable

import pytest
from PIL import Image

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.errors import CorruptDocumentError, DocumentTooLargeError, EmptyDocumentError

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
