"""Whether two computations of one model rank alike, on 32 questions and 32 passages, half English and half Chinese."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float32]

LEAST_FIRST = 0.95
LEAST_SHARED = 0.9
DEPTH = 5

PAIRS = (
    ("How often must a quay crane be inspected?", "Quay cranes are inspected every six months by an engineer."),
    ("Who approves overtime?", "Overtime has to be approved in writing by the shift supervisor before it is worked."),
    ("What does a reefer container cost per day?", "Reefer containers are charged 62 euros a day with power."),
    ("When was the bridge opened?", "The bridge across the strait was opened to traffic on 4 May 1998."),
    ("Which pump stands by in pump house two?", "In pump house two, pump P-204 is the standby for P-203."),
    ("How do I reset my password?", "Choose 'Forgot password' on the sign-in page and follow the link."),
    ("What is the boiling point of ammonia?", "At normal pressure ammonia boils at minus 33 degrees Celsius."),
    ("Is smoking allowed on deck?", "Smoking is permitted only in the marked area behind the canteen, never on deck."),
    ("How many days of leave do new employees get?", "In the first year employees are entitled to 25 days of leave."),
    ("What caused the outage in March?", "The March outage was traced to a failed breaker in substation B."),
    ("Where are spare keys kept?", "Spare keys hang in the cabinet of the control room and are signed out in the log."),
    ("Who wrote the safety report?", "The 2025 safety report was compiled by the works council."),
    ("Can invoices be paid by card?", "Invoices are payable by bank transfer within 30 days; cards are not accepted."),
    ("What is the maximum wind speed for lifting?", "Lifting stops when gusts exceed 20 metres a second."),
    ("Which language model answers questions?", "Answers are written by a model of seven billion parameters."),
    ("How is waste oil disposed of?", "Waste oil is collected in red drums, fetched every quarter."),
    ("岸桥多久检查一次？", "岸边集装箱起重机每半年由持证工程师全面检查一次。"),
    ("加班由谁批准？", "员工加班须事先由当班主管书面批准。"),
    ("冷藏箱每天收费多少？", "冷藏集装箱堆存费为每天四百八十元，含电费。"),
    ("跨海大桥哪年通车？", "这座跨海大桥于一九九八年五月四日正式通车。"),
    ("二号泵房的备用泵是哪台？", "二号泵房中，P-204为P-203的备用泵。"),
    ("怎样重置密码？", "在登录页点击“忘记密码”，系统会发送一小时内有效的链接。"),
    ("氨的沸点是多少？", "常压下氨的沸点约为零下三十三摄氏度。"),
    ("甲板上可以吸烟吗？", "吸烟仅限于食堂后方的指定区域，甲板上严禁吸烟。"),
    ("新员工有几天年假？", "员工入职第一年享有二十五天带薪年假。"),
    ("三月份停电的原因是什么？", "三月的停电事故由乙变电站一台断路器损坏引起。"),
    ("备用钥匙放在哪里？", "备用钥匙存放在控制室的柜子里，领用须登记。"),
    ("安全报告是谁编写的？", "二〇二五年安全报告由职工委员会编写，并经保险公司审阅。"),
    ("发票可以刷卡支付吗？", "发票须在三十日内以银行转账支付，不接受刷卡。"),
    ("起重作业的最大允许风速是多少？", "阵风超过每秒二十米时必须停止起重作业。"),
    ("台风来临前集装箱怎样加固？", "台风登陆前，空箱须降至三层以下并用拉杆固定。"),
    ("港口去年的吞吐量是多少？", "该港去年完成集装箱吞吐量一百二十万标准箱，同比增长百分之六。"),
)  # fmt: skip
QUESTIONS = tuple(question for question, _ in PAIRS)
PASSAGES = tuple(passage for _, passage in PAIRS)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares of the questions, 0 to 1."""

    first: float
    """Those with the same best passage."""
    shared: float
    """Of the best five, how many are the same."""
    correlation: float
    """Mean rank correlation (Spearman's) of all passages."""

    @property
    def passes(self) -> bool:
        """Whether one may stand for the other."""
        return self.first >= LEAST_FIRST and self.shared >= LEAST_SHARED

    def __str__(self) -> str:
        return f"same first {self.first:.1%}, same {DEPTH} {self.shared:.1%}, rank correlation {self.correlation:.4f}"


def compare_rankings(expected: Scores, found: Scores) -> Agreement:
    """How two score matrices (questions, passages) agree."""
    orders = [np.argsort(-scores, axis=1, kind="stable") for scores in (expected, found)]
    first = float(np.mean(orders[0][:, 0] == orders[1][:, 0]))
    depth = min(DEPTH, expected.shape[1])
    shared = [len(set(a[:depth]) & set(b[:depth])) / depth for a, b in zip(*orders, strict=True)]
    ranks = [np.argsort(order, axis=1).astype(np.float64) for order in orders]
    centred = [rank - rank.mean(axis=1, keepdims=True) for rank in ranks]
    norms = np.linalg.norm(centred[0], axis=1) * np.linalg.norm(centred[1], axis=1)
    correlation = np.divide((centred[0] * centred[1]).sum(axis=1), norms, out=np.ones(len(norms)), where=norms > 0)
    return Agreement(first, float(np.mean(shared)), float(correlation.mean()))
