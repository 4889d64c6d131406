from __future__ import annotations

from collections.abc import Callable

import pytest

from rag_cluster.domain.blocks import BlockType, ParsedDocument

Parse = Callable[..., ParsedDocument]

GUIDE = """---
title: 部署指南
tags: [内部, 草稿]
---

部署指南
========

本系统支持**单机**与*集群*两种方式[^1]，见 [文档](http://x)。

> 升级前务必备份数据。
>
> > 嵌套引用 `x`。

### 安装步骤

1. 下载安装包
   - 校验哈希
     ```bash
     # 这不是标题
     ```
   - [x] 解压
2. 修改配置

   第二段

| 参数 | 说明 |
|:-----|-----:|
| `port` | 监听\\|端口 |
| 空 |  |

![架构图](img/arch.png "架构")

<details><summary>高级选项</summary>

折叠内容也应**保留**。

</details>

<!-- 编辑注释 -->

    # indented code

[^1]: 集群方式至少需要三个节点。
"""


def test_a_guide_becomes_blocks_with_levels_and_lines(parse: Parse) -> None:
    document = parse("a.md", GUIDE)
    seen = [(b.type.value, b.content, b.locator.line_start, b.locator.line_end) for b in document.blocks]
    assert seen == [
        ("heading", "部署指南", 6, 7),
        ("text", "本系统支持单机与集群两种方式[^1]，见 文档。", 9, 9),
        ("quote", "升级前务必备份数据。", 11, 11),
        ("quote", "嵌套引用 x。", 13, 13),
        ("heading", "安装步骤", 15, 15),
        ("list", "下载安装包", 17, 17),
        ("list", "校验哈希", 18, 18),
        ("code", "# 这不是标题", 19, 21),
        ("list", "[x] 解压", 22, 22),
        ("list", "修改配置\n第二段", 23, 25),
        ("table", document.blocks[10].content, 27, 30),
        ("image", "架构图", 32, 32),
        ("text", "高级选项", 34, 34),
        ("text", "折叠内容也应保留。", 36, 36),
        ("code", "# indented code", 42, 42),
        ("text", "[^1]: 集群方式至少需要三个节点。", 44, 44),
    ]
    assert document.metadata["title"] == "部署指南" and document.metadata["tags"] == ["内部", "草稿"]
    assert document.blocks[-1].locator.heading_path == ("部署指南", "安装步骤")


def test_nested_items_have_levels_and_markers(parse: Parse) -> None:
    blocks = [b for b in parse("a.md", GUIDE).blocks if b.type is BlockType.LIST]
    assert [(b.metadata["level"], b.metadata["marker"]) for b in blocks[:4]] == [
        (0, "1."),
        (1, "-"),
        (1, "-"),
        (0, "2."),
    ]


def test_a_table_is_a_grid(parse: Parse) -> None:
    (block,) = [b for b in parse("a.md", GUIDE).blocks if b.type is BlockType.TABLE]
    assert block.metadata["rows"] == [["参数", "说明"], ["port", "监听|端口"], ["空", ""]]
    assert block.metadata["header_rows"] == 1


def test_fences_name_their_language(parse: Parse) -> None:
    (block,) = parse("a.md", "```python title=x\nprint('a < b')\n\n  x\n```").blocks
    assert (block.content, block.metadata["language"]) == ("print('a < b')\n\n  x", "python")


def test_entities_are_decoded_in_text_and_kept_in_code(parse: Parse) -> None:
    blocks = parse("a.md", "a &amp; b &lt; c\n\n    a &amp; b").blocks
    assert [b.content for b in blocks] == ["a & b < c", "a &amp; b"]


def test_a_paragraph_that_is_one_code_span_is_code(parse: Parse) -> None:
    blocks = parse("a.md", "`x = 1`\n\nUse `x` here.").blocks
    assert [(b.type.value, b.content) for b in blocks] == [("code", "x = 1"), ("text", "Use x here.")]


