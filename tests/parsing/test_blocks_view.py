from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import html

from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.parsing.blocks_view import blocks_view
from rag_cluster.parsing.ocr import OcrMode
from rag_cluster.parsing.output import local_source
from rag_cluster.parsing.page_pictures import page_pictures
from rag_cluster.parsing.registry import ParserRegistry
from tests.parsing.fuzzing import SEEDS

Parse = Callable[..., ParsedDocument]


def view(path: Path) -> str:
    source = local_source(path)
    parsed = ParserRegistry(ocr=OcrMode.OFF).parser_for(path.name).parse(source)
    return blocks_view(parsed, source, page_pictures(source))


@pytest.fixture(scope="module")
def pdf_view(tmp_path_factory: pytest.TempPathFactory) -> html.HtmlElement:
    path = tmp_path_factory.mktemp("view") / "a.pdf"
    path.write_bytes(SEEDS["pdf"]()[0])
    return html.fromstring(view(path))


def test_every_page_is_drawn_with_a_box_for_every_block_that_has_a_place(pdf_view: html.HtmlElement) -> None:
    assert len(pdf_view.xpath("//div[@class='page']/img")) == 2
    boxes = {box.get("href") for box in pdf_view.xpath("//a[starts-with(@class, 'box')]")}
    cards = {"#" + card.get("id") for card in pdf_view.xpath("//div[starts-with(@class, 'block ')]")}
    assert boxes == cards and cards


def test_boxes_lie_on_the_page(pdf_view: html.HtmlElement) -> None:
    heading = pdf_view.xpath("//a[@class='box heading']")[0].get("style")
    left, top, width, height = (float(value) for value in re.findall(r":([\d.]+)%", heading))
    # Drawn at 60 points of 595 and 50 of 842, 16 points high.
    assert left == pytest.approx(60 / 5.95, abs=1) and top == pytest.approx(50 / 8.42, abs=1)
    assert 5 < width < 40 and 1 < height < 4


def test_tables_are_tables(pdf_view: html.HtmlElement) -> None:
    rows = [[cell.text for cell in row] for row in pdf_view.xpath("//table//tr")]
    assert rows[0] == ["cell 00", "cell 01", "cell 02"] and len(rows) == 3


def test_a_format_without_pages_shows_its_blocks_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# Title\n\n1. one\n    - inner\n")
    page = html.fromstring(view(path))
    assert not page.xpath("//div[@class='page']")
    assert [card.text_content() for card in page.xpath("//div[@class='content']")] == ["1. one", "- inner"]


def test_a_document_cannot_write_into_the_page(parse: Parse, tmp_path: Path) -> None:
    text = (
        '# <script>alert(1)</script>\n\n```\n</pre><img src=x onerror=alert(1)>\n```\n\n| "><b> |\n| --- |\n| <i> |\n'
    )
    path = tmp_path / "<b>.md"
    path.write_text(text)
    out = view(path)
    page = html.fromstring(out)
    assert not page.xpath("//script | //b | //i | //img | //*[@onerror]")
    assert "default-src 'none'" in out and not re.search(r'(src|href)="(?!data:|#)', out)


def test_a_file_whose_pages_cannot_be_drawn_has_no_pictures(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 50)
    assert page_pictures(local_source(path)) == {}
