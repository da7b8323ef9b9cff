# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
import time

import pytest

from dtscope_jupyter.agent.run_queue import RunQueue

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the system has no schedstat")  # noqa: PTH110


def test_the_first_reading_tells_nothing_and_the_next_a_time() -> None:
    queue = RunQueue()
    assert queue.since_last() is None
    assert (queue.since_last() or 0) >= 0


def test_sleep_is_no_waiting_for_the_cpu() -> None:
    queue = RunQueue()
    queue.since_last()
    begin = time.perf_counter_ns()
    time.sleep(0.2)
    waited = queue.since_last()
    assert waited is not None
    assert waited < time.perf_counter_ns() - begin


def test_another_thread_starts_anew() -> None:
    queue = RunQueue()
    queue.since_last()
    found: list[int | None] = []
    thread = threading.Thread(target=lambda: found.append(queue.since_last()))
    thread.start()
    thread.join()
    assert found == [None]
