from __future__ import annotations

from collections.abc import Callable

import pytest

from rag_cluster.chunking.tables import cell_locator
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


SPARK = """id,comment,price
1,"He said \\"hi, there\\", ok",5
2,"plain, text",6
3,"ends \\"so\\"","C:\\temp\\new"
4,"",C:\\x
5,"C:\\\\","D:"
"""


def test_quotes_escaped_by_backslashes_stay_in_their_cell(parse: Parse) -> None:
    document = parse("a.csv", SPARK)
    assert rows(document)[1:] == [
        ["1", 'He said "hi, there", ok', "5"],
        ["2", "plain, text", "6"],
        ["3", 'ends "so"', "C:\\temp\\new"],
        ["4", "", "C:\\x"],
        ["5", "C:\\", "D:"],
    ]
    assert document.blocks[0].locator.line_end == 6


def test_a_backslash_before_a_closing_quote_escapes_nothing_where_quotes_are_doubled(parse: Parse) -> None:
    document = parse("a.csv", 'path,note\n"C:\\dir\\","a ""b"""\n"D:\\","c"\n')
    assert rows(document)[1:] == [["C:\\dir\\", 'a "b"'], ["D:\\", "c"]]


def test_a_path_that_ends_in_a_backslash_and_escaped_quotes_stand_in_one_file(parse: Parse) -> None:
    document = parse("a.csv", 'name,path,note\nA,"C:\\dir\\","x"\nB,"say \\"hi\\", ok",y\n"C","z","D:\\"\n"E","",e\n')
    assert rows(document)[1:] == [
        ["A", "C:\\dir\\", "x"], ["B", 'say "hi", ok', "y"], ["C", "z", "D:\\"], ["E", "", "e"],
    ]  # fmt: skip


def test_escaped_quotes_that_read_nowhere_tear_no_other_row(parse: Parse) -> None:
    document = parse("a.csv", 'name,path,note\nA,"C:\\dir\\",x\nB,"say \\"hi\\"",y\n')
    assert rows(document)[1] == ["A", "C:\\dir\\", "x"]


def test_rows_are_counted_as_a_spreadsheet_does_blank_ones_too(parse: Parse) -> None:
    document = parse("a.csv", "\n,,,,\nid,word\n1,a\n2,b\n\n,,,\n3,c\n" + "\n" * 3000 + "4,d\n,,\n\n")
    assert [b.metadata["rows"] for b in document.blocks] == [
        [["id", "word"], ["1", "a"], ["2", "b"], ["", ""], ["", ""], ["3", "c"]],
        [["id", "word"], ["4", "d"]],
    ]
    assert [b.locator.cell_range for b in document.blocks] == ["A3:B8", "A3009:B3009"]
    assert [(b.locator.line_start, b.locator.line_end) for b in document.blocks] == [(3, 8), (3009, 3009)]
    assert (document.metadata["rows"], document.metadata["columns"]) == (5, 2)


def test_blank_rows_that_would_fill_a_table_are_left_out(parse: Parse) -> None:
    document = parse("a.csv", "id,word\r\r\n" + "".join(f"{i},w{i}\r\r\n" for i in range(700)))
    assert [word for b in document.blocks for _, word in b.metadata["rows"][1:]] == [f"w{i}" for i in range(700)]
    assert [b.locator.cell_range for b in document.blocks] == ["A1:B1001", "A1003:B1401"]
    narrowed = {cell_locator(block, row) for block in document.blocks for row in range(1, len(block.metadata["rows"]))}
    assert narrowed == {None}


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


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", "编号,名称\n1,减压阀\n"),
        ("utf-16", "编号,名称\n1,减压阀\n"),
        ("utf-16-be", "id,name\n1,valve\n"),
        ("gb18030", "编号,名称\n1,减压阀\n"),
        ("cp932", "名前,年齢,住所\n佐藤太郎,30,東京\n鈴木花子,25,大阪\n"),
        ("big5", "姓名,年齡,城市\n張三,20,臺北\n李四,30,高雄\n"),
        ("cp1252", "Name;Größe\nMüller;1,80\n"),
    ],
)
def test_the_encoding_is_detected(parse: Parse, encoding: str, text: str) -> None:
    delimiter = ";" if ";" in text else ","
    assert rows(parse("a.csv", text.encode(encoding))) == [line.split(delimiter) for line in text.splitlines()]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_quoted_line_breaks_and_delimiters_belong_to_the_cell(parse: Parse, delimiter: str) -> None:
    cell = f'line one\nline {delimiter} two\n\nline "three"'
    quoted = '"' + cell.replace('"', '""') + '"'
    text = "".join(f"a{n}{delimiter}{quoted}{delimiter}c{n}\r\n" for n in range(4))
    document = parse("a.csv", f"x{delimiter}y{delimiter}z\r\n{text}")
    assert rows(document)[1:] == [[f"a{n}", cell, f"c{n}"] for n in range(4)]
    assert document.metadata["delimiter"] == delimiter


def test_a_tab_separated_file_is_that_whatever_commas_it_holds(parse: Parse) -> None:
    assert rows(parse("a.tsv", "a, b\tc\n1, 2\t3\n")) == [["a, b", "c"], ["1, 2", "3"]]


@pytest.mark.parametrize(
    ("text", "header_rows"),
    [
        ("name,2019,2020\nducks,120,80\ngeese,10,8\n", 1),
        ("2019,2020\n2021,2022\n", 0),
        ("2019,2020\n120,80\n", 1),
        ("name,city\nAda,London\n", 1),
        ("1.5,x\n2.5,y\n", 0),
        ("only one line,here\n", 0),
        (",Q1,Q2\nflow,1,2\n", 1),
        ("日期,数值\n2024-01-01,3\n", 1),
        ("2024-01-01,3\n2024-01-02,4\n", 0),
        ("2024/1/1 08:00,pump on\n2024/1/2 09:00,pump off\n", 0),
    ],
)
def test_a_header_is_a_row_of_names_or_years(parse: Parse, text: str, header_rows: int) -> None:
    assert parse("a.csv", text).blocks[0].metadata["header_rows"] == header_rows


def test_a_huge_cell_and_a_row_of_many_cells_are_kept(parse: Parse) -> None:
    huge = "词" * 300_000
    document = parse("a.csv", f'id,text\n1,"{huge}"\n' + ",".join(str(n) for n in range(5000)) + "\n")
    assert rows(document)[1][1] == huge and rows(document)[2][4999] == "4999"


def test_a_quote_that_is_never_closed_takes_no_other_rows_silently(parse: Parse) -> None:
    document = parse("a.csv", 'a,b\n1,"open\n2,x\n3,y\n')
    text = document.blocks[0].content
    assert all(piece in text for piece in ("open", "x", "y", "3"))


def test_carriage_returns_alone_end_lines(parse: Parse) -> None:
    assert rows(parse("a.csv", "a,b\r1,2\r3,4")) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_a_column_of_text_without_any_delimiter_is_a_table_of_one_column(parse: Parse) -> None:
    assert rows(parse("a.csv", "name\nAda\nGrace Hopper\n")) == [["name"], ["Ada"], ["Grace Hopper"]]


def test_a_title_above_the_table_does_not_hide_its_delimiter(parse: Parse) -> None:
    document = parse("a.csv", "Report of May, final\n\nsite;flow;unit\nnorth;1,5;m3\nsouth;2,5;m3\n")
    assert ["north", "1,5", "m3"] in rows(document)
