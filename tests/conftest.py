"""Fixtures live in tests/fixtures, one module per store."""

pytest_plugins = [
    "tests.fixtures.milvus",
    "tests.fixtures.s3",
]
