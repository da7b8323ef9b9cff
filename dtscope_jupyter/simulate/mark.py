# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Puts faults that are no matter of time into finished tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dtscope_jupyter.simulate.assemble import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.simulate.cluster import Cluster
    from dtscope_jupyter.simulate.faults import Fault

_Tables = dict[str, pa.Table]


def mark(cluster: Cluster, tables: _Tables) -> _Tables:
    """The tables as they are with the cluster's faults."""
    rules: dict[str, Callable[[Cluster, Fault, _Tables], _Tables]] = {
        "nonfinite": _nonfinite,
        "desync": _desync,
        "hang": _hang,
        "implicit_copy": _strided,
        "insufficient_data": _missing,
    }
    for fault in cluster.faults:
        if fault.kind in rules:
            tables = rules[fault.kind](cluster, fault, tables)
    return tables


def _at(table: pa.Table, fault: Fault, **equal: Any) -> Any:
    chosen = np.isin(table["rank"].to_numpy(), fault.ranks)
    for name, value in equal.items():
        chosen &= np.asarray(pc.fill_null(pc.equal(table[name], value), False))  # noqa: FBT003
    return chosen


def _put(table: pa.Table, name: str, chosen: Any, value: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    new = pc.if_else(pa.array(chosen), pa.scalar(value, type=field.type), table[name])
    return table.set_column(place, field, new)


def _nonfinite(cluster: Cluster, fault: Fault, tables: _Tables) -> _Tables:
    del cluster
    steps = tables["steps"]
    if fault.cause == "loss":
        rank = np.array(fault.ranks)
        return {**tables, "notes": fill("notes", {"rank": rank}, step=fault.first, kind="scalar", name="loss", value=float("nan"))}
    later = steps["step"].to_numpy() > fault.first
    steps = _put(steps, "nonfinite", later | _at(steps, fault, step=fault.first), 7)
    steps = _put(steps, "synced_norm", steps["step"].to_numpy() >= fault.first, float("nan"))
    rank = np.array(fault.ranks)
    gradients = fill("gradients", {"rank": rank}, step=fault.first, parameter_id=1, local_norm=float("nan"), nonfinite=7)
    return {**tables, "steps": steps, "gradients": gradients}


def _desync(cluster: Cluster, fault: Fault, tables: _Tables) -> _Tables:
    if fault.cause == "values":
        steps = tables["steps"]
        late = steps["step"].to_numpy() >= fault.first
        norm = pc.multiply(steps["synced_norm"], 1.01)
        chosen = pa.array(late & _at(steps, fault))
        place = steps.schema.get_field_index("synced_norm")
        return {**tables, "steps": steps.set_column(place, steps.schema.field(place), pc.if_else(chosen, norm, steps["synced_norm"]))}
    table = tables["collectives"]
    last = cluster.items[-1]
    own = [item for item in cluster.items if item.names == last.names]
    seq = fault.first * len(own) + len(own) - 1
    mine = np.isin(table["process_group"].to_pylist(), last.names)
    here = mine & _at(table, fault, seq=seq)
    changes = {"operation": ("operation", "all_gather"), "dtype": ("dtype", "bfloat16"), "shape": ("bytes", last.bytes + 4096)}
    if fault.cause == "order":
        before = mine & _at(table, fault, seq=seq - 1)
        table = _put(_put(table, "operation", here, "all_gather"), "operation", before, "all_reduce")
        rest = mine & ~np.isin(table["rank"].to_numpy(), fault.ranks) & (table["seq"].to_numpy() == seq - 1)
        return {**tables, "collectives": _put(table, "operation", rest, "all_gather")}
    name, value = changes[fault.cause]
    return {**tables, "collectives": _put(table, name, here, value)}


def _hang(cluster: Cluster, fault: Fault, tables: _Tables) -> _Tables:
    """From the last collective of step `first` on the others are pending; those at fault have not begun it, or never leave their last."""
    table = tables["collectives"]
    last = cluster.items[-1]
    own = [item for item in cluster.items if item.names == last.names]
    seq = fault.first * len(own) + len(own) - 1
    faulty = np.isin(table["rank"].to_numpy(), fault.ranks)
    number, mine = table["seq"].to_numpy(), np.isin(table["process_group"].to_pylist(), last.names)
    at_step = table["step"].to_numpy()
    device = fault.cause == "device_stuck"
    keep = np.where(mine, number <= seq, at_step <= fault.first) & ~(faulty & mine & (number == seq) & (not device))
    stuck = mine & ((number == seq) | (device & faulty & (number == seq - 1)))
    kept, stuck = table.filter(pa.array(keep)), stuck[keep]
    for name in ("start_ns", "end_ns"):
        kept = _put(kept, name, stuck, None)
    kept = _put(kept, "state", stuck, "scheduled")
    steps = tables["steps"].filter(pa.array(tables["steps"]["step"].to_numpy() < fault.first))
    return {**tables, "collectives": kept, "steps": steps, **_signs(fault, tables)}


def _signs(fault: Fault, tables: _Tables) -> _Tables:
    """What else is known of the ranks at fault: a stack, an exit, or that they went on."""
    rank = np.array(fault.ranks)
    last = int(tables["devices"]["time_ns"].to_numpy().max())
    if fault.cause == "process_died":
        return {"notes": fill("notes", {"rank": rank}, kind="exit", time_ns=last, value=-9.0, text="killed by signal 9")}
    if fault.cause == "never_called":
        return {"notes": fill("notes", {"rank": rank}, kind="exit", time_ns=last, value=0.0, text="ended")}
    if fault.cause == "host_stuck":
        stack = fill("host", {"rank": rank}, kind="stack", start_ns=last, end_ns=last, detail="save", line="train.py:77")
        return {"host": pa.concat_tables([tables["host"], stack])}
    return {}


def _strided(cluster: Cluster, fault: Fault, tables: _Tables) -> _Tables:
    del cluster
    table = tables["collectives"]
    touched = np.array([fault.touches(int(step)) for step in table["step"].to_numpy()])
    return {**tables, "collectives": _put(table, "contiguous", touched & _at(table, fault), False)}  # noqa: FBT003


def _missing(cluster: Cluster, fault: Fault, tables: _Tables) -> _Tables:
    del cluster
    return {name: table.filter(pa.array(~np.isin(table["rank"].to_numpy(), fault.ranks))) for name, table in tables.items()}
