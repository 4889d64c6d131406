"""Numbers are compared by their value, however they are written."""

from __future__ import annotations

import pytest

from rag_cluster.domain.numerals import bare_numbers, numbers


def values(text: str, *, certain: bool = True) -> list[str]:
    return [number.value for number in numbers(text) if number.certain or not certain]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,190 of 2.5, 3,4 及１２", ["1190", "2.5", "3", "4", "12"]),
        ("4,200.00 and 007", ["4200", "7"]),
        ("1.5万人，3千万元，2万亿，1千", ["15000", "30000000", "2000000000000", "1000"]),
        ("5 million, 5 billion, 12 thousand", ["5000000", "5000000000", "12000"]),
        ("5千克 5千米 5百分点", ["5", "5", "5"]),
        ("5％，百分之五，百分之12.5，five percent, 5 元", ["5%", "5%", "12.5%", "5%", "5"]),
        ("-5 度，零下5度，为-5，minus 5", ["-5", "-5", "-5", "-5"]),
        ("5-6, 2019年-2020年, GPT-4, 5%-6%", ["5", "6", "2019", "2020", "4", "5%", "6%"]),
        ("2024年5月1日", ["2024", "5", "1"]),
        ("2024-05-01", ["2024", "5", "1"]),
        ("2024.5.1", ["2024", "5", "1"]),
        ("1 May 2024, 2nd Sept. 2024", ["1", "5", "2024", "2", "9", "2024"]),
        ("May 1, 2024", ["5", "1", "2024"]),
        ("In 2019 may it be", ["2019"]),
        ("三百吨，三百零五，二百五，十二，一万三千，三万五", ["300", "305", "250", "12", "13000", "35000"]),
        ("一亿三千万，二万亿", ["130000000", "2000000000000"]),
        ("二〇二四年", ["2024"]),
        ("一些，万一，十分，千万不要，百万，数百，三四十，四万万，万万没想到，第三，一个", []),
        ("seventy-five, a hundred and five, Three million, one hundred twenty", ["75", "105", "3000000", "120"]),
        ("twenty twenty, hundreds, one of them, three cranes, ninety-nine", ["99"]),
        ("between twenty and thirty", ["20", "30"]),
        ("三点五万，九点三刻，三点共五十，2千5百克", ["35000", "50", "2500"]),
        ("3万5千，1亿2300万，5百", ["35000", "123000000", "500"]),
        ("twenty-first, fifteenth, first, a second", ["21", "15"]),
        ("3-Mar-2024; May 5 to 6", ["3", "3", "2024", "5", "5", "6"]),
        ("1" * 40 + " 零" * 5000 + "万" * 5000, ["1" * 40]),
    ],
)
def test_a_number_has_one_value(text: str, found: list[str]) -> None:
    assert values(text) == found


def test_a_small_number_word_counts_only_as_something_held() -> None:
    assert values("三吨, three tonnes, 十吨", certain=False) == ["3", "3", "10"]


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("3-5万", [("30000",), ()]),
        ("5–6%, 百分之五至六", [("5%",), (), (), ("6%",)]),
        ("-5 to 6 million", [("-5000000",), ()]),
        ("5%-6%", [(), ()]),
        ("温度-5", [("-5",)]),
        ("1，5万", [(), ()]),
    ],
)
def test_what_a_range_or_a_dash_may_mean_is_a_second_value(text: str, others: list[tuple[str, ...]]) -> None:
    assert [number.others for number in numbers(text)] == others


def test_numbers_alone_in_a_cell_are_known_without_what_the_heading_says() -> None:
    assert bare_numbers("| 收入（万元） | % |\n| --- | --- |\n| 5,000 | -3.50 |\n| 12 台 | x |") == {"5000", "3.5"}
    assert bare_numbers("注册资本（万元）：5,000\n收入（占 8.1%）为 12") == {"5000"}
