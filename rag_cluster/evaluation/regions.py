"""Where an embedder keeps its languages, for `retrieval.crossing`.

python -m rag_cluster.evaluation.regions   # what belongs into rag_cluster/retrieval/crossing.json
"""

from __future__ import annotations

import json
import sys

import numpy as np

from rag_cluster.domain.ports import Embedder
from rag_cluster.evaluation.question_files import packaged_lines

DIGITS = 5


def offset(embedder: Embedder) -> list[float]:
    """Centre of forty English sentences minus that of the same in Chinese, embedded as passages."""
    pairs = packaged_lines("parallel.jsonl")
    english, chinese = (embedder.embed_documents([pair[language] for pair in pairs]) for language in ("en", "zh"))
    return [round(float(value), DIGITS) for value in np.mean(english, axis=0) - np.mean(chinese, axis=0)]


def main() -> None:
    """Print what stands in crossing.json for the embedder of the settings."""
    from rag_cluster.engines.registry import create_embedder
    from rag_cluster.settings import get_settings

    embedder = create_embedder(get_settings().embedder, threads=get_settings().embedder_threads)
    json.dump({embedder.fingerprint: offset(embedder)}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
