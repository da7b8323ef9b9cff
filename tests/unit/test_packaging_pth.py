# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The .pth file of the wheel: silent unless it is asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PTH = ROOT / "script" / "dtscope_jupyter.pth"
PROBE = """
import json, site, sys
before = set(sys.modules)
site.addsitedir(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def _imported(folder: Path, **variables: str) -> list[str]:
    """Modules that Python imports because of the .pth file in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DTRAINSCOPE_")} | variables
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", PROBE, str(folder)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    modules: list[str] = json.loads(done.stdout)
    return modules


def _site(tmp_path: Path) -> Path:
    shutil.copy(PTH, tmp_path)
    room = tmp_path / "dtscope_jupyter" / "agent"
    room.mkdir(parents=True)
    for name in ("__init__.py", "agent/__init__.py", "agent/autostart.py"):
        (room.parent / name).write_text("")
    return tmp_path


def test_imports_nothing_while_the_variable_is_unset(tmp_path: Path) -> None:
    assert _imported(_site(tmp_path)) == []


def test_imports_nothing_while_the_variable_is_empty(tmp_path: Path) -> None:
    assert _imported(_site(tmp_path), DTRAINSCOPE_ENABLE="") == []


def test_imports_the_agent_where_the_variable_is_set(tmp_path: Path) -> None:
    assert "dtscope_jupyter.agent.autostart" in _imported(_site(tmp_path), DTRAINSCOPE_ENABLE="1")


def test_names_a_module_that_is_there() -> None:
    line = PTH.read_text().splitlines()[-1]
    name = line.split('__import__("')[1].split('"')[0]
    assert (ROOT / Path(*name.split("."))).with_suffix(".py").is_file()
