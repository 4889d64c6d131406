"""The bulk ingestion job for `ray job submit -- python jobs/ingest.py PATH --knowledge-base NAME`."""

from __future__ import annotations

import sys

from rag_cluster.cli import app

if __name__ == "__main__":
    app(["ingest", *sys.argv[1:]])
