"""What counts as the same word in Chinese and English."""

import pytest

from rag_cluster.domain.terms import question_terms, terms


@pytest.mark.parametrize(
    "pair",
    [
        ("invades", "invaded"),
        ("inspections", "inspection"),
        ("stopping", "stopped"),
        ("companies", "company"),
        ("Café", "cafe"),
        ("1,190", "1190"),
        ("３５％", "35%"),
    ],
)
def test_forms_of_one_word_meet(pair: tuple[str, str]) -> None:
    assert terms(pair[0]) == terms(pair[1])


@pytest.mark.parametrize("pair", [("this", "thi"), ("12.5", "125"), ("class", "clas")])
def test_different_words_stay_apart(pair: tuple[str, str]) -> None:
    assert terms(pair[0]) != terms(pair[1]) or not terms(pair[0])


def test_chinese_is_read_in_pairs_of_characters() -> None:
    assert terms("岸桥检查") == ["岸桥", "桥检", "检查"]
    assert terms("码头的吊") == ["码头", "吊"]


def test_a_questions_interrogatives_are_no_terms() -> None:
    assert question_terms("岸桥多久检查一次？") == ["岸桥", "检查", "查一", "一次"]
    assert question_terms("请介绍一下三级响应") == ["三级", "级响", "响应"]
    assert question_terms("Please tell me about the tug.") == ["tug"]
    assert question_terms("How many cranes are there and what do they cost?") == terms("crane cost")
