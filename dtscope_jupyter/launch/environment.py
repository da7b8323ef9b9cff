# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The environment of a rank, as torchrun sets it, and what of it torch reads only when it is imported."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress

from dtscope_jupyter.errors import DtscopeError

READ_AT_IMPORT = (
    "ARROW_",
    "ATEN_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH_",
)
"""Variables (by how they begin) that torch, its libraries or Python read as they start: a change means a cold start."""

_DEBUG = "TORCH_DISTRIBUTED_DEBUG"
_DEBUG_LEVELS = ("OFF", "INFO", "DETAIL")
_READ_LATER = (_DEBUG, "TORCH_NCCL_", "TORCH_HOME")
_LEAST_RANK_BYTES = 32 * 2**20
_DESCRIPTORS_A_RANK = 4
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def server_environment() -> dict[str, str]:
    """What ranks are started from: the kernel's variables of the moment, one thread unless the user says otherwise."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")}
    return {"OMP_NUM_THREADS": "1", **kept}


def warm_environment() -> dict[str, str]:
    """What the warm process starts with; the debug level is each rank's, and a wrong one would keep torch from being imported."""
    return {name: value for name, value in server_environment().items() if name != _DEBUG}


def read_at_import(environment: dict[str, str]) -> dict[str, str]:
    """The part of an environment that a warm process can't take over any more."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_IMPORT) and not name.startswith(_READ_LATER)}


def rank_environment(rank: int, world_size: int, port: int, run_id: str) -> dict[str, str]:
    """Every variable of a rank: the kernel's of the moment and those that torchrun sets for one host."""
    base = {name: value for name, value in server_environment().items() if not _kernel_only(name, value)}
    if world_size == 1 and "OMP_NUM_THREADS" not in os.environ:
        del base["OMP_NUM_THREADS"]
    base.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
    base.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0}
    sizes = {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "ROLE_WORLD_SIZE": world_size, "GROUP_WORLD_SIZE": 1}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    elastic = {"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_RUN_ID": run_id, "ROLE_NAME": "default"}
    return base | {name: str(value) for name, value in (ranks | sizes | store | elastic).items()}


def gpus() -> int:
    """NVIDIA GPUs that ranks would see; asks the driver's library, so that the kernel never starts CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        wanted = [name for name in visible.split(",") if name.strip() not in ("", "-1")]
        return min(len(wanted), _installed_gpus())
    return _installed_gpus()


def check_world_size(world_size: int, backend: str | None) -> None:
    """Raises where that many ranks can't be had."""
    if world_size < 1:
        raise DtscopeError(f"-n must be at least 1 rank, not {world_size}")
    if world_size > (most := most_ranks()):
        raise DtscopeError(f"-n {world_size}: this host has memory and open files for at most {most} ranks: lower -n")
    if backend != "nccl":
        return
    available = gpus()
    if world_size > available:
        have = f"{available} GPU" + ("s" if available != 1 else "")
        raise DtscopeError(f"-n {world_size} with nccl needs {world_size} GPUs and this host shows {have}: lower -n or use --backend gloo")


def most_ranks() -> int:
    """Ranks that this host can hold at all: 32 MiB of its memory each, 4 of the descriptors that the kernel may open each."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    by_descriptors = descriptors // _DESCRIPTORS_A_RANK if descriptors != resource.RLIM_INFINITY else sys.maxsize
    return max(1, min(memory // _LEAST_RANK_BYTES, by_descriptors))


def other_job() -> str | None:
    """One line where this process is itself a rank of a job, else None."""
    world_size = os.environ.get("WORLD_SIZE", "")
    if not (world_size.isdigit() and int(world_size) > 1 and "RANK" in os.environ):
        return None
    rank = os.environ["RANK"]
    return (
        f"this kernel is itself rank {rank} of a job of {world_size} (RANK and WORLD_SIZE are set), so it starts no ranks: "
        "call dtscope_jupyter.watch(model, optimizer) in the job and %dtscope attach DIR elsewhere, or unset WORLD_SIZE"
    )


def check_variables() -> None:
    """Raises where a variable of the moment would keep torch from being imported."""
    level = os.environ.get(_DEBUG)
    if level is not None and level.upper() not in _DEBUG_LEVELS:
        raise DtscopeError(f"{_DEBUG} is {level!r}: set it to {', '.join(_DEBUG_LEVELS[:-1])} or {_DEBUG_LEVELS[-1]}, or delete it")


def _installed_gpus() -> int:
    import pynvml

    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    return 0


def _kernel_only(name: str, value: str) -> bool:
    return name == "JPY_PARENT_PID" or (name == "MPLBACKEND" and value.startswith("module://"))
