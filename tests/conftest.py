# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where the real captures are, how hypothesis runs (the same examples each time in CI, new ones elsewhere), and what ends with pytest."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import hypothesis
import pytest

from tests import guard

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job of a shell that has no job control
    signal.signal(signal.SIGINT, signal.default_int_handler)

guard.begin()


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real traces and dumps (its README.md says what is in it)."""
    named = os.environ.get("DTSCOPE_TEST_DATA")
    path = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not (path / "h200").is_dir():
        pytest.skip(f"no captures at {path}; set DTSCOPE_TEST_DATA")
    return path
