"""Parsed documents as `rag-cluster parse` shows them: JSON for programs, Markdown for people."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_cluster.domain import ids
from rag_cluster.domain.blocks import Block, BlockType, DocumentSource, ParsedDocument
from rag_cluster.errors import RagClusterError
from rag_cluster.parsing.isolation import IsolatedParser


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What became of one file: a document or an error, and the JSON of either."""

    path: Path
    source: DocumentSource
    document: ParsedDocument | None
    error: RagClusterError | None
    json: Mapping[str, Any]
    written: Path | None
    """Where the JSON was written."""


def parse_files(paths: Iterable[Path], parser: IsolatedParser, out_dir: Path | None = None) -> Iterator[ParsedFile]:
    """Parse files one after the other and close the parser; with out_dir write OUT_DIR/<file name>.json for each.

    A file's failure is its result, never an exception. Directories are walked, hidden files left out.
    """
    taken: set[str] = set()
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
    with parser:
        for path in _files(paths):
            source = local_source(path)
            document, error = None, None
            try:
                document = parser.parse(source)
                result = document_json(document, source)
            except RagClusterError as failure:
                error = failure
                result = error_json(failure)
            written = None
            if out_dir is not None:
                written = _unused(out_dir, path.name, taken)
                text = json.dumps(result, ensure_ascii=False, indent=1, default=str)
                # A lone surrogate, as a broken file can hold, must not end the run.
                written.write_text(text, encoding="utf-8", errors="replace")
            yield ParsedFile(path, source, document, error, result, written)


def local_source(path: Path) -> DocumentSource:
    """A file of this machine as a parser's input, outside any knowledge base."""
    size = path.stat().st_size if path.exists() else 0
    return DocumentSource(
        document_id=ids.bulk_document_id("", path.absolute().as_uri()),
        version=1,
        filename=path.name,
        path=str(path),
        mime_type=mimetypes.guess_type(path.name)[0] or "application/octet-stream",
        size=size,
    )


def document_json(parsed: ParsedDocument, source: DocumentSource) -> dict[str, Any]:
    """{"document", "blocks", "assets", "warnings"}; assets without their bytes."""
    return {
        "document": {
            "id": parsed.document_id,
            "version": parsed.version,
            "filename": source.filename,
            "mime_type": source.mime_type,
            "size": source.size,
            "metadata": dict(parsed.metadata),
        },
        "blocks": [
            {
                "id": block.id,
                "type": block.type.value,
                "content": block.content,
                "locator": block.locator.to_dict(),
                "metadata": dict(block.metadata),
            }
            for block in parsed.blocks
        ],
        "assets": [
            {
                "id": asset.id,
                "sha256": asset.sha256,
                "media_type": asset.media_type,
                "size": len(asset.content),
                "width": asset.width,
                "height": asset.height,
                "caption": asset.caption,
                "locator": asset.locator.to_dict(),
            }
            for asset in parsed.assets
        ],
        "warnings": list(parsed.warnings),
    }


def error_json(error: RagClusterError) -> dict[str, Any]:
    """{"error": {"type", "message"}}."""
    return {"error": {"type": error.type, "message": error.message}}


def document_markdown(parsed: ParsedDocument) -> str:
    """The document as a person would read it. Ends with a line break."""
    out: list[str] = []
    previous: Block | None = None
    for block in parsed.blocks:
        tight = previous is not None and previous.type is block.type is BlockType.LIST
        if out:
            out.append("\n" if tight else "\n\n")
        out.append(_block_markdown(block))
        previous = block
    return "".join(out) + "\n"


def _block_markdown(block: Block) -> str:
    content, metadata = block.content, block.metadata
    match block.type:
        case BlockType.HEADING:
            return f"{'#' * int(metadata.get('level', 1))} {content}"
        case BlockType.LIST:
            indent = "    " * int(metadata.get("level", 0))
            marker = str(metadata.get("marker", "-"))
            bullet = marker if marker[:-1].isalnum() and marker[-1:] in ".)" else "-"
            first, *rest = content.split("\n")
            lines = [f"{indent}{bullet if marker else ' '} {first}", *(f"{indent}  {line}" for line in rest)]
            return "\n".join(lines)
        case BlockType.CODE:
            longest = max((len(run) for run in content.split("\n") if set(run) == {"`"}), default=0)
            fence = "`" * max(3, longest + 1)
            return f"{fence}{metadata.get('language', '')}\n{content}\n{fence}"
        case BlockType.QUOTE:
            return "\n".join(f"> {line}".rstrip() for line in content.split("\n"))
        case BlockType.IMAGE if "asset_id" not in metadata:
            return f"[{content}]"
        case _:
            return content


def _unused(out_dir: Path, name: str, taken: set[str]) -> Path:
    """OUT_DIR/<name>.json; files of the same name from several directories get a number."""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}.{number}"
    taken.add(chosen)
    return out_dir / f"{chosen}.json"


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (
                inner
                for inner in sorted(path.rglob("*"))
                if inner.is_file() and not any(part.startswith(".") for part in inner.relative_to(path).parts)
            )
        else:
            yield path