def test_deeply_nested_lists_lose_nothing(parse: Parse) -> None:
    text = "".join("  " * level + f"- item {level}\n" for level in range(40))
    assert [b.content for b in parse("a.md", text).blocks] == [f"item {level}" for level in range(40)]


def shape(document: ParsedDocument) -> list[tuple[str, str]]:
    return [(b.type.value, b.content) for b in document.blocks if b.type is not BlockType.TABLE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\ntitle: A\ndate: 2025-03-01\ntags: [x, y]\n---\nbody",
         {"title": "A", "date": "2025-03-01", "tags": ["x", "y"]}),
        ("+++\ntitle = 'A'\ndate = 2025-03-01\ntags = ['x']\ndraft = true\n+++\nbody",
         {"title": "A", "date": "2025-03-01", "tags": ["x"], "draft": "true"}),
        ("---\nauthor:\n  name: B\n---\nbody", {}),
    ],
)  # fmt: skip
def test_front_matter_is_metadata_and_no_text(parse: Parse, text: str, expected: dict[str, object]) -> None:
    document = parse("a.md", text)
    assert shape(document) == [("text", "body")]
    assert {key: value for key, value in document.metadata.items() if key != "encoding"} == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title: Part 1: The harbour\ndate: 2024-01-02\ntags: [a, b]",
         {"title": "Part 1: The harbour", "date": "2024-01-02", "tags": ["a", "b"]}),
        ("# by hand\ntitle: @handle\n\ntags:\n- a\n- b\nlist:\n\t- c",
         {"title": "@handle", "tags": ["a", "b"], "list": ["c"]}),
        ("Title: {{ page.title }}\nquoted: \"港口：指南\"\nlong: >\n  two\n  lines",
         {"Title": "{{ page.title }}", "quoted": "港口：指南", "long": "two lines\n"}),
        ("a: [1", {"a": "[1"}),
    ],
)  # fmt: skip
def test_front_matter_that_is_not_quite_yaml_is_no_heading(
    parse: Parse, text: str, expected: dict[str, object]
) -> None:
    document = parse("a.md", f"---\n{text}\n---\n\nbody")
    assert shape(document) == [("text", "body")] and document.blocks[0].locator.line_start == text.count("\n") + 5
    assert {key: value for key, value in document.metadata.items() if key != "encoding"} == expected
    assert any("front matter" in warning for warning in document.warnings)


def test_rules_are_no_front_matter(parse: Parse) -> None:
    assert shape(parse("a.md", "one\n\n---\n\ntwo\n\n+++\n\nthree")) == [
        ("text", "one"), ("text", "two"), ("text", "+++"), ("text", "three"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\n\n会议纪要：2025年\n\n参加人：张三\n\n---\n\n议题一", ["会议纪要：2025年", "参加人：张三", "议题一"]),
        ("---\n\nDate: today\n\n---\n\nbody", ["Date: today", "body"]),
        ("---\nNo mapping.\n\nAt all.\n\n---\n\nbody", ["No mapping.", "At all.", "body"]),
        ("---\nSee: [1\nand more.\n---\n\nbody", ["See: [1 and more.", "body"]),
        ("---\nSee: [1\n\nand more.\n\n---\n\nbody", ["See: [1", "and more.", "body"]),
        ("---\n- a: b: c\n\n---\n\nbody", ["a: b: c", "body"]),
        ("---\n---\nNote: x\n\n---\n\nbody", ["Note: x", "body"]),
        ("---\na: " + "[" * 1000 + "\n---\n\nbody", ["a: " + "[" * 1000, "body"]),
        ("+++\na = [1\n+++\n\nbody", ["+++ a = [1 +++", "body"]),
        ("---\na: 1\nb: " + "x" * 70_000 + "\n\n---\n\nbody", ["a: 1 b: " + "x" * 70_000, "body"]),
    ],
)  # fmt: skip
def test_a_leading_block_that_is_no_front_matter_is_text(parse: Parse, text: str, expected: list[str]) -> None:
    document = parse("a.md", text)
    assert [block.content for block in document.blocks] == expected
    assert document.blocks[-1].locator.line_start == text.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        "The command git show <object> prints it.",
        "Use <select> and <button> here.",
        "Returns a List<String>, Set<Address> or Map<K, V>, <T extends Number>.",
        "Run rag new <template> <dir>, then <your name> and <port>80</port>.",
    ],
)
def test_what_only_looks_like_html_is_text(parse: Parse, text: str) -> None:
    document = parse("a.md", f"{text}\n\n- {text}\n\nLast.")
    assert shape(document) == [("text", text), ("list", text), ("text", "Last.")]


