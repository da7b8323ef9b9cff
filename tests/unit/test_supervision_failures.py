# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dtscope_jupyter import rundir, supervision

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_look_that_fails_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(supervision, "_LOOK_S", 0.01)
    monkeypatch.setattr(supervision, "_QUIET_S", 0.02)
    again, looks = threading.Event(), []

    def unfinished() -> list[int]:
        looks.append(1)
        if len(looks) > 1:
            again.set()
            return []
        raise RuntimeError("the ranks are gone")

    watch = supervision.Watch(rundir.Attempt(tmp_path, 1), unfinished, lambda _sentence, _ranks: None)
    try:
        assert again.wait(20)
    finally:
        watch.stop()
    assert "can't tell whether ranks hang" in caplog.text
