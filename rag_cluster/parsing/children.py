"""Whose turn it is at the parsing child, and who may overtake.

Documents take turns at one child: more would only share its CPU. One that takes longer than `patience` leaves the line
with the child that it has, and the line goes on with another child; so a slow document keeps nobody waiting for long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from rag_cluster.parsing.child_process import ChildProcess
from rag_cluster.parsing.registry import ParserRegistry


class Place:
    """Where one document is parsed. The child starts at its first use and is replaced when it broke."""

    def __init__(self) -> None:
        self.child: ChildProcess | None = None
        self.since: float | None = None
        """When the document in hand took it; None: free."""

    def running(self, registry: ParserRegistry) -> ChildProcess:
        """The child, ready."""
        if self.child is None:
            self.child = ChildProcess(registry)
        return self.child

    def discard(self) -> None:
        """End the child."""
        child, self.child = self.child, None
        if child is not None:
            child.kill()


class Places:
    """The line, and the slow documents beside it: at most `most` children."""

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        self._places = [Place()]
        self._changed = threading.Condition()

    @property
    def pid(self) -> int | None:
        """Of a child that stands ready; None while there is none."""
        children = [place.child for place in self._places]
        return next((child.pid for child in children if child is not None), None)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Place]:
        """A place for one document; threads wait."""
        with self._changed:
            while (place := self._free()) is None:
                self._changed.wait(self._until_slow())
            place.since = time.monotonic()
        try:
            yield place
        finally:
            with self._changed:
                place.since = None
                spare = len(self._places) > 1 and any(not self._slow(other) for other in self._places if other != place)
                if spare:
                    self._places.remove(place)
                self._changed.notify_all()
            if spare:
                place.discard()

    def close(self) -> None:
        """End the children when their documents are done."""
        with self._changed:
            self._changed.wait_for(lambda: all(place.since is None for place in self._places))
            self.kill()

    def kill(self) -> None:
        """End the children now."""
        for place in self._places:
            place.discard()

    def _slow(self, place: Place) -> bool:
        return place.since is not None and time.monotonic() - place.since >= self._patience

    def _free(self) -> Place | None:
        for place in self._places:
            if place.since is None:
                return place
        if len(self._places) < self._most and all(map(self._slow, self._places)):
            self._places.append(place := Place())
            return place
        return None

    def _until_slow(self) -> float | None:
        """Seconds until the line may go on past whoever is at its head; None: only when a place is left."""
        if len(self._places) >= self._most:
            return None
        newest = max(place.since or 0.0 for place in self._places)
        return max(newest + self._patience - time.monotonic(), 0.001)
