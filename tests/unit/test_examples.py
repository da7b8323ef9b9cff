# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The notebooks as they are committed: what a reader without a kernel sees."""

from __future__ import annotations

import base64
import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbconvert import HTMLExporter
from PIL import Image

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
REPORTS = re.compile(r"%%dtscope profile|\.report\(\)")
TIMES = re.compile(r"\b\d{1,2}:\d{2}:\d{2}\b|0x[0-9a-f]{8,}|/home/|/root/|/tmp/|/work/")

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def texts(path: Path) -> str:
    return json.dumps([[output.get("text"), output.get("data", {}).get("text/plain")] for cell in code(path) for output in cell.outputs])


def test_is_valid_and_was_run(path: Path) -> None:
    nbformat.validate(read(path))
    counts = [cell.execution_count for cell in code(path)]
    assert counts == list(range(1, len(counts) + 1))


def test_holds_no_widget(path: Path) -> None:
    assert "widgets" not in read(path).metadata
    assert "widget-view" not in path.read_text(encoding="utf-8")


def test_each_report_left_its_picture(path: Path) -> None:
    reported = [cell for cell in code(path) if REPORTS.search(cell.source)]
    assert reported
    for cell in reported:
        pictures = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(pictures) == 1, cell.source
        image = Image.open(BytesIO(base64.b64decode(pictures[0])))
        assert image.width == 2000


def test_shows_no_error_time_of_day_address_or_machine(path: Path) -> None:
    wanted = [cell for cell in code(path) if "raises-exception" not in cell.metadata.get("tags", [])]
    assert all(output.output_type != "error" for cell in wanted for output in cell.outputs)
    assert not TIMES.search(texts(path))


def test_converts_to_a_page_that_carries_its_pictures(path: Path) -> None:
    page, _ = HTMLExporter(embed_images=True).from_filename(str(path))  # type: ignore[no-untyped-call]
    pictures = sum("image/png" in output.get("data", {}) for cell in code(path) for output in cell.outputs)
    assert page.count('src="data:image/png;base64,') == pictures
    assert "jupyter.widget-view" not in page


def test_every_fault_of_the_gallery_was_found(path: Path) -> None:
    asked = [cell for cell in code(path) if cell.source.startswith("found(")]
    assert bool(asked) == (path.stem == "fault_gallery")
    assert all(cell.outputs[0].data["text/plain"] == "True" for cell in asked)
