# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""See distributed PyTorch training from a notebook cell."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from dtscope_jupyter.agent import log, watch
    from dtscope_jupyter.calls import profile
    from dtscope_jupyter.diagnosis.expect import expect
    from dtscope_jupyter.run import open  # noqa: A004 # the name users know from every library that reads files

__all__ = ["__version__", "expect", "log", "open", "profile", "watch"]
__version__ = "0.1.0"

_LAZY = {
    "expect": "dtscope_jupyter.diagnosis.expect",
    "log": "dtscope_jupyter.agent",
    "open": "dtscope_jupyter.run",
    "profile": "dtscope_jupyter.calls",
    "watch": "dtscope_jupyter.agent",
}


def __getattr__(name: str) -> Any:
    """The public names; torch, pandas and the rest are imported when one of them is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """%load_ext dtscope_jupyter."""
    from dtscope_jupyter import magics

    magics.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """%unload_ext dtscope_jupyter."""
    from dtscope_jupyter import magics

    magics.unload(shell)
