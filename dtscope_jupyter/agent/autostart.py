# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Imported by a .pth file where DTRAINSCOPE_ENABLE is set, or by `watch`: arms this process if it becomes a rank.

It waits for torch.distributed to be imported and to initialise, so that torchrun itself, DataLoader workers and
other children never arm. Imports only what the interpreter has loaded anyway.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MODULE = "torch.distributed.distributed_c10d"
RANK_PID = "DTRAINSCOPE_RANK_PID"


class _Finder:
    """Lets the module be found as ever, and has `_wrap` called once it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = next((found for finder in sys.meta_path if (found := _find(finder, name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _wrap(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _find(finder: Any, name: str, path: Any, target: Any) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return find(name, path, target) if find is not None else None


def _wrap(module: Any) -> None:
    import functools

    initialise = module.init_process_group

    @functools.wraps(initialise)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = initialise(*args, **kwargs)
        if not is_child():
            from dtscope_jupyter.agent import enlist

            enlist.enlist()
        return result

    module.init_process_group = init_process_group


def is_child() -> bool:
    """Whether a process above this one is the rank."""
    return os.environ.get(RANK_PID, str(os.getpid())) != str(os.getpid())


def _republish(module: Any) -> None:
    """The package took the function over as it was imported."""
    package: Any = sys.modules.get(_MODULE.rpartition(".")[0])
    if hasattr(package, "init_process_group"):
        package.init_process_group = module.init_process_group


def _install() -> None:
    loaded = sys.modules.get(_MODULE)
    if loaded is not None:
        _wrap(loaded)
        _republish(loaded)
    else:
        sys.meta_path.insert(0, _Finder())


if not is_child():
    _install()
