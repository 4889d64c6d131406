"""`python -m rag_cluster.cli`: the same command, for submitted jobs that have no entry-point script."""

from rag_cluster.cli import main

if __name__ == "__main__":
    main()
