"""A deadline is kept where the work is awaited, and leaves time for what comes after a call that hangs."""

from __future__ import annotations

import asyncio
import math

import pytest

from rag_cluster.domain.deadlines import Deadline, share, within
from rag_cluster.errors import DeadlineExceededError


async def test_the_block_is_cancelled_at_the_deadline_and_the_error_names_it() -> None:
    cancelled = False
    with pytest.raises(DeadlineExceededError, match=r"within 0\.02 s"):
        async with within(Deadline.after(0.02)):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled = True
                raise
    assert cancelled


async def test_a_timeout_of_the_block_itself_stays_what_it_is() -> None:
    with pytest.raises(TimeoutError):
        async with within(Deadline.after(30)):
            raise TimeoutError


async def test_a_call_gets_its_own_limit_or_half_of_what_is_left_also_in_tasks_of_the_block() -> None:
    assert (share(), share(3.0)) == (math.inf, 3.0)
    async with within(Deadline.after(10)):
        assert 4.5 < share() <= 5.0 and share(3.0) == 3.0
        assert 4.5 < await asyncio.create_task(_shared()) <= 5.0
        async with within(Deadline.after(2)):
            assert 0.5 < share() <= 1.0
        assert share() > 4.5
    assert share() == math.inf


async def _shared() -> float:
    return share()
