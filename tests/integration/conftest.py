# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Warm ranks for the tests of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ranks import Ranks

from dtscope_jupyter.launch import Warm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    warm = Warm()
    warm.start()
    yield Ranks(warm, tmp_path_factory.mktemp("logs"))
    warm.stop()