def test_a_tag_alone_on_its_line_that_is_never_closed_hides_nothing(parse: Parse) -> None:
    document = parse("a.md", "<object>\nprints it.\n\nNext.\n\n<Tabs>\n\nInside.\n\n</Tabs>\n")
    assert [(b.content, b.locator.line_start) for b in document.blocks] == [
        ("<object> prints it.", 1), ("Next.", 4), ("Inside.", 8),
    ]  # fmt: skip


def test_html_within_a_line_is_read(parse: Parse) -> None:
    text = (
        "<b>Bold</b> <FONT color=red>red</FONT>, x<sup>2</sup><br/><g-emoji alias='x'>🚀</g-emoji> <!-- no -->end</div>"
    )
    assert shape(parse("a.md", text)) == [("text", "Bold red, x²\n🚀 end")]


def test_formulas_stand_as_they_are_written(parse: Parse) -> None:
    inline, block = "$a*b*c$ and $x_{1}\\{y\\}$, $$p\\\\q$$.", "$$\n\\begin{cases} a<b \\\\\n+ *c* \\end{cases}\n$$"
    document = parse("a.md", f"{inline}\n\n{block}\n\nSo:\n$$\n*x*\n$$\nend.\n\n- $$\n  *y*\n  $$\n\n$$ *open*\n")
    assert shape(document) == [
        ("text", inline), ("text", block), ("text", "So: $$ *x* $$ end."), ("list", "$$\n*y*\n$$"), ("text", "$$ open"),
    ]  # fmt: skip


def test_prices_are_no_formulas(parse: Parse) -> None:
    text = "From $5 to **$6**, US$7 *or* US$8, \\$9; $(ls *.md) and $(ls *.py), $HOME and `$PATH`."
    more = "US$5 [here](http://x) now$, A$5/**unit** in A$, $5 [there](y), not US$."
    assert shape(parse("a.md", f"{text}\n\n{more}")) == [
        ("text", "From $5 to $6, US$7 or US$8, $9; $(ls *.md) and $(ls *.py), $HOME and $PATH."),
        ("text", "US$5 here now$, A$5/unit in A$, $5 there, not US$."),
    ]


def test_a_formula_may_stand_right_behind_a_word(parse: Parse) -> None:
    text = "10$^{-3*2*2}$, 25$\\,^\\circ$C, 设$a*b*c$为"
    assert shape(parse("a.md", text)) == [("text", text)]


def test_a_pipe_inside_code_in_a_table_belongs_to_its_cell(parse: Parse) -> None:
    text = "a | b\n--|--\n`x \\| y` | **bold**\n`$(a|b)` | last\n[l](u) | ![pic](p.png)\n"
    (block,) = [b for b in parse("a.md", text).blocks if b.type is BlockType.TABLE]
    assert block.metadata["rows"][:2] == [["a", "b"], ["x | y", "bold"]]
    assert block.metadata["rows"][3] == ["l", "pic"]


def test_footnotes_stand_with_their_mark(parse: Parse) -> None:
    note = "[^a]: The note\n    goes on.\n\n    Second paragraph.\n\n"
    text = f"First[^a] and again[^a], inline^[right here].\n\n{note}Text.\n"
    assert shape(parse("a.md", text)) == [
        ("text", "First[^1] and again[^1], inline[^2]."),
        ("text", "Text."),
        ("text", "[^1]: The note goes on.\nSecond paragraph."),
        ("text", "[^2]: right here"),
    ]
    assert [block.metadata.get("footnote") for block in parse("a.md", text).blocks] == [None, None, "1", "2"]


