"""Citations come from results and say exactly where a quote stands."""

from __future__ import annotations

import pytest

from rag_cluster.answering.cells import rows_locator
from rag_cluster.answering.citations import build_citations
from rag_cluster.answering.claims import check_claims
from rag_cluster.domain.answers import ContextSource
from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk
from rag_cluster.domain.retrieval import RetrievalResult

FIRST = "The crane lifts 65 tonnes. It was built in 2019 by Nordwind."
SECOND = "Maintenance costs 4,200 euros. Dr. Ilse Brandt leads the workshop."


def chunk(name: str, text: str, page: int) -> Chunk:
    return Chunk(name, "kb", "doc", 1, page, text, locator=SourceLocator(page=page, heading_path=("Cranes",)))


def source(number: int = 1, *chunks: Chunk, content: str | None = None) -> ContextSource:
    chunks = chunks or (chunk("c1", FIRST, 3), chunk("c2", SECOND, 4))
    text = content if content is not None else "\n\n".join(one.text for one in chunks)
    result = RetrievalResult(
        chunk_id=chunks[0].id,
        document_id="doc",
        version=2,
        knowledge_base_id="kb",
        filename="cranes.pdf",
        content=text,
        matched_content=chunks[0].text,
        score=1.0,
        locator=chunks[0].locator,
        context_locator=SourceLocator(page=3, spans=((3, (0, 0, 1, 1)), (4, (0, 0, 1, 1)))),
        context_chunk_ids=tuple(one.id for one in chunks),
        matches=chunks,
        document_origin="file:///cranes.pdf",
    )
    return ContextSource(number, result, text)


def cite(n: int) -> str:
    return f"[Source {n}](citation://{n})"


def test_the_locator_is_that_of_the_matched_chunk_which_holds_the_quote() -> None:
    (citation,) = build_citations(f"Maintenance costs 4,200 euros. {cite(1)}", [source()])
    assert (citation.chunk_id, citation.locator.page) == ("c2", 4)
    assert citation.quote == "Maintenance costs 4,200 euros."
    assert citation.heading_path == ("Cranes",) and citation.version == 2 and citation.uri == "file:///cranes.pdf"


def test_a_quote_in_a_chunk_of_two_pages_is_cited_with_its_own_page() -> None:
    text = f"{FIRST}\n\n{SECOND}"
    places = [[0, len(FIRST), {"page": 3}], [len(FIRST) + 2, len(text), {"page": 4}]]
    spanning = Chunk(
        "c1", "kb", "doc", 1, 0, text, locator=SourceLocator(("Cranes",), page=3), metadata={"places": places}
    )
    (citation,) = build_citations(f"Maintenance  costs 4,200 euros. {cite(1)}", [source(1, spanning)])
    assert citation.locator == SourceLocator(("Cranes",), page=4)


def test_a_quote_outside_the_matched_chunks_has_the_contexts_place() -> None:
    wide = source(1, chunk("c1", FIRST, 3), content=f"{FIRST}\n\n{SECOND}")
    (citation,) = build_citations(f"Maintenance costs 4,200 euros. {cite(1)}", [wide])
    assert citation.locator.spans and citation.quote == "Maintenance costs 4,200 euros."


def test_a_free_wording_is_given_the_sentence_that_it_rests_on() -> None:
    (citation,) = build_citations(f"Nordwind built it in 2019. {cite(1)}", [source()])
    assert citation.quote == "It was built in 2019 by Nordwind."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (FIRST, "The crane lifts 65 tonnes. It was built in 2019 by Nordwind {}."),
        (FIRST, "The crane lifts 65 tonnes. Nordwind built it in 2019 {}."),
        ("特价商品不可以退款。堆存费每天60元。", "特价商品不可以退款。堆存费每天60元 {}。"),
    ],
)
def test_each_sentence_that_a_mark_is_of_is_quoted(text: str, answer: str) -> None:
    (citation,) = build_citations(answer.format(cite(1)), [source(1, chunk("c", text, 1))])
    assert "".join(citation.quote.split()) == "".join(text.split())


def test_only_marked_sources_are_cited() -> None:
    other = source(2, chunk("d1", "Another matter.", 9))
    assert [one.number for one in build_citations(f"It lifts 65 tonnes. {cite(1)}", [source(), other])] == [1]


def test_an_answer_without_marks_rests_on_all_its_sources_and_says_so() -> None:
    assert [one.number for one in build_citations("It lifts 65 tonnes.", [source()])] == [1]
    assert any("no citation" in warning for warning in check_claims("It lifts 65 tonnes.", [source()]))


