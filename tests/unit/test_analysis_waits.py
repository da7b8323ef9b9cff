# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Pairing across ranks, waits, clocks and bandwidth, against plain loops over the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from analysis_rows import BASE, at, collective, tables, two_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from dtscope_jupyter.analysis.bandwidth import bandwidth, factor
from dtscope_jupyter.analysis.clocks import clocks
from dtscope_jupyter.analysis.pairing import paired
from dtscope_jupyter.analysis.waits import waits
from dtscope_jupyter.errors import DtscopeError

_ROW = st.fixed_dictionaries({
    "rank": st.integers(0, 3), "seq": st.integers(0, 5), "process_group": st.sampled_from(["0", "1"]),
    "start": st.integers(0, 1000), "length": st.integers(0, 300),
})


def _row(given_row: dict[str, Any]) -> dict[str, Any]:
    start = BASE + given_row["start"]
    keys = {key: given_row[key] for key in ("rank", "seq", "process_group")}
    return keys | {"operation": "all_reduce", "source": "event", "start_ns": start, "end_ns": start + given_row["length"]}


@settings(deadline=None, max_examples=80)
@given(st.lists(_ROW, max_size=30, unique_by=lambda row: (row["rank"], row["seq"], row["process_group"])))
def test_waits_against_plain_loops(given_rows: list[dict[str, Any]]) -> None:
    rows = [_row(one) for one in given_rows]
    together: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        together[row["process_group"], row["seq"]].append(row)
    wait: Counter[int] = Counter()
    transfer: Counter[int] = Counter()
    last: Counter[int] = Counter()
    for same in together.values():
        if len(same) < 2:
            continue
        latest = max(row["start_ns"] for row in same)
        last[min(row["rank"] for row in same if row["start_ns"] == latest)] += 1
        for row in same:
            wait[row["rank"]] += latest - row["start_ns"]
            transfer[row["rank"]] += min(one["end_ns"] - one["start_ns"] for one in same)
    frame = waits(tables(collectives=rows))
    assert frame["rank"].tolist() == sorted({row["rank"] for row in rows})
    for found in frame.to_dict("records"):
        rank = found["rank"]
        if rank not in wait:
            assert np.isnan(found["wait_ms"])
            assert (found["times_last"], found["collectives"]) == (0, 0)
        else:
            assert found["wait_ms"] * 1e6 == pytest.approx(wait[rank], abs=1e-6)
            assert found["transfer_ms"] * 1e6 == pytest.approx(transfer[rank], abs=1e-6)
            assert found["times_last"] == last[rank]


def test_without_numbers_collectives_pair_by_order() -> None:
    rows = [collective(rank, None, 10 * n + rank, 10 * n + 5, step=n) for rank in range(2) for n in (2, 0, 1)]
    frame = waits(tables(collectives=rows))
    assert frame["wait_ms"].tolist() == [3, 0]
    assert frame["times_last"].tolist() == [0, 3]
    assert frame.attrs["unpaired"] == []


def test_unequal_counts_are_reported_and_not_paired() -> None:
    rows = [collective(rank, None, 10 * n, 10 * n + 5) for rank in range(2) for n in range(3 - rank)]
    rows += [collective(rank, 7, rank, 5, process_group="other") for rank in range(2)]
    frame = waits(tables(collectives=rows))
    assert frame["wait_ms"].tolist() == [1, 0]
    assert frame.attrs["unpaired"] == ["process group 0: no sequence numbers and unequal counts (rank 0: 3, rank 1: 2), not paired"]


def test_numbers_that_differ_in_part_pair_where_they_agree() -> None:
    rows = [collective(0, seq, 10 * seq, 10 * seq + 5) for seq in (1, 2, 3)]
    rows += [collective(1, seq, 10 * seq + 2, 10 * seq + 5) for seq in (2, 3, 4)]
    frame = waits(tables(collectives=rows))
    assert frame["collectives"].tolist() == [2, 2]
    assert frame["wait_ms"].tolist() == [4, 0]
    assert frame.attrs["unpaired"] == ["process group 0: 2 collectives not seen on all of its 2 ranks"]


