# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Labelled runs at random: worlds, programs and none to two faults, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dtscope_jupyter.simulate.faults import DESYNCS, HANGS, STRAGGLERS, Fault

if TYPE_CHECKING:
    from numpy.random import Generator

TIMED = ("straggler", "straggler", "straggler", "slow_link")
_LINK = 180e6
"""Bytes a ms and device; communication of a healthy run takes a tenth to a half of its backward."""
_SHOWN = 4
"""Steps that a fault of time must have before a hang ends the run, or it is none."""
OTHER = ("nonfinite", "desync", "hang", "implicit_copy")


def draw(seed: int, world_size: int, steps: int = 16) -> tuple[dict[str, Any], list[Fault]]:
    """Arguments for `simulate.run` (its seed included) and the faults in them, which are the labels."""
    generator = np.random.default_rng([seed, world_size])
    program: dict[str, Any] = {
        "world_size": world_size,
        "steps": steps,
        "seed": seed,
        "link_gb_s": _LINK / 1e6,
        "compute_ms": float(generator.uniform(10, 200)),
        "buckets": int(generator.integers(2, 10)),
        "noise": float(generator.uniform(0.003, 0.03)),
        "device": str(generator.choice(["NVIDIA H200", "NVIDIA A100-SXM4-80GB"])) if generator.random() < 0.7 else None,  # noqa: PLR2004 - most
        "tensor": int(generator.choice([t for t in (1, 1, 2, 4, 8) if world_size % t == 0 and world_size // t > 1])),
        "clock_spread_ms": float(generator.choice([0.0, 0.0, 200.0])),
    }
    hidden = float(generator.uniform(0.1, 0.5)) * program["compute_ms"] * 2 / 3
    program["gradient_bytes"] = int(max(hidden * _LINK / 2 * program["tensor"], 2**24))
    return program, _faults(generator, program)


def _faults(generator: Generator, program: dict[str, Any]) -> list[Fault]:
    chance = float(generator.random())
    if chance < 0.15:  # noqa: PLR2004 - one run of seven is healthy
        return []
    if chance < 0.6:  # noqa: PLR2004 - then as many with a fault of time,
        return [_timed(generator, program)]
    if chance < 0.8:  # noqa: PLR2004 - of another kind,
        return [_other(generator, program)]
    timed, other = _timed(generator, program), _other(generator, program)
    if other.kind == "hang" and timed.first > other.first - _SHOWN * timed.every:
        timed = replace(timed, first=4 if timed.kind == "slow_link" else 0)
    return [timed, other]


def _timed(generator: Generator, program: dict[str, Any]) -> Fault:
    kind = str(generator.choice(TIMED))
    first = 0 if generator.random() < 0.6 else int(generator.integers(3, program["steps"] - 5))  # noqa: PLR2004 - most from the start
    if kind == "slow_link":
        return Fault("slow_link", "bandwidth", (), _times_slower(generator, program), first=max(first, 4))
    every = 1 if generator.random() < 0.7 else int(generator.integers(2, 4))  # noqa: PLR2004 - most in each step
    size = float(generator.uniform(0.1, 0.6)) if every == 1 else float(generator.uniform(0.4, 0.9))
    causes = STRAGGLERS if program["device"] else tuple(cause for cause in STRAGGLERS if cause != "slow_device")
    return Fault(
        "straggler", str(generator.choice(causes)), (int(generator.integers(program["world_size"])),), size, first=first, every=every
    )


def _times_slower(generator: Generator, program: dict[str, Any]) -> float:
    """A factor by which a link must slow down to cost more than the compute that hides it and a fifth of a step besides."""
    hidden = 0.75 * program["compute_ms"] * _LINK / (2 * program["gradient_bytes"] / program["tensor"])
    return float(max(3.0, (1 + generator.uniform(0.3, 2)) * hidden + 1))


def _other(generator: Generator, program: dict[str, Any]) -> Fault:
    kind, world = str(generator.choice(OTHER)), program["world_size"]
    rank, first = (int(generator.integers(world)),), int(generator.integers(8, program["steps"] - 2))
    if kind == "hang":
        return Fault(kind, str(generator.choice(HANGS)), rank, first=first)
    if kind == "desync":
        return Fault(kind, str(generator.choice(DESYNCS)), rank, first=first)
    if kind == "nonfinite":
        return Fault(kind, "gradient", rank, first=first)
    return Fault(kind, "non_contiguous", rank)