def test_table_rows_are_quoted_without_the_rule() -> None:
    table = "| Quarter | Boxes |\n| --- | --- |\n| Q1 | 120 |\n| Q2 | 95 |"
    sheet = Chunk("t", "kb", "doc", 1, 0, table, locator=SourceLocator(sheet="2025", cell_range="A1:B3"))
    answer = f"| Quarter | Boxes |\n| --- | --- |\n| Q2 | 95 |\n\n{cite(1)}"
    (citation,) = build_citations(answer, [source(1, sheet)])
    assert citation.quote == "| Quarter | Boxes |\n| Q2 | 95 |"
    assert citation.locator.cell_range == "A3:B3"


def test_of_a_table_whole_rows_alone_are_quoted() -> None:
    sheet = Chunk("t", "kb", "doc", 1, 0, "| Item | Refund | Days |\n| --- | --- | --- |\n| sale | none | 30 |")
    answer = f"| When | Days |\n| --- | --- |\n| none | 30 |\n\n{cite(1)}"
    assert build_citations(answer, [source(1, sheet)])[0].quote == "| Item | Refund | Days |\n| sale | none | 30 |"


def test_a_number_or_a_name_that_the_source_does_not_hold_is_a_warning() -> None:
    assert check_claims(f"It lifts 65 tonnes, as Dr. Ilse Brandt says. {cite(1)}", [source()]) == []
    (number,) = check_claims(f"It lifts 70 tonnes. {cite(1)}", [source()])
    assert "70" in number and "source 1" in number
    (name,) = check_claims(f"The workshop is led by Hans Meier. {cite(1)}", [source()])
    assert "Hans Meier" in name


@pytest.mark.parametrize(
    ("text", "claim", "missing"),
    [
        ("起重量为65吨。", "起重量为三百吨。", "三百"),
        ("It lifts 65 tonnes.", "It lifts seventy tonnes.", "seventy"),
        ("收入5万元。", "收入5亿元。", "5亿"),
        ("A profit of 5 million.", "A profit of 5 billion.", "5 billion"),
        ("费用5元。", "费用5%。", "5%"),
        ("At 5 degrees.", "At -5 degrees.", "-5"),
        ("预算3-5万元。", "预算为4万元。", "4万"),
        ("温度5℃。", "温度为-5℃。", "-5"),
        ("收入3.4万元。", "收入三点五万元。", "三点五万"),
        ("It costs $1.5M.", "It costs $1.5bn.", "1.5 billion"),
        ("In the 21st century", "In the twenty-second century.", "twenty-second"),
        ("The annual report.", "The report by Ann.", "Ann"),
    ],
)
def test_a_number_is_its_value_and_a_name_a_whole_word(text: str, claim: str, missing: str) -> None:
    (warning,) = check_claims(f"{claim} {cite(1)}", [source(1, chunk("c", text, 1))])
    assert f"not in source 1: {missing} " in warning


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("2024-05-01", "2024年5月1日"),
        ("2024.5.1", "2024年5月1日"),
        ("2024-05-01", "It was on 1 May 2024."),
        ("1 May 2024", "2024-05-01"),
        ("It costs 4,200.00 euros.", "It costs 4,200 euros."),
        ("共1.5万人。", "共15000人。"),
        ("共1,000人。", "共1千人。"),
        ("共三百人。", "共300人。"),
        ("three cranes", "3 cranes"),
        ("| 收入（万元） |\n| --- |\n| 5,000 |", "收入为5000万元。"),
        ("| Share (%) |\n| --- |\n| 5.0 |", "The share is 5%."),
        ("It was built by Hans\nMeier.", "It was built by Hans Meier."),
        ("Nordwind built all cranes.", "It is one of Nordwind's."),
        ("A GPU is needed.", "It needs GPUs."),
        ("涨幅为5%-6%。", "涨幅为5-6%。"),
        ("涨幅为5-6%。", "涨幅为5%至6%。"),
        ("预算3万至5万元。", "预算3-5万元。"),
        ("预算三至五万元。", "预算3万～5万元。"),
        ("$5 million to $10 million", "It costs $5-10 million."),
        ("$5-10 million", "between $5m and $10m"),
        ("$1.5 million, $2bn", "It costs $1.5M and $2 billion."),
        ("注册资本（万元）：5,000", "注册资本为5000万元。"),
        ("最低温度-20℃，最高60℃。", "最低温度为-20℃。"),
        ("工作温度-20℃~60℃", "工作温度为−20℃至60℃。"),
        ("费用5元-10元，方案-2。", "费用为5元至10元，见方案2。"),
        ("At –5 degrees.", "At -5 degrees."),
        ("In March, 2024", "It was in March 2024."),
        ("In March and April 2024", "in March 2024 and in April 2024"),
        ("15-Mar-2024, 3 Feb-2020", "2024-03-15, 2020-02-03"),
        ("共3万2471人。", "共32471人。"),
        ("2024-03-15", "It was 15-Mar-2024, on the 15th of March 2024, in March."),
        ("收入3.5万元。", "收入三点五万元。"),
        ("收入三点五万元。", "收入3.5万元。"),
        ("占3.5%。", "占百分之三点五。"),
        ("占百分之三点五。", "占3.5%。"),
        ("共1.2亿元。", "共1亿2千万元。"),
        ("共一亿二千三百万元。", "共1亿2千3百万元。"),
        ("占百分之三十至五十。", "占30%至50%。"),
        ("占100%。", "占百分之百。"),
        ("共100万元。", "共壹佰万元。"),
        ("In the 21st century", "In the twenty-first century."),
        ("For the twentieth time", "For the 20th time."),
        ("定于三点五十分", "定于3点50分"),
        ("起重量65吨。", "1.起重量65吨。"),
        ("起重量65吨。", "**1. 起重量**65吨。"),
        ("起重量65吨。", "（1）起重量65吨。\n(2) 起重量65吨。"),
        ("起重量65吨。", "①起重量65吨。"),
        ("起重量65吨。", "## 2. 起重量\n- 3) 65吨。"),
    ],
)
def test_another_way_of_writing_is_no_other_claim(text: str, claim: str) -> None:
    assert check_claims(f"{claim} {cite(1)}", [source(1, chunk("c", text, 1))]) == []


