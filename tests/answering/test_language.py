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
        ("如何配置 Ray Serve autoscaling min replicas", "zh"),
        ("Kubernetes Pod CPU limit 怎么设置？", "zh"),
        ("GPT-4 API rate limit 是多少？", "zh"),
        ("IT server room access policy 什么时候生效？", "zh"),
        ("What is 机器学习?", "en"),
        ("Who is 阿列克谢·彼得罗维奇 and where was he born?", "en"),
        ("请把 what is a crane 翻译成中文，这是什么意思？", "zh"),
        ("岸桥 crane", "zh"),
        ("Bill of Lading 提单样本", "zh"),
        ("Terms of Service 条款内容", "zh"),
        ("Point of Sale 系统退款流程", "zh"),
        ("Can总线", "zh"),
        ("CAN 总线", "zh"),
        ("What-if 分析方法", "zh"),
        ("列出 Port of Hamburg 存储费率", "zh"),
        ("总结 Bill of Lading 签发流程", "zh"),
        ("对比 Terms and Conditions 与合同条款差异", "zh"),
        ("查询 Certificate of Origin 办理步骤和所需材料清单", "zh"),
        ("Explain the difference between 机器学习 and 深度学习", "en"),
        ("Tell me about 阿列克谢·彼得罗维奇", "en"),
        ("Can visitors enter 堆场管理办公室?", "en"),
    ],
)
def test_the_side_that_asks_is_the_language_else_the_script_that_prevails(question: str, language: str) -> None:
    assert question_language(question) == language


def test_a_refusal_is_said_in_the_questions_language() -> None:
    assert refusal_text("多少钱？") == "根据当前知识库无法确定"
    assert refusal_text("How much?") == "This cannot be determined from the current knowledge base."


def test_a_text_speaks_every_language_that_it_notably_holds() -> None:
    assert speaks("zh", "成本 Costs") and speaks("en", "成本 Costs")
    assert not speaks("zh", "Storage costs 12 euros.") and not speaks("en", "仓储费每天12元，前三天免费。")
    assert speaks("en", "1 | 2 | 3")
