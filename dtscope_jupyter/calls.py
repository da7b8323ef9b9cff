# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The function form of the cell magic, for notebooks, scripts and tests alike."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import arguments, session
from dtscope_jupyter.errors import DtscopeError
from dtscope_jupyter.launch import values
from dtscope_jupyter.session import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from dtscope_jupyter.run import Run


def profile(  # noqa: PLR0913 # keywords, as the options of the cell magic
    function: Callable[..., object],
    nprocs: int | None = None,
    args: tuple[Any, ...] = (),
    *,
    backend: str | None = None,
    directory: str | PathLike[str] | None = None,
    name: str | None = None,
    collect: Iterable[str] | None = None,
    budget: float | str = 0.01,
    disk: int | str = "2GiB",
    timeout: float | None = None,
    on_hang: str = "report",
    cluster: str | None = None,
) -> Run:
    """Runs `function(*args)` on `nprocs` ranks of this host, or of an ipyparallel cluster, with collectors installed, and returns the Run.

    The function travels by value, so it may be defined in a notebook or a script. It is ordinary
    torch.distributed code: `init_process_group()` finds its peers. `budget` is a share of step time (0.01 or
    "1%"), `disk` bytes a rank, `timeout` seconds.

    Raises:
        DtscopeError: The request can't be met; one line.
        RankError: A rank failed; its traceback is part of the exception.
    """
    asked = Request(
        world_size=nprocs,
        backend=backend,
        directory=None if directory is None else str(directory),
        name=name or getattr(function, "__name__", None),
        collect=None if collect is None else _checked(arguments.collectors, ",".join(collect)),
        budget=_checked(arguments.share, str(budget)),
        disk=_checked(arguments.size, str(disk)),
        timeout=timeout,
        on_hang=on_hang,
        cluster=cluster,
    )
    running = session.current().start(_call(function, args), asked, {})
    running.follow({})
    assert running.run is not None
    return running.run


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> values.Packed:
    if not callable(function):
        raise DtscopeError(f"profile needs a function, not a {type(function).__name__}: dts.profile(train, nprocs=2, args=(...))")
    try:
        return values.pack((function, args))
    except Exception as error:
        what = getattr(function, "__name__", type(function).__name__)
        raise DtscopeError(f"{what} and its arguments can't be sent to another process ({error}): make them inside the function") from error


def _checked(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except argparse.ArgumentTypeError as error:
        raise DtscopeError(str(error)) from error
