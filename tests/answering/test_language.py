"""The language of a question decides the language of marks and refusals."""

import pytest

from rag_cluster.answering.language import question_language, refusal_text
from rag_cluster.domain.terms import speaks


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("How much?", "en"),
        ("多少钱？", "zh"),
        ("GPU 的价格是多少？", "zh"),
        ("What does 台风 mean in English?", "en"),
        ("42?", "en"),
    ],
)
def test_the_script_that_prevails_is_the_language(question: str, language: str) -> None:
    assert question_language(question) == language


def test_a_refusal_is_said_in_the_questions_language() -> None:
    assert refusal_text("多少钱？") == "根据当前知识库无法确定"
    assert refusal_text("How much?") == "This cannot be determined from the current knowledge base."


def test_a_text_speaks_every_language_that_it_notably_holds() -> None:
    assert speaks("zh", "成本 Costs") and speaks("en", "成本 Costs")
    assert not speaks("zh", "Storage costs 12 euros.") and not speaks("en", "仓储费每天12元，前三天免费。")
    assert speaks("en", "1 | 2 | 3")