def test_a_group_made_anew_counts_from_the_start_again() -> None:
    starts = [(rank, seq, 100 * again + 10 * seq) for rank in range(2) for again in range(2) for seq in range(3)]
    rows = [collective(rank, seq, start + rank, start + 5) for rank, seq, start in starts]
    frame = waits(tables(collectives=rows))
    assert frame["collectives"].tolist() == [6, 6]
    assert frame["wait_ms"].tolist() == [6, 0]


def test_sends_and_receives_have_no_wait() -> None:
    rows = [collective(0, 0, 0, 9, operation="send", peer=1), collective(1, 0, 5, 9, operation="recv", peer=0)]
    frame = waits(tables(collectives=rows))
    assert frame["wait_ms"].isna().all()
    assert bandwidth(tables(collectives=[row | {"bytes": 9_000_000} for row in rows]))["bus_gb_s"].tolist() == pytest.approx([2.25, 1.0])


def test_of_two_sources_the_more_exact_counts() -> None:
    rows = [collective(rank, 0, 10 + rank, 20, source="profiler") for rank in range(2)]
    rows += [collective(rank, 0, 0, 50, source="host") for rank in range(2)]
    frame = waits(tables(collectives=rows[::-1]))
    assert (frame["wait_ms"].tolist(), frame["transfer_ms"].tolist()) == ([1, 0], [9, 9])


