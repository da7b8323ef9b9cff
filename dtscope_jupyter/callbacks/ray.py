# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""For Ray Train: `RunConfig(callbacks=[DtscopeCallback(...)])` of a TorchTrainer records the training function on every worker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayActorError, RayTaskError
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from dtscope_jupyter.callbacks import joining

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_log = logging.getLogger("dtscope_jupyter")


class DtscopeCallback(WorkerGroupCallback):
    """Records every worker into a new run in `directory`, which all nodes share; workers on which DTRAINSCOPE_ENABLE=1 records are let be.

    `collect`, `budget` and `disk` are as the options of %%dtscope profile. Workers that Ray starts again after a failure begin a run of
    their own.
    """

    def __init__(
        self,
        directory: str | Path = "dtscope-runs",
        *,
        name: str = "ray-train",
        collect: Iterable[str] | None = None,
        budget: float | str = "1%",
        disk: int | str = "2GiB",
    ) -> None:
        self._variables = joining.settings(directory, collect, budget, disk)
        self._name = name

    def after_worker_group_start(self, worker_group: Any) -> None:
        """Ray's own callback before this one has made the process group, and the training function comes after it."""
        worker_group.execute(joining.join, self._variables, self._name)

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Workers are killed: what they hold is written first. Those that are gone have nothing to write."""
        try:
            worker_group.execute(_finish)
        except (RayActorError, RayTaskError) as error:
            _log.warning("dtscope: a worker was gone before it had written its last rows: %s", str(error).splitlines()[0])


def _finish() -> None:
    from dtscope_jupyter import agent

    current = agent.armed()
    if current is not None:
        current.finish()
