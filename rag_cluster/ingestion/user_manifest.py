"""A user's list of inputs with what is to be known about each: Parquet, CSV or JSON lines, read in a stream.

    uri             file, folder, glob or s3:// prefix; a relative path is one beside the manifest
    acl             groups that may read: a list, or text "finance;audit"; an empty list: everyone with the base
    department      text                  security_level   whole number
    metadata        an object, or its JSON text           chunking         strategy

Only `uri` is required. An empty cell says nothing: the run's own options, or what the document has, stay. Dates and
decimal numbers in a Parquet file's metadata are kept as text.
"""

from __future__ import annotations

import csv
import json
import math
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_cluster.domain.access import AccessAttributes, stated_access
from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.plain_values import check_metadata, check_plain
from rag_cluster.domain.ports import InputFiles, InputProblem
from rag_cluster.errors import InvalidRequestError, RagClusterError

COLUMNS = frozenset({"uri", "acl", "department", "security_level", "metadata", "chunking"})
INVALID_ROW = "invalid_manifest_row"
_BATCH = 1000
_MAX_CELL = 1024 * 1024
"""Characters of one CSV cell."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas adds to the Parquet file of a filtered frame."""
_WITHOUT_CELL = "\0"
"""CSV cells beyond the last column."""

Listed = SourceFile | InputProblem
ListLocation = Callable[[InputFiles, str], Iterator[Listed]]


def read_user_manifest(inputs: InputFiles, location: str, list_location: ListLocation) -> Iterator[Listed]:
    """Stream the files of a manifest's rows, each with the row's attributes.

    A row that cannot be understood is a problem that names its number (the first row of data is 1). A manifest that
    cannot be read at all, or has no `uri` column, an unknown one or one twice, is one problem.
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
        except UnicodeDecodeError as error:
            text = f"The manifest is not UTF-8 after row {number}: {error.reason}. Save it as UTF-8."
            yield InputProblem(location, "invalid_manifest", text)
        except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
            # What was read stands; how far that went is said.
            yield InputProblem(location, "invalid_manifest", f"The manifest cannot be read after row {number}: {error}")


def _rows(path: Path, location: str) -> Iterator[Mapping[str, Any] | str]:
    """Rows; of JSON lines the lines as they are, so that one that is no JSON is that row's problem."""
    match path.suffix:
        case ".parquet":
            with pq.ParquetFile(path) as file:
                names = [name for name in file.schema_arrow.names if not _PANDAS_INDEX.fullmatch(name)]
                _check_columns(names, location)
                for batch in file.iter_batches(batch_size=_BATCH, columns=names):
                    yield from batch.to_pylist()
        case ".csv":
            csv.field_size_limit(_MAX_CELL)
            with path.open(encoding="utf-8-sig", newline="") as text:
                reader = csv.DictReader(text, restkey=_WITHOUT_CELL, strict=True)
                _check_columns(reader.fieldnames or (), location)
                yield from reader
        case ".jsonl" | ".ndjson":
            with path.open(encoding="utf-8-sig") as text:
                yield from (line for line in text if line.strip())
        case suffix:
            raise InvalidRequestError(f"A manifest is .parquet, .csv or .jsonl, not {suffix or 'without extension'!r}")


def _check_columns(names: Sequence[Any], location: str) -> None:
    if unknown := [str(name) for name in names if name not in COLUMNS]:
        raise InvalidRequestError(
            f"{location} has the unknown column{'s' * (len(unknown) > 1)} {', '.join(unknown)}; "
            f"known are {', '.join(sorted(COLUMNS))}"
        )
    if "uri" not in names:
        raise InvalidRequestError(f"{location} has no column uri")
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"{location} has a column twice: {', '.join(names)}")


def _files(
    inputs: InputFiles, row: Mapping[str, Any] | str, place: str, location: str, list_location: ListLocation
) -> Iterator[Listed]:
    try:
        fields = _fields(row, place)
        uri = _uri(fields["uri"], location)
        access, metadata, chunking = _access(fields), _metadata(fields.get("metadata")), _text(fields, "chunking")
    except (ValueError, RecursionError, RagClusterError) as error:  # becomes the row's problem
        yield InputProblem(place, INVALID_ROW, str(error))
        return
    for entry in list_location(inputs, uri):
        if isinstance(entry, SourceFile):
            entry = replace(entry, access=access, metadata=metadata, chunking_strategy=chunking)
        yield entry


def _fields(row: Mapping[str, Any] | str, place: str) -> Mapping[str, Any]:
    fields = json.loads(row) if isinstance(row, str) else row
    if not isinstance(fields, Mapping):
        raise ValueError("not an object")
    if _WITHOUT_CELL in fields:
        raise ValueError("more cells than columns; text that holds a comma stands in double quotes")
    _check_columns(list(fields), place)
    return fields


def _uri(value: Any, location: str) -> str:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"uri is text, not {value!r}")
    uri: str = check_plain(value or "").strip()
    if not uri:
        raise ValueError("uri is empty")
    if "://" in uri or uri.startswith(("/", "~")):
        return uri
    folder, slash, _ = location.rpartition("/")
    return posixpath.join(folder + slash, uri)


def _access(row: Mapping[str, Any]) -> AccessAttributes:
    return stated_access(_groups(row.get("acl")), _text(row, "department"), _level(row.get("security_level")))


def _level(value: Any) -> int:
    """Of a number or its text; also 2.0, as pandas writes a column with empty cells."""
    if value is None or value == "":
        return 0
    if not isinstance(value, int | float | str | Decimal) or isinstance(value, bool):
        raise ValueError(f"security_level is a whole number from 0 to 9, not {value!r}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"security_level is a whole number from 0 to 9, not {value!r}")
    return int(number)


def listed_groups(text: str) -> Any:
    """Groups as a person writes them: "finance;audit", or a list in JSON. ValueError."""
    return json.loads(text) if text.startswith("[") else text.split(";")


def _groups(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        value = listed_groups(text)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(group, str) for group in value):
        raise ValueError(f"acl is a list of group names, not {value!r}")
    return tuple(value)


def _metadata(value: Any) -> dict[str, Any]:
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value):
        value = dict(value)  # a Parquet map
    if not isinstance(value, dict):
        raise ValueError(f"metadata is an object, not {value!r}")
    # A Parquet struct has every key in every row.
    metadata = {str(key): _plain(item) for key, item in value.items() if item is not None}
    check_metadata(check_plain(metadata))
    return metadata


def _plain(value: Any) -> Any:
    """A value of a Parquet column as JSON has it."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case None | str() | bool() | int() | float():
            return value
    raise ValueError(f"metadata cannot hold {type(value).__name__}")


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is text, not {value!r}")
    return value or None
