"""Re-embedding for `ray job submit -- python jobs/reembed.py --model NAME`."""

from __future__ import annotations

import sys

from rag_cluster.cli import app

if __name__ == "__main__":
    app(["reembed", *sys.argv[1:]])
