"""Text documents for the ingestion benchmark: Markdown, HTML and plain text, English and Chinese, all different."""

from __future__ import annotations

import random
from pathlib import Path

_WORDS = """
    river valley bridge gauge harbour engineer inspection crane record winter spring figure report pressure valve
    schedule contract customer payment insurance policy claim vehicle battery charging station network server backup
    password account department training holiday travel expense invoice budget quarter revenue supplier delivery
    warehouse temperature sensor alarm procedure emergency exit safety helmet glove maintenance oil filter engine
""".split()  # noqa: SIM905
_VERBS = (
    "records",
    "requires",
    "replaces",
    "checks",
    "measures",
    "delivers",
    "reports",
    "approves",
    "closes",
    "repairs",
)
_CHINESE = """
    设备 检查 记录 港口 桥梁 工程师 报告 压力 阀门 合同 客户 付款 保险 条款 理赔 车辆 电池 充电站 网络 服务器 备份
    密码 账户 部门 培训 假期 差旅 报销 发票 预算 季度 收入 供应商 交付 仓库 温度 传感器 报警 流程 应急 出口 维护
""".split()  # noqa: SIM905
_CHINESE_VERBS = ("必须登记", "应当更换", "需要复核", "每日检查", "按时提交", "立即上报", "由专人批准", "不得超过")
_SUFFIXES = (".md", ".txt", ".html")


def draw(folder: Path, count: int, characters: int, *, seed: int = 0, offset: int = 0) -> None:
    """Write `count` documents of about so many characters (Chinese ones of half as many), a thousand to a folder.

    Every third is Chinese, the formats take turns, and names and texts depend on seed and number alone.
    """
    for number in range(offset, offset + count):
        directory = folder / f"{number // 1000:04}"
        if number % 1000 == 0 or number == offset:
            directory.mkdir(parents=True, exist_ok=True)
        suffix = _SUFFIXES[number // 3 % 3]
        name = f"{number:06}{suffix}"
        (directory / name).write_text(document(number, characters, suffix, seed=seed), encoding="utf-8")


def document(number: int, characters: int, suffix: str, *, seed: int = 0) -> str:
    """One document: a title, sections of three paragraphs, a table in every second section."""
    source = random.Random(f"{seed}/{number}")  # noqa: S311 - texts, not secrets
    chinese = number % 3 == 0
    paragraphs = paragraph_texts(source, characters // 2 if chinese else characters, chinese=chinese)
    title = f"第 {number} 号规程" if chinese else f"Procedure {number}"
    lines: list[tuple[str, str]] = [("h1", title)]
    for index, text in enumerate(paragraphs):
        if index % 3 == 0 and index:
            heading = source.choice(_CHINESE if chinese else _WORDS)
            lines.append(("h2", f"{index // 3}. {heading}"))
        lines.append(("p", text))
        if index % 6 == 5:
            lines.append(("table", f"{source.choice(_WORDS)} {index}"))
    return {".md": _markdown, ".html": _html, ".txt": _plain}[suffix](lines)


def paragraph_texts(source: random.Random, characters: int, *, chinese: bool) -> list[str]:
    """Paragraphs of three to five sentences, together about so many characters."""
    paragraphs: list[str] = []
    length = 0
    while length < characters:
        sentences = [_chinese(source) if chinese else _english(source) for _ in range(source.randint(3, 5))]
        paragraphs.append(("" if chinese else " ").join(sentences))
        length += len(paragraphs[-1])
    return paragraphs


def _english(source: random.Random) -> str:
    first = " ".join(source.choices(_WORDS, k=source.randint(3, 6)))
    rest = " ".join(source.choices(_WORDS, k=source.randint(3, 8)))
    return f"The {first} {source.choice(_VERBS)} {source.randint(2, 9999)} {rest}."


def _chinese(source: random.Random) -> str:
    first = "".join(source.choices(_CHINESE, k=source.randint(3, 6)))
    rest = "".join(source.choices(_CHINESE, k=source.randint(3, 6)))
    return f"{first}{source.choice(_CHINESE_VERBS)}，{rest}共{source.randint(2, 9999)}项。"


def _markdown(lines: list[tuple[str, str]]) -> str:
    forms = {"h1": "# {}", "h2": "## {}", "p": "{}", "table": "| name | value |\n| --- | --- |\n| {} | 17 |"}
    return "\n\n".join(forms[kind].format(text) for kind, text in lines) + "\n"


def _plain(lines: list[tuple[str, str]]) -> str:
    return "\n\n".join(text for _, text in lines) + "\n"


def _html(lines: list[tuple[str, str]]) -> str:
    table = "<table><tr><th>name</th><th>value</th></tr><tr><td>{}</td><td>17</td></tr></table>"
    forms = {"h1": "<h1>{}</h1>", "h2": "<h2>{}</h2>", "p": "<p>{}</p>", "table": table}
    body = "\n".join(forms[kind].format(text) for kind, text in lines)
    return f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"></head><body>\n{body}\n</body></html>\n'
