# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Where things are shown: a notebook, an IPython terminal, or nowhere in a plain script."""

from __future__ import annotations

import sys
from typing import Any


def shell() -> Any | None:
    """The running IPython shell, None outside of one; imports nothing."""
    module = sys.modules.get("IPython.core.interactiveshell")
    return module.InteractiveShell._instance if module is not None else None  # noqa: SLF001 # instance() would make one


def has_widgets() -> bool:
    """Whether there is a kernel, and so perhaps a front end that draws widgets."""
    return hasattr(shell(), "kernel")


def show(value: Any, *, display_id: str | None = None, update: bool = False) -> None:
    """Displays a value in the cell; outside of IPython nothing is shown."""
    if shell() is None:
        return
    from IPython.display import display

    if display_id is None:
        display(value)
    else:
        display(value, display_id=display_id, update=update)


def say(text: str) -> None:
    """One line of ours, beside what the ranks print."""
    sys.stdout.flush()
    sys.stderr.write(f"dtscope: {text}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """What rank 0 printed, as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()
