"""The language of a question decides the language of marks and refusals."""

import pytest

from rag_cluster.answering.language import question_language, refusal_text


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
