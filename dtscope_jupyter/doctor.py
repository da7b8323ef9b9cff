# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What can be observed on this machine, or of one process, and the line that changes it where something can't."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dtscope_jupyter import debugserver, remote
from dtscope_jupyter.process import Process

_PTH = "dtscope_jupyter.pth"
_OLDEST_TORCH = (2, 11)
_PTRACE_ATTACH_OF_CHILDREN_ONLY = 1
_DEBUG_SERVER_PORT = 25999
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""PCI's number of the vendor, and how its number of display controllers begins."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that could be observed: whether it can, why not, and the line that would change it ("" where nothing would)."""

    what: str
    ok: bool
    reason: str
    change: str = ""


def examine(pid: int | None = None) -> list[Check]:
    """The checks of this machine, or of process `pid`; DtscopeError where there is no such process."""
    if pid is None:
        return [_torch(), _startup_file(Path(sys.prefix)), _nvml(), _remote_exec(sys.version_info[:2]), _ptrace(), _ebpf()]
    return _process(Process(pid))


def text(checks: list[Check]) -> str:
    """The checks as a table for a terminal or a cell."""
    width = max(len(check.what) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{'yes' if check.ok else 'no ':<3}  {check.what:<{width}}  {check.reason}".rstrip())
        if check.change:
            lines.append(f"     {'':<{width}}  -> {check.change}")
    return "\n".join(lines)


def _torch() -> Check:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return _no("hooks", "torch is not installed here", "pip install torch")
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < _OLDEST_TORCH:
        return _no("hooks", f"torch {found} is older than 2.11, the oldest tested", "pip install -U torch")
    return _yes("hooks", f"torch {found}")


def _startup_file(prefix: Path) -> Check:
    what = "unchanged scripts"
    if any(prefix.glob(f"lib/python3*/site-packages/{_PTH}")):
        return _yes(what, "record themselves where DTRAINSCOPE_ENABLE=1 is set")
    return _no(what, f"no {_PTH} in {prefix}", "pip install dtscope-jupyter, in the environment of the job")


def _nvml() -> Check:
    import pynvml

    what = "GPU counters (NVML)"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if not has_nvidia_device():
            return _no(what, "no NVIDIA device here")
        container = Path("/.dockerenv").exists()
        return _no(what, str(error), "start the container with --gpus all" if container else "install the NVIDIA driver")
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    return _yes(what, f"{count} devices")


def has_nvidia_device(root: Path = Path("/")) -> bool:
    """Whether the machine has a GPU of NVIDIA, whether or not a driver or this container shows it; WSL's counts as one."""
    if any((root / "dev").glob("nvidia[0-9]*")) or (root / "dev/dxg").exists():
        return True
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(_word(each / "vendor") == _NVIDIA and _word(each / "class").startswith(_DISPLAY) for each in devices)


def _remote_exec(python: tuple[int, ...] | None) -> Check:
    what = "attach to an unarmed process"
    if reason := remote.obstacle(python):
        return _no(what, reason, "start the job with DTRAINSCOPE_ENABLE=1 or =attach")
    return _yes(what, "by sys.remote_exec: %dtscope attach PID")


def _ptrace() -> Check:
    what = "stacks of an unarmed process"
    scope = _number(Path("/proc/sys/kernel/yama/ptrace_scope"))
    if scope and scope >= _PTRACE_ATTACH_OF_CHILDREN_ONLY and os.geteuid() != 0:
        return _no(what, f"kernel.yama.ptrace_scope is {scope}", "sudo sysctl kernel.yama.ptrace_scope=0, for py-spy")
    if shutil.which("py-spy") is None:
        return _no(what, "py-spy is not installed; armed ranks need it not", "pip install py-spy")
    return _yes(what, "by py-spy")


def _ebpf() -> Check:
    what = "eBPF"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return _no(what, "the kernel has no type information (BTF)", "")
    effective = re.search(r"CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text())
    capabilities = int(effective[1], 16) if effective else 0
    if not capabilities & (1 << 39 | 1 << 21):
        return _no(what, "neither CAP_BPF nor CAP_SYS_ADMIN", "run the tool that needs it as root; dtscope itself needs none")
    return _yes(what, "the kernel and our capabilities allow it; dtscope itself uses none")


def _process(process: Process) -> list[Check]:
    if process.owner != os.geteuid() != 0:
        command = f"sudo -u '#{process.owner}' dtscope doctor {process.pid}, or attach to its run directory"
        return [_no("process", f"it belongs to user {process.owner}, we are {os.geteuid()}", command)]
    try:
        return [
            _yes("process", f"{process.name}, of user {process.owner}"),
            _rank(process),
            _hooks(process),
            _flight_recorder(process),
            _profiler(process),
            _stacks(process),
            _files(process),
            *([] if process.rank_folder else [_remote_exec(process.python)]),
            _nvml(),
            _debug_server(process),
        ]
    except OSError as error:
        return [_no("process", f"process {process.pid} can't be read: {error.strerror}", "attach to its run directory")]


def _rank(process: Process) -> Check:
    rank, world = process.environment.get("RANK"), process.environment.get("WORLD_SIZE")
    if rank and world:
        return _yes("rank", f"{rank} of {world}")
    reason = "RANK and WORLD_SIZE are not in its environment: a launcher, or no job"
    return _no("rank", reason, f"give the pid of a rank: pgrep -P {process.pid}")


def _hooks(process: Process) -> Check:
    if process.rank_folder is not None:
        return _yes("hooks", f"armed, records into {process.rank_folder}")
    if not process.has_torch:
        return _no("hooks", "it has not loaded torch", "")
    installed = _startup_file(process.prefix) if process.prefix else None
    if installed is not None and not installed.ok:
        return _no("hooks", installed.reason, f"{installed.change}; then start it with DTRAINSCOPE_ENABLE=1")
    if "RANK" not in process.environment:
        return _no("hooks", "only ranks arm themselves, launchers and helpers never do", "")
    if value := process.environment.get("DTRAINSCOPE_ENABLE"):
        return _no("hooks", f"DTRAINSCOPE_ENABLE={value} is set; torch.distributed is not initialised yet", "wait for init_process_group")
    return _no("hooks", "not armed", "start it with DTRAINSCOPE_ENABLE=1 or =attach")


def _flight_recorder(process: Process) -> Check:
    what = "Flight Recorder"
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        if process.environment.get(name) == "0":
            return _no(what, f"{name}=0 turns it off", f"unset {name}, or set it to 2000")
    if not process.has_torch:
        return _no(what, "it has not loaded torch", "")
    return _yes(what, "on" if process.rank_folder else "on; read through hooks or the debug server")


def _profiler(process: Process) -> Check:
    if process.rank_folder:
        return _yes("profiler", "%dtscope capture profile takes a window")
    if process.environment.get("KINETO_USE_DAEMON"):
        return _yes("profiler", "by dynolog: KINETO_USE_DAEMON is set")
    return _no("profiler", "not armed", "start it with DTRAINSCOPE_ENABLE=1 or =attach")


def _stacks(process: Process) -> Check:
    return _yes("stacks", "%dtscope capture stacks takes them") if process.rank_folder else _ptrace()


def _files(process: Process) -> Check:
    if process.shares_files():
        return _yes("files", "same file systems")
    return _no("files", "it is in a container of its own", "mount its DTRAINSCOPE_LOG_DIR here, or set DTRAINSCOPE_COLLECTOR for it")


def _debug_server(process: Process) -> Check:
    what = "torch.distributed.debug"
    change = "call torch.distributed.debug.start_debug_server() in the script; it needs jinja2 and tabulate"
    if found := debugserver.find(process):
        return _yes(what, f"worker server on port {found.port}: {', '.join(found.handlers)}")
    if _DEBUG_SERVER_PORT in process.listening():
        return _yes(what, f"serves port {_DEBUG_SERVER_PORT}")
    return _no(what, f"no server on port {_DEBUG_SERVER_PORT}", change)


def _yes(what: str, reason: str) -> Check:
    return Check(what, ok=True, reason=reason)


def _no(what: str, reason: str, change: str = "") -> Check:
    return Check(what, ok=False, reason=reason, change=change)


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
