# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of the rank, as the kernel and the device's allocator tell it."""

from __future__ import annotations

import os

import torch

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.descriptors import Mark

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
_BYTES = 128
_PERIOD_NS = 50_000_000
_DEVICE_PERIOD_NS = 10**9


class Resident:
    """Asks the kernel; its file is kept open, as to open it takes longer than all the rest."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._file: Mark | None = None

    def read(self) -> int | None:
        """Resident bytes; None where /proc is missing."""
        try:
            if self._file is None or not self._file.stands():
                self._file = Mark(os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC))
            return int(os.pread(self._file.descriptor, _BYTES, 0).split()[1]) * _PAGE
        except OSError:
            return None


class Memory:
    """Readings that are made anew as they get old, as to ask an allocator takes a quarter of a millisecond."""

    def __init__(self) -> None:
        """Nothing is read yet; `device` is set once the rank trains on one."""
        self.device: int | None = None
        self._host = Resident()
        self._resident: int | None = None
        self._read = self._asked = 0

    def sample(self) -> tuple[int | None, int | None, int | None]:
        """Resident bytes; device bytes of tensors and of the allocator, which are None without a device and between readings."""
        time = now()
        if time - self._read > _PERIOD_NS:
            self._resident, self._read = self._host.read(), time
        if self.device is None or time - self._asked < _DEVICE_PERIOD_NS:
            return self._resident, None, None
        self._asked = time
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        allocated, reserved = (stats.get(name, {}).get("all", {}).get("current") for name in ("allocated_bytes", "reserved_bytes"))
        return self._resident, allocated, reserved
