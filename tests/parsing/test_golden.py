"""Whole documents, block by block: what the parsers made of them when somebody last looked.

    pytest tests/parsing/test_golden.py --regenerate-golden      # then read the diff, and raise the parser's version

A golden file holds one line per block. Recognised text is compared as similar, since models round differently on
different machines.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_cluster.domain.blocks import Block, DocumentSource, ParsedDocument
from rag_cluster.parsing.registry import ParserRegistry
from tests.parsing.fuzzing import SEEDS

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = Path(__file__).parents[2] / "rag_cluster" / "samples"
GENERATED = ("pdf", "docx", "xlsx", "pptx", "html", "md", "txt", "csv")
RECOGNIZED_ALIKE = 0.85
"""Least similarity of recognised text."""
POINTS = 3.0
"""Boxes may differ by so many points; recognised ones are not compared."""


def documents() -> Iterator[tuple[str, Path | None]]:
    for path in sorted(SAMPLES.iterdir()):
        yield path.name, path
    for form in GENERATED:
        yield f"generated.{form}", None


DOCUMENTS = dict(documents())


def described(block: Block) -> dict[str, Any]:
    """A block without ids; boxes in whole points; tables by their rows alone."""
    place = block.locator.to_dict()
    if "bbox" in place:
        place["bbox"] = [round(v) for v in place["bbox"]]
    if "spans" in place:
        place["spans"] = [[page, [round(v) for v in box]] for page, box in place["spans"]]
    # The confidence is the model's, the identity follows the document's.
    metadata = {key: value for key, value in block.metadata.items() if key not in ("confidence", "asset_id")}
    out: dict[str, Any] = {"type": block.type.value}
    if "rows" not in metadata:
        asset = str(block.metadata.get("asset_id"))
        out["content"] = block.content.replace(asset, "ASSET")
    return out | {key: value for key, value in (("place", place), ("metadata", metadata)) if value}


def dumped(parsed: ParsedDocument) -> str:
    """JSON, one line per block."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, sort_keys=False, default=str)

    facts = {key: value for key, value in sorted(parsed.metadata.items()) if key not in ("created", "modified")}
    blocks = ",\n  ".join(line(described(block)) for block in parsed.blocks)
    assets = [[asset.media_type, asset.width, asset.height] for asset in parsed.assets]
    return (
        f'{{\n "metadata": {line(facts)},\n "warnings": {line(list(parsed.warnings))},\n'
        f' "assets": {line(assets)},\n "blocks": [\n  {blocks}\n ]\n}}\n'
    )


@pytest.fixture(scope="module")
def registry() -> ParserRegistry:
    return ParserRegistry()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_blocks_are_those_of_the_golden_file(
    name: str, registry: ParserRegistry, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = DOCUMENTS[name]
    if path is None:
        path = tmp_path / name
        path.write_bytes(SEEDS[path.suffix[1:]]()[0])
    text = dumped(registry.parser_for(name).parse(DocumentSource("document", 1, name, str(path))))
    golden = GOLDEN / f"{name}.json"
    if request.config.getoption("--regenerate-golden"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
        return
    compare(json.loads(text), json.loads(golden.read_text(encoding="utf-8")))


def compare(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in ("metadata", "warnings", "assets"):
        assert found[key] == wanted[key], key
    assert outline(found) == outline(wanted)
    for block, expected in zip(found["blocks"], wanted["blocks"], strict=True):
        recognized = expected.get("metadata", {}).get("ocr", False)
        compare_places(block.pop("place", {}), expected.pop("place", {}), boxes=not recognized)
        if recognized:
            assert alike(block.pop("content", ""), expected.pop("content", "")), block
        assert block == expected


def outline(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Type and beginning of every block: a diff that a person can read when they are not the same ones."""
    return [
        (block["type"], "" if block.get("metadata", {}).get("ocr") else block.get("content", "")[:60])
        for block in document["blocks"]
    ]


def alike(found: str, wanted: str) -> bool:
    return difflib.SequenceMatcher(None, found, wanted, autojunk=False).ratio() >= RECOGNIZED_ALIKE


def compare_places(found: dict[str, Any], wanted: dict[str, Any], *, boxes: bool) -> None:
    spans = [[[place.pop("page", None), place.pop("bbox", [])], *place.pop("spans", [])] for place in (found, wanted)]
    assert found == wanted
    for (page, box), (expected_page, expected_box) in zip(*spans, strict=True):
        assert page == expected_page
        if boxes:
            assert box == pytest.approx(expected_box, abs=POINTS)


def test_every_golden_file_has_its_document() -> None:
    assert {path.name.removesuffix(".json") for path in GOLDEN.iterdir()} == set(DOCUMENTS)


def test_golden_files_are_small_and_hold_no_pictures() -> None:
    for path in GOLDEN.iterdir():
        assert path.stat().st_size < 64 * 1024 and "base64" not in path.read_text(encoding="utf-8"), path


def test_golden_files_are_compared_unless_a_person_asks_to_write_them(request: pytest.FixtureRequest) -> None:
    assert not (os.environ.get("CI") and request.config.getoption("--regenerate-golden")), "CI compares"
    root = Path(__file__).parents[2]
    for settings in ("pyproject.toml", ".ci/run", ".ci/long", "README.md"):
        assert "regenerate-golden" not in (root / settings).read_text(encoding="utf-8"), settings


def test_a_difference_is_noticed() -> None:
    wanted = json.loads((GOLDEN / "onboarding.md.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(wanted))
    found["blocks"][-1]["content"] += " more"
    with pytest.raises(AssertionError):
        compare(found, wanted)
