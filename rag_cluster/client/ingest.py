"""What an ingestion is asked to do, as the run's options and as the command line of a job."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from rag_cluster.domain.access import stated_access
from rag_cluster.errors import InvalidRequestError
from rag_cluster.ingestion.listing import Patterns
from rag_cluster.ingestion.run import IngestionOptions
from rag_cluster.ingestion.user_manifest import COLUMNS, listed_groups
from rag_cluster.parsing.ocr import OcrMode


@dataclass(frozen=True, slots=True)
class Ingestion:
    """One `ingest`, of the client or the terminal. Texts are locations, groups and patterns as `rag-cluster ingest`
    takes them."""

    knowledge_base: str
    inputs: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    acl: tuple[str, ...] | None = None
    """None: as the document has it, else the base's default. (): everyone with the base."""
    department: str | None = None
    security_level: int = 0
    chunking: str | None = None
    retry_failed: bool = False
    verify_content: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reference: bool = False
    """Originals stay where they lie; no copies are made."""
    sync: bool = False
    ocr: str | None = None

    def __post_init__(self) -> None:
        if not self.inputs and not self.manifests:
            raise InvalidRequestError("Give files, folders, globs or s3:// prefixes, or a manifest.")
        if self.ocr is not None and self.ocr not in list(OcrMode):
            raise InvalidRequestError(f"ocr is one of {', '.join(OcrMode)}, not {self.ocr!r}.")
        stated_access(self.acl, self.department, self.security_level)

    def options(self, *, progress: bool) -> IngestionOptions:
        """For a run in this process."""
        stated = self.acl is not None or self.department is not None or self.security_level
        return IngestionOptions(
            access=stated_access(self.acl, self.department, self.security_level) if stated else None,
            chunking_strategy=self.chunking,
            retry_failed=self.retry_failed,
            verify_content=self.verify_content,
            manifests=self.manifests,
            patterns=Patterns(self.include, self.exclude),
            reference=self.reference,
            sync=self.sync,
            progress=progress,
        )

    def arguments(self) -> list[str]:
        """For a run elsewhere: the same as a `rag-cluster` command line."""
        groups = ["--open"] if self.acl == () else [f"--acl={group}" for group in self.acl or ()]
        single = {"--department": self.department, "--chunking": self.chunking, "--ocr": self.ocr}
        flags = {
            "--retry-failed": self.retry_failed,
            "--verify-content": self.verify_content,
            "--reference": self.reference,
            "--sync": self.sync,
        }
        several = {"--manifest": self.manifests, "--include": self.include, "--exclude": self.exclude}
        return [
            "ingest",
            f"--knowledge-base={self.knowledge_base}",
            *groups,
            *([f"--security-level={self.security_level}"] if self.security_level else []),
            *(f"{name}={value}" for name, value in single.items() if value is not None),
            *(name for name, given in flags.items() if given),
            *(f"{name}={value}" for name, values in several.items() for value in values),
            "--json",
            "--",
            *self.inputs,
        ]


def groups(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Groups as a list, or as a text as in a manifest: a text is not a list of its letters."""
    if given is None or not isinstance(given, str):
        return None if given is None else tuple(given)
    try:
        return tuple(listed_groups(given))
    except ValueError as error:
        raise InvalidRequestError(f"The groups {given!r} are not a list in JSON: {error}") from None


def patterns(given: str | Iterable[str]) -> tuple[str, ...]:
    """Patterns as a list; a text is one."""
    return (given,) if isinstance(given, str) else tuple(given)


def locations(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Locations as a run elsewhere understands them too: paths are made absolute, URLs stay."""
    items = [given] if isinstance(given, str | Path) else list(given)
    return tuple(absolute(str(item)) for item in items)


def absolute(location: str) -> str:
    """A path of this machine from its root; a glob's folder likewise; a URL as it is."""
    return location if "://" in location else str(Path(location).expanduser().absolute())


def is_frame(value: object) -> bool:
    """Whether a value is a pandas DataFrame; does not import pandas."""
    kind = type(value)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


def records(frame: Any) -> list[dict[str, Any]]:
    """A DataFrame's rows; a missing cell is None."""
    rows: list[dict[str, Any]] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return rows


@contextlib.contextmanager
def frame_as_manifest(frame: Any) -> Iterator[str]:
    """A file with a DataFrame's rows (`uri`, and as far as given `acl`, `metadata` ...), while the context lasts.

    InvalidRequestError for a frame without `uri`, with a column that a manifest does not have, or with a cell that is
    no data. Lines of JSON: a column's cells need not be of one type, and a wrong one is the problem of its row alone.
    """
    if unknown := [str(name) for name in frame.columns if name not in COLUMNS]:
        known = ", ".join(sorted(COLUMNS))
        raise InvalidRequestError(f"The DataFrame has the unknown column {', '.join(unknown)}; known are {known}.")
    if "uri" not in frame.columns:
        raise InvalidRequestError("The DataFrame has no column uri.")
    with tempfile.TemporaryDirectory(prefix="rag-cluster-frame-") as folder:
        path = Path(folder) / "frame.jsonl"
        with path.open("w", encoding="utf-8") as lines:
            for number, row in enumerate(records(frame), 1):
                uri = row["uri"]
                row["uri"] = absolute(str(uri)) if isinstance(uri, str | Path) and str(uri).strip() else uri
                try:
                    lines.write(json.dumps(row, default=_cell) + "\n")
                except (TypeError, ValueError, RecursionError) as error:
                    raise InvalidRequestError(f"Row {number} of the DataFrame ({uri}): {error}") from None
        yield str(path)


def _cell(value: Any) -> Any:
    """What JSON does not know, of numpy, pandas or the standard library; the manifest judges the result. TypeError."""
    if type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which is not imported here: nothing is known
        return None
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Path | Decimal | UUID):
        return str(value)
    for convert in ("isoformat", "tolist"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    raise TypeError(f"{type(value).__name__} is no data")
