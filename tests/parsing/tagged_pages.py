"""Tagged PDFs for the tests: text marked as it is drawn, and a structure tree over the marks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.parsing.pdf_pages import Sheet

FIRST = 5000
"""Number of the first object of the tree."""


@dataclass
class Tag:
    """An element of the structure tree. kids: elements, and ids of marked content of the one page."""

    role: str
    kids: Sequence[Tag | int] = ()
    columns: int = 1
    rows: int = 1
    alternative: str = ""
    actual: str = ""
    number: int = field(default=0, init=False)


class TaggedSheet(Sheet):
    """One page whose content can be marked; `tagged` closes the file."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    @contextmanager
    def marked(self, role: str = "Span") -> Iterator[int]:
        """Draw inside of it; the id of what was drawn."""
        number, self._next = self._next, self._next + 1
        self.canvas._code.append(f"/{role} <</MCID {number}>> BDC")
        yield number
        self.canvas._code.append("EMC")

    def mark(self, x: float, top: float, text: str, size: float = 10, font: str = "Times-Roman") -> int:
        """One marked text."""
        with self.marked() as number:
            self.text(x, top, text, size, font)
        return number

    def tagged(self, *children: Tag) -> bytes:
        """The file with a tree of these elements. Its cross-reference table is wrong, so that readers rebuild it."""
        content = self.page().bytes()
        page = int(re.findall(rb"(\d+) 0 obj\s*<<(?:(?!endobj).)*?/Type /Page\s", content, re.DOTALL)[0])
        root = Tag("Document", children)
        objects: list[str] = []
        parents: dict[int, int] = {}
        _number(root, FIRST + 2)
        _write(root, FIRST, page, objects, parents)
        nums = " ".join(f"{parents[mcid]} 0 R" if mcid in parents else "null" for mcid in range(self._next))
        objects.append(
            f"{FIRST} 0 obj\n<</Type /StructTreeRoot /K [{FIRST + 2} 0 R] /ParentTree {FIRST + 1} 0 R>>\nendobj"
        )
        objects.append(f"{FIRST + 1} 0 obj\n<</Nums [0 [{nums}]]>>\nendobj")
        entries = f"/StructTreeRoot {FIRST} 0 R /MarkInfo <</Marked true>> /Type /Catalog".encode()
        content = content.replace(b"/Type /Catalog", entries)
        content = re.sub(rb"/Type /Page(?=\s)", b"/StructParents 0 /Type /Page", content)
        at = content.rindex(b"xref\n", 0, content.rindex(b"startxref"))
        return content[:at] + "\n".join(objects).encode("latin-1") + b"\n" + content[at:]


def _number(tag: Tag, first: int) -> int:
    tag.number, following = first, first + 1
    for kid in tag.kids:
        if isinstance(kid, Tag):
            following = _number(kid, following)
    return following


def _write(tag: Tag, parent: int, page: int, objects: list[str], parents: dict[int, int]) -> None:
    kids = " ".join(f"{kid.number} 0 R" if isinstance(kid, Tag) else str(kid) for kid in tag.kids)
    entries = f"/Type /StructElem /S /{tag.role} /P {parent} 0 R /Pg {page} 0 R /K [{kids}]"
    if tag.columns > 1 or tag.rows > 1:
        entries += f" /A <</O /Table /ColSpan {tag.columns} /RowSpan {tag.rows}>>"
    if tag.alternative:
        entries += f" /Alt ({tag.alternative})"
    if tag.actual:
        entries += f" /ActualText ({tag.actual})"
    objects.append(f"{tag.number} 0 obj\n<<{entries}>>\nendobj")
    for kid in tag.kids:
        if isinstance(kid, Tag):
            _write(kid, tag.number, page, objects, parents)
        else:
            parents[kid] = tag.number
