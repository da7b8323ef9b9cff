# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Synthetic clusters with known faults, as the tables that their ranks would have recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.simulate.assemble import Assembly
from dtscope_jupyter.simulate.cluster import Cluster
from dtscope_jupyter.simulate.faults import CAUSES, Fault
from dtscope_jupyter.simulate.mark import mark
from dtscope_jupyter.simulate.sampling import thinned
from dtscope_jupyter.simulate.timeline import Player

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["CAUSES", "Cluster", "Fault", "run"]


def run(world_size: int = 4, steps: int = 20, faults: Sequence[Fault] = (), seed: int = 0, **options: Any) -> dict[str, pa.Table]:
    """A run of a synthetic cluster as tables, the same for the same arguments.

    Args:
        world_size: Ranks.
        steps: Training steps.
        faults: What goes wrong, see `Fault`.
        seed: Of all noise.
        **options: Further fields of `Cluster`.

    Raises:
        DtscopeError: A fault that can't be simulated, or a cluster of fewer than two ranks.
    """
    cluster = Cluster(world_size=world_size, steps=steps, faults=tuple(faults), **options)
    generator = np.random.default_rng(seed)
    played = Player(cluster, generator).play(steps)
    hosts = np.arange(world_size) // cluster.ranks_per_host
    skew = np.round(cluster.clock_spread_ms * 1e6 * generator.standard_normal(int(hosts.max()) + 1)).astype(np.int64)
    skew = (skew - skew[0])[hosts]
    return thinned(cluster, mark(cluster, Assembly(cluster, played, skew).tables()))