def test_reference_links_images_and_definitions(parse: Parse) -> None:
    text = "See [the plan][p], [p] and <http://x.org>.\n\n![The weir][w]\n\n[p]: http://p.org 'Plan'\n[w]: weir.png\n"
    assert shape(parse("a.md", text)) == [("text", "See the plan, p and http://x.org."), ("image", "The weir")]


def test_setext_and_closed_headings_and_what_only_looks_like_one(parse: Parse) -> None:
    text = "Title\n=====\n\nPart\n---\n\n### Closed ###\n\n#no heading\n\n    # code\n"
    document = parse("a.md", text)
    assert [(b.content, b.metadata.get("level")) for b in document.blocks if b.type is BlockType.HEADING] == [
        ("Title", 1), ("Part", 2), ("Closed", 3),
    ]  # fmt: skip
    assert shape(document)[-2:] == [("text", "#no heading"), ("code", "# code")]


def test_nested_lists_of_both_kinds_with_code_quotes_and_tables_inside(parse: Parse) -> None:
    text = (
        "1. one\n\n   more of one\n\n   ```sh\n   $ go\n   ```\n   - inner\n     > quoted\n\n     1. deepest\n2. two\n"
        "\n   | a | b |\n   |---|---|\n   | 1 | 2 |\n\n- [ ] open\n- [x] done\n"
    )
    document = parse("a.md", text)
    assert [
        (b.type.value, b.content, b.metadata.get("level")) for b in document.blocks if b.type is not BlockType.TABLE
    ] == [
        ("list", "one\nmore of one", 0),
        ("code", "$ go", None),
        ("list", "inner", 1),
        ("quote", "quoted", None),
        ("list", "deepest", 2),
        ("list", "two", 0),
        ("list", "[ ] open", 0),
        ("list", "[x] done", 0),
    ]
    assert [b.metadata["rows"] for b in document.blocks if b.type is BlockType.TABLE] == [[["a", "b"], ["1", "2"]]]


def test_html_blocks_are_read_and_scripts_and_comments_are_not(parse: Parse) -> None:
    text = (
        "<div align='center'>\n  <img src='x.png' alt='Logo of the port'>\n</div>\n\n<script>alert(1)</script>\n\n"
        "<!-- hidden -->\n\n<table><tr><th>k<th>v</tr><tr><td>a<td>1</tr></table>\n\n"
        "Text with <kbd>Ctrl</kbd>+<sub>2</sub> and <br> break.\n"
    )
    document = parse("a.md", text)
    assert shape(document) == [("image", "Logo of the port"), ("text", "Text with Ctrl+2 and\nbreak.")]
    assert [b.metadata["rows"] for b in document.blocks if b.type is BlockType.TABLE] == [[["k", "v"], ["a", "1"]]]


def test_tables_without_outer_pipes_and_with_ragged_rows(parse: Parse) -> None:
    (block,) = parse("a.md", "a | b | c\n:-- | :-: | --:\n1 | 2\n3 | 4 | 5 | 6\n").blocks
    assert block.metadata["rows"] == [["a", "b", "c"], ["1", "2", ""], ["3", "4", "5"]]


def test_hard_breaks_stay_and_soft_ones_do_not(parse: Parse) -> None:
    assert shape(parse("a.md", "one  \ntwo\\\nthree\nfour\n中文\n一行")) == [("text", "one\ntwo\nthree four 中文一行")]


def test_a_file_in_gb18030_is_read(parse: Parse) -> None:
    assert shape(parse("a.md", "# 总则\n\n值班员应每两小时巡视一次泵房。".encode("gb18030"))) == [
        ("heading", "总则"),
        ("text", "值班员应每两小时巡视一次泵房。"),
    ]


def test_items_nested_too_deeply_cost_a_warning(parse: Parse) -> None:
    text = "".join(f"{'  ' * depth}- item {depth}\n" for depth in range(120))
    assert "nested deeper" in parse("a.md", text).warnings[0]
    assert parse("a.md", "".join(text.splitlines(keepends=True)[:90])).warnings == ()
