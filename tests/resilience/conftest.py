"""Fixtures of the resilience tests."""

from tests.fixtures.write_path import bench

__all__ = ["bench"]
