# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Names that a user chose are shown letter by letter, wherever they meet HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest

from dtscope_jupyter.run import Run
from dtscope_jupyter.view.figures import NAMES, figure
from tests.view_tables import ORIGIN, Rows, ddp, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

HOSTILE = "<b>x</b><script>alert(1)</script>"
SHOWN = "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
NAMED = ("parameter", "process_group", "operation", "device", "name", "text", "line")


def _hostile() -> dict[str, pa.Table]:
    rows: dict[str, Rows] = {name: table.to_pylist() for name, table in ddp(late=2).items()}
    for table in rows.values():
        for row in table:
            row |= {column: HOSTILE + str(row[column]) for column in NAMED if column in row}
    rows["devices"] = [{"rank": 0, "time_ns": ORIGIN + 10**9 * i, "device": HOSTILE, "utilization": 50.0} for i in range(3)]
    rows["notes"] = [{"rank": 0, "time_ns": ORIGIN, "kind": "scalar", "name": HOSTILE, "value": 1.0, "text": HOSTILE}]
    return tables(**rows)


def _run() -> Run:
    graph: nx.MultiGraph[str] = nx.MultiGraph()
    graph.add_node("a", kind="gpu", rank=0, label="<b>x</b>")
    graph.add_node("b", kind=HOSTILE, model=HOSTILE)
    graph.add_edge("a", "b", kind=HOSTILE)
    return Run(_hostile(), name=HOSTILE, topology=graph)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_has_no_markup_of_the_user(name: str) -> None:
    drawn = figure(_run(), name).to_plotly_json()
    found = list(_texts([drawn["data"], drawn["layout"]["annotations"], drawn["layout"]["title"]]))
    found += [label for trace in drawn["data"] for label in trace.get("y", ()) if isinstance(label, str)]
    assert any(SHOWN in text for text in found)
    assert not [text for text in found if "<b>x" in text or "<script" in text]


def test_gradients_name_parameters_as_they_are() -> None:
    labels = list(figure(_run(), "gradients").data[0].y)
    assert labels == [f"{SHOWN}layers.{place}.weight" for place in range(4)]


def test_a_page_has_the_name_of_its_run_as_text(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    _run().save_html(page)
    text = page.read_text()
    assert f"<title>{SHOWN}</title>" in text
    assert "<b>x" not in text
