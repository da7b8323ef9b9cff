# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What was played, as the tables that ranks would have recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dtscope_jupyter import schema
from dtscope_jupyter.simulate.timeline import slow_clocks

if TYPE_CHECKING:
    from dtscope_jupyter.intervals import Ints
    from dtscope_jupyter.simulate.cluster import Cluster
    from dtscope_jupyter.simulate.timeline import Played, Reals

BEGIN_NS = 1_700_000_000_000_000_000
PARAMETERS = 4
_ALIVE_MS = 60_000.0
_NORM = 3.0
_SAMPLE_STEPS = 4
_AHEAD_NS = 200_000


class Assembly:
    """Builds the tables of one cluster; `skew` is each rank's clock error in ns."""

    def __init__(self, cluster: Cluster, played: Played, skew: Ints) -> None:
        self.cluster, self.played, self.skew = cluster, played, skew
        self.ranks = np.arange(cluster.world_size)
        self.source = "event" if cluster.device else "host"

    def tables(self) -> dict[str, pa.Table]:
        """All tables; faults that are no matter of time are put in by `mark`."""
        filled = {
            "steps": self._steps(),
            "collectives": self._collectives(),
            "host": self._host(),
            "groups": self._groups(),
            "clocks": self._clocks(),
            "devices": self._devices(),
            "spans": self._spans(),
            "parameters": self._parameters(),
        }
        return {**schema.empty_tables(), **filled}

    def time(self, ms: Reals, rank: Ints) -> Ints:
        """Times as the ranks' own clocks tell them."""
        return BEGIN_NS + np.round(ms * 1e6).astype(np.int64) + self.skew[rank]

    def _steps(self) -> pa.Table:
        played, count = self.played, len(self.played.start)
        rank, step = np.tile(self.ranks, count), np.repeat(np.arange(count), len(self.ranks))
        joined = {name: _join(getattr(played, name)) for name in ("start", "end", "backward_start", "backward_end", "optimizer_start")}
        comm = np.array([sum(end - start for _, start, end in calls) for calls in played.calls]).reshape(-1)
        exposed = np.minimum(_join(played.exposed), comm)
        columns: dict[str, Any] = {f"{name}_ns": self.time(values, rank) for name, values in joined.items()}
        columns |= {
            "rank": rank,
            "step": step,
            "optimizer_end_ns": columns["end_ns"],
            "compute_ms": _join(played.compute),
            "comm_ms": comm,
            "exposed_ms": exposed,
            "overlap_ms": comm - exposed,
            "input_ms": _join(played.input),
            "thread_cpu_ms": _join(played.cpu),
            "synced_norm": np.repeat(_NORM / (1 + 0.01 * np.arange(count)), len(self.ranks)),
            "nonfinite": np.zeros(len(rank), np.int64),
            "micro_batches": np.ones(len(rank), np.int64),
        }
        return fill("steps", columns, source=self.source)

    def _collectives(self) -> pa.Table:
        parts = [self._item(step, number) for step in range(len(self.played.calls)) for number in range(len(self.cluster.items))]
        return pa.concat_tables(parts) if parts else schema.TABLES["collectives"].empty()

    def _item(self, step: int, number: int) -> pa.Table:
        item, (enqueue, start, end) = self.cluster.items[number], self.played.calls[step][number]
        size = np.bincount(item.partition)[item.partition]
        own = [other for other in self.cluster.items if other.names == item.names]
        columns = {
            "rank": self.ranks,
            "step": np.full(len(self.ranks), step),
            "seq": np.full(len(self.ranks), step * len(own) + own.index(item)),
            "process_group": pa.DictionaryArray.from_arrays(item.partition.astype(np.int32), list(item.names)).cast(pa.utf8()),
            "group_size": size,
            "bytes": np.full(len(self.ranks), item.bytes),
            "enqueue_ns": self.time(enqueue, self.ranks),
            "start_ns": self.time(start, self.ranks),
            "end_ns": self.time(end, self.ranks),
        }
        return fill(
            "collectives",
            columns,
            operation="all_reduce",
            dtype="float32",
            shape=f"[{item.bytes // 4}]",
            bucket=item.bucket,
            phase=item.phase,
            state="completed",
            asynchronous=not item.blocking,
            contiguous=True,
            source=self.source,
            line="train.py:42",
        )

    def _host(self) -> pa.Table:
        parts = self.played.host
        rank = np.concatenate([part[0] for part in parts] or [self.ranks[:0]])
        starts, ends = _join([part[3] for part in parts]), _join([part[4] for part in parts])
        counts = [len(part[0]) for part in parts]
        step = np.repeat(np.array([part[1] for part in parts], dtype=np.int64), counts)
        kind = np.repeat(np.array([part[2] for part in parts], dtype=object), counts)
        columns = {"rank": rank, "step": step, "kind": kind, "start_ns": self.time(starts, rank), "end_ns": self.time(ends, rank)}
        return fill("host", columns)

    def _groups(self) -> pa.Table:
        rows = []
        for item in {item.names: item for item in self.cluster.items}.values():
            for number, name in enumerate(item.names):
                members = np.flatnonzero(item.partition == number).tolist()
                rows += [
                    {"rank": rank, "process_group": name, "backend": "nccl" if self.cluster.device else "gloo", "ranks": members}
                    for rank in members
                ]
        return pa.Table.from_pylist(rows, schema=schema.TABLES["groups"].arrow)

    def _clocks(self) -> pa.Table:
        host = self.ranks // self.cluster.ranks_per_host
        names = [f"host{number}" for number in host]
        columns: dict[str, Any] = {
            "rank": self.ranks,
            "host": names,
            "boot_id": names,
            "time_ns": self.time(np.zeros(len(host)), self.ranks),
        }
        if self.cluster.clock_spread_ms:
            columns["offset_ns"], columns["uncertainty_ns"] = -self.skew, np.full(len(host), 20_000)
        return fill("clocks", columns, method="round_trip" if self.cluster.clock_spread_ms else "same_host")

    def _devices(self) -> pa.Table:
        """A sample at the beginning and, as the samplers outlive a hang, one long after the end."""
        last = float(self.played.end[-1].max()) if self.played.end else 0.0
        rank, times = np.tile(self.ranks, 2), np.repeat([0.0, last + _ALIVE_MS], len(self.ranks))
        slow = slow_clocks(self.cluster)
        columns: dict[str, Any] = {"rank": rank, "time_ns": self.time(times, rank)}
        if self.cluster.device:
            columns["clock_mhz"] = 1980.0 * np.array([slow.get(int(one), 1.0) for one in rank])
            columns["device"] = [f"cuda:{one % self.cluster.ranks_per_host}" for one in rank]
            samples = fill("devices", columns, name=self.cluster.device)
        else:
            samples = fill("devices", columns, device="cpu")
        return pa.concat_tables([samples, self._counters()]) if self.cluster.counters else samples

    def _counters(self) -> pa.Table:
        """What each host's link carried since the last sample, four steps ago: the run's own bytes, and an outsider's."""
        first = self.ranks[:: self.cluster.ranks_per_host]
        own = 2 * sum(item.bytes for item in self.cluster.items) * _SAMPLE_STEPS
        rows: dict[str, list[Any]] = {"rank": [], "time": [], "rate": []}
        for step in range(_SAMPLE_STEPS, len(self.played.start), _SAMPLE_STEPS):
            lasted = self.played.start[step][first] - self.played.start[step - _SAMPLE_STEPS][first]
            before = range(step - _SAMPLE_STEPS, step)
            foreign = sum(fault.cause == "link" for each in before for fault in self.cluster.of("contention", each))
            rows["rank"].append(first)
            rows["time"].append(self.played.start[step][first])
            rows["rate"].append(own / lasted * 1e3 + foreign / _SAMPLE_STEPS * self.cluster.link_gb_s * 0.5e9)
        if not rows["rank"]:
            return schema.TABLES["devices"].empty()
        rank = np.concatenate(rows["rank"])
        rate = np.concatenate(rows["rate"])
        columns = {"rank": rank, "time_ns": self.time(np.concatenate(rows["time"]), rank), "link_rx_bytes_s": rate, "link_tx_bytes_s": rate}
        return fill("devices", columns, device="cuda:0" if self.cluster.device else "cpu", name=self.cluster.device)

    def _spans(self) -> pa.Table:
        """Kernels and their launches, on one stream a rank."""
        kernels = self.played.kernels
        if not kernels:
            return schema.TABLES["spans"].empty()
        rank = np.tile(self.ranks, len(kernels))
        start, end = self.time(_join([each[2] for each in kernels]), rank), self.time(_join([each[3] for each in kernels]), rank)
        columns = {
            "rank": rank,
            "step": np.repeat([each[0] for each in kernels], len(self.ranks)),
            "name": np.repeat([f"gemm_{each[1]}" for each in kernels], len(self.ranks)),
            "start_ns": start,
            "end_ns": end,
            "launch_ns": start - _AHEAD_NS,
        }
        launched = {"rank": rank, "step": columns["step"], "start_ns": start - _AHEAD_NS, "end_ns": start - _AHEAD_NS + 5000}
        return pa.concat_tables([fill("spans", columns, kind="compute", stream=7), fill("spans", launched, kind="launch", name="launch")])

    def _parameters(self) -> pa.Table:
        rank, parameter = np.repeat(self.ranks, PARAMETERS), np.tile(np.arange(PARAMETERS), len(self.ranks))
        columns = {"rank": rank, "parameter_id": parameter, "parameter": [f"layers.{one}.weight" for one in parameter]}
        return fill("parameters", columns, elements=self.cluster.gradient_bytes // 4 // PARAMETERS, dtype="float32")


def fill(table: str, columns: dict[str, Any], /, **same: Any) -> pa.Table:
    """A table of columns and of values that are the same in every row; what is not given is null."""
    arrow = schema.TABLES[table].arrow
    count = len(columns["rank"])
    arrays = []
    for column in arrow:
        given = columns.get(column.name)
        if given is None:
            arrays.append(pa.repeat(pa.scalar(same.get(column.name), type=column.type), count))
        else:
            array = pa.array(given) if not isinstance(given, (pa.Array, pa.ChunkedArray)) else given
            arrays.append(array.cast(column.type))
    return pa.table(arrays, schema=arrow)


def _join(parts: list[Reals]) -> Reals:
    return np.concatenate(parts) if parts else np.zeros(0)