def test_a_number_alone_is_a_claim_and_no_list() -> None:
    assert check_claims(f"70. {cite(1)}", [source()]) != []


def test_thousands_separators_do_not_make_another_number() -> None:
    assert check_claims(f"It costs 4200 euros. {cite(1)}", [source()]) == []


def test_each_sentence_is_checked_against_what_it_cites() -> None:
    other = source(2, chunk("d1", "The tug has 70 knots.", 9))
    warnings = check_claims(f"It lifts 70 tonnes. {cite(1)} The tug has 70 knots. {cite(2)}", [source(), other])
    assert len(warnings) == 1 and "source 1" in warnings[0]


@pytest.mark.parametrize("before", ["According to {}, it lifts {} tonnes.", "根据{}，岸桥起重量为{}吨。"])
def test_a_sentence_is_checked_and_quoted_whole_wherever_its_mark_stands(before: str) -> None:
    both = [source(1, chunk("c", "It lifts 65 tonnes. 岸桥起重量为65吨。", 1)), source(2, chunk("d", "70 knots.", 9))]
    (warning,) = check_claims(before.format(cite(1), 70), both)
    assert "not in source 1: 70" in warning
    assert "65" in build_citations(before.format(cite(1), 65), both)[0].quote


def test_the_numbers_of_a_list_are_no_claims() -> None:
    assert check_claims(f"1. It lifts 65 tonnes.\n2) It was built in 2019.\n{cite(1)}", [source()]) == []


def test_chinese_claims_are_checked() -> None:
    zh = source(1, chunk("z", "岸桥最大起重量为65吨，由 Nordwind 制造。", 1))
    assert check_claims("岸桥最大起重量为65吨。[来源 1](citation://1)", [zh]) == []
    assert "70" in check_claims("岸桥最大起重量为70吨。[来源 1](citation://1)", [zh])[0]
    assert "Siemens" in check_claims("岸桥由 Siemens 制造。[来源 1](citation://1)", [zh])[0]
    assert "Siemens" in check_claims("岸桥由Siemens公司制造。[来源 1](citation://1)", [zh])[0]
    assert check_claims("岸桥由Nordwind公司制造。[来源 1](citation://1)", [zh]) == []


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("部署 Redis，还有 Docker。", "部署Docker和Redis。"),
        ("On Women’s Day.", "It is on Women's Day."),
        ("依据《1978年法令》。", "依据《1978 年法令》。"),
        ("Led by André Müller.", "The workshop of André is led by Müller."),
    ],
)
def test_a_name_ends_where_another_script_begins_but_not_at_an_accent(text: str, claim: str) -> None:
    assert check_claims(f"{claim} {cite(1)}", [source(1, chunk("c", text, 1))]) == []


DENIED = [
    ("特价商品不可以退款。", "可以退款。"),
    ("特价商品不可以退款。", "特价商品可以退款。"),
    ("本产品不支持离线安装。", "支持离线安装。"),
    ("In no case refunds are possible.", "Refunds are possible."),
    ("Refunds are not possible.", "Refunds are possible."),
    ("Refunds are possible.", "Refunds are not possible."),
    ("Visitors cannot enter the yard.", "Visitors can enter the yard."),
]


