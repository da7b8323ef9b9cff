# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a figure is drawn of: a run, or the tables of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx
    import pyarrow as pa

    from dtscope_jupyter.diagnosis.result import Diagnosis
    from dtscope_jupyter.run import Run


@dataclass(frozen=True)
class Source:
    """Tables, and the name and topology of the run where it is known."""

    tables: Mapping[str, pa.Table]
    name: str
    topology: nx.MultiGraph[str] | None

    @classmethod
    def of(cls, run: Run | Mapping[str, pa.Table]) -> Source:
        """From either."""
        if isinstance(run, Mapping):
            return cls(run, "run", None)
        return cls(run.tables, run.name, run.topology)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What is wrong with it."""
        from dtscope_jupyter.diagnosis import diagnose

        return diagnose(self.tables, topology=self.topology)
