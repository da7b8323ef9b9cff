# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where the computing stream of a CUDA device is made to wait for another one, as FSDP2 does: two events each, in timed steps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from dtscope_jupyter.agent.clock import now
from dtscope_jupyter.agent.progress import HELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtscope_jupyter.agent.device_times import DeviceTimes
    from dtscope_jupyter.agent.patches import Patches
    from dtscope_jupyter.agent.progress import Progress

_MOST = 16_384
_SHORT_NS = 5_000


class StreamWaits:
    """Hooks on torch.cuda.Stream, which pass through but in timed steps."""

    def __init__(self, times: DeviceTimes, progress: Progress) -> None:
        """Touches no device."""
        self.on = False
        self._times = times
        self._progress = progress
        self._marks: deque[tuple[int, Any, int, Any]] = deque(maxlen=_MOST)

    def install(self, patches: Patches) -> None:
        """`Stream.wait_stream` ends in it as well."""
        patches.wrap(torch.cuda.Stream, "wait_event", self._wrapper)

    def _wrapper(self, original: Callable[..., None]) -> Callable[..., None]:
        def wait_event(stream: Any, event: Any) -> None:
            if not self.on or stream.cuda_stream != self._times.main or torch.cuda.current_stream().cuda_stream != self._times.main:
                original(stream, event)
                return
            if torch.cuda.is_current_stream_capturing():
                original(stream, event)
                return
            before, at = self._times.record(), now()
            original(stream, event)
            self._marks.append((self._progress.step, before, at, self._times.record()))

        return wait_event

    def settled(self, step: int) -> bool:
        """Whether the waits of all steps up to this one are known."""
        return not self._marks or self._marks[0][0] > step

    def resolve(self) -> list[tuple[int, int, int]]:
        """(step, start, end) of waits that are over."""
        waits = []
        while self._marks and self._marks[0][3].query():
            step, before, at, after = self._marks.popleft()
            self._times.clock.learn(before, at)
            start, end = self._times.clock.time(before), self._times.clock.time(after)
            self._times.give_back([before, after])
            if end - start > _SHORT_NS:
                waits.append((step if step != HELD else self._progress.place(at), start, end))
        return waits
