"""Turns at the parsing child, without any child: places are taken, held and left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rag_cluster.parsing.children import Place, Places

LONG = 60.0


@contextmanager
def held(places: Places) -> Iterator[tuple[Place, threading.Event]]:
    """A place that a document in another thread has taken, until the event is set."""
    taken, leave = threading.Event(), threading.Event()
    got: list[Place] = []

    def hold() -> None:
        with places.turn() as place:
            got.append(place)
            taken.set()
            leave.wait(LONG)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(LONG)
        yield got[0], leave
    finally:
        leave.set()
        thread.join()


def test_documents_take_turns_at_one_child() -> None:
    places = Places(3, LONG)
    together, seen = threading.Barrier(8), set[int]()

    def parse() -> None:
        together.wait(LONG)
        with places.turn() as place:
            seen.add(id(place))

    threads = [threading.Thread(target=parse) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1


def test_a_slow_document_is_overtaken_by_another_child_which_then_stays() -> None:
    places = Places(2, 0.01)
    with held(places) as (slow, _):
        with places.turn() as first:
            assert first is not slow
        with places.turn() as second:
            assert second is first, "those behind it share one child"
    with places.turn() as last:
        assert last is first, "the slow document's child ended with it"


def test_there_are_never_more_children_than_allowed() -> None:
    places = Places(2, 0.01)
    with held(places) as (one, leave), held(places) as (two, _):
        assert one is not two
        leave.set()  # without it the third would wait
        with places.turn() as third:
            assert third is not two and len(places._places) == 2


def test_where_one_child_is_allowed_nobody_overtakes() -> None:
    places = Places(1, 0.01)
    with held(places) as (only, leave):
        leave.set()
        with places.turn() as place:
            assert place is only
