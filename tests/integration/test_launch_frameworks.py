# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Libraries that start torch.distributed themselves find the ranks they expect, observed or not, and train the same."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from dtscope_jupyter.store import BlockReader

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks

ARM = """
import os, pathlib
from dtscope_jupyter import agent
rank, folder = int(os.environ["RANK"]), pathlib.Path({folder!r}, os.environ["RANK"])
folder.mkdir(mode=0o700, parents=True)
armed = agent.arm(agent.Config(folder=folder, rank=rank, world_size=2, local_rank=rank))
"""


def _observed(ranks: Ranks, source: str, folder: Path) -> list[tuple[object, ...]]:
    """The program's value by rank, which is the same with and without us; with us in `folder`."""
    plain = textwrap.dedent(source)
    without: list[tuple[object, ...]] = ranks.value(plain, "x")
    observed = ranks.value(ARM.format(folder=str(folder)) + plain + "\narmed.finish()\n", "x")
    assert observed == without
    return without


def _rows(folder: Path, rank: int, table: str) -> list[dict[str, object]]:
    return [row for batch in BlockReader(folder / str(rank), table).batches() for row in batch.to_pylist()]


def _check_recorded(folder: Path, steps: int) -> None:
    for rank in range(2):
        assert len(_rows(folder, rank, "steps")) == steps
        reduced = [row for row in _rows(folder, rank, "collectives") if row["bucket"] is not None]
        assert {row["step"] for row in reduced} == set(range(steps))
        assert len(_rows(folder, rank, "gradients")) >= steps
        assert "collector" not in {row["kind"] for row in _rows(folder, rank, "notes")}


def test_accelerate_trains(ranks: Ranks, tmp_path: Path) -> None:
    source = """
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader, TensorDataset
        accelerator = Accelerator(cpu=True)
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4, num_workers=1))
        seen = 0
        for (batch,) in loader:
            optimizer.zero_grad()
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            seen += len(batch)
        x = accelerator.num_processes, type(model).__name__, seen, model.module.weight.tolist()
    """
    first, second = _observed(ranks, source, tmp_path)
    assert first[:3] == (2, "DistributedDataParallel", 8)
    assert first == second
    _check_recorded(tmp_path, 2)


def test_hugging_face_trainer_trains(ranks: Ranks, tmp_path: Path) -> None:
    source = f"""
        import torch
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
        class Rows(torch.utils.data.Dataset):
            def __len__(self): return 16
            def __getitem__(self, i): return {{"input_ids": torch.arange(4) + i % 3, "labels": i % 2}}
        torch.manual_seed(0)
        sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8)
        config = BertConfig(vocab_size=16, **sizes)
        place = {str(tmp_path / "trainer")!r}
        arguments = TrainingArguments(place, num_train_epochs=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
                                      save_strategy="no", ddp_backend="gloo", dataloader_num_workers=1)
        trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows())
        result = trainer.train()
        x = trainer.args.world_size, result.global_step, trainer.model.classifier.bias.tolist()
    """
    first, second = _observed(ranks, source, tmp_path / "run")
    assert first[:2] == (2, 4)
    assert first == second
    _check_recorded(tmp_path / "run", 4)
