from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_cluster.chunking.structured import StructuredChunker
from rag_cluster.domain.blocks import BlockType, ParsedDocument, SourceLocator
from rag_cluster.domain.chunks import ChunkedDocument
from rag_cluster.engines.tokenizers import RegexTokenizer
from rag_cluster.errors import InvalidSettingError
from tests.chunking.documents import builder, documents, is_subsequence, visible, words_of

TOKENIZER = RegexTokenizer()
quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def chunk(document: ParsedDocument, *, child: int = 40, parent: int = 160, limit: int = 80) -> ChunkedDocument:
    chunker = StructuredChunker(TOKENIZER, parent_tokens=parent, child_tokens=child, max_tokens=limit)
    return chunker.split(document, knowledge_base_id="kb", fingerprint="fp")


# -- properties -------------------------------------------------------------------------------------------------------


@quick
@given(documents())
def test_no_text_is_lost_and_order_is_kept(document: ParsedDocument) -> None:
    result = chunk(document)
    everything = visible("".join(c.content for c in result.chunks))
    bodies = "".join(words_of(b) for b in document.blocks if b.type is not BlockType.HEADING)
    assert is_subsequence(bodies, visible("".join(c.text for c in result.chunks)))
    assert all(visible(b.content) in everything for b in document.blocks if b.type is BlockType.HEADING)


@quick
@given(documents())
def test_no_chunk_is_over_the_budget_but_table_rows_which_have_the_limit(document: ParsedDocument) -> None:
    for c in chunk(document).chunks:
        assert c.token_count <= (80 if "table" in c.content_types else 40)


@quick
@given(documents())
def test_token_counts_are_the_tokenizers_where_pieces_meet_at_blanks_or_marks(document: ParsedDocument) -> None:
    result = chunk(document)
    for c in result.chunks:
        # A word that had to be cut inside counts as two.
        assert c.token_count >= TOKENIZER.count(c.content)
    for p in result.parents:
        assert p.token_count >= TOKENIZER.count(p.text)


@quick
@given(documents())
def test_offsets_are_literal_slices_of_the_parent(document: ParsedDocument) -> None:
    result = chunk(document)
    parents = {p.id: p for p in result.parents}
    by_id = {b.id: b for b in document.blocks}
    for c in result.chunks:
        if c.start >= 0:
            assert parents[c.parent_id].text[c.start : c.end] == c.text
        else:
            assert c.end == -1
            special = {"image", "table"} & set(c.content_types)
            assert special or any(by_id[b].metadata.get("notes") for b in c.block_ids)


@quick
@given(documents())
def test_places_cover_the_text_in_order_and_name_the_pages_of_the_locator(document: ParsedDocument) -> None:
    for c in chunk(document).chunks:
        known = c.metadata.get("places", [])
        assert all(0 <= start < end <= len(c.text) for start, end, _ in known)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(known))
        if known:
            gaps = zip(
                [0, *(end for _, end, _ in known)], [start for start, _, _ in known] + [len(c.text)], strict=True
            )
            assert not any(visible(c.text[start:end]) for start, end in gaps)
            pages = {page for page, _ in c.locator.spans} | {c.locator.page}
            assert {place["page"] for _, _, place in known if "page" in place} == pages - {None}


def test_a_stretch_of_a_chunk_is_located_more_exactly_than_the_chunk() -> None:
    parts = builder()
    parts.heading("Tides", 1)
    parts.add(BlockType.TEXT, "High water came at night.", SourceLocator(page=7, bbox=(0, 0, 9, 9)))
    parts.add(BlockType.TEXT, "The gates were closed.", SourceLocator(page=8, bbox=(0, 0, 5, 5)))
    (c,) = chunk(parts.build()).chunks
    assert [page for page, _ in c.locator.spans] == [7, 8]
    at = c.text.index("gates")
    assert c.locator_of(at, at + 5) == SourceLocator(("Tides",), page=8, bbox=(0, 0, 5, 5))
    assert c.locator_of(0, len(c.text)) == c.locator


@quick
@given(documents())
def test_no_child_crosses_a_heading(document: ParsedDocument) -> None:
    position = {b.id: n for n, b in enumerate(document.blocks)}
    for c in chunk(document).chunks:
        spoken = [position[b] for b in c.block_ids]
        kinds = [b.type for b in document.blocks[min(spoken) : max(spoken) + 1]]
        if BlockType.HEADING in kinds and set(c.content_types) != {"heading"}:
            # Only headings that are too long for the prefix open a chunk with text.
            opening = [kind is BlockType.HEADING for kind in kinds]
            assert opening == sorted(opening, reverse=True)


@quick
@given(documents())
def test_the_same_document_gives_the_same_ids(document: ParsedDocument) -> None:
    first, second = chunk(document), chunk(document)
    assert first == second
    assert len({c.id for c in first.chunks}) == len(first.chunks)
    assert [c.index for c in first.chunks] == list(range(len(first.chunks)))
    assert [p.index for p in first.parents] == list(range(len(first.parents)))


