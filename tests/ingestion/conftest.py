"""The write path's bench, for this folder only: building it imports every store."""

from tests.fixtures.write_path import bench

__all__ = ["bench"]
