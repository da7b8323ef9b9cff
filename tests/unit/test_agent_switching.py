# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Python's switch interval while the writing thread works, and after."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter.agent import switching

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(("program", "within"), [(0.005, 1e-4), (0.2, 1e-4), (0.0123457, 1e-4), (2e-5, 2e-5), (1e-6, 1e-6)])
def test_it_is_short_within_and_what_it_was_after(program: float, within: float) -> None:
    sys.setswitchinterval(program)
    before = sys.getswitchinterval()
    for _ in range(5):
        with switching.short:
            assert sys.getswitchinterval() == pytest.approx(within)
            with switching.short:
                pass
            assert sys.getswitchinterval() == pytest.approx(within)
        assert sys.getswitchinterval() == before


def test_an_error_leaves_it_as_it_was() -> None:
    sys.setswitchinterval(0.005)
    with pytest.raises(ZeroDivisionError), switching.short:
        _ = 1 / 0
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_what_the_program_sets_meanwhile_stays() -> None:
    with switching.short:
        sys.setswitchinterval(0.003)
    assert sys.getswitchinterval() == pytest.approx(0.003)


def test_threads_that_enter_at_once_leave_it_as_it_was() -> None:
    sys.setswitchinterval(0.005)

    def work() -> None:
        for _ in range(2000):
            with switching.short:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_a_child_made_within_has_what_the_program_set() -> None:
    sys.setswitchinterval(0.005)
    with switching.short:
        child = os.fork()
        if not child:
            found = sys.getswitchinterval()
            with switching.short:
                pass
            os._exit(0 if found == sys.getswitchinterval() == 0.005 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
