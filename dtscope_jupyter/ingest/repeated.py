# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Events that a trace holds more than once, as one put together of several files may: each counts once.

A stream runs one kernel at a time and a call has a correlation of its own, so that equal kernels are one. Of the host's operators
that can't be said (one within another may begin and end with it), therefore they are looked at only where kernels, or in
a trace without kernels the calls of communication, show that events were written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtscope_jupyter.ingest.columns import ABSENT

if TYPE_CHECKING:
    from dtscope_jupyter.ingest.columns import Bools, Columns, Side, Spans
    from dtscope_jupyter.intervals import Ints

_FIELDS = ("start", "end", "name", "where", "correlation", "kind", "bytes")
_FACTORS = tuple(0x9E3779B97F4A7C15 * odd % 2**62 | 1 for odd in range(1, 2 * len(_FIELDS), 2))


def dropped(columns: Columns, host: Spans, device: Spans) -> tuple[Spans, Spans, int]:
    """Both sides with each event once, and how many were left out."""
    if len(device):
        telling, side = (device.correlation != ABSENT) & (device.end > device.start), device
    else:
        telling, side = np.isin(np.arange(len(host)), list(columns.host.args)) & (host.end > host.start), host
    if not _any_twice(side.chosen(telling)):
        return host, device, 0
    kept = _kept(host, columns.host), _kept(device, columns.device)
    return *kept, len(host) + len(device) - sum(map(len, kept))


def _any_twice(spans: Spans) -> bool:
    keys = np.sort(_keys(spans))
    return bool((keys[1:] == keys[:-1]).any()) and bool(_again(spans).any())


def _keys(spans: Spans) -> Ints:
    """A number of each event, the same for equal ones."""
    keys = np.zeros(len(spans), np.int64)
    for name, factor in zip(_FIELDS, _FACTORS, strict=True):
        keys ^= getattr(spans, name).astype(np.int64, copy=False) * np.int64(factor)
    return keys


def _again(spans: Spans) -> Bools:
    """Which events have an equal one before them; those without length are never taken for equal."""
    order = np.lexsort([getattr(spans, name) for name in reversed(_FIELDS)])
    same = np.logical_and.reduce([np.diff(getattr(spans, name)[order]) == 0 for name in _FIELDS])
    again = np.zeros(len(spans), bool)
    again[order[1:]] = same
    return again & (spans.end > spans.start)


def _kept(spans: Spans, side: Side) -> Spans:
    keep = ~_again(spans)
    place = np.cumsum(keep) - 1
    side.args = {int(place[row]): args for row, args in side.args.items() if keep[row]}
    return spans.chosen(keep)
