"""The consistency check for `ray job submit -- python jobs/fsck.py --repair`."""

from __future__ import annotations

import sys

from rag_cluster.cli import app

if __name__ == "__main__":
    app(["fsck", *sys.argv[1:]])
