"""What the parser saw, as one self-contained page: pages with drawn boxes beside the typed blocks, in reading order.

No script and no outside resource: documents are untrusted, so all of their text is escaped and the page forbids both.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby

from rag_cluster.domain.blocks import BBox, Block, BlockType, DocumentSource, ParsedAsset, ParsedDocument

_BROWSER_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"})
_MAX_ROWS = 200
"""Of one table."""

_STYLE = """
:root { --heading: #c2410c; --text: #2563eb; --code: #475569; --list: #0d9488; --quote: #a16207; --table: #7c3aed;
  --image: #be185d; }
* { box-sizing: border-box; }
body { margin: 0; background: #f1f5f9; color: #0f172a;
  font: 15px/1.5 system-ui, "Noto Sans CJK SC", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei", sans-serif; }
header { background: #0f172a; color: #e2e8f0; padding: 14px 28px; display: flex; gap: 12px 24px; flex-wrap: wrap;
  align-items: baseline; }
header h1 { font-size: 20px; margin: 0; color: #fff; }
header .facts { color: #94a3b8; }
header .legend { margin-left: auto; display: flex; gap: 8px; flex-wrap: wrap; }
.chip { background: var(--c); color: #fff; border-radius: 4px; padding: 0 7px; font-size: 12px; line-height: 19px;
  text-decoration: none; white-space: nowrap; }
.warning { background: #fef3c7; color: #78350f; padding: 7px 28px; }
section { display: grid; grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); gap: 26px; padding: 22px 28px;
  max-width: 1700px; margin: auto; align-items: start; }
section.plain { grid-template-columns: minmax(0, 1000px); justify-content: center; }
section + section { border-top: 1px solid #cbd5e1; }
.page { position: sticky; top: 16px; background: #fff; box-shadow: 0 1px 5px #0003; }
.page img { display: block; width: 100%; }
.page .number { position: absolute; right: 8px; bottom: 4px; color: #94a3b8; font-size: 12px; }
.box { position: absolute; box-sizing: content-box; margin: -3px; padding: 1.5px; border: 1.5px solid var(--c);
  background: color-mix(in srgb, var(--c) 9%, transparent); border-radius: 2px; }
.box b { position: absolute; right: 100%; top: -1.5px; background: var(--c); color: #fff; padding: 0 4px;
  font: 600 11px/15px sans-serif; border-radius: 3px 0 0 3px; }
.box.image { background: none; }
.box:hover, .box:target { background: color-mix(in srgb, var(--c) 28%, transparent); z-index: 2; }
.block { background: #fff; border-left: 4px solid var(--c); border-radius: 0 6px 6px 0; padding: 7px 14px 9px;
  margin: 0 0 8px calc(var(--depth, 0) * 18px); box-shadow: 0 1px 2px #0001; }
.block:target { box-shadow: 0 0 0 2px var(--c); }
.block .meta { display: flex; gap: 9px; align-items: center; font-size: 12px; color: #64748b; margin-bottom: 2px; }
.block .path { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.block .content { overflow-wrap: anywhere; white-space: pre-wrap; }
.block h2 { margin: 0; line-height: 1.3; }
.block pre { margin: 4px 0; overflow-x: auto; font-size: 13px; }
.block blockquote { margin: 0; color: #713f12; font-style: italic; white-space: pre-wrap; }
.block img { max-width: 260px; max-height: 180px; display: block; border: 1px solid #e2e8f0; margin: 4px 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; margin: 4px 0 2px; }
td, th { border: 1px solid #cbd5e1; padding: 2px 9px; text-align: left; vertical-align: top; white-space: pre-wrap; }
th { background: #f3effe; }
""" + "".join(f".{kind.value} {{ --c: var(--{kind.value}); }}\n" for kind in BlockType)


def blocks_view(parsed: ParsedDocument, source: DocumentSource, pictures: Mapping[int, ParsedAsset]) -> str:
    """An HTML page. pictures: 1-based page -> its picture, as `page_pictures` gives them; {} shows blocks alone."""
    numbered = list(enumerate(parsed.blocks, 1))
    assets = {asset.id: asset for asset in parsed.assets}
    warnings = "".join(f'<div class="warning">{escape(text)}</div>' for text in parsed.warnings)
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(source.filename)} · blocks</title><style>{_STYLE}</style></head><body>\n"
        f"{_header(parsed, source)}{warnings}\n{''.join(_sections(numbered, assets, pictures))}</body></html>\n"
    )


def _header(parsed: ParsedDocument, source: DocumentSource) -> str:
    counts = Counter(block.type for block in parsed.blocks)
    legend = "".join(
        f'<span class="chip {kind.value}">{kind.value} {counts[kind]}</span>' for kind in BlockType if counts[kind]
    )
    facts = [f"{len(parsed.blocks)} blocks"]
    for name in ("pages", "slides", "sheets"):
        value = parsed.metadata.get(name)
        if value is not None:
            count = len(value) if isinstance(value, list | tuple) else value
            facts.insert(0, f"{count} {name[:-1] if count == 1 else name}")
    return (
        f'<header><h1>{escape(source.filename)}</h1><span class="facts">{escape(" · ".join(facts))}</span>'
        f'<span class="legend">{legend}</span></header>'
    )


def _sections(
    numbered: Sequence[tuple[int, Block]], assets: Mapping[str, ParsedAsset], pictures: Mapping[int, ParsedAsset]
) -> Iterable[str]:
    if not pictures:
        yield f'<section class="plain"><div>{"".join(_card(n, block, assets) for n, block in numbered)}</div></section>'
        return
    # One picture without a page number is the whole document.
    pages = {
        page: list(group)
        for page, group in groupby(
            sorted(numbered, key=lambda pair: pair[1].locator.page or 1), lambda pair: pair[1].locator.page or 1
        )
    }
    for page in sorted({*pages, *pictures}):
        cards = "".join(_card(n, block, assets) for n, block in pages.get(page, []))
        picture = _page(page, pictures[page], numbered) if page in pictures else "<div></div>"
        yield f"<section>{picture}<div>{cards}</div></section>\n"


def _page(page: int, picture: ParsedAsset, numbered: Sequence[tuple[int, Block]]) -> str:
    _, _, width, height = picture.locator.bbox or (0.0, 0.0, 1.0, 1.0)
    boxes = [
        f'<a class="box {block.type.value}" id="box{n}-{page}" href="#block{n}" title="{block.type.value}" '
        f'style="left:{x0 / width:.3%};top:{y0 / height:.3%};width:{(x1 - x0) / width:.3%};'
        f'height:{(y1 - y0) / height:.3%}"><b>{n}</b></a>'
        for n, block in numbered
        for x0, y0, x1, y1 in _boxes(block, page)
    ]
    return (
        f'<div class="page"><img src="{_data_uri(picture)}" alt="page {page}">{"".join(boxes)}'
        f'<span class="number">{page}</span></div>'
    )


def _boxes(block: Block, page: int) -> Iterable[BBox]:
    locator = block.locator
    if locator.spans:
        return [box for number, box in locator.spans if number == page]
    return [locator.bbox] if locator.bbox is not None and (locator.page or 1) == page else []


def _card(number: int, block: Block, assets: Mapping[str, ParsedAsset]) -> str:
    depth = len(block.locator.heading_path) - (block.type is BlockType.HEADING)
    if block.type is BlockType.LIST:
        depth += int(block.metadata.get("level", 0))
    marks = "".join(f"<span>{mark}</span>" for mark in _marks(block))
    return (
        f'<div class="block {block.type.value}" id="block{number}" style="--depth:{depth}"><div class="meta">'
        f'<a class="chip" href="#box{number}-{block.locator.page or 1}">{number} · {block.type.value}</a>{marks}'
        f'<span class="path">{escape(block.locator.display())}</span></div>{_content(block, assets)}</div>\n'
    )


def _marks(block: Block) -> Iterable[str]:
    metadata = block.metadata
    if block.type is BlockType.HEADING:
        yield f"level {int(metadata.get('level', 1))}"
    if metadata.get("ocr"):
        yield f"OCR {float(metadata.get('confidence', 0)):.0%}"
    if metadata.get("notes"):
        yield "speaker notes"


def _content(block: Block, assets: Mapping[str, ParsedAsset]) -> str:
    text = escape(block.content)
    match block.type:
        case BlockType.HEADING:
            return f'<h2 style="font-size:{22 - 1.5 * int(block.metadata.get("level", 1)):g}px">{text}</h2>'
        case BlockType.TABLE if "rows" in block.metadata:
            return _table(block.metadata["rows"], int(block.metadata.get("header_rows", 0)))
        case BlockType.CODE:
            return f"<pre>{text}</pre>"
        case BlockType.QUOTE:
            return f"<blockquote>{text}</blockquote>"
        case BlockType.LIST:
            return f'<div class="content">{escape(str(block.metadata.get("marker", "•")))} {text}</div>'
        case BlockType.IMAGE if asset := assets.get(str(block.metadata.get("asset_id"))):
            rest = escape(block.content.partition("\n")[2] or str(block.metadata.get("caption", "")))
            shown = f'<img src="{_data_uri(asset)}" alt="">' if asset.media_type in _BROWSER_IMAGES else ""
            return f'{shown}<div class="content">{rest}</div>'
        case _:
            return f'<div class="content">{text}</div>'


def _table(rows: Sequence[Sequence[str]], header_rows: int) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    shown = "".join(line(row, "th" if n < header_rows else "td") for n, row in enumerate(rows[:_MAX_ROWS]))
    more = f"<div>… {len(rows) - _MAX_ROWS} more rows</div>" if len(rows) > _MAX_ROWS else ""
    return f'<div class="scroll"><table>{shown}</table>{more}</div>'


def _data_uri(asset: ParsedAsset) -> str:
    return f"data:{asset.media_type};base64,{base64.b64encode(asset.content).decode('ascii')}"
