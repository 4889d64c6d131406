"""What the client's methods give: the responses of /v1, which show themselves in a notebook and become DataFrames."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rag_cluster.client import html
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.marks import MARK
from rag_cluster.parsing.output import document_json, document_markdown
from rag_cluster.serving.schemas import (
    AnswerResponse,
    CitationModel,
    DeleteResponse,
    DocumentPage,
    KnowledgeBasePage,
    ResultModel,
    RetrieveResponse,
    RunPage,
)
from rag_cluster.serving.schemas.explain import ExplainResponse

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

MAX_CELL = 80
"""Characters of a cell where there is no HTML."""


class Tabular(ABC):
    """Rows with the same columns."""

    columns: ClassVar[tuple[str, ...]]
    """Names of the columns, also where there are no rows."""
    shown: ClassVar[tuple[str, ...]] = ()
    """Those that a person sees; (): all."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """One dictionary a row, its keys being `columns`."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=list(self.columns))

    def _headline(self) -> str:
        return f"{len(self.rows())} rows"

    def _repr_html_(self) -> str:
        rows = self._shown_rows()
        table = html.table(self.shown or self.columns, rows) if rows else ""
        return html.frame(html.heading(self._headline()), table, *map(html.note, self._notes()))

    def _shown_rows(self) -> list[list[object]]:
        return [[_rounded(row[name]) for name in self.shown or self.columns] for row in self.rows()]

    def _notes(self) -> list[str]:
        return []

    def __str__(self) -> str:
        lines = ("  " + "  ".join(_one_line(cell) for cell in cells) for cells in self._shown_rows())
        return "\n".join((self._headline(), *lines, *self._notes()))

    def __repr__(self) -> str:
        return str(self)


def _rounded(value: object) -> object:
    return f"{value:.4f}" if isinstance(value, float) else value


def _one_line(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())[:MAX_CELL]


class AnswerView(Tabular, AnswerResponse):
    """An answer with its citations; its rows are the citations."""

    columns: ClassVar[tuple[str, ...]] = (
        "number",
        "filename",
        "place",
        "quote",
        "document_id",
        "version",
        "chunk_id",
        "uri",
    )

    @property
    def text(self) -> str:
        """The answer with marks as [1]."""
        return MARK.sub(r"[\1]", self.answer)

    def rows(self) -> list[Row]:
        """The citations."""
        return [_citation(citation) for citation in self.citations]

    def _headline(self) -> str:
        return self.text

    def __str__(self) -> str:
        return "\n".join((self.text, *(f"  [{c.number}] {c.filename}  {c.locator.display}" for c in self.citations)))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        sources = {str(citation.number): citation for citation in self.citations}
        shown = MARK.sub(lambda found: _superscript(found, sources), html.text(self.answer))
        items = "".join(_source_item(citation) for citation in self.citations)
        return html.frame(
            html.heading(self.question),
            html.paragraph(shown, html.MUTED if self.refused else ""),
            f'<ol style="list-style:none;padding-left:0">{items}</ol>' if items else "",
            html.note(f"refused: {self.refusal_reason}" if self.refused else ""),
            *(html.note(f"warning: {warning}") for warning in self.warnings),
        )


def _citation(citation: CitationModel) -> Row:
    return {
        "number": citation.number,
        "filename": citation.filename,
        "place": citation.locator.display,
        "quote": citation.quote,
        "document_id": citation.document_id,
        "version": citation.version,
        "chunk_id": citation.chunk_id,
        "uri": citation.uri,
    }


def _superscript(found: re.Match[str], sources: Mapping[str, CitationModel]) -> str:
    citation = sources.get(found[1])
    if citation is None:
        return f"[{found[1]}]"
    title = html.text(f"{citation.filename}  {citation.locator.display}")
    return f'<sup title="{title}"><b>[{found[1]}]</b></sup>'


def _source_item(citation: CitationModel) -> str:
    place = f'<span style="{html.MUTED}">{html.text(citation.locator.display)}</span>'
    quote = html.text(citation.quote, html.MAX_TEXT)
    return (
        f"<li><b>[{citation.number}]</b> {html.link(citation.filename, citation.uri)} {place}"
        f'<blockquote style="margin:.2em 0 .6em 1.5em;white-space:pre-wrap">{quote}</blockquote></li>'
    )


class AnswersView(Tabular):
    """Answers to several questions, in their order."""

    columns: ClassVar[tuple[str, ...]] = ("question", "answer", "refused", "citations", "request_id")

    def __init__(self, answers: Sequence[AnswerView]) -> None:
        self.answers = tuple(answers)

    def __iter__(self) -> Iterator[AnswerView]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def rows(self) -> list[Row]:
        """One a question; citations as "file, place" texts."""
        return [
            {
                "question": answer.question,
                "answer": answer.text,
                "refused": answer.refused,
                "citations": [f"{c.filename}, {c.locator.display}".rstrip(", ") for c in answer.citations],
                "request_id": answer.request_id,
            }
            for answer in self.answers
        ]

    def _headline(self) -> str:
        return f"{len(self)} answers, {sum(answer.refused for answer in self)} of them refused"

    def _repr_html_(self) -> str:
        return html.frame(html.heading(self._headline()), *(answer._repr_html_() for answer in self.answers))


