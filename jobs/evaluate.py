"""The evaluation job for `ray job submit -- python jobs/evaluate.py --dataset xquad:PATH`."""

from __future__ import annotations

import sys

from rag_cluster.cli import app

if __name__ == "__main__":
    app(["eval", *sys.argv[1:]])