def test_groups_of_one_name_but_other_members_are_others() -> None:
    members = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}
    rows = [collective(rank, 0, 100 * (rank // 2) + rank, 100 * (rank // 2) + 9, process_group="tp") for rank in range(4)]
    groups = [{"rank": rank, "process_group": "tp", "ranks": ranks} for rank, ranks in members.items()]
    assert waits(tables(collectives=rows, groups=groups))["wait_ms"].tolist() == [1, 0, 1, 0]
    assert paired(tables(collectives=rows)).count == 1


def test_each_collective() -> None:
    frame = waits(tables(**two_ranks()), by="collective")
    assert frame["seq"].tolist() == list(range(6))
    assert frame["last_rank"].tolist() == [1] * 6
    assert frame["wait_ms"].tolist() == [5] * 6
    assert frame["mean_wait_ms"].tolist() == [2.5] * 6
    assert frame["transfer_ms"].tolist() == [13] * 6
    assert frame["start_ns"].tolist()[:2] == [at(40), at(60)]


def test_by_step_bucket_and_phase() -> None:
    rows = tables(**two_ranks())
    assert waits(rows, ["rank", "step"])["wait_ms"].tolist() == [10, 10, 10, 0, 0, 0]
    by_bucket = waits(rows, "bucket")
    assert (by_bucket["wait_ms"].tolist(), by_bucket["collectives"].tolist()) == ([7.5, 7.5], [3, 3])
    assert waits(rows, "phase")["phase"].tolist() == ["backward"]
    with pytest.raises(DtscopeError, match="by='ranks' is unknown; choose from collective, rank, step"):
        waits(rows, "ranks")


def _on_hosts(skew_ns: int, noise_ns: int, count: int = 40, **clock: Any) -> dict[str, Any]:
    """Two ranks of two hosts, the clock of the second ahead by the skew; rank 1 late by 3 ms in every collective."""
    random = np.random.default_rng(1)
    rows = []
    for n in range(count):
        for rank in range(2):
            noise = int(random.integers(-noise_ns, noise_ns + 1)) + rank * skew_ns
            row = collective(rank, n, 20 * n + 3 * rank, 20 * n + 10)
            rows.append(row | {"start_ns": row["start_ns"] + rank * skew_ns, "end_ns": row["end_ns"] + noise})
    told = [{"rank": rank, "host": f"node{rank}", "boot_id": f"boot{rank}", "time_ns": 1, **(clock if rank else {})} for rank in range(2)]
    return tables(collectives=rows, clocks=told)


def test_hosts_whose_clocks_differ_are_aligned_by_the_ends_of_collectives() -> None:
    rows = _on_hosts(skew_ns=5_000_000_000, noise_ns=20_000)
    frame = clocks(rows)
    assert frame["applied"].tolist() == [False, True]
    assert frame["offset_ms"][1] == pytest.approx(-5000, abs=0.02)
    assert 0 < frame["uncertainty_ms"][1] < 0.05
    assert frame["method"].tolist() == ["same_host", "collective_ends"]
    waited = waits(rows)
    assert waited["wait_ms"].tolist() == pytest.approx([120, 0], abs=1)
    assert waited.attrs["uncertainty_ms"] == frame["uncertainty_ms"][1]


def test_a_difference_within_the_uncertainty_is_left_alone() -> None:
    rows = _on_hosts(skew_ns=10_000, noise_ns=200_000)
    frame = clocks(rows)
    assert not frame["applied"].any()
    assert frame["offset_ms"].tolist() == [0, 0]
    assert frame["uncertainty_ms"][1] > 0.1


def test_too_few_collectives_tell_nothing() -> None:
    assert not clocks(_on_hosts(skew_ns=5_000_000_000, noise_ns=0, count=4))["applied"].any()


def test_a_measured_round_trip_goes_before_the_estimate() -> None:
    frame = clocks(_on_hosts(7_000_000, 20_000, offset_ns=-7_100_000, uncertainty_ns=50_000, method="round_trip"))
    assert frame["method"][1] == "round_trip"
    assert (frame["offset_ms"][1], frame["uncertainty_ms"][1]) == (-7.1, 0.05)
    assert not clocks(_on_hosts(0, 0, offset_ns=-40_000, uncertainty_ns=50_000, method="round_trip"))["applied"].any()


def test_ranks_of_one_boot_share_the_monotonic_clock() -> None:
    rows = [collective(rank, 0, 10 + rank, 20) for rank in range(2)]
    rows[1] = rows[1] | {"start_ns": rows[1]["start_ns"] + 400_000_000, "end_ns": rows[1]["end_ns"] + 400_000_000}
    told = [{"rank": rank, "host": "node", "boot_id": "b", "monotonic_offset_ns": BASE + 400_000_000 * rank} for rank in range(2)]
    given_tables = tables(collectives=rows, clocks=told)
    assert clocks(given_tables)["offset_ms"].tolist() == [0, -400]
    assert waits(given_tables)["wait_ms"].tolist() == [1, 0]


def test_ranks_without_a_host_are_as_recorded_unless_far_apart() -> None:
    near, far = (_on_hosts(skew_ns, 20_000) | {"clocks": tables()["clocks"]} for skew_ns in (900_000, 5_000_000_000))
    assert not clocks(near)["applied"].any()
    assert clocks(far)["offset_ms"].tolist() == [0, pytest.approx(-5000, abs=0.02)]


@pytest.mark.parametrize(("operation", "expected"), [
    ("all_reduce", 1.5), ("allreduce", 1.5), ("all_gather", 0.75), ("_allgather_base", 0.75), ("reduce_scatter_tensor", 0.75),
    ("all_to_all", 0.75), ("broadcast", 1.0), ("reduce", 1.0), ("send", 1.0),
])
def test_factors_of_nccl_tests(operation: str, expected: float) -> None:
    assert factor(operation, np.array([4.0])).tolist() == [expected]


def test_bandwidth_uses_the_shortest_duration_over_ranks() -> None:
    frame = bandwidth(tables(**two_ranks()))
    assert frame["collectives"].tolist() == [6]
    assert frame["bytes"].tolist() == [24_000_000]
    assert frame["time_ms"].tolist() == [6 * 13]
    assert frame["algorithm_gb_s"].tolist() == pytest.approx([24e6 / 78e-3 / 1e9])
    assert frame["bus_gb_s"].tolist() == pytest.approx([24e6 / 78e-3 / 1e9])
    each = bandwidth(tables(**two_ranks()), ["rank", "operation"])
    assert each["time_ms"].tolist() == [6 * 18, 6 * 13]
    assert bandwidth(tables(**two_ranks()), "bytes")["bytes"].tolist() == [4_000_000]


def test_durations_alone_give_bandwidth_but_no_wait() -> None:
    more = {"bytes": 1_000_000, "group_size": 2, "source": "flight_recorder"}
    rows = [collective(rank, 0, None, None, duration_ms=2.0 + rank, **more) for rank in range(2)]
    rows.append(collective(0, 1, None, None, operation="barrier", duration_ms=1.0, group_size=2))
    frame = bandwidth(tables(collectives=rows))
    assert frame["operation"].tolist() == ["all_reduce"]
    assert frame["algorithm_gb_s"].tolist() == pytest.approx([0.5])
    assert waits(tables(collectives=rows))["wait_ms"].isna().all()
