"""Marks and image references in a generator's text."""

from __future__ import annotations

import itertools
import random

import pytest

from rag_cluster.answering.marks import MarkFilter, stretches

MARK = "[Source 1](citation://1)"


def clean(text: str, cuts: list[int] | None = None, *, sources: int = 2, language: str = "en") -> tuple[str, list[str]]:
    cleaner = MarkFilter(sources, frozenset({"a1"}), language)
    bounds = [0, *(cuts or []), len(text)]
    out = "".join(cleaner.feed(text[a:b]) for a, b in itertools.pairwise(bounds))
    return out + cleaner.flush(), cleaner.removed


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"Twelve. {MARK}", f"Twelve. {MARK}"),
        ("Twelve. [Source 3](citation://3)", "Twelve. "),
        ("Twelve. [Source 0](citation://0)", "Twelve. "),
        ("Twelve. [Source x](citation://x)", "Twelve. "),
        ("Twelve. [来源 2](citation://2)", "Twelve. [Source 2](citation://2)"),
        ("Twelve. [Source 2]", "Twelve. [Source 2](citation://2)"),
        ("Twelve. [see](citation://1)", f"Twelve. {MARK}"),
        ("Twelve. citation://9", "Twelve. "),
        ("![plan](asset://a1)", "![plan](asset://a1)"),
        ("![plan](asset://nope) next", " next"),
        ("asset://nope and asset://a1", " and asset://a1"),
        ("a[0] and [link](https://example.org)", "a[0] and [link](https://example.org)"),
        ("Is it [unfinished", "Is it [unfinished"),
        ("见citation://9。", "见。"),
        ("图asset://zz和citation://9是", "图和是"),
        ("Twelve. [Source 7, 9]", "Twelve. "),
        ("Twelve. [Sources 1, 9 and 2]", f"Twelve. {MARK}[Source 2](citation://2)"),
        ("十二。[来源 7、9]【来源 9】", "十二。"),
        ("十二。[来源1-3]", f"十二。{MARK}[Source 2](citation://2)"),
        ("Twelve. [Sources 1 to 2]", f"Twelve. {MARK}[Source 2](citation://2)"),
        ("Twelve. [Source 0–1, 2]", f"Twelve. {MARK}[Source 2](citation://2)"),
        (f"Twelve. [Source 1-{'9' * 5000}]", f"Twelve. {MARK}[Source 2](citation://2)"),
        ("Twelve. [Source 1-", "Twelve. "),
        ("十二。【来源 1】", f"十二。{MARK}"),
        ("Twelve. [来源 1]（citation://1)", f"Twelve. {MARK}"),
        ("Twelve. [来源 1] (citation://1)", f"Twelve. {MARK}"),
        ("Twelve. [[Source 1]](citation://1)", f"Twelve. {MARK}"),
        ("Twelve. [[Source 1]]", f"Twelve. {MARK}"),
        (f"Twelve. [Source {'9' * 5000}]", "Twelve. "),
        # A text that ends in the midst of a mark.
        ("Twelve. [Source 1](cita", f"Twelve. {MARK}"),
        ("Twelve. [Source 1](citation://1", f"Twelve. {MARK}"),
        ("Twelve. [Source 9](", "Twelve. "),
        ("Twelve. [Sour", "Twelve. "),
        ("十二。[来源 1", "十二。"),
        ("![plan](asset://a", ""),
        ("Twelve citation:/", "Twelve "),
        ("[page](https://exa", "[page](https://exa"),
    ],
)
def test_only_marks_and_assets_that_stand_for_something_are_kept(text: str, kept: str) -> None:
    assert clean(text)[0] == kept


def test_marks_are_written_in_the_questions_language() -> None:
    assert clean("十二。[Source 1](citation://1)", language="zh")[0] == "十二。[来源 1](citation://1)"


def test_removed_marks_are_reported() -> None:
    assert clean("A [Source 1-3] B", sources=3) == (f"A {MARK}[Source 2](citation://2)[Source 3](citation://3) B", [])
    assert clean("A [Source 1-3] B")[1] == ["[Source 1-3]"]
    assert clean("A [Source 7](citation://7) B")[1] == ["[Source 7](citation://7)"]


def test_cutting_a_stream_anywhere_changes_nothing() -> None:
    text = (
        "One! [Source 1](citation://1) two [Source 9](citation://9), ![x](asset://a1) ![y](asset://zz) citation://4 "
        "[note] a[1](b) [[来源 1]] (citation://1) 【来源 2、9】（citation://2）图asset://zz是 [Sources 1 and 2] "
        "asset://zz 三。[来源 2](citation://2)[来源 8](citation://8) end["
    )
    whole = clean(text)
    chance = random.Random(7)
    for cut in range(1, len(text)):
        assert clean(text, [cut]) == whole
    for _ in range(200):
        assert clean(text, sorted(chance.sample(range(len(text)), 12))) == whole


def test_text_without_marks_is_not_held_back() -> None:
    assert MarkFilter(1, frozenset(), "en").feed("A plain sentence.") == "A plain sentence."


TWO = "[Source 2](citation://2)"


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (f"According to {MARK}, it lifts 70. Next. {TWO}", [("According to, it lifts 70.", (1,)), ("Next.", (2,))]),
        (
            f"根据{MARK}，起重量为70吨；根据{TWO}，拖船70节。",
            [("根据，起重量为70吨；", (1,)), ("根据，拖船70节。", (2,))],
        ),
        (f"One {MARK} and two {TWO}.", [("One  and two.", (1, 2))]),
        (f"One. {MARK}\n{TWO}", [("One.", (1, 2))]),
        (f"One. {MARK} and {TWO} Two.", [("One.", (1, 2)), ("Two.", ())]),
        (f"一。{MARK}和{TWO}二。", [("一。", (1, 2)), ("二。", ())]),
        (f"{MARK} One.", [("One.", (1,))]),
        (MARK, [("", (1,))]),
        ("", []),
    ],
)
def test_a_mark_is_of_its_whole_sentence(answer: str, parts: list[tuple[str, tuple[int, ...]]]) -> None:
    assert [(part.text.strip(), part.numbers) for part in stretches(answer)] == parts


def test_an_answer_splits_at_its_marks() -> None:
    answer = f"One. {MARK} Two and three. [Source 2](citation://2){MARK} Four."
    assert [(part.text.strip(), part.numbers) for part in stretches(answer)] == [
        ("One.", (1,)),
        ("Two and three.", (2, 1)),
        ("Four.", ()),
    ]