class SearchView(Tabular, RetrieveResponse):
    """Search results, best first, with the trace."""

    columns: ClassVar[tuple[str, ...]] = (
        "rank",
        "score",
        "filename",
        "place",
        "text",
        "found_by",
        "document_id",
        "chunk_id",
        "uri",
    )
    shown: ClassVar[tuple[str, ...]] = ("rank", "score", "filename", "place", "text", "found_by")

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, position: int) -> ResultModel:
        return self.results[position]

    def rows(self) -> list[Row]:
        """The results; `text` is what was found, `result.content` what surrounds it."""
        return [
            {
                "rank": rank,
                "score": result.score,
                "filename": result.filename,
                "place": result.locator.display,
                "text": result.matched_content,
                "found_by": ", ".join(result.retrieval_sources),
                "document_id": result.document_id,
                "chunk_id": result.chunk_id,
                "uri": result.document_origin,
            }
            for rank, result in enumerate(self.results, start=1)
        ]

    def _headline(self) -> str:
        return f"{len(self)} results for {self.query!r}"

    def _notes(self) -> list[str]:
        return [f"degraded: {reason}" for reason in self.trace.degradations]


class ExplainView(Tabular, ExplainResponse):
    """Where every stage of a query left one chunk; its rows are the stages."""

    columns: ClassVar[tuple[str, ...]] = ("stage", "outcome", "rank", "score", "detail")

    def rows(self) -> list[Row]:
        """One a stage, in their order."""
        return [standing.model_dump(mode="json") for standing in self.standings]

    def _headline(self) -> str:
        end = f"lost at {self.lost_at}" if self.lost_at else f"shown as result {self.result}"
        return f"{self.filename} for {self.query!r}: {end}"

    def __repr__(self) -> str:
        return str(self)


class DocumentsView(Tabular, DocumentPage):
    """Documents with their newest version's status."""

    columns: ClassVar[tuple[str, ...]] = (
        "filename",
        "status",
        "version",
        "published_version",
        "error_type",
        "error_message",
        "metadata",
        "id",
    )
    shown: ClassVar[tuple[str, ...]] = ("filename", "status", "version", "published_version", "error_type", "id")

    def rows(self) -> list[Row]:
        """One a document."""
        return [item.model_dump(mode="json", include=set(self.columns)) for item in self.items]

    def _headline(self) -> str:
        return f"{len(self.items)} documents" + (", and more" if self.next_cursor else "")


class KnowledgeBasesView(Tabular, KnowledgeBasePage):
    """Knowledge bases."""

    columns: ClassVar[tuple[str, ...]] = ("name", "description", "default_acl", "id")

    def rows(self) -> list[Row]:
        """One a base."""
        return [item.model_dump(mode="json", include=set(self.columns)) for item in self.items]

    def _headline(self) -> str:
        return f"{len(self.items)} knowledge bases"


class RunsView(Tabular, RunPage):
    """Bulk runs, newest first."""

    columns: ClassVar[tuple[str, ...]] = ("started_at", "status", "counts", "inputs", "error_message", "id")

    def rows(self) -> list[Row]:
        """One a run; of its counts those that are not 0."""
        rows = [item.model_dump(include=set(self.columns)) for item in self.items]
        return [row | {"counts": {name: count for name, count in row["counts"].items() if count}} for row in rows]

    def _headline(self) -> str:
        return f"{len(self.items)} runs"


class DeletionsView(Tabular):
    """What was verified gone, document by document and store by store."""

    columns: ClassVar[tuple[str, ...]] = ("document_id", "pending", "stores")

    def __init__(self, receipts: Sequence[DeleteResponse]) -> None:
        self.receipts = tuple(receipts)

    def rows(self) -> list[Row]:
        """One a document."""
        return [receipt.model_dump() for receipt in self.receipts]

    @property
    def pending(self) -> bool:
        """Whether steps are still owed to a store; the documents are invisible nevertheless."""
        return any(receipt.pending for receipt in self.receipts)

    def _headline(self) -> str:
        return f"{len(self.receipts)} documents deleted" + (", steps are still owed" if self.pending else "")


class ParsedView(Tabular):
    """What the parser saw in a file; its rows are the blocks."""

    columns: ClassVar[tuple[str, ...]] = ("type", "place", "content", "metadata", "id")
    shown: ClassVar[tuple[str, ...]] = ("type", "place", "content")

    def __init__(self, document: ParsedDocument, source: DocumentSource) -> None:
        self.document = document
        self.source = source

    def rows(self) -> list[Row]:
        """The blocks in reading order."""
        return [
            {
                "type": block.type.value,
                "place": block.locator.display(),
                "content": block.content,
                "metadata": dict(block.metadata),
                "id": block.id,
            }
            for block in self.document.blocks
        ]

    def to_dict(self) -> dict[str, Any]:
        """As `rag-cluster parse --json` prints it."""
        return document_json(self.document, self.source)

    def to_markdown(self) -> str:
        """The document as a person would read it."""
        return document_markdown(self.document)

    def _headline(self) -> str:
        return f"{self.source.filename}: {len(self.document.blocks)} blocks, {len(self.document.assets)} pictures"

    def _notes(self) -> list[str]:
        return [f"warning: {warning}" for warning in self.document.warnings]
