# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Every example in the pages can be read by what it is for: YAML, Python, the shell, and our own parsers."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtscope_jupyter import arguments, cli
from dtscope_jupyter.agent.config import DEFAULT_COLLECT

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIABLE = re.compile(r"DTRAINSCOPE_([A-Z]+(?:_[A-Z]+)*)")
VARIABLES = {"ENABLE", "LOG_DIR", "BUDGET", "COLLECT", "DISK", "COLLECTOR", "KEYS", "THEME"}


def _blocks(*languages: str) -> list[Any]:
    found = [(page, *block) for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    chosen = [(page, text) for page, language, text in found if language in languages]
    return [pytest.param(text, id=f"{page.relative_to(ROOT)}-{number}") for number, (page, text) in enumerate(chosen)]


@pytest.mark.parametrize("text", _blocks("yaml", "yml"))
def test_yaml_is_manifests_whose_names_lead_somewhere(text: str) -> None:
    for manifest in yaml.safe_load_all(text):
        assert {"apiVersion", "kind", "metadata", "spec"} <= manifest.keys()
        for pod in _pods(manifest):
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
                names = {entry["name"] for entry in container.get("env", [])}
                assert {name.removeprefix("DTRAINSCOPE_") for name in names} <= VARIABLES
                if "dtscope" in (command := container.get("command", []) + container.get("args", [])):
                    cli.parser().parse_args(command[1:])


def _pods(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, dict):
        return ([node] if "containers" in node else []) + [pod for value in node.values() for pod in _pods(value)]
    return [pod for value in node for pod in _pods(value)] if isinstance(node, list) else []


@pytest.mark.parametrize("text", _blocks("python"))
def test_python(text: str) -> None:
    magics = [line for line in text.splitlines() if line.startswith("%dtscope")]
    ast.parse("\n".join(line for line in text.splitlines() if not line.startswith("%")))
    for line in magics:
        arguments.parse(line.removeprefix("%dtscope"))


@pytest.mark.parametrize("text", _blocks("sh", "bash"))
def test_shell(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["dtscope"]:
            cli.parser().parse_args(words[1 : words.index("&&") if "&&" in words else None])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_variables_are_those_that_are_read(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(VARIABLE.findall(text)) <= VARIABLES
    for chosen in re.findall(r"DTRAINSCOPE_COLLECT=([a-z_,]+)", text):
        assert set(chosen.split(",")) <= DEFAULT_COLLECT | {"spans", "gradient_tiles"}
