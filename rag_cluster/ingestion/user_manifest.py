"""A user's list of inputs with what is to be known about each: Parquet, CSV or JSON lines, read in a stream.

    uri             file, folder, glob or s3:// prefix; a relative path is one beside the manifest
    acl             groups that may read: a list, or text "finance;audit"; an empty list: everyone with the base
    department      text                  security_level   whole number
    metadata        an object, or its JSON text           chunking         strategy

Only `uri` is required. An empty cell says nothing: the run's own options, or what the document has, stay.
"""

from __future__ import annotations

import csv
import json
import posixpath
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputFiles, InputProblem
from rag_cluster.errors import InvalidRequestError, RagClusterError

COLUMNS = frozenset({"uri", "acl", "department", "security_level", "metadata", "chunking"})
INVALID_ROW = "invalid_manifest_row"
_BATCH = 1000
_MAX_CELL = 1024 * 1024
"""Characters of one CSV cell."""

Listed = SourceFile | InputProblem
ListLocation = Callable[[InputFiles, str], Iterator[Listed]]


def read_user_manifest(inputs: InputFiles, location: str, list_location: ListLocation) -> Iterator[Listed]:
    """Stream the files of a manifest's rows, each with the row's attributes.

    A row that cannot be understood is a problem that names its number (the first row of data is 1). A manifest that
    cannot be read at all, or has no `uri` column or an unknown one, is one problem.
    """
    with tempfile.TemporaryDirectory(prefix="rag-cluster-manifest-") as directory:
        path = Path(directory) / f"manifest{Path(location).suffix.lower()}"
        number = 0
        try:
            inputs.fetch(location, str(path))
            for number, row in enumerate(_rows(path, location), 1):
                yield from _files(inputs, row, f"{location}#{number}", location, list_location)
        except RagClusterError as error:  # becomes the manifest's row
            yield InputProblem(location, error.type, error.message)
        except (ValueError, csv.Error, pa.ArrowException) as error:
            # What was read stands; how far that went is said.
            yield InputProblem(location, "invalid_manifest", f"The manifest cannot be read after row {number}: {error}")


def _rows(path: Path, location: str) -> Iterator[Mapping[str, Any]]:
    match path.suffix:
        case ".parquet":
            with pq.ParquetFile(path) as file:
                _check_columns(file.schema_arrow.names, location)
                for batch in file.iter_batches(batch_size=_BATCH):
                    yield from batch.to_pylist()
        case ".csv":
            csv.field_size_limit(_MAX_CELL)
            with path.open(encoding="utf-8-sig", newline="") as text:
                reader = csv.DictReader(text, strict=True)
                _check_columns(reader.fieldnames or (), location)
                yield from reader
        case ".jsonl" | ".ndjson":
            with path.open(encoding="utf-8-sig") as text:
                for line in text:
                    if line.strip():
                        yield json.loads(line)
        case suffix:
            raise InvalidRequestError(f"A manifest is .parquet, .csv or .jsonl, not {suffix or 'without extension'!r}")


def _check_columns(names: Any, location: str) -> None:
    if unknown := [str(name) for name in names if name not in COLUMNS]:
        raise InvalidRequestError(
            f"{location} has the unknown column{'s' * (len(unknown) > 1)} {', '.join(unknown)}; "
            f"known are {', '.join(sorted(COLUMNS))}"
        )
    if "uri" not in names:
        raise InvalidRequestError(f"{location} has no column uri")


def _files(
    inputs: InputFiles, row: Mapping[str, Any], place: str, location: str, list_location: ListLocation
) -> Iterator[Listed]:
    try:
        if not isinstance(row, Mapping):
            raise ValueError("not an object")
        _check_columns(list(row), place)
        uri = _uri(row["uri"], location)
        access, metadata = _access(row), _metadata(row.get("metadata"))
        chunking = _text(row, "chunking")
    except (ValueError, RagClusterError) as error:  # becomes the row's problem
        yield InputProblem(place, INVALID_ROW, str(error))
        return
    for entry in list_location(inputs, uri):
        if isinstance(entry, SourceFile):
            entry = replace(entry, access=access, metadata=metadata, chunking_strategy=chunking)
        yield entry


def _uri(value: Any, location: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("uri is empty")
    uri = value.strip()
    if "://" in uri or uri.startswith(("/", "~")):
        return uri
    return posixpath.join(location.rpartition("/")[0], uri)


def _access(row: Mapping[str, Any]) -> AccessAttributes:
    level = row.get("security_level")
    if level in (None, ""):
        level = 0
    elif isinstance(level, bool) or int(level) != float(level) or int(level) < 0:
        raise ValueError(f"security_level is a whole number from 0, not {level!r}")
    return AccessAttributes(_groups(row.get("acl")), _text(row, "department"), int(level))


def _groups(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        value = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(";")]
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(group, str) and group for group in value):
        raise ValueError(f"acl is a list of group names, not {value!r}")
    return tuple(value)


def _metadata(value: Any) -> dict[str, Any]:
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict):
        raise ValueError(f"metadata is an object, not {value!r}")
    # A Parquet struct has every key in every row.
    return {str(key): item for key, item in value.items() if item is not None}


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is text, not {value!r}")
    return value or None
