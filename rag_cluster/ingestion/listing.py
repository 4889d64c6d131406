"""What a run looks at: locations and user manifests, less what its patterns leave out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fsspec.utils import glob_translate

from rag_cluster.domain.documents import SourceFile
from rag_cluster.domain.ports import InputFiles, InputProblem
from rag_cluster.errors import InvalidRequestError, NotFoundError, RagClusterError
from rag_cluster.ingestion.user_manifest import read_user_manifest

EXCLUDED = "skipped_excluded"
NAMED_BEFORE = "skipped_named_before"
Listed = SourceFile | InputProblem


@dataclass(frozen=True, slots=True)
class Patterns:
    """Which listed files a run takes. Case does not matter.

    A pattern without "/" is compared with the file's name (`*.pdf`); one with "/" with the end of its path, or with the
    whole path when it begins with "/"; `**` crosses folders (`drafts/**`, `2024/**/*.docx`).
    """

    include: tuple[str, ...] = ()
    """A file must match one of them. Empty: every file."""
    exclude: tuple[str, ...] = ()
    """A file that matches one of them is left out, also if it is included."""

    def apply(self, listed: Iterable[Listed]) -> Iterator[Listed]:
        """The same entries; those left out as problems of type `skipped_excluded` that name the rule."""
        if not (self.include or self.exclude):
            yield from listed
            return
        include, exclude = _compiled(self.include), _compiled(self.exclude)
        for entry in listed:
            reason = _reason(entry.uri, include, exclude) if isinstance(entry, SourceFile) else ""
            yield InputProblem(entry.uri, EXCLUDED, reason) if reason else entry


def require_some(inputs: InputFiles, locations: Sequence[str], manifests: Sequence[str] = ()) -> None:
    """Before anything is made for a run: InvalidRequestError where nothing is given, NotFoundError where nothing that
    is given is there. A mistyped path must not leave an empty knowledge base behind; one missing input among others is
    the run's, and so is what lies in a bucket."""
    given = [*locations, *manifests]
    if not given:
        raise InvalidRequestError("Give files, folders, globs or s3:// prefixes, or a manifest.")
    folders = [manifest for manifest in manifests if Path(manifest).expanduser().is_dir()]
    if not any(_is_there(inputs, location) for location in given if location not in folders):
        raise NotFoundError(f"There is no file {', '.join(map(repr, given))}.")


def _is_there(inputs: InputFiles, location: str) -> bool:
    if location.startswith("s3://"):
        return True
    try:
        inputs.list(location)
    except NotFoundError:
        return False
    except RagClusterError:
        return True  # as a row of the run tells
    return True


def list_inputs(
    inputs: InputFiles, locations: Sequence[str], manifests: Sequence[str] = (), patterns: Patterns = Patterns()
) -> Iterator[Listed]:
    """Stream every file of the manifests' locations and of the locations (paths, globs, s3:// prefixes).

    What a manifest says of a file comes first: a folder or another row that holds the same file changes nothing about
    it. Memory: about 150 bytes for each file of a manifest.
    """
    rows = chain.from_iterable(read_user_manifest(inputs, manifest, list_location) for manifest in manifests)
    files = chain.from_iterable(list_location(inputs, location) for location in locations)
    return patterns.apply(_first_naming(rows, files) if manifests else files)


def _first_naming(rows: Iterable[Listed], files: Iterable[Listed]) -> Iterator[Listed]:
    """Each file once. Otherwise two rows (a folder's, and a stricter one of a file in it) would overrule each other
    in every run, and the file would be open in between."""
    said: dict[bytes, int] = {}
    for entry in rows:
        if not isinstance(entry, SourceFile):
            yield entry
            continue
        key, says = _key(entry), hash((entry.access, repr(entry.metadata), entry.chunking_strategy))
        if key not in said:
            said[key] = says
            yield entry
        elif said[key] != says:
            yield InputProblem(entry.uri, NAMED_BEFORE, "An earlier row says otherwise of this file, and counts")
    yield from (entry for entry in files if not isinstance(entry, SourceFile) or _key(entry) not in said)


def _key(file: SourceFile) -> bytes:
    return blake2b(file.uri.encode(errors="surrogatepass"), digest_size=16).digest()


def list_location(inputs: InputFiles, location: str) -> Iterator[Listed]:
    """Files of one location; when it cannot be listed, its one problem: the other inputs of the run go on."""
    try:
        yield from inputs.list(location)
    except RagClusterError as error:  # becomes the location's row
        yield InputProblem(location, error.type, error.message)
    except OSError as error:  # likewise; of the location and not of the manifest that names it
        yield InputProblem(location, "unreadable", str(error))


def _compiled(patterns: Sequence[str]) -> list[tuple[str, re.Pattern[str], bool]]:
    out = []
    for pattern in patterns:
        by_path = "/" in pattern
        glob = pattern if pattern.startswith("/") or not by_path else f"/**/{pattern}"
        out.append((pattern, re.compile(glob_translate(glob), re.IGNORECASE), by_path))
    return out


def _reason(
    uri: str, include: Sequence[tuple[str, re.Pattern[str], bool]], exclude: Sequence[tuple[str, re.Pattern[str], bool]]
) -> str:
    """Why a file is left out; empty when it is taken."""
    # An S3 key may hold "#" and "?"; only a file URI is encoded.
    path = unquote(urlsplit(uri).path) if uri.startswith("file:") else "/" + uri.partition("://")[2]
    name = path.rpartition("/")[2]

    def first(rules: Sequence[tuple[str, re.Pattern[str], bool]]) -> str | None:
        return next((text for text, rule, by_path in rules if rule.match(path if by_path else name)), None)

    if include and first(include) is None:
        return "No --include pattern matches"
    rule = first(exclude)
    return f"Left out by --exclude {rule}" if rule is not None else ""
