# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Servers, browser and notebooks; a picture of the page is kept where a test fails."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser import lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


expect.set_options(timeout=lab.PATIENCE_MS)


@pytest.fixture(scope="session")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Server]:
    with lab.server(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with lab.browser() as browser:
        yield browser


@pytest.fixture
def page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1300, "height": 1400}, color_scheme="light")
    context.set_default_timeout(lab.PATIENCE_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
    yield page
    results = Path(os.environ.get("DTSCOPE_TEST_RESULTS", "test-results"))
    if request.session.testsfailed and not page.is_closed():
        results.mkdir(exist_ok=True)
        page.screenshot(path=results / f"{re.sub(r'[^A-Za-z0-9_]+', '-', request.node.name)}.png")
    context.close()
    ours = [error for error in errors if "dts" in error or "blob:" in error]
    assert not ours, f"errors in our script: {ours}"