@quick
@given(documents())
def test_children_of_a_parent_are_consecutive_and_every_parent_has_one(document: ParsedDocument) -> None:
    result = chunk(document)
    order = list(dict.fromkeys(c.parent_id for c in result.chunks))
    runs = [c.parent_id for n, c in enumerate(result.chunks) if n == 0 or result.chunks[n - 1].parent_id != c.parent_id]
    assert runs == order == [p.id for p in result.parents]


@quick
@given(documents())
def test_a_split_table_repeats_its_header_in_every_chunk(document: ParsedDocument) -> None:
    by_id = {b.id: b for b in document.blocks}
    for c in chunk(document).chunks:
        tables = [by_id[b] for b in c.block_ids if by_id[b].type is BlockType.TABLE]
        if len(tables) != 1 or c.content_types != ("table",) or "| --- |" not in c.text:
            continue
        # A header that leaves no room for rows is not repeated.
        head = tables[0].content.split("\n")[: 1 + max(1, tables[0].metadata["header_rows"])]
        if TOKENIZER.count("\n".join(head)) <= 40:
            # Rows that follow the last cells of a row too long for one chunk have their header below these.
            lines = [line.rstrip() for line in c.text.split("\n")]
            rule = next(number for number, line in enumerate(lines) if line.startswith("| --- |"))
            assert rule >= 1 and lines[rule - 1] == head[0].rstrip()


@quick
@given(documents(), st.integers(8, 400))
def test_any_budget_works(document: ParsedDocument, child: int) -> None:
    result = chunk(document, child=child, parent=max(child, 60), limit=child)
    assert result.chunks
    assert all(c.token_count <= child for c in result.chunks)


# -- examples ---------------------------------------------------------------------------------------------------------


def test_the_heading_path_is_a_prefix_and_a_line_of_the_parent() -> None:
    parts = builder()
    parts.heading("Manual", 1)
    parts.heading("Pumps", 2)
    parts.add(BlockType.TEXT, "Pumps move water.")
    result = chunk(parts.build())
    (only,) = result.chunks
    assert only.content == "Manual > Pumps\nPumps move water."
    assert only.text == "Pumps move water."
    assert only.locator.heading_path == ("Manual", "Pumps")
    assert result.parents[0].text == "Manual\n\nPumps\n\nPumps move water."


def test_headings_without_text_are_kept_together_under_their_own_parent_heading() -> None:
    parts = builder()
    for text, level in [("Book", 1), ("Part one", 2), ("Part two", 2), ("Appendix", 1)]:
        parts.heading(text, level)
    contents = [c.content for c in chunk(parts.build()).chunks]
    assert contents == ["Book\nPart one\n\nPart two", "Appendix"]


def test_small_sections_share_a_parent_but_not_a_child() -> None:
    parts = builder()
    for number in range(4):
        parts.heading(f"Question {number}", 2)
        parts.add(BlockType.TEXT, "A short answer.")
    result = chunk(parts.build())
    assert len(result.chunks) == 4
    assert len(result.parents) == 1


def test_slides_share_no_parent() -> None:
    parts = builder()
    for slide in (1, 2):
        parts.reset_headings()
        parts.heading("Agenda", 1, SourceLocator(slide=slide))
        parts.add(BlockType.TEXT, f"Point {slide}", SourceLocator(slide=slide))
    result = chunk(parts.build())
    assert [c.locator.slide for c in result.chunks] == [1, 2]
    assert [p.locator.slide for p in result.parents] == [1, 2]


def test_rows_of_a_split_table_name_their_own_cells() -> None:
    parts = builder()
    rows = [["Month", "Berth"]] + [[f"m{n}", str(n)] for n in range(20)]
    parts.table(rows, 1, SourceLocator(sheet="S", cell_range="B2:C22"))
    chunks = chunk(parts.build()).chunks
    assert len(chunks) > 2
    seen = 3
    for c in chunks:
        lines = c.text.split("\n")
        assert lines[0] == "| Month | Berth |"
        assert c.locator.cell_range == f"B{seen}:C{seen + len(lines) - 3}"
        seen += len(lines) - 2
    assert seen == 23


def test_a_table_that_fits_is_whole_and_keeps_its_range() -> None:
    parts = builder()
    parts.table([["A", "B"], ["1", "2"]], 1, SourceLocator(sheet="S", cell_range="A1:B2"))
    (only,) = chunk(parts.build()).chunks
    assert only.locator.cell_range == "A1:B2"
    assert only.start == 0


