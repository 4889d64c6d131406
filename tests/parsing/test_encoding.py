from __future__ import annotations

import pytest

from rag_cluster.parsing.encoding import decode_text

HALF_WIDTH = ["ﾒｲ,ｼﾒｲ,ﾃﾞﾝﾜ\nﾀﾛｳ,ﾔﾏﾀﾞ,0312345678\n", "ｱｲｳｴｵ 部品番号 ﾃｽﾄ ｶﾀｶﾅ ﾃﾞｰﾀ\n", "顧客ｺｰﾄﾞ,顧客名\n001,ﾔﾏﾀﾞ商店"]
WIDE = [
    "没有标记的文件，内容全部是中文。",
    "没有标记 with ASCII\n也是中文。\n",
    "日本語のテキストです。",
    "안녕하세요. 회의록입니다.",
]
TEXTS = {
    "gb18030": [
        "你好",
        "泵",
        "编号,名称\n1,减压阀",
        "这是一个测试。",
        "姓名,年龄\n张三,20\n李四,30",
        "㐀㐁、𠮷、𣗋、€。生僻字检验，值班员应每两小时巡视一次泵房",
        "abc 第一章 def",
        "系统巡检报告\n════════════════\n一、概况\n────────────\n服务器运行正常。\n",
        "┌──┬──┐\n│姓名│部门│\n├──┼──┤\n│张三│财务│\n└──┴──┘\n",
        "★★★★★ 五星推荐\n☆☆☆ 三星\n※ 注意：请勿外传\n●●●\n",
        "℃ ± ㎡ 温度",
        "①甲 ②乙 ③丙",
        "繁體中文在網頁裡編碼測試",
        "會議記錄：請各位同仁準時出席。",
        "型号,规格\nＡＢＣ－１００,１２×３４ｍｍ\nＸＹＺ－２００,５６×７８ｍｍ\n",
    ],
    "cp932": [
        "名前,年齢,住所\n佐藤太郎,30,東京",
        "こんにちは",
        "東京都",
        "日本語のテキスト。",
        "髙橋淳",
        "カタカナ",
        *HALF_WIDTH,
    ],
    "big5": ["繁體中文測試", "姓名,年齡\n張三,20", "★★★ 推薦\n●●●", "規格：１２×３４ｍｍ"],
    "euc_jp": ["こんにちは世界", "日本語のテキストです。"],
    "cp949": ["안녕하세요 세계", "이름,나이\n김철수,30", "┌──┬──┐\n│이름│부서│\n"],
    "cp1252": [
        "Die schöne Frau",
        "café",
        "L'été était très chaud",
        "“quoted” – it’s 5 €",
        "Größe;Maß\nä;ö",
        "ÄÖÜ ÉÈ",
        "±5 °C, 10 µm",
    ],
    "cp1251": [
        "Привет, как дела? Это простой русский текст для проверки кодировки.",
        "МІНІСТЕРСТВО ОСВІТИ І НАУКИ УКРАЇНИ",
        "ДОГОВІР № 5\nКИЇВ 2024",
        "НАКАЗ МІНІСТЕРСТВА",
        "ЗАКОН УКРАЇНИ ПРО ОСВІТУ",
        "БЮДЖЕТ КИЄВА",
        "АУДИТ БЮДЖЕТІВ ОБЛАСТІ",
        "ДОГОВОР КУПЛИ-ПРОДАЖИ № 12",
        "АКТ ПРИЁМА-ПЕРЕДАЧИ",
        "РАСЧЁТ БЮДЖЕТА № 1",
    ],
    "koi8-r": [
        "Привет, как дела? Это простой русский текст для проверки кодировки.",
        "ПРОТОКОЛ ЗАСЕДАНИЯ СОВЕТА ДИРЕКТОРОВ",
    ],
    "iso8859-2": ["Příliš žluťoučký kůň úpěl ďábelské ódy. Zażółć gęślą jaźń"],
    "utf-8": ["plain", "中文 and ümlaut 😀"],
    "utf-8-sig": ["中文"],
    "utf-16": ["Hello 中文"],
    "utf-16-le": ["Hello world", *WIDE],
    "utf-16-be": ["Hello world", *WIDE],
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in TEXTS.items() for text in texts])
def test_text_without_a_declared_encoding_is_decoded(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding))[0] == text


def test_a_declared_gb2312_is_read_as_its_superset() -> None:
    assert decode_text("玥湖泵站".encode("gbk"), "gb2312")[0] == "玥湖泵站"


def test_a_wrong_declaration_does_not_win_over_valid_utf8() -> None:
    assert (
        decode_text("中文，标点".encode(), "ascii")[0] != "" and decode_text("中文".encode(), "nonsense")[0] == "中文"
    )


def test_a_declared_encoding_survives_one_broken_byte() -> None:
    text, encoding = decode_text("值班员应每两小时巡视一次泵房。".encode() * 40 + b"\xff", "utf-8")
    assert encoding == "utf-8" and text.count("\ufffd") == 1


def test_utf8_with_some_broken_bytes_stays_utf8() -> None:
    text, encoding = decode_text("Größe und Länge, café, naïve. ".encode() * 4 + b"\xe9\xff\xfe end")
    assert encoding == "utf-8"
    assert text.startswith("Größe und Länge") and text.endswith("end")


def test_long_ascii_before_the_first_chinese_character_does_not_hide_it() -> None:
    data = b"plain line\n" * 20_000 + "供水调度值班手册，记录出口压力与流量。\n".encode("gb18030")
    assert decode_text(data)[1] == "gb18030"


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(range(256)), b"\xff\xfe", b"\xff" * 1000])
def test_any_bytes_give_some_text(data: bytes) -> None:
    assert isinstance(decode_text(data)[0], str)
