"""Fixtures live in tests/fixtures, one module for each kind of store; contract suites in tests/contracts."""

from pathlib import Path

import pytest

LONGEST_FIRST = (
    "resilience/test_kills.py",
    "ingestion/test_recognition.py",
    "resilience/test_outages.py",
    "ingestion/test_pipeline.py",
    "cli/test_embedded_default.py",
    "serving/test_serve.py",
    "client/test_notebook.py",
    "serving/test_replicas.py",
    "serving/test_two_cpus.py",
    "ingestion/test_slow_documents.py",
    "stores/test_embedded.py",
    "client/test_ray_job.py",
    "benchmarks/test_ingestion.py",
    "resilience/test_queries_during_updates.py",
    "lifecycle/test_reembed.py",
    "lifecycle/test_fsck.py",
    "cli/test_stored.py",
)
"""Files of half a minute and more. What begins last ends last: a long one then keeps all other processes waiting."""

pytest_plugins = [
    "tests.fixtures.milvus",
    "tests.fixtures.postgres",
    "tests.fixtures.s3",
    "tests.fixtures.ray",
    "tests.fixtures.embedding_endpoint",
    "tests.fixtures.models",
    "tests.fixtures.chat_endpoint",
    "tests.fixtures.vllm",
]

pytest.register_assert_rewrite("tests.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one way to write tests/parsing/golden; see tests/parsing/test_golden.py."""
    parser.addoption("--regenerate-golden", action="store_true", help="Write the golden files instead of comparing.")


def pytest_configure(config: pytest.Config) -> None:
    """xdist hands files out in the order of `pytest_collection_modifyitems`, and not those with many tests first."""
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
