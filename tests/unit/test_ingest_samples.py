# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Samples of devices as nvidia-smi writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_files import kernel, steps, trace, write

from dtscope_jupyter import ingest
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """index, timestamp, name, utilization.gpu [%], memory.used [MiB], clocks.current.sm [MHz], power.draw [W], temperature.gpu
0, 2026/11/30 03:44:06.493, NVIDIA H200, 97 %, 1024 MiB, 1980 MHz, 640.25 W, 61
1, 2026/11/30 03:44:06.494, NVIDIA H200, [N/A], 2 MiB, 345 MHz, [Not Supported], 37
"""


def test_the_table_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(TABLE)
    first, second = ingest.read([tmp_path]).tables["devices"].to_pylist()
    assert (first["rank"], first["device"], first["name"]) == (0, "cuda:0", "NVIDIA H200")
    assert (first["utilization"], first["memory_bytes"], first["clock_mhz"]) == (97.0, 2**30, 1980.0)
    assert (first["power_w"], first["temperature_c"]) == (640.25, 61.0)
    assert second["time_ns"] - first["time_ns"] == 1_000_000
    assert (second["utilization"], second["power_w"], second["clock_mhz"]) == (None, None, 345.0)


def test_without_units_the_head_tells_them(tmp_path: Path) -> None:
    head, *lines = TABLE.splitlines()
    plain = [line.replace(" MiB", "").replace(" MHz", "").replace(" %", "").replace(" W", "") for line in lines]
    (tmp_path / "smi.csv").write_text("\r\n".join([head, *plain]))
    assert ingest.read([tmp_path]).tables["devices"]["memory_bytes"].to_pylist() == [2**30, 2 * 2**20]


def test_the_samples_of_the_h200_machine(captures: Path) -> None:
    found = ingest.read([captures / "h200" / "host" / "nvidia_smi_samples.csv"])
    rows = found.tables["devices"].to_pandas()
    assert len(rows) == 341 * 4
    assert rows.groupby("rank").size().tolist() == [341] * 4
    first = rows.iloc[0]
    assert (first.time_ns, first.device, first.utilization, first.clock_mhz) == (1795993021493271771, "cuda:0", 0.0, 345.0)
    assert (first.power_w, first.temperature_c) == (79.34, 37.0)
    assert rows.power_w.max() > 400
    (note,) = found.tables["notes"].to_pylist()
    assert "GPU i is taken as the device of rank i" in note["text"]


def test_lines_that_are_no_samples_are_counted(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(TABLE + "Unable to determine the device handle\n0, then, x\n")
    notes = {row["kind"]: row for row in ingest.read([tmp_path]).tables["notes"].to_pylist()}
    assert (notes["damaged"]["value"], notes["damaged"]["text"]) == (2.0, "2 lines are no samples: left out")


def test_one_device_alone_is_that_of_a_given_rank(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text("1795993021.5\n0, 1 %, 2 %, 345 MHz, 79.34 W, 37\n")
    (row,) = ingest.read([tmp_path / "smi.csv"], rank=3).tables["devices"].to_pylist()
    assert (row["rank"], row["time_ns"], row["memory_utilization"]) == (3, 1795993021500000000, 2.0)


def test_they_stand_beside_traces_and_add_no_rank(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(TABLE)
    write(tmp_path / "rank0.json", trace([*steps(1), kernel("gemm", 1, 1, 1)]))
    found = ingest.read([tmp_path])
    assert len(found.tables["devices"]) == 2
    assert set(found.tables["spans"]["rank"].to_pylist()) == {0}


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("index, value\n0, 3\n1, 4\n")
    with pytest.raises(DtscopeError, match="neither a trace nor a dump nor a file of NCCL or nvidia-smi"):
        ingest.read([tmp_path])


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=300), head=st.sampled_from(["1795993021.5\n0, 1", "index, utilization.gpu [%]\n", TABLE]))
def test_any_text_gives_rows_or_one_line(tmp_path_factory: pytest.TempPathFactory, text: str, head: str) -> None:
    path = tmp_path_factory.mktemp("samples") / "smi.csv"
    path.write_text(head + text, encoding="utf-8", errors="replace")
    said = ""
    try:
        rows = ingest.read([path]).tables["devices"]
    except DtscopeError as error:
        said, rows = str(error), None
    if rows is None:
        assert "\n" not in said
    else:
        rows.validate(full=True)
