"""The delete job for `ray job submit -- python jobs/delete.py --knowledge-base NAME [--source NAME]`."""

from __future__ import annotations

import sys

from rag_cluster.cli import app

if __name__ == "__main__":
    app(["delete", "--yes", *sys.argv[1:]])
