from __future__ import annotations

from collections.abc import Callable

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
        ("text", "本系统支持单机与集群两种方式[1]，见 文档。", 9, 9),
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
        ("list", "集群方式至少需要三个节点。", 44, 44),
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


def test_broken_front_matter_is_a_warning(parse: Parse) -> None:
    document = parse("a.md", "---\na: [1\n---\n\ntext")
    assert document.warnings and [b.content for b in document.blocks] == ["text"]
