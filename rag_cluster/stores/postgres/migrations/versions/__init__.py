"""One file a revision, named NNNN_what.py."""