def test_a_range_without_the_repeated_header_counts_from_its_first_data_row() -> None:
    parts = builder()
    rows = [["Month", "Berth"]] + [[f"m{n}", str(n)] for n in range(20)]
    parts.table(rows, 1, SourceLocator(sheet="S", cell_range="B502:C521"), continued=True)
    chunks = chunk(parts.build()).chunks
    assert chunks[0].locator.cell_range.startswith("B502:")
    assert chunks[-1].locator.cell_range.endswith(":C521")


def test_rows_of_a_continued_table_with_a_hidden_row_among_them_name_the_whole_range() -> None:
    parts = builder()
    rows = [["Month", "Berth"]] + [[f"m{n}", str(n)] for n in range(20)]
    parts.table(rows, 1, SourceLocator(sheet="S", cell_range="B502:C522"), continued=True)
    assert {c.locator.cell_range for c in chunk(parts.build()).chunks} == {"B502:C522"}


def test_a_row_beyond_the_limit_is_cut_by_cells_that_keep_their_names() -> None:
    parts = builder()
    long = " ".join(f"word{n}." for n in range(100))
    parts.table([["Name", "Story"], ["Ann", long]], 1, SourceLocator(sheet="S", cell_range="A1:B2"))
    chunks = chunk(parts.build()).chunks
    assert chunks[0].text.startswith("| Name | Story |\n| --- | --- |\nName: Ann")
    assert all(c.text.startswith("Story: ") for c in chunks[1:])
    assert chunks[-1].locator.cell_range == "B2"


def test_a_picture_gives_its_words_to_the_chunk_and_its_reference_to_the_parent() -> None:
    parts = builder()
    parts.add(BlockType.TEXT, "Look.")
    block = parts.image(b"x", "image/png", caption="A pump", text="MAX 5 bar")
    result = chunk(parts.build())
    (only,) = result.chunks
    assert only.text == "Look.\n\nA pump\nMAX 5 bar"
    assert only.asset_ids == (block.metadata["asset_id"],)
    assert f"![A pump](asset://{block.metadata['asset_id']})\nMAX 5 bar" in result.parents[0].text


def test_a_picture_without_words_goes_with_its_neighbour_and_alone_makes_no_chunk() -> None:
    parts = builder()
    image = parts.image(b"x", "image/png")
    assert chunk(parts.build()) == ChunkedDocument((), ())
    parts.add(BlockType.TEXT, "Words.")
    (only,) = chunk(parts.build()).chunks
    assert only.text == "Words."
    assert only.asset_ids == (image.metadata["asset_id"],)


def test_speaker_notes_are_marked() -> None:
    parts = builder()
    parts.add(BlockType.TEXT, "Ask about the budget.", SourceLocator(slide=2), {"notes": True})
    assert chunk(parts.build()).chunks[0].text == "Notes: Ask about the budget."


def test_a_chunk_over_two_pages_lists_the_place_of_each_of_its_blocks() -> None:
    parts = builder()
    parts.add(BlockType.TEXT, "One.", SourceLocator(page=1, bbox=(0, 700, 100, 720)))
    parts.add(BlockType.TEXT, "Two.", SourceLocator(page=2, bbox=(0, 10, 100, 30)))
    (only,) = chunk(parts.build()).chunks
    assert only.locator.page == 1
    assert only.locator.spans == ((1, (0, 700, 100, 720)), (2, (0, 10, 100, 30)))


def test_lines_of_split_code_are_its_own() -> None:
    parts = builder()
    code = "\n".join(f"call_number_{n}(argument)" for n in range(30))
    parts.add(BlockType.CODE, code, SourceLocator(line_start=11, line_end=40))
    chunks = chunk(parts.build()).chunks
    assert chunks[0].locator.line_start == 11
    assert chunks[-1].locator.line_end == 40
    assert all(b.locator.line_start == a.locator.line_end + 1 for a, b in itertools.pairwise(chunks))


def test_a_line_that_announces_a_list_stays_with_it() -> None:
    parts = builder()
    parts.add(BlockType.TEXT, "filler " * 30)
    parts.add(BlockType.TEXT, "步骤如下：")
    for item in ("open the valve", "close the valve"):
        parts.add(BlockType.LIST, item, metadata={"level": 0, "marker": "1."})
    assert chunk(parts.build()).chunks[-1].text == "步骤如下：\n1. open the valve\n1. close the valve"


def test_a_line_that_fits_is_not_cut_where_many_make_one_block() -> None:
    lines = [" ".join(f"Line{number} word{n}." for n in range(6)) for number in range(9)]
    parts = builder()
    parts.add(BlockType.TEXT, "\n ".join(lines))
    for c in chunk(parts.build()).chunks:
        assert all(line.strip() in lines for line in c.text.split("\n"))


def test_contradicting_sizes_are_refused() -> None:
    with pytest.raises(InvalidSettingError, match="parent_tokens"):
        StructuredChunker(TOKENIZER, child_tokens=300, parent_tokens=200)
