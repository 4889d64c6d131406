"""Pictures, charts, shapes and SmartArt that lie on a sheet, each with its anchor cell."""

from __future__ import annotations

from typing import Any

from rag_cluster.domain.blocks import BlockType, SourceLocator
from rag_cluster.domain.locators import format_range
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.drawing import add_chart, add_diagram, add_picture, alt_text, is_decorative, rich_text
from rag_cluster.parsing.ooxml import Package, alternatives, find, local_name, qn
from rag_cluster.parsing.xlsx.sheet import MAX_COLUMNS


def add_drawings(builder: BlockBuilder, package: Package, sheet_part: str, sheet: str) -> None:
    """Everything on a sheet's drawing layer, in its order. A chart's figures stand in cells already."""
    for part in package.all_related(sheet_part, "drawing"):
        root = package.optional_xml(part)
        for anchor in () if root is None else root:
            if local_name(anchor).endswith("Anchor"):
                _add(builder, package, part, anchor, SourceLocator(sheet=sheet, cell_range=_anchor_cell(anchor)))


def _add(builder: BlockBuilder, package: Package, part: str, node: Any, locator: SourceLocator) -> None:
    name = local_name(node)
    if name == "AlternateContent":
        for branch in alternatives(node)[:1]:
            _add(builder, package, part, branch, locator)
    elif name == "pic":
        _add_picture(builder, package, part, node, locator)
    elif name == "chart":
        _add_related(builder, package, part, node.get(qn("r:id")), locator, chart=True)
    elif name == "relIds":
        _add_related(builder, package, part, node.get(qn("r:dm")), locator, chart=False)
    elif name == "txBody":
        builder.add(BlockType.TEXT, rich_text(node), locator, {"text_box": True})
    else:
        for child in node:
            _add(builder, package, part, child, locator)


def _add_picture(builder: BlockBuilder, package: Package, part: str, node: Any, locator: SourceLocator) -> None:
    properties = find(node, "xdr:nvPicPr/xdr:cNvPr")
    blip = find(node, "xdr:blipFill/a:blip")
    link = None if blip is None else package.relationships(part).get(blip.get(qn("r:embed"), ""))
    if link is not None and not link.external and not is_decorative(properties):
        add_picture(builder, package, link.target, caption=alt_text(properties), locator=locator)


def _add_related(
    builder: BlockBuilder, package: Package, part: str, identifier: str | None, locator: SourceLocator, *, chart: bool
) -> None:
    link = package.relationships(part).get(identifier or "")
    root = None if link is None or link.external else package.optional_xml(link.target)
    if root is None:
        return
    if chart:
        add_chart(builder, root, locator, data=False)
    else:
        add_diagram(builder, root, locator)


def _anchor_cell(anchor: Any) -> str | None:
    start = find(anchor, "xdr:from")
    if start is None:
        return None
    row, column = (_number(find(start, f"xdr:{name}")) + 1 for name in ("row", "col"))
    return format_range((row, min(column, MAX_COLUMNS), row, min(column, MAX_COLUMNS)))


def _number(element: Any) -> int:
    text = "" if element is None else (element.text or "")
    return int(text) if text.isdecimal() else 0
