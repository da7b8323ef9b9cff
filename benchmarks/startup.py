# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Start-up: the `.pth` file, `%load_ext`, a warm profile beside torchrun on the same script, and the end of a killed kernel.

Run: python benchmarks/startup.py [--rounds N] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from interleaved import Comparison, compare, write
from jupyter_client.manager import KernelManager

RANKS = 2
ROOT = Path(__file__).resolve().parents[1]
LOAD = (
    "import time; from IPython.core.interactiveshell import InteractiveShell; shell = InteractiveShell.instance(); "
    "t = time.perf_counter(); shell.run_line_magic('load_ext', 'dtscope_jupyter'); print(1e3 * (time.perf_counter() - t))"
)


def start_up(site: Path) -> float:
    """Milliseconds that Python takes to start, add `site` and end; 20 starts, the fastest counts."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")}
    command = [sys.executable, "-S", "-c", f"import site; site.addsitedir({str(site)!r})"]
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        subprocess.run(command, env=environment, check=True)
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def load_extension() -> float:
    """Milliseconds of `%load_ext dtscope_jupyter` in a fresh, started IPython."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
    return float(done.stdout.split()[-1])


class Kernel:
    """A Jupyter kernel with the extension loaded and its warm process ready."""

    def __init__(self, folder: str) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=folder)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(60)
        self.run("%load_ext dtscope_jupyter\nfrom dtscope_jupyter import session\nsession.current().warm.wait_ready()")

    def run(self, cell: str) -> str:
        """What a cell prints."""
        printed: list[str] = []
        self.client.execute_interactive(cell, timeout=120, output_hook=lambda message: printed.append(message["content"].get("text", "")))
        return "".join(printed)

    def first_line(self) -> float:
        """Seconds from sending the cell to the first line after `import torch` on the later of two ranks."""
        begin = time.time_ns()
        self.run(f"%%dtscope profile -n {RANKS} --pull first:all\nimport time, torch\nfirst = time.time_ns()")
        return (max(map(int, self.run("print(*first)").split())) - begin) / 1e9

    def end(self) -> float:
        """Seconds from killing the kernel to the end of two ranks in a collective, their store and the warm process."""
        program = "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.recv(torch.ones(1))"
        self.run(f"%%dtscope profile -n {RANKS} --background\n{program}")
        self.run("import time\nwhile len(session.current().profile.job.pids) < 2: time.sleep(.1)\ntime.sleep(2)")
        family = psutil.Process(int(self.run("import os\nprint(os.getpid())"))).children(recursive=True)
        begin = time.perf_counter()
        self.manager.signal_kernel(signal.SIGKILL)
        while any(map(alive, family)):
            time.sleep(0.005)
        gone = time.perf_counter() - begin
        self.close()
        return gone

    def close(self) -> None:
        """Ends it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie that waits for its parent does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def torchrun(folder: str) -> float:
    """The same seconds as `Kernel.first_line`, for torchrun on the same two lines."""
    script = Path(folder, "script.py")
    script.write_text("import time, torch\nprint(time.time_ns(), flush=True)\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), str(script)]
    begin = time.time_ns()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return (max(map(int, done.stdout.split())) - begin) / 1e9


def launches(rounds: int) -> tuple[Comparison, list[float]]:
    """A warm profile beside torchrun, and the ends of three killed kernels."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(folder)
        compared = compare(lambda: torchrun(folder), kernel.first_line, rounds)
        kernel.close()
        return compared, sorted(Kernel(folder).end() for _ in range(3))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bare, ours = Path(scratch, "bare"), Path(scratch, "ours")
        bare.mkdir()
        ours.mkdir()
        shutil.copy(ROOT / "script" / "dtscope_jupyter.pth", ours)
        pth = compare(lambda: start_up(bare), lambda: start_up(ours), options.rounds)
    print(pth.row("Python start-up, .pth unset", "ms"))
    loads = sorted(load_extension() for _ in range(options.rounds))
    print(f"{'%load_ext in a started IPython':<34} {loads[len(loads) // 2]:9.3f} ms  (slowest {loads[-1]:.3f} ms of {len(loads)})")
    warm, ends = launches(options.rounds)
    print(warm.row("first line: torchrun, warm profile", "s"))
    print(f"{'killed kernel: last process gone':<34} {ends[len(ends) // 2]:9.3f} s   (slowest {ends[-1]:.3f} s of {len(ends)})")
    if options.out:
        write(options.out, {"pth": pth, "load_ext_ms": loads, "torchrun_and_profile_s": warm, "kernel_death_s": ends})


if __name__ == "__main__":
    main()
