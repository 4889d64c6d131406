from __future__ import annotations

from collections.abc import Callable

import pytest

from rag_cluster.domain.blocks import BlockType, ParsedDocument
from rag_cluster.domain.locators import column_letters
from rag_cluster.errors import EmptyDocumentError

Parse = Callable[..., ParsedDocument]


def rows(document: ParsedDocument) -> list[list[str]]:
    return list(document.blocks[0].metadata["rows"])


def test_a_file_is_one_table_with_cells_and_lines(parse: Parse) -> None:
    document = parse("a.csv", "name,age\nAda,36\n")
    (block,) = document.blocks
    assert block.type is BlockType.TABLE and block.metadata["header_rows"] == 1
    assert rows(document) == [["name", "age"], ["Ada", "36"]]
    assert (block.locator.cell_range, block.locator.line_start, block.locator.line_end) == ("A1:B2", 1, 2)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_detected(parse: Parse, delimiter: str) -> None:
    text = f"a{delimiter}b, x{delimiter}c\n" if delimiter != "," else 'a,"b, x",c\n'
    assert rows(parse("a.csv", text * 3))[0] == ["a", "b, x", "c"]


def test_decimal_commas_do_not_beat_semicolons(parse: Parse) -> None:
    assert rows(parse("a.csv", "Ware;Preis\nApfel;1,50\nBirne;2,75\n"))[1] == ["Apfel", "1,50"]


def test_excels_own_delimiter_line_is_no_row(parse: Parse) -> None:
    document = parse("a.csv", "sep=;\r\na;b\r\nc;d\r\n")
    assert rows(document) == [["a", "b"], ["c", "d"]]
    assert document.blocks[0].locator.line_start == 2


def test_quotes_and_line_breaks_inside_cells_in_gbk(parse: Parse) -> None:
    text = '编号,名称,说明\r\n1,减压阀,"第一行\n第二行"\r\n2,"过滤器, Y型","含""引号""的说明"\r\n'
    document = parse("a.csv", text.encode("gbk"))
    assert rows(document)[1:] == [["1", "减压阀", "第一行\n第二行"], ["2", "过滤器, Y型", '含"引号"的说明']]
    assert document.blocks[0].locator.line_end == 4


def test_ragged_rows_are_filled(parse: Parse) -> None:
    assert rows(parse("a.csv", "a,b\n1,2,3\n4\n")) == [["a", "b", ""], ["1", "2", "3"], ["4", "", ""]]


def test_numbers_in_the_first_row_are_no_header(parse: Parse) -> None:
    assert parse("a.csv", "1,2\n3,4\n").blocks[0].metadata["header_rows"] == 0


def test_a_long_file_is_several_tables_with_the_header_repeated(parse: Parse) -> None:
    document = parse("a.csv", "id,word\n" + "".join(f"{i},w{i}\n" for i in range(2500)))
    assert [b.locator.cell_range for b in document.blocks] == ["A1:B1001", "A1002:B2001", "A2002:B2501"]
    assert [b.locator.line_start for b in document.blocks] == [1, 1002, 2002]
    assert all(b.metadata["rows"][0] == ["id", "word"] for b in document.blocks)
    assert sum(len(b.metadata["rows"]) - 1 for b in document.blocks) == 2500


def test_a_table_of_blank_cells_is_empty(parse: Parse) -> None:
    with pytest.raises(EmptyDocumentError):
        parse("a.csv", ",,\n,,\n")


@pytest.mark.parametrize(("number", "letters"), [(1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (703, "AAA")])
def test_columns_are_lettered_as_in_a_spreadsheet(number: int, letters: str) -> None:
    assert column_letters(number) == letters
