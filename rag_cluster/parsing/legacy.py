"""Formats that only an office program reads: converted by LibreOffice, then parsed as DOCX, PPTX or XLSX.

Only where RAG_LIBREOFFICE allows it and LibreOffice is installed. It runs confined (`confined`): a private profile and
directory that are removed afterwards, no macros, no links followed, no network where that can be taken away, limits of
time, memory and file size, and it dies with the parser.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.ports import DocumentParser
from rag_cluster.errors import CorruptDocumentError, ParseTimeoutError, UnsupportedDocumentTypeError
from rag_cluster.parsing.archive import read_member
from rag_cluster.parsing.limits import ParseLimits

CONVERTED: Mapping[str, str] = {
    **dict.fromkeys((".doc", ".dot", ".rtf", ".odt", ".ott"), ".docx"),
    **dict.fromkeys((".ppt", ".pps", ".pot", ".odp", ".otp"), ".pptx"),
    **dict.fromkeys((".ods", ".ots"), ".xlsx"),
}
"""Extension -> extension of what LibreOffice makes of it."""

FILTERS = {".docx": "docx:MS Word 2007 XML", ".pptx": "pptx:Impress MS PowerPoint 2007 XML",
           ".xlsx": "xlsx:Calc MS Excel 2007 XML"}  # fmt: skip
RESTART = 81
"""LibreOffice's exit code when a new profile was made and it wants to be started again."""
TRIES = 3
_OFF = frozenset({"", "0", "false", "no", "off"})
_ON = frozenset({"1", "true", "yes", "on"})

_OPTIONS = (
    ("Common/Security/Scripting", "MacroSecurityLevel", "3"),
    ("Common/Security/Scripting", "DisableMacrosExecution", "true"),
    ("Common/Security/Scripting", "DisableActiveContent", "true"),
    ("Common/Security/Scripting", "BlockUntrustedRefererLinks", "true"),
    ("Writer/Content/Update", "Link", "2"),
    ("Calc/Content/Update", "Link", "2"),
    ("Common/Misc", "FirstRun", "false"),
)
"""Path below org.openoffice.Office, property, value. 2: links are never updated."""


def program(setting: str, extension: str) -> str:
    """Absolute path of LibreOffice. UnsupportedDocumentTypeError says how to get files of this type read."""
    name = setting.strip()
    if name.lower() in _OFF:
        raise UnsupportedDocumentTypeError(
            f"Files of type {extension!r} are read by LibreOffice, which is not allowed: install it and set"
            " RAG_LIBREOFFICE=true, or to the path of soffice"
        )
    found = _found(name)
    if found is None:
        raise UnsupportedDocumentTypeError(
            f"Files of type {extension!r} are read by LibreOffice, which is not installed (RAG_LIBREOFFICE={name}):"
            " no soffice was found"
        )
    return found


@lru_cache(maxsize=8)
def _found(name: str) -> str | None:
    candidates = ("soffice", "libreoffice") if name.lower() in _ON else (name,)
    launcher = next((path for path in map(shutil.which, candidates) if path), None)
    if launcher is None:
        return None
    # The launcher is a script around this; without it there is one process to end instead of three.
    binary = Path(launcher).resolve().with_name("soffice.bin")
    return str(binary if binary.exists() else Path(launcher).resolve())


class LibreOfficeParser:
    """DocumentParser for one legacy format: conversion, then the parser of the format that it gives."""

    name = "libreoffice"
    version = "1"
    extensions = frozenset(CONVERTED)

    def __init__(self, inner: DocumentParser, extension: str, path: str, limits: ParseLimits = ParseLimits()) -> None:
        self._inner = inner
        self._extension = extension
        self._path = path
        self._limits = limits

    def parse(self, source: DocumentSource) -> ParsedDocument:
        """Blocks as of the converted file; slides and sheets are the original's. metadata["converted_by"].

        ParseTimeoutError, CorruptDocumentError when LibreOffice does not make a file of it.
        """
        with tempfile.TemporaryDirectory(prefix="rag-cluster-office-") as directory:
            made = _convert(source, self._path, CONVERTED[self._extension], self._limits, Path(directory))
            parsed = self._inner.parse(replace(source, path=str(made), filename=f"{source.filename}{made.suffix}"))
            by = _maker(made)
        return replace(parsed, metadata={**parsed.metadata, "converted_by": by})


def _convert(source: DocumentSource, path: str, extension: str, limits: ParseLimits, directory: Path) -> Path:
    _write_profile(directory / "profile" / "user")
    # Under a name of our own: the file's may hold what LibreOffice takes for an option or a URL.
    taken = directory / f"source{Path(source.path).suffix}"
    taken.symlink_to(Path(source.path).absolute())
    command = [
        path, "--headless", "--norestore", "--nolockcheck", "--nodefault", "--nologo", "--nofirststartwizard",
        f"-env:UserInstallation={(directory / 'profile').as_uri()}",
        "--convert-to", FILTERS[extension], "--outdir", str(directory / "out"), str(taken),
    ]  # fmt: skip
    made = directory / "out" / f"source{extension}"
    said = ""
    for _ in range(TRIES):
        code, said = _run(command, limits, directory, source)
        if made.exists() and code == 0:
            return made
        if code != RESTART and code >= 0:
            break
        if code < 0:
            said = f"it died ({signal.Signals(-code).name})"
    raise CorruptDocumentError(f"LibreOffice could not read {source.filename!r}: {said[-300:] or 'it made no file'}")


def _run(command: list[str], limits: ParseLimits, directory: Path, source: DocumentSource) -> tuple[int, str]:
    """(exit code, last line that it said). A process group of its own, ended as a whole."""
    seconds = min(limits.conversion_timeout, limits.timeout)
    bounds = (os.getpid(), limits.memory_bytes, limits.max_expanded_bytes, int(seconds) + 1)
    process = subprocess.Popen(
        [sys.executable, "-m", "rag_cluster.parsing.confined", *map(str, bounds), "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(directory),
        cwd=directory,
        process_group=0,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        message = f"LibreOffice took more than {seconds:g} s to convert {source.filename!r}"
        raise ParseTimeoutError(message) from None
    finally:
        _end(process)
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return process.returncode, lines[-1].replace(str(directory), "") if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        process.wait()


def _environment(directory: Path) -> dict[str, str]:
    """No secrets of ours, and nothing written outside the directory."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "HOME": str(directory), "TMPDIR": str(directory), "LANG": "C.UTF-8", "SAL_USE_VCLPLUGIN": "svp"}


def _write_profile(user: Path) -> None:
    user.mkdir(parents=True)
    items = "".join(
        f'<item oor:path="/org.openoffice.Office.{path}"><prop oor:name="{name}" oor:op="fuse">'
        f"<value>{value}</value></prop></item>"
        for path, name, value in _OPTIONS
    )
    (user / "registrymodifications.xcu").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><oor:items xmlns:oor="http://openoffice.org/2001/registry"'
        ' xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"{items}</oor:items>"
    )


def _maker(made: Path) -> str:
    """ "LibreOffice/7.4.7.2", as the converted file says."""
    said = (read_member(str(made), "docProps/app.xml") or b"").decode("utf-8", "replace")
    _, _, after = said.partition("<Application>")
    return after.partition("<")[0].partition("$")[0] or "LibreOffice"
