# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a fork of the warm process look like a process that has just started in the notebook's state of the moment."""

from __future__ import annotations

import errno
import importlib
import io
import itertools
import multiprocessing
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dtscope_jupyter.launch.messages import Setup

_THREADS = "OMP_NUM_THREADS"


def take_over(setup: Setup) -> None:
    """Environment, directory, import path, threads, random state and rendezvous of a new rank."""
    os.environ.clear()
    os.environ.update(setup.environment)
    os.chdir(setup.cwd)
    sys.path[:] = setup.sys_path
    sys.argv = [""]
    if sys.version_info >= (3, 14):
        multiprocessing.set_start_method("fork")  # else data loader workers could not find the cell's classes
    _torch(setup)
    _numpy()


def redirect(log: str) -> None:
    """Sends stdout and stderr, those of C++ and of children included, to the end of `log` (0600); stdin is empty."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(nothing, 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.close(nothing)
    sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 # the process's own streams
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = io.BufferedWriter(_Log(number, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True))


class _Log(io.FileIO):
    """The log of a rank: where the disk is full its lines are lost, and no `print` of the user's program fails for it."""

    def write(self, data: Any) -> int:
        """As FileIO, except that no space left is no error."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            return len(data)


def _torch(setup: Setup) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(_threads(setup.environment.get(_THREADS, "")))
    dist.set_debug_level_from_env()  # type: ignore[attr-defined]
    if setup.backend == "gloo":
        dist.Backend.default_device_backend_map["cuda"] = "gloo"
    _rendezvous(setup.environment["MASTER_PORT"])


def _threads(text: str) -> int:
    """As OpenMP reads OMP_NUM_THREADS: the first number of a list by nesting level; every core where it is none."""
    number = text.partition(",")[0].strip()
    return int(number) if number.isdecimal() and int(number) else _cores()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rendezvous(port: str) -> None:
    """Lets env:// be used again after destroy_process_group, and with an address that the cell sets itself.

    The store outlives a process group: without a prefix of its own the second one reads addresses of the first.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    module = importlib.import_module("torch.distributed.rendezvous")  # torch.distributed.rendezvous itself is a function
    handlers = module._rendezvous_handlers  # noqa: SLF001 # register_rendezvous_handler refuses to replace one
    original = handlers["env"]
    times = itertools.count()

    def env(url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        ours = os.environ.get("MASTER_PORT") == port
        if not ours:
            os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        for store, rank, world_size in original(url, **options):
            yield (PrefixStore(f"dtscope/{next(times)}", store) if ours else store, rank, world_size)

    handlers["env"] = env


def _numpy() -> None:
    """Every rank would draw the same numbers: numpy seeded itself before the fork."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
