# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where the real captures are, how hypothesis runs (the same examples each time in CI, new ones elsewhere), and what ends with pytest."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

_BUSY = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=_BUSY)
hypothesis.settings.register_profile("local", deadline=None, suppress_health_check=_BUSY)
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


@pytest.fixture(scope="module")
def loaded() -> Iterator[InteractiveShell]:
    """A shell for the tests of a module, with the extension in it."""
    from IPython.core.interactiveshell import InteractiveShell

    made = InteractiveShell.instance(history_length=0)
    made.run_line_magic("load_ext", "dtscope_jupyter")
    yield made
    made.run_line_magic("unload_ext", "dtscope_jupyter")
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """That shell in an empty folder, no rank itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    loaded.run_line_magic("load_ext", "dtscope_jupyter")
    return loaded
