# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Libraries that start torch.distributed themselves find the ranks they expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ranks import Ranks


def test_accelerate_trains(ranks: Ranks) -> None:
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
    first, second = ranks.value(source, "x")
    assert first[:3] == (2, "DistributedDataParallel", 8)
    assert first == second


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
        arguments = TrainingArguments({str(tmp_path)!r}, num_train_epochs=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
                                      save_strategy="no", ddp_backend="gloo", dataloader_num_workers=1)
        trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Rows())
        result = trainer.train()
        x = trainer.args.world_size, result.global_step, trainer.model.classifier.bias.tolist()
    """
    first, second = ranks.value(source, "x")
    assert first[:2] == (2, 4)
    assert first == second
