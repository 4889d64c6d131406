from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from rag_cluster.domain.blocks import ParsedDocument
from rag_cluster.parsing.isolation import IsolatedParser
from rag_cluster.parsing.output import document_markdown, parse_files

Parse = Callable[..., ParsedDocument]


def test_every_file_has_its_json_whether_it_could_be_parsed_or_not(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Title\n\nText")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "odd.xyz").write_text("x")
    results = list(parse_files([tmp_path, tmp_path / "missing.txt"], IsolatedParser(), tmp_path / "out"))
    assert [(r.path.name, r.error.type if r.error else None) for r in results] == [
        ("empty.txt", "empty_document"),
        ("good.md", None),
        ("odd.xyz", "unsupported_document_type"),
        ("missing.txt", "not_found"),
    ]
    good = json.loads((tmp_path / "out" / "good.md.json").read_text())
    assert set(good) == {"document", "blocks", "assets", "warnings"}
    assert good["document"]["filename"] == "good.md"
    assert good["blocks"][1] == {
        "id": good["blocks"][1]["id"],
        "type": "text",
        "content": "Text",
        "locator": {"heading_path": ["Title"], "line_start": 3, "line_end": 3},
        "metadata": {},
    }
    error = json.loads((tmp_path / "out" / "empty.txt.json").read_text())
    assert error["error"]["type"] == "empty_document" and error["error"]["message"]


def test_files_of_the_same_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    written = [r.written for r in parse_files([tmp_path / "a", tmp_path / "b"], IsolatedParser(), tmp_path / "out")]
    assert [path.name for path in written if path] == ["x.txt.json", "x.txt.2.json"]


def test_markdown_output_reads_like_the_source(parse: Parse) -> None:
    text = "# Title\n\nText\n\n1. one\n    - inner\n2. two\n\n```py\nx\n```\n\n> quote\n"
    text += "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert document_markdown(parse("a.md", text)) == text


def test_parsing_twice_gives_the_same_ids(parse: Parse) -> None:
    assert [b.id for b in parse("a.md", "# A\n\nb").blocks] == [b.id for b in parse("a.md", "# A\n\nb").blocks]
