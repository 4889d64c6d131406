"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rag_cluster.parsing.ocr import OcrMode

if TYPE_CHECKING:
    from rag_cluster.settings import Settings

Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Cursor = Annotated[str | None, typer.Option(help="Where the last page ended, as it said.")]
Department = Annotated[str | None, typer.Option(help="Only readers of this department.")]
SecurityLevel = Annotated[int, typer.Option(min=0, max=9, help="Only readers of this level or above.")]
Ocr = Annotated[
    OcrMode | None,
    typer.Option(
        help="auto: pages and pictures without text; off; force: every page; deferred: publish the text first."
        " Default: RAG_OCR."
    ),
]
Base = Annotated[str, typer.Option("--knowledge-base", "-k", help="Name or id of the knowledge base.")]

MAX_NAME = 200


def with_ocr(settings: Settings, ocr: OcrMode | None) -> Settings:
    """The settings with the mode that a command was given."""
    return settings if ocr is None else settings.model_copy(update={"ocr": ocr.value})


def base_name(value: str | None) -> str | None:
    """A name that a knowledge base may be given, without surrounding space."""
    if value is None:
        return None
    name = value.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise typer.BadParameter(f"a name has 1 to {MAX_NAME} printable characters.")
    return name
