"""Pictures in words: what a vision model says of a document's pictures, appended to their blocks before chunking."""

from __future__ import annotations

import time
from dataclasses import replace

from rag_cluster.domain.blocks import Block, BlockType, ParsedAsset, ParsedDocument
from rag_cluster.domain.ports import VisionDescriber
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.parsing.base import storable

RASTER = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff"})
SMALL_SIDE = 48
"""Pixels of the shorter side under which a picture is an icon or a rule."""
MAX_CHARACTERS = 4000
FAILURES = 2
"""Failures one after the other after which the endpoint is taken to be down, for this document."""


def describe_images(
    document: ParsedDocument, describer: VisionDescriber, *, max_pictures: int = 20, seconds: float = 300.0
) -> ParsedDocument:
    """The document with a description at the end of its IMAGE blocks (metadata["described"]).

    Each asset is asked for once, at most `max_pictures` of them and none after `seconds`. What fails or is left out
    is a warning of the document.
    """
    assets = {asset.id: asset for asset in document.assets}
    shown = dict.fromkeys(block.metadata.get("asset_id", "") for block in document.blocks if _is_image(block))
    wanted = [assets[identity] for identity in shown if identity in assets and _worth_it(assets[identity])]
    texts, warnings = _descriptions(wanted[:max_pictures], describer, time.monotonic() + seconds)
    if len(wanted) > max_pictures:
        warnings.append(f"{len(wanted) - max_pictures} pictures were not described: the limit is {max_pictures}")
    if not texts and not warnings:
        return document
    blocks = tuple(_described(block, texts) for block in document.blocks)
    return replace(document, blocks=blocks, warnings=(*document.warnings, *warnings))


def _is_image(block: Block) -> bool:
    return block.type is BlockType.IMAGE


def _worth_it(asset: ParsedAsset) -> bool:
    return asset.media_type in RASTER and min(asset.width or SMALL_SIDE, asset.height or SMALL_SIDE) >= SMALL_SIDE


def _descriptions(
    assets: list[ParsedAsset], describer: VisionDescriber, deadline: float
) -> tuple[dict[str, str], list[str]]:
    """(asset id -> text, warnings)."""
    texts: dict[str, str] = {}
    warnings: list[str] = []
    failures = 0
    for index, asset in enumerate(assets):
        if failures >= FAILURES or time.monotonic() > deadline:
            reason = "the endpoint keeps failing" if failures >= FAILURES else "it took too long"
            warnings.append(f"{len(assets) - index} pictures were not described: {reason}")
            break
        try:
            texts[asset.id] = storable(describer.describe(asset.content, asset.media_type)).strip()[:MAX_CHARACTERS]
            failures = 0
        except ModelUnavailableError as error:
            failures += 1
            warnings.append(f"A picture was not described: {error.message}")
    return texts, warnings


def _described(block: Block, texts: dict[str, str]) -> Block:
    text = texts.get(block.metadata.get("asset_id", ""), "") if _is_image(block) else ""
    if not text:
        return block
    return replace(block, content=f"{block.content}\n{text}", metadata={**block.metadata, "described": True})
