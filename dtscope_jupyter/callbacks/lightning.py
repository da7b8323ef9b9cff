# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""For Lightning: `Trainer(callbacks=[DtscopeCallback()])` records `fit` on every rank."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dtscope_jupyter import agent
from dtscope_jupyter.callbacks import joining

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def _callback() -> Any:
    """Lightning is published under two names; the one that the program has imported is meant, else the one that is installed."""
    if "lightning.pytorch" not in sys.modules and ("pytorch_lightning" in sys.modules or find_spec("lightning") is None):
        from pytorch_lightning import Callback as OlderName

        return OlderName
    from lightning.pytorch import Callback

    return Callback


class DtscopeCallback(_callback()):  # type: ignore[misc] # either of two classes
    """Records `fit` into a new run in `directory`; where DTRAINSCOPE_ENABLE=1 records already, it adds the logged metrics only.

    `collect`, `budget` and `disk` are as the options of %%dtscope profile. A second `fit` of the process goes on in the same run.
    """

    def __init__(
        self,
        directory: str | Path = "dtscope-runs",
        *,
        name: str = "",
        collect: Iterable[str] | None = None,
        budget: float | str = "1%",
        disk: int | str = "2GiB",
    ) -> None:
        super().__init__()
        self._variables = joining.settings(directory, collect, budget, disk)
        self._name = name
        self._ours = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The process group is made and the model isn't wrapped yet: the moment to arm."""
        del trainer, pl_module
        if stage != "fit":
            return
        current = agent.armed()
        if self._ours and current is not None:
            current.start()
        else:
            self._ours = joining.join(self._variables, self._name)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Names what is trained."""
        for optimizer in trainer.optimizers:
            if agent.armed() is not None:
                agent.watch(trainer.strategy.model or pl_module, optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """What the module logs is logged here too, in the steps in which Lightning itself reads it."""
        del pl_module, outputs, batch, batch_idx
        if trainer.log_every_n_steps and trainer.global_step % trainer.log_every_n_steps == 0:
            agent.log(**{name: float(value) for name, value in trainer.logged_metrics.items()})

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Takes the hooks off again; what was recorded is on disk."""
        del trainer, pl_module
        current = agent.armed()
        if stage == "fit" and self._ours and current is not None:
            current.stop()
