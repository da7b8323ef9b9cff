# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What `nvidia-smi` says of the devices of a host, line by line -> devices.

Two forms: the tool's own table (`nvidia-smi --query-gpu=timestamp,index,... --format=csv`, with or without units), and a
line with the seconds of Unix time before a line a GPU: index, busy, memory busy, SM clock, power, temperature.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from dtscope_jupyter.ingest import rows
from dtscope_jupyter.ingest.files import Stream, Unreadable
from dtscope_jupyter.ingest.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES = 256 * 2**20
_TIME = re.compile(r"(\d{9,11})(?:\.(\d{1,9}))?")
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,9})?)(?: ?(%|MHz|W|C|[KMG]iB|B))?")
_SCALES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_PLAIN = ("index", "utilization", "memory_utilization", "clock_mhz", "power_w", "temperature_c")
_NAMES = {
    "timestamp": "time", "index": "index", "name": "name", "utilization.gpu": "utilization", "utilization.memory": "memory_utilization",
    "memory.used": "memory_bytes", "clocks.sm": "clock_mhz", "clocks.current.sm": "clock_mhz", "power.draw": "power_w",
    "power.draw.instant": "power_w", "temperature.gpu": "temperature_c",
}  # fmt: skip
_HEADS = re.compile(r"([a-z_.]+)(?: \[([A-Za-z%]+)\])?")


def read(path: Path, rank: int | None = None) -> Part:
    """The samples of one file; Unreadable where no line is one.

    No line tells a rank: GPU i is taken as rank i, as on a host whose ranks are numbered by their devices; where the file knows
    one GPU alone, it is that of `rank`.
    """
    with Stream(path) as stream:
        lines = stream.rest(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    found = list(_table(lines) if "index" in lines[0] else _stamped(lines))
    if not found:
        raise Unreadable("no line of it is a sample of a device")
    if rank is not None and len({row["rank"] for row in found}) == 1:
        found = [row | {"rank": rank} for row in found]
    left = sum(1 for line in lines if line.strip()) - len(found) - sum(1 for line in lines if _TIME.fullmatch(line.strip()))
    notes = [rows.note("warning", path.name, "names devices and no ranks: GPU i is taken as the device of rank i")]
    if wrong := left - ("index" in lines[0]):
        notes.append(rows.note("damaged", path.name, f"{wrong} lines are no samples: left out", value=float(wrong)))
    return Part(path, {"devices": rows.from_rows("devices", found)}, rows.NO_RANK, notes=notes)


def _stamped(lines: list[str]) -> Iterator[dict[str, Any]]:
    time_ns = None
    for line in lines:
        if match := _TIME.fullmatch(line.strip()):
            time_ns = int(match[1]) * 10**9 + int((match[2] or "0").ljust(9, "0"))
        elif time_ns is not None and (row := _row(dict(zip(_PLAIN, line.split(","), strict=False)), {}, time_ns)):
            yield row


def _table(lines: list[str]) -> Iterator[dict[str, Any]]:
    heads = [_HEADS.fullmatch(head.strip()) for head in lines[0].split(",")]
    names = [_NAMES.get(head[1], "") if head else "" for head in heads]
    units = {name: head[2] or "" for name, head in zip(names, heads, strict=True) if head}
    for line in lines[1:]:
        cells = dict(zip(names, line.split(","), strict=False))
        time_ns = _stamp(cells.pop("time", ""))
        if time_ns is not None and (row := _row(cells, units, time_ns)):
            yield row


def _stamp(text: str) -> int | None:
    """2026/11/30 03:44:06.493 as ns of Unix time; nvidia-smi writes the host's local time, which is taken as UTC."""
    try:
        told = dt.datetime.strptime(text.strip(), "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
    since = told - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def _row(cells: dict[str, str], units: dict[str, str], time_ns: int) -> dict[str, Any] | None:
    """None where the line tells no device."""
    name = cells.pop("name", "").strip()
    values = {key: value for key, text in cells.items() if key and (value := _value(text.strip(), units.get(key, ""))) is not None}
    index = values.pop("index", None)
    if index is None or not 0 <= index < 2**16 or not values:
        return None
    if "memory_bytes" in values:
        values["memory_bytes"] = int(values["memory_bytes"])
    return {"rank": int(index), "time_ns": time_ns, "device": f"cuda:{int(index)}", "name": name or None, **values}


def _value(text: str, unit: str) -> float | None:
    """A number in the table's own unit, from "345 MHz"; None for [N/A] and its like."""
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _SCALES.get(match[2] or unit, 1) if match else None