@pytest.mark.parametrize(("text", "claim"), DENIED)
def test_a_claim_that_turns_its_source_round_is_a_warning_and_quotes_the_whole_sentence(text: str, claim: str) -> None:
    told = source(1, chunk("c", f"Terms of sale.\n\n{text}", 1))
    (warning,) = check_claims(f"{claim} {cite(1)}", [told])
    assert "source 1 says the contrary" in warning
    assert build_citations(f"{claim} {cite(1)}", [told])[0].quote == text


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("不足一天的，可以退款。", "可以退款。"),
        ("特价商品不可以退款。其他商品可以退款。", "可以退款。"),
        ("非洲客户可以退款。", "客户可以退款。"),
        ("If nothing is due, refunds are possible.", "Refunds are possible."),
        ("Refunds are not possible.", "Refunds are not possible."),
        ("No different tariff applies.", "Rent tariff applies."),
        ("会员用户不收取堆存费。", "会员用户：不收取堆存费。"),
        ("For members there is no charge.", "For members, there is no charge."),
        ("未经授权不得访问机房。", "未经授权，不得访问机房。"),
        ("商品未拆封可以退货。", "商品未拆封，可以退货。"),
        ("Sale items cannot be returned.", "Sale items: cannot be returned."),
        ("No employee may enter without a badge.", "Without a badge, no employee may enter."),
        ("客户不得不退款。", "客户得退款。"),
        ("The answer is no, a refund is not due.", "The answer is no, a refund is not due."),
    ],
)
def test_a_negation_of_something_else_is_none(text: str, claim: str) -> None:
    assert check_claims(f"{claim} {cite(1)}", [source(1, chunk("c", text, 1))]) == []


def test_a_quote_is_a_whole_sentence_also_in_the_wider_context() -> None:
    wide = source(1, chunk("c1", FIRST, 3), content=f"{FIRST}\n\n特价商品不可以退款。")
    assert build_citations(f"可以退款。{cite(1)}", [wide])[0].quote == "特价商品不可以退款。"


def test_of_two_sentences_that_hold_a_claim_the_one_that_says_nothing_else_is_quoted() -> None:
    both = source(1, chunk("c", "In no case are refunds due. Refunds are due.", 1))
    assert build_citations(f"Refunds are due. {cite(1)}", [both])[0].quote == "Refunds are due."


def test_a_part_of_a_number_or_word_is_no_quote() -> None:
    told = source(1, chunk("c", "Nonrefundable for three days. 总重165吨。", 1))
    assert build_citations(f"refundable for a moment {cite(1)}", [told])[0].quote == ""
    (warning,) = check_claims(f"总重65吨。{cite(1)}", [told])
    assert "not in source 1: 65" in warning


ROWS = "| Q1 | 120 |\n| Q2 | 95 |\n| Q3 | 140 |"
HEAD = "| Quarter | Boxes |\n| --- | --- |\n"


@pytest.mark.parametrize(
    ("text", "cells", "rows", "narrowed"),
    [
        (HEAD + ROWS, "A1:B4", ["| Q2 | 95 |"], "A3:B3"),
        (HEAD + ROWS, "A1:B4", ["| Q1 | 120 |", "| Q3 | 140 |"], "A2:B4"),
        (HEAD + ROWS, "C9:D11", ["| Q2 | 95 |"], "C10:D10"),  # the header is repeated, the range is the rows'
        (f"Boxes of 2025\n\n{HEAD}{ROWS}", "A1:B5", ["| Q2 | 95 |"], "A4:B4"),
        (HEAD + ROWS, "A1:B9", ["| Q2 | 95 |"], "A1:B9"),  # rows are missing: nothing is known
        (f"{HEAD}{ROWS}\n\n{HEAD}{ROWS}", "A1:B8", ["| Q2 | 95 |"], "A1:B8"),
        (f"|  |  |\n| --- | --- |\n{ROWS}", "A1:B3", ["| Q2 | 95 |"], "A2:B2"),
        (f"|  |  |\n| --- | --- |\n{ROWS}", "A1:B4", ["| Q2 | 95 |"], "A1:B4"),  # one row is hidden
        (HEAD + ROWS, None, ["| Q2 | 95 |"], None),
    ],
)
def test_a_quoted_row_is_placed_in_its_own_cells_where_they_can_be_counted(
    text: str, cells: str | None, rows: list[str], narrowed: str | None
) -> None:
    assert rows_locator(SourceLocator(sheet="s", cell_range=cells), text, rows).cell_range == narrowed
