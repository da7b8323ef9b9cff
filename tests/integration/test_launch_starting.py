# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""What keeps torch from being imported is named, with what to do, and is no trouble once it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ranks import Ranks

from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import Warm
from dtscope_jupyter.session import Request, Session

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("torch.py", "x = 1\n", "ModuleNotFoundError: No module named 'torch.distributed'; 'torch' is not a package"),
        ("numpy.py", "raise ImportError('mine')\n", "ImportError: mine"),
        ("dtscope_jupyter/__init__.py", "", "ModuleNotFoundError: No module named 'dtscope_jupyter.launch'"),
        ("secrets.py", "raise KeyError('mine')\n", "KeyError: 'mine'"),
    ],
)
def test_a_file_that_hides_a_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, reason: str) -> None:
    hiding = tmp_path / "notebook" / file
    hiding.parent.mkdir(parents=True)
    hiding.write_text(text)
    monkeypatch.chdir(tmp_path / "notebook")
    monkeypatch.syspath_prepend(str(tmp_path / "notebook"))
    ranks = Ranks(Warm(), tmp_path)
    with pytest.raises(DtscopeError) as refused:
        ranks.run("x = 1")
    name = file.partition("/")[0]
    where = f"{name} in {tmp_path / 'notebook'} hides the module of that name: rename it, then run the cell again"
    assert str(refused.value) == f"no rank can be started, as torch can't be imported ({reason}): {where}"
    hiding.unlink()
    assert ranks.value("x = 1", "x") == [1, 1]
    ranks.warm.stop()


def test_a_wrong_debug_level_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "nonsense")
    session = Session()
    session.prepare()
    with pytest.raises(DtscopeError) as refused:
        session.start(None, Request(), {})  # type: ignore[arg-type] # refused before the program is looked at
    assert str(refused.value) == "TORCH_DISTRIBUTED_DEBUG is 'nonsense': set it to OFF, INFO or DETAIL, or delete it"
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    ranks = Ranks(session.warm, tmp_path)
    assert ranks.value("import torch.distributed as dist\nx = dist.get_debug_level().name", "x") == ["DETAIL"] * 2
    session.close()
