# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What a rank is told when it is armed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dtscope_jupyter.errors import DtscopeError

COLLECTORS = ("steps", "collectives", "gradients", "host", "devices", "spans", "gradient_tiles")
DEFAULT_COLLECT = frozenset(COLLECTORS[:5])


@dataclass(frozen=True, slots=True)
class Config:
    """One rank's orders; `folder` is the rank folder, which exists (0700).

    `budget` is the share of step time that observing may cost, `disk` the bytes the rank may write.
    `faults` are rehearsals, e.g. {"fault": "straggler", "rank": 2, "ms": 50}. With `record` false the
    rank is armed but idle until somebody attaches.
    """

    folder: Path
    rank: int
    world_size: int
    local_rank: int = 0
    collect: frozenset[str] = DEFAULT_COLLECT
    budget: float = 0.01
    disk: int = 2 * 2**30
    faults: tuple[dict[str, Any], ...] = ()
    record: bool = True

    def __post_init__(self) -> None:
        """Refuses what can't be met; DtscopeError."""
        if unknown := sorted(self.collect - set(COLLECTORS)):
            raise DtscopeError(f"unknown collector {unknown[0]!r}; choose from {', '.join(COLLECTORS)}")
        if not 0 <= self.rank < self.world_size:
            raise DtscopeError(f"rank {self.rank} is outside of world size {self.world_size}; set RANK and WORLD_SIZE")
        if not 0 < self.budget <= 1:
            raise DtscopeError(f"a budget of {self.budget:g} is no share of step time; give more than 0, at most 1 (100%)")
        if self.disk <= 0:
            raise DtscopeError(f"a disk allowance of {self.disk} bytes holds nothing; give a positive size, e.g. 2GiB")

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON types."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"folder": str(self.folder), "collect": sorted(self.collect), "faults": list(self.faults)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Config:
        """The inverse of `to_json`; DtscopeError for a field that is missing, unknown or of no use."""
        changed = {"folder": Path, "collect": frozenset, "faults": tuple}
        try:
            return cls(**{name: changed.get(name, _same)(item) for name, item in value.items()})
        except TypeError as error:
            raise DtscopeError(f"can't arm a rank with {value!r}: {error}; pass Config.to_json()") from error


def _same(value: Any) -> Any:
    return value
