# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from dtscope_jupyter import ingest
from dtscope_jupyter.diagnosis import Diagnosis, Severity, diagnose

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def opened(captures: Path) -> Mapping[str, Tables]:
    class Opened(dict[str, Tables]):
        def __missing__(self, name: str) -> Tables:
            self[name] = dict(ingest.read([captures / name]).tables)
            return self[name]

    return Opened()


def said(diagnosis: Diagnosis) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(finding.kind, finding.cause, finding.ranks) for finding in diagnosis.findings]


def renumbered(tables: Tables, new: dict[int, int]) -> Tables:
    """Ranks not in `new` are left out; process groups keep only the others."""
    found = {}
    for name, table in tables.items():
        rank = table["rank"].to_numpy()
        kept = table.filter(pa.array(np.isin(rank, list(new))))
        if not len(kept):
            found[name] = kept
            continue
        place = kept.schema.get_field_index("rank")
        ranks = pa.array([new[one] for one in kept["rank"].to_pylist()], pa.int32())
        kept = kept.set_column(place, kept.schema.field(place), ranks)
        if name == "groups":
            place = kept.schema.get_field_index("ranks")
            members = [[new[one] for one in each if one in new] for each in kept["ranks"].to_pylist()]
            kept = kept.set_column(place, kept.schema.field(place), pa.array(members, pa.list_(pa.int32())))
        found[name] = kept
    return found


TRUTH: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {
    "ddp_healthy": [],
    "fsdp_healthy": [],
    "ddp_small_buckets": [],
    "ddp_straggler": [("straggler", "compute", (2,))],
    "ddp_slow_loader": [("straggler", "host_stall", (1,))],
    "ddp_no_p2p": [("slow_link", "transport", (0, 1, 2, 3))],
    "ddp_one_bucket": [("low_overlap", "one_bucket", (0, 1, 2, 3))],
    "hang_skip": [("hang", "host_stuck", (3,))],
}


@pytest.mark.parametrize("name", TRUTH)
def test_every_h200_capture_gets_its_truth(opened: Mapping[str, Tables], name: str) -> None:
    assert said(diagnose(opened[f"h200/{name}"])) == TRUTH[name]


@pytest.mark.parametrize(
    "name", ["ddp_straggler", "ddp_slow_loader", "ddp_no_p2p", "ddp_one_bucket", "ddp_healthy", "fsdp_healthy", "ddp_small_buckets"]
)
def test_other_numbers_for_the_ranks_change_nothing_else(opened: Mapping[str, Tables], name: str) -> None:
    new = {0: 2, 1: 3, 2: 1, 3: 0}
    truth = [(kind, cause, tuple(sorted(new[rank] for rank in ranks))) for kind, cause, ranks in TRUTH[name]]
    assert said(diagnose(renumbered(opened[f"h200/{name}"], new))) == truth


@pytest.mark.parametrize(("name", "kept", "truth"), [
    ("ddp_straggler", (2, 3), [("straggler", "compute", (0,))]),
    ("ddp_straggler", (0, 1), []),
    ("ddp_slow_loader", (0, 1), [("straggler", "host_stall", (1,))]),
    ("ddp_healthy", (1, 2), []),
    ("fsdp_healthy", (0, 1), []),
    ("fsdp_healthy", (1, 3), []),
    ("ddp_small_buckets", (0, 3), []),
    ("ddp_no_p2p", (0, 3), []),
])  # fmt: skip
def test_two_ranks_of_a_group_of_four_blame_only_each_other(
    opened: Mapping[str, Tables], name: str, kept: tuple[int, ...], truth: list[object]
) -> None:
    tables = renumbered(opened[f"h200/{name}"], {rank: place for place, rank in enumerate(kept)})
    assert said(diagnose(tables)) == [*truth, ("insufficient_data", "missing_ranks", ())]


@pytest.mark.parametrize("name", ["ddp_straggler", "ddp_slow_loader", "ddp_healthy", "fsdp_healthy"])
def test_two_steps_give_the_right_answer_or_none(opened: Mapping[str, Tables], name: str) -> None:
    tables = dict(opened[f"h200/{name}"])
    last = max(tables["steps"]["step"].to_pylist())
    tables["steps"] = tables["steps"].filter(pa.array(tables["steps"]["step"].to_numpy() < last))
    found = [each for each in said(diagnose(tables)) if each[0] != "insufficient_data"]
    assert found in ([], TRUTH[name])


def test_a_rank_that_is_missing_is_named(opened: Mapping[str, Tables]) -> None:
    tables = dict(opened["h200/ddp_straggler"])
    partial = {name: table.filter(pa.array(table["rank"].to_numpy() != 2)) for name, table in tables.items()}
    assert said(diagnose(partial)) == [("insufficient_data", "missing_ranks", (2,))]


def test_clocks_seconds_apart_change_no_verdict(opened: Mapping[str, Tables]) -> None:
    tables = {name: _later(table, 1, 5_000_000_000) for name, table in opened["h200/ddp_slow_loader"].items()}
    tables["clocks"] = tables["clocks"].slice(0, 0)
    assert said(diagnose(tables)) == TRUTH["ddp_slow_loader"]


def _later(table: pa.Table, rank: int, offset: int) -> pa.Table:
    mine = pa.array(table["rank"].to_numpy() == rank)
    for place, field in enumerate(table.schema):
        if field.name.endswith("_ns"):
            moved = pa.compute.add(table.column(place), offset)
            table = table.set_column(place, field, pa.compute.if_else(mine, moved, table.column(place)))
    return table


def test_costs_are_what_would_be_won(opened: Mapping[str, Tables]) -> None:
    straggler = diagnose(opened["h200/ddp_straggler"]).findings[0]
    slow = diagnose(opened["h200/ddp_slow_loader"]).findings[0]
    link = diagnose(opened["h200/ddp_no_p2p"]).findings[0]
    assert straggler.cost_ms == pytest.approx(27, rel=0.1)
    assert slow.cost_ms == pytest.approx(60, rel=0.1)
    assert link.cost_ms == pytest.approx(142 - 58, rel=0.1)
    assert {straggler.severity, slow.severity, link.severity} == {Severity.CRITICAL}


@pytest.mark.parametrize(("name", "cause", "ranks"), [("gpu_error_1st", "device_stuck", (12, 14)), ("lock_gil_1st", "host_stuck", (9, 14))])
def test_dumps_of_16_ranks_name_the_injected_ones(opened: Mapping[str, Tables], name: str, cause: str, ranks: tuple[int, ...]) -> None:
    assert said(diagnose(opened[f"nvrx_fr/{name}"])) == [("hang", cause, ranks)]


def test_the_host_s_topology_tells_what_the_link_should_carry(captures: Path, opened: Mapping[str, Tables]) -> None:
    topology = ingest.read([captures / "h200" / "host"]).topology
    for name, truth in (("ddp_no_p2p", TRUTH["ddp_no_p2p"]), ("ddp_healthy", [])):
        nameless = {**opened[f"h200/{name}"], "devices": opened[f"h200/{name}"]["devices"].slice(0, 0)}
        assert said(diagnose(nameless, topology=topology)) == truth
