# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dtscope_jupyter import doctor
from dtscope_jupyter.errors import DtscopeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def _python(code: str, **variables: str) -> Iterator[int]:
    """The pid of a Python that ran `code` and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}\nprint('ready', flush=True)\nimport time; time.sleep(600)"],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _checks(pid: int) -> dict[str, doctor.Check]:
    return {check.what: check for check in doctor.examine(pid)}


def _pci(root: Path, vendor: str, kind: str) -> Path:
    device = root / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    return root


@pytest.mark.parametrize(("vendor", "kind", "there"), [
    ("0x10de", "0x030200", True), ("0x10de", "0x040300", False), ("0x8086", "0x030000", False),
])  # fmt: skip
def test_a_gpu_is_told_by_the_bus(tmp_path: Path, vendor: str, kind: str, there: bool) -> None:  # noqa: FBT001
    assert doctor.has_nvidia_device(_pci(tmp_path, vendor, kind)) is there


def test_no_gpu_is_no_matter_of_containers() -> None:
    checks = {check.what: check for check in doctor.examine()}
    found = checks["GPU counters (NVML)"]
    assert found.ok or doctor.has_nvidia_device() or (found.reason, found.change) == ("no NVIDIA device here", "")


def test_machine() -> None:
    checks = {check.what: check for check in doctor.examine()}
    assert checks["hooks"].ok
    assert checks["hooks"].reason.startswith("torch ")
    assert all(check.reason for check in checks.values())


def test_process_without_torch() -> None:
    with _python("pass") as pid:
        checks = _checks(pid)
    assert checks["process"].ok
    assert not checks["rank"].ok
    assert str(pid) in checks["rank"].change
    assert checks["hooks"].reason == "it has not loaded torch"
    assert checks["files"].ok


def test_rank_that_is_not_armed() -> None:
    with _python("import torch", RANK="3", WORLD_SIZE="8", TORCH_FR_BUFFER_SIZE="0", DTRAINSCOPE_ENABLE="") as pid:
        checks = _checks(pid)
    assert checks["rank"].reason == "3 of 8"
    assert not checks["hooks"].ok
    assert "DTRAINSCOPE_ENABLE=1" in checks["hooks"].change
    assert checks["Flight Recorder"].change == "unset TORCH_FR_BUFFER_SIZE, or set it to 2000"
    assert "DTRAINSCOPE_ENABLE" in checks["attach to an unarmed process"].change


def test_rank_that_records(tmp_path: Path) -> None:
    folder = tmp_path / "rank-0000"
    folder.mkdir()
    with _python(f"import torch; file = open({str(folder / 'steps.arrows')!r}, 'w')", RANK="0", WORLD_SIZE="1") as pid:
        checks = _checks(pid)
    assert checks["hooks"].ok
    assert checks["hooks"].reason.endswith("rank-0000")
    assert checks["profiler"].ok
    assert checks["stacks"].ok
    assert "attach to an unarmed process" not in checks


def test_a_launcher_is_no_rank_that_waits() -> None:
    with _python("import torch", DTRAINSCOPE_ENABLE="1") as pid:
        checks = _checks(pid)
    assert not checks["rank"].ok
    assert checks["hooks"].reason == "only ranks arm themselves, launchers and helpers never do"


def test_process_that_listens_as_the_debug_server() -> None:
    code = "import socket; s = socket.create_server(('127.0.0.1', 25999))"
    with _python(code) as pid:
        assert _checks(pid)["torch.distributed.debug"].ok


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_process_of_another_user() -> None:
    with _python("pass") as pid:
        code = f"import os; from dtscope_jupyter import doctor; os.setuid(65534); print(doctor.text(doctor.examine({pid})))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("no   process  it belongs to user 0, we are 65534\n")
    assert f"dtscope doctor {pid}" in done.stdout


def test_no_such_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    time.sleep(0.01)
    with pytest.raises(DtscopeError, match=f"no process has pid {process.pid}"):
        doctor.examine(process.pid)
