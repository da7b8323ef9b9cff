# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Arms a rank of a job that records itself: DTRAINSCOPE_* say how, rank 0 says where, in the rendezvous store.

A restart by elastic, or by Slurm of a job that was requeued, becomes the next attempt of its run, which rank 0 knows by the job:
TORCHELASTIC_RUN_ID or, where that is `none`, the torchrun process that started it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dtscope_jupyter import agent, rundir
from dtscope_jupyter.agent import watching
from dtscope_jupyter.agent.autostart import RANK_PID
from dtscope_jupyter.agent.config import DEFAULT_COLLECT, Config
from dtscope_jupyter.agent.last_word import LastWord
from dtscope_jupyter.agent.sizes import share, size
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.process import started

_log = logging.getLogger("dtscope_jupyter")
_KEY = "dtscope_jupyter/run"
_PATIENCE = timedelta(seconds=30)
_DEFAULT_DIR = "dtscope-runs"
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def enlist(name: str = "") -> None:
    """Arms this rank; whatever is wrong is one logged line, and the job goes on unobserved.

    `name` (default: the program's) is for a new run.
    """
    if agent.armed() is None:
        watching.enlisted(_arm(name))


def _arm(name: str) -> Path | None:
    """The run that this rank records to; None where it can't."""
    try:
        attempt = _attempt(name)
        config = _config(attempt)
    except DtscopeError as error:
        _log.warning("dtscope: rank %d is not observed: %s", dist.get_rank(), error)
        return None
    except (OSError, RuntimeError) as error:
        _log.warning("dtscope: rank %d is not observed: %s", dist.get_rank(), str(error).splitlines()[0])
        return None
    os.environ[RANK_PID] = str(os.getpid())
    LastWord(agent.arm(config)).listen()
    _ship(config.folder)
    return attempt.run


def _attempt(name: str) -> rundir.Attempt:
    """The attempt that rank 0 began; each host makes its folders."""
    base = Path(os.environ.get("DTRAINSCOPE_LOG_DIR") or _DEFAULT_DIR).expanduser().absolute()
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
    if dist.get_rank() == 0:
        store.set(_KEY, json.dumps(_begin(base, name)))
    store.wait([_KEY], _PATIENCE)
    said = json.loads(store.get(_KEY))
    if "error" in said:
        raise DtscopeError(f"rank 0 could not begin a run: {said['error']}")
    attempt = rundir.Attempt(base / said["run"], said["attempt"])
    attempt.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (attempt.path / "run.json").exists():
        rundir.write_json(attempt.path / "run.json", said["meta"])
    return attempt


def _begin(base: Path, name: str) -> dict[str, Any]:
    job = _job()
    name = name or Path(sys.argv[0] or "run").stem or "run"
    meta: dict[str, Any] = {
        "name": name, "world_size": dist.get_world_size(), "backend": dist.get_backend(),
        "created_ns": time.time_ns(), "launcher": "environment", "job": job,
    }  # fmt: skip
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempt = rundir.create_attempt(_earlier(base, job) or _fresh(base, name), meta)
    except (DtscopeError, OSError) as error:
        return {"error": str(error)}
    return {"run": attempt.run.name, "attempt": attempt.number, "meta": {"format": rundir.FORMAT, **meta}}


def _job() -> str:
    """What stays the same over the restarts of a job."""
    named = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if named != "none":
        return named
    return f"{socket.gethostname()}-{os.getppid()}-{started(os.getppid())}"


def _earlier(base: Path, job: str) -> Path | None:
    """The run of this job's earlier attempts, if this is a restart."""
    if all(os.environ.get(name, "0") in ("", "0") for name in _RESTARTS):
        return None
    runs = [path for path in base.iterdir() if path.is_dir() and rundir.read_json(path / "run.json").get("job") == job]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def _fresh(base: Path, name: str) -> Path:
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}"
    names = (stem, *(f"{stem}-{n}" for n in range(2, 1000)))
    return next(base / candidate for candidate in names if not (base / candidate).exists())


def _config(attempt: rundir.Attempt) -> Config:
    rank = dist.get_rank()
    folder = attempt.rank_path(rank)
    folder.mkdir(mode=0o700)
    collect = os.environ.get("DTRAINSCOPE_COLLECT")
    return Config(
        folder=folder,
        rank=rank,
        world_size=dist.get_world_size(),
        local_rank=int(os.environ.get("LOCAL_RANK", rank)),
        collect=frozenset(filter(None, (part.strip() for part in collect.split(",")))) if collect else DEFAULT_COLLECT,
        budget=share(os.environ.get("DTRAINSCOPE_BUDGET", "1%")),
        disk=size(os.environ.get("DTRAINSCOPE_DISK", "2GiB")),
        record=os.environ.get("DTRAINSCOPE_ENABLE") != "attach",
    )


def _ship(folder: Path) -> None:
    endpoint, keys = os.environ.get("DTRAINSCOPE_COLLECTOR"), os.environ.get("DTRAINSCOPE_KEYS")
    if not endpoint:
        return
    if not keys:
        _log.warning("dtscope: DTRAINSCOPE_COLLECTOR is set but DTRAINSCOPE_KEYS is not; make keys with `dtscope keys DIR`")
        return
    from dtscope_jupyter import transport
    from dtscope_jupyter.agent.reference import Reference

    transport.ship(folder, endpoint, Path(keys))
    current = agent.armed()
    if current is not None:
        drain = Reference(current).drain
        current.drains.append(drain)
        if current.recording:
            current.recorder.add_source(drain)
