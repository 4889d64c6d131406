import itertools
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_cluster.chunking.boundaries import sentences

QA = Path(__file__).parents[3] / "shared" / "qa"


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["他说：“你好。”", "然后走了！", "真的吗？？", "是的；", "不是……", "好吧。"],
        ["中文（括号。）", "后面。", "「引用！」", "继续"],
        ["版本3.14发布了。", "完成.", "下一步"],
    ],
)
def test_chinese_sentences_end_at_their_marks_and_closing_quotes(expected: list[str]) -> None:
    assert split("".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Smith left.", "Mr. J. R. Jones came at 3.14 p.m. Friday."],
        ["The U.S. Army stayed in the U.S.", "The end."],
        ['"What?" he asked.', "Yahoo! is a name.", "Stop!", "Go?"],
        ["See https://a.b/c?x=1.2 for e.g. cats, cf. Fig. 3.", "Wait... Then go."],
        ["As in the book.[12]", "Next one.[3][4]", "Plan B.", "The end"],
        ["He went (slowly.)", "She did not."],
        ["A text , all of whose tokens stand apart .", "It has Dr . Smith 's sentences .", "And 3 @.@ 5 of them ."],
    ],
)
def test_english_sentences_survive_abbreviations_initials_decimals_and_urls(expected: list[str]) -> None:
    if "Wait... Then go." in expected:
        expected = [*expected[:-1], "Wait...", "Then go."]
    assert split(" ".join(expected)) == expected


def test_list_numbers_do_not_end_a_sentence_but_lines_do() -> None:
    assert split("1. Install it.\n2. Run it\n- third\n（一）第四") == [
        "1. Install it.",
        "2. Run it",
        "- third",
        "（一）第四",
    ]


def test_a_hard_wrapped_line_runs_on_and_a_blank_line_always_ends() -> None:
    wrapped = "This is a rather long line that was wrapped at some column of\nThe editor and goes on here"
    assert split(wrapped) == [wrapped]
    assert split("short\n\nparagraphs\n \nthere") == ["short", "paragraphs", "there"]
    assert split("lower case\ngoes on") == ["lower case\ngoes on"]


@given(st.text(alphabet='aB1 .。!?！；…\n"”）)[]1,，:的U', max_size=200))
def test_every_visible_character_is_in_exactly_one_span_in_order(text: str) -> None:
    spans = sentences(text)
    assert all(end <= later for (_, end), (later, _) in itertools.pairwise(spans))
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_ten_thousand_characters_take_a_few_milliseconds(language: str) -> None:
    path = QA / f"xquad.{language}.json"
    if not path.exists():
        pytest.skip("shared corpora are not here")
    articles = json.loads(path.read_text())["data"]
    text = "\n".join(paragraph["context"] for article in articles for paragraph in article["paragraphs"])[:10_000]
    best = min(_seconds(text) for _ in range(10))
    assert best < 0.005


def _seconds(text: str) -> float:
    start = time.perf_counter()
    sentences(text)
    return time.perf_counter() - start


@pytest.mark.parametrize(
    "text", ["." * 100_000, "a." * 50_000, "\n " * 50_000, "。" * 100_000, "A. " * 30_000, ")" * 100_000]
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    assert _seconds(text) < 2
