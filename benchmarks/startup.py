# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Start-up: what the `.pth` file adds to every Python process, and how long `%load_ext` takes.

Run: python benchmarks/startup.py [--rounds N] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interleaved import compare, write

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
    if options.out:
        write(options.out, {"pth": pth, "load_ext_ms": loads})


if __name__ == "__main__":
    main()
