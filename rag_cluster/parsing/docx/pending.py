"""What a DOCX holds back until it knows what follows: lines that may be code, pictures, a caption."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rag_cluster.domain.blocks import BlockType
from rag_cluster.parsing.base import BlockBuilder
from rag_cluster.parsing.docx.inline import Inline
from rag_cluster.parsing.drawing import add_picture
from rag_cluster.parsing.ooxml import Package

_CODE = re.compile(
    r"[{}=<>;\\|]|\w\(|\[\w*\]|^\s*(?:\$|#|>>>|--|//)\s*\S|://|^\s*(?:def|class|import|from|return|for|while|if|else|try|"
    r"public|private|void|var|let|const|function|package|select|insert|update|delete|create|git|sudo|pip|npm|docker)\b",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in the package, and what it says of itself."""

    part: str
    caption: str


class Pending:
    """Lines, pictures and a caption that wait for the next paragraph."""

    def __init__(self, package: Package, builder: BlockBuilder) -> None:
        self._package = package
        self._builder = builder
        self._code: list[str] = []
        self._sure = False
        self.pictures: list[Picture] = []
        self.caption = ""

    def flush(self) -> None:
        """Write what waits for a following paragraph: code lines, pictures without a caption, a caption alone."""
        self.flush_code()
        self.flush_pictures()
        if self.caption:
            caption, self.caption = self.caption, ""
            self._builder.add(BlockType.TEXT, caption, metadata={"role": "caption"})

    def before_text(self) -> None:
        """A paragraph of text comes: pictures and a caption stand before it, code may go on."""
        self.flush_pictures()
        if self.caption:
            self.flush()

    def code_line(self, inline: Inline, role: str) -> bool:
        """Whether the paragraph is taken as a line of code; blank lines belong to the code around them."""
        text = "".join(inline.parts).rstrip()
        if not text.strip():
            if self._code and not inline.objects:
                self._code.append("")
                return True
            return False
        if inline.objects or (role != "code" and inline.plain):
            return False
        self.before_text()
        self._code.append(text)
        self._sure = self._sure or role == "code"
        return True

    def flush_code(self) -> None:
        """The lines are code, if they look like it, else paragraphs."""
        lines, self._code = self._code, []
        sure, self._sure = self._sure, False
        if not lines:
            return
        if sure or _CODE.search("\n".join(lines)):
            self._builder.add(BlockType.CODE, "\n".join(lines).rstrip())
            return
        for line in filter(str.strip, lines):
            self._builder.add(BlockType.TEXT, line)

    def flush_pictures(self, caption: str = "") -> None:
        """caption: of the last one."""
        pictures, self.pictures = self.pictures, []
        for position, picture in enumerate(pictures, 1):
            own = caption if position == len(pictures) else ""
            shown = picture.caption or own
            text = own if own and picture.caption else ""
            if not add_picture(self._builder, self._package, picture.part, caption=shown, text=text) and own:
                self._builder.add(BlockType.TEXT, own, metadata={"role": "caption"})
