# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What NCCL's log says of the transport; the log of four H200 is real, its connections changed as NCCL writes them."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import ingest
from dtscope_jupyter.diagnosis import diagnose

if TYPE_CHECKING:
    from pathlib import Path

    from dtscope_jupyter.diagnosis import Finding

VARIABLE = "vm:1492:1492 [0] NCCL INFO {}\n"


@pytest.fixture(scope="module")
def log(captures: Path) -> str:
    with gzip.open(captures / "h200" / "host" / "nccl_debug_info.log.gz", "rt", errors="replace") as file:
        return file.read()


def found(folder: Path, log: str, captures: Path | None = None) -> list[Finding]:
    (folder / "nccl.log").write_text(log)
    topology = ingest.read([folder / "nccl.log"]).topology
    tables = ingest.read([captures]).tables if captures else {}
    return diagnose(tables, topology=topology).findings


def test_p2p_over_nvlink_is_as_it_should_be(tmp_path: Path, log: str) -> None:
    assert found(tmp_path, log) == []


def test_p2p_that_was_switched_off_is_told_with_the_variable(tmp_path: Path, log: str) -> None:
    changed = log.replace("via P2P/CUMEM", "via SHM/direct/direct")
    assert changed != log
    (finding,) = found(tmp_path, VARIABLE.format("NCCL_P2P_DISABLE set by environment to 1.") + changed)
    assert (finding.kind, finding.cause, finding.ranks, finding.severity) == ("slow_link", "transport", (0, 1, 2, 3), "info")
    assert finding.evidence["variables"] == {"NCCL_P2P_DISABLE": "1"}
    assert "over SHM/direct/direct instead of direct P2P over NVLink (NCCL_P2P_DISABLE=1)" in finding.sentence


def test_the_log_explains_a_link_that_is_slow_by_its_times(tmp_path: Path, log: str, captures: Path) -> None:
    changed = VARIABLE.format("NCCL_P2P_DISABLE set by environment to 1.") + log.replace("via P2P/CUMEM", "via SHM/direct/direct")
    (finding,) = found(tmp_path, changed, captures / "h200" / "ddp_no_p2p")
    assert (finding.cause, finding.ranks, finding.severity) == ("transport", (0, 1, 2, 3), "critical")
    assert finding.evidence["transports"] == ["SHM/direct/direct"]
    assert "NCCL_P2P_DISABLE=1" in finding.sentence


@pytest.mark.parametrize(
    ("variable", "named"), [("NCCL_IB_DISABLE set by environment to 1.", True), ("NCCL_DEBUG set by environment to INFO.", False)]
)
def test_sockets_are_a_change_only_where_infiniband_was_switched_off(tmp_path: Path, log: str, variable: str, named: bool) -> None:  # noqa: FBT001
    lines = [
        line.replace("via P2P/CUMEM", "via NET/Socket/0")
        for line in log.splitlines(keepends=True)
        if "NVL" not in line and "NVS" not in line
    ]
    findings = found(tmp_path, VARIABLE.format(variable) + "".join(lines))
    assert [(each.kind, each.cause) for each in findings] == ([("slow_link", "transport")] if named else [])
    assert all("instead of InfiniBand (NCCL_IB_DISABLE=1)" in each.sentence for each in findings)
