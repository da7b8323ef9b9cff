# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Compares two ways of doing one thing: A, B and A again in turn, so that drift of the machine hits all alike."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Comparison:
    """Medians of `rounds` rounds, in the unit of the measured functions; ratios are medians of per-round ratios."""

    a: float
    b: float
    difference: float
    ratio: float
    noise: float
    spread: tuple[float, float]
    rounds: int

    def row(self, name: str, unit: str) -> str:
        """One line of a table."""
        low, high = self.spread
        return (
            f"{name:<34} {self.a:9.3f} {self.b:9.3f} {unit:<3} {self.difference:+8.3f} {unit:<3}"
            f" ratio {self.ratio:.4f} [{low:.4f}, {high:.4f}]  A/A {self.noise:.4f}"
        )


def compare(a: Callable[[], float], b: Callable[[], float], rounds: int) -> Comparison:
    """Measures each function once a round (A again stands in for the noise), in an order that rotates."""
    measures = {"a": a, "b": b, "again": a}
    seen: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for turn in range(rounds):
        for name in names[turn % 3 :] + names[: turn % 3]:
            seen[name].append(measures[name]())
    ratios = sorted(ours / bare for ours, bare in zip(seen["b"], seen["a"], strict=True))
    return Comparison(
        a=statistics.median(seen["a"]),
        b=statistics.median(seen["b"]),
        difference=statistics.median(ours - bare for ours, bare in zip(seen["b"], seen["a"], strict=True)),
        ratio=statistics.median(ratios),
        noise=statistics.median(again / bare for again, bare in zip(seen["again"], seen["a"], strict=True)),
        spread=(ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
        rounds=rounds,
    )


def machine() -> dict[str, Any]:
    """Date, hardware and versions, for a table that is kept."""
    found: dict[str, Any] = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    for name in ("torch", "pyarrow", "dtscope-jupyter"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def write(path: Path, results: dict[str, Any]) -> None:
    """Writes results (Comparisons or plain values) as JSON, with `machine()` beside them."""
    plain = {name: asdict(value) if isinstance(value, Comparison) else value for name, value in results.items()}
    path.write_text(json.dumps({"machine": machine(), **plain}, indent=1) + "\n")
