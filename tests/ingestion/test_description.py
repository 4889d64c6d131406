"""Descriptions of pictures: appended to their blocks, bounded, and never a reason to fail."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.blocks import BlockType, DocumentSource, ParsedDocument
from rag_cluster.domain.documents import PlannedFile, Receipt, SourceKind
from rag_cluster.errors import ModelUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.steps.description import describe_images
from rag_cluster.parsing.base import BlockBuilder
from tests.fixtures.write_path import Bench


class Narrator:
    """Says what it is given; fails for pictures that say so."""

    name = "narrator"

    def __init__(self, seconds: float = 0.0) -> None:
        self.asked: list[bytes] = []
        self._seconds = seconds

    def describe(self, image: bytes, media_type: str) -> str:
        self.asked.append(image)
        time.sleep(self._seconds)
        if image.startswith(b"bad"):
            raise ModelUnavailableError("the endpoint is away")
        return f"A picture of {image.decode()}."


def document(*pictures: bytes, size: int = 200, media_type: str = "image/png") -> ParsedDocument:
    builder = BlockBuilder(DocumentSource("d", 1, "a.docx", "a.docx"))
    builder.add(BlockType.TEXT, "Before.")
    for content in pictures:
        builder.image(content, media_type, caption="Figure", width=size, height=size)
    return builder.build()


def test_a_description_ends_the_block_of_its_picture_and_no_other() -> None:
    before = document(b"a crane")
    after = describe_images(before, Narrator())
    assert after.blocks[0] == before.blocks[0]
    assert after.blocks[1].content == before.blocks[1].content + "\nA picture of a crane."
    assert after.blocks[1].metadata["described"] is True and not after.warnings


def test_the_same_picture_is_asked_for_once_and_described_wherever_it_stands() -> None:
    narrator = Narrator()
    after = describe_images(document(b"a crane", b"a quay", b"a crane"), narrator)
    assert narrator.asked == [b"a crane", b"a quay"]
    assert [block.content.count("A picture of") for block in after.blocks] == [0, 1, 1, 1]


@pytest.mark.parametrize(("size", "media_type"), [(20, "image/png"), (200, "image/svg+xml"), (200, "image/emf")])
def test_decorations_and_vector_pictures_are_not_asked_for(size: int, media_type: str) -> None:
    narrator = Narrator()
    before = document(b"an icon", size=size, media_type=media_type)
    assert describe_images(before, narrator) is before and not narrator.asked


def test_a_failure_is_a_warning_and_the_other_pictures_are_described() -> None:
    after = describe_images(document(b"bad one", b"a quay"), Narrator())
    assert after.warnings == ("A picture was not described: the endpoint is away",)
    assert after.blocks[2].content.endswith("A picture of a quay.")


def test_an_endpoint_that_keeps_failing_is_left_alone() -> None:
    narrator = Narrator()
    after = describe_images(document(*(f"bad {n}".encode() for n in range(6))), narrator)
    assert len(narrator.asked) == 2 and after.warnings[-1].startswith("4 pictures were not described")


def test_no_more_pictures_are_described_than_allowed() -> None:
    narrator = Narrator()
    after = describe_images(document(b"a", b"b", b"c"), narrator, max_pictures=2)
    assert narrator.asked == [b"a", b"b"] and after.warnings == ("1 pictures were not described: the limit is 2",)


def test_describing_ends_when_its_time_is_over() -> None:
    after = describe_images(document(b"a", b"b", b"c"), Narrator(seconds=0.05), seconds=0.01)
    assert after.warnings == ("2 pictures were not described: it took too long",)


def test_ingestion_describes_before_chunking_and_the_describer_is_part_of_the_fingerprint(bench: Bench) -> None:
    import base64
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (200, 100), "navy").save(out, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
    bench.write("page.html", f"<h1>Quay</h1><p>The quay is long.</p><img alt='The quay' src='{uri}'>")
    narrator = Narrator()
    narrator.describe = lambda image, media_type: "Two gantry cranes over a barge."  # type: ignore[method-assign]
    path = replace(bench.write_path, describer=lambda: narrator)
    assert path.content_fingerprint("page.html", None) != bench.write_path.content_fingerprint("page.html", None)

    source = path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    (item,) = plan(path, bench.base.id, [str(bench.folder)])
    assert isinstance(item, PlannedFile)
    work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
    parts = steps.prepare(path, work, owner="run")
    assert isinstance(parts, list), parts
    (receipt,) = [row for row in steps.index(path, steps.open_index(path), parts) if isinstance(row, Receipt)]
    assert receipt.outcome == "ready"
    document = path.catalog.document(receipt.document_id, LOCAL)
    blocks = path.snapshots.read_blocks(bench.base.id, document.id, 1)
    assert any("Two gantry cranes over a barge." in block.content for block in blocks)
