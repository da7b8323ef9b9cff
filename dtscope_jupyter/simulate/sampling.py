# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Leaves out of finished tables what the recorder on a device leaves out of steps that it does not look at closely."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from dtscope_jupyter.simulate.cluster import Cluster

_CLOSELY = ("compute_ms", "comm_ms", "overlap_ms", "synced_norm", "nonfinite")


def thinned(cluster: Cluster, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables with collectives, norms, compute and comm of one step in `cluster.sampled`; what is still open stays.

    Waits at the end of a backward are timed in every step, so `exposed_ms` and the duration stay.
    """
    if cluster.sampled == 1:
        return tables
    steps, calls, gradients = tables["steps"], tables["collectives"], tables["gradients"]
    closely = pa.array(steps["step"].to_numpy() % cluster.sampled == 0)
    for name in _CLOSELY:
        place = steps.schema.get_field_index(name)
        field = steps.schema.field(place)
        steps = steps.set_column(place, field, pc.if_else(closely, steps[name], pa.scalar(None, field.type)))
    still_open = np.asarray(pc.fill_null(pc.is_in(calls["state"], pa.array(["scheduled", "started"])), False))  # noqa: FBT003
    calls = calls.filter(pa.array((calls["step"].to_numpy() % cluster.sampled == 0) | still_open))
    gradients = gradients.filter(pa.array(gradients["step"].to_numpy() % cluster.sampled == 0))
    return {**tables, "steps": steps, "collectives": calls, "gradients": gradients}
