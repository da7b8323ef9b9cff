# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from dtscope_jupyter.launch.failure import Failure, Interrupted, RankError
from dtscope_jupyter.launch.job import Job
from dtscope_jupyter.launch.program import Call, Cell, Options, Program, Source
from dtscope_jupyter.launch.warm import Warm

if TYPE_CHECKING:
    from dtscope_jupyter.launch.world import World

__all__ = ["Call", "Cell", "Failure", "Interrupted", "Job", "Options", "Program", "RankError", "Source", "Warm", "start"]


def start(program: Program, options: Options, warm: Warm, world: World | None = None) -> Job:
    """Starts a program on new ranks, or on those of `world` that an earlier job with `keep` left; returns at once."""
    return Job(warm, program, options, world)
