"""UserUnit of the pages, which pdfium does not tell: points per unit of user space, for sheets beyond 200 inches.

Nearly no file has it, which one search of the bytes says; only then is the page tree read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

_KEY = b"/UserUnit"
_OBJECT = re.compile(rb"(?<!\d)(\d{1,10})\s+\d{1,5}\s+obj\b(.*?)(?=\bendobj\b|\bstream\b)", re.DOTALL)
_PACKED = re.compile(rb"/ObjStm\b")
_STREAM = re.compile(rb"\bstream\r?\n")
_REACH = 600
"""Bytes around the type of an object stream in which its dictionary lies."""
_UNIT = re.compile(rb"/UserUnit\s+(\d*\.?\d+)")
_KIDS = re.compile(rb"/Kids\s*\[([^\]]*)\]")
_REFERENCE = re.compile(rb"(\d+)\s+\d+\s+R")
_ROOT, _PAGES = re.compile(rb"/Root\s+(\d+)\s+\d+\s+R"), re.compile(rb"/Pages\s+(\d+)\s+\d+\s+R")
_FIRST = re.compile(rb"/First\s+(\d+)")
MAX_UNPACKED = 16 << 20
"""Bytes of one object stream."""
MAX_UNIT = 10_000.0
MAX_NODES = 1_000_000


def user_units(path: str, pages: int) -> dict[int, float]:
    """0-based page -> points per unit, of the pages that state one other than 1; {} where the page tree is unclear."""
    data = Path(path).read_bytes()
    packed = list(_unpacked(data)) if b"/ObjStm" in data else []
    if _KEY not in data and not any(_KEY in content for _, content in packed):
        return {}
    objects = {int(match[1]): match[2] for match in _OBJECT.finditer(data)}
    for first, content in packed:
        objects |= _members(first, content)
    root = _last(_ROOT, data)
    tree = _last(_PAGES, objects.get(root, b"")) if root is not None else None
    leaves = list(_leaves(objects, tree)) if tree is not None else []
    if len(leaves) != pages:
        return {}
    units = {index: float(match[1]) for index, leaf in enumerate(leaves) if (match := _UNIT.search(leaf))}
    return {index: unit for index, unit in units.items() if 0 < unit <= MAX_UNIT and unit != 1}


def _unpacked(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(where the first object begins, content) of every object stream that can be read."""
    view = memoryview(data)
    for match in _PACKED.finditer(data):
        stream = _STREAM.search(data, match.end(), match.end() + _REACH)
        begin = data.rfind(b"obj", max(match.start() - _REACH, 0), match.start())
        first = _FIRST.search(data, begin, stream.start()) if stream is not None and begin >= 0 else None
        if stream is None or first is None:
            continue
        try:
            yield int(first[1]), zlib.decompressobj().decompress(view[stream.end() :], MAX_UNPACKED)
        except zlib.error:
            continue  # encrypted, or packed otherwise: its pages count in points


def _members(first: int, content: bytes) -> dict[int, bytes]:
    """Object number -> its text, of an object stream."""
    numbers = [int(n) for n in content[:first].split() if n.isdigit()]
    starts = [first + offset for offset in numbers[1::2]]
    ends = [*starts[1:], len(content)]
    return {n: content[a:b] for n, a, b in zip(numbers[::2], starts, ends, strict=False)}


def _last(pattern: re.Pattern[bytes], data: bytes) -> int | None:
    found = pattern.findall(data)
    return int(found[-1]) if found else None


def _leaves(objects: dict[int, bytes], root: int) -> Iterator[bytes]:
    """The page objects in order. Damaged trees refer to themselves: every node is visited once."""
    stack, seen = [root], set[int]()
    while stack and len(seen) < MAX_NODES:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        body = objects.get(number, b"")
        kids = _KIDS.search(body)
        if kids is None:
            yield body
        else:
            stack += [int(n) for n in reversed(_REFERENCE.findall(kids[1]))]
