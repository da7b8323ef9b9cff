# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of gradients in a browser, taken in a real run of two ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import dtscope_jupyter as dts
from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

STEPS = 120


def train() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    torch.manual_seed(dist.get_rank())
    net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(STEPS):
        model(torch.randn(32, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gradients")
    collect = ["steps", "collectives", "gradients", "gradient_tiles"]
    run = dts.profile(train, nprocs=2, directory=folder / "run", collect=collect, budget=0.5)
    seen = run.table("gradient_tiles").groupby("parameter_id")["rank"].nunique()
    assert (seen == 2).all()
    assert len(seen) == 4
    return run.save_html(folder / "run.html")


def test_the_gradient_of_a_chosen_parameter_is_a_picture_of_each_rank(page: Page, saved: Path) -> None:
    lab.open_file(page, saved)
    pictures = page.locator(".dts-tiles")
    expect(pictures).to_have_text("Choose a parameter to see pictures of its gradient.")
    lines = page.locator("[data-panel=gradients] .dts-surface canvas")
    lines.focus()
    sizes = {"0.weight": (64, 64), "0.bias": (1, 64), "2.weight": (10, 64), "2.bias": (1, 10)}
    for name in ("0", "0.weight", "0.bias", "2", "2.weight", "2.bias"):
        lines.press("ArrowDown")
        if name not in sizes:
            expect(pictures.locator("figure")).to_have_count(0)
            continue
        expect(pictures.locator(".dts-sub").first).to_contain_text(re.compile(rf"^{re.escape(name)}, step \d+: largest magnitudes"))
        expect(pictures.locator("figcaption")).to_have_text(["rank 0", "rank 1"])
        expect(pictures.locator(".dts-scale")).to_have_text(re.compile(r"^[\d.e−]+ · log$"))
        ends = pictures.locator(".dts-ends").all_inner_texts()
        assert len(set(ends)) == 1
        assert re.fullmatch(r"(0|1e−?\d+)\s*1e−?\d+", ends[0])
        for rank in range(2):
            picture = pictures.get_by_role("img", name=f"gradient of rank {rank}")
            shape = picture.evaluate("c => [c.height, c.width]")
            assert sorted(shape) == sorted(sizes[name])
            lab.wait_colours(picture, 3)


def test_lines_are_buckets_too_and_the_samples_play(page: Page, saved: Path) -> None:
    lab.open_file(page, saved)
    panel = page.locator("[data-panel=gradients]")
    panel.get_by_label("rows").select_option("bucket")
    lab.wait_frame(page)
    lines = panel.locator(".dts-surface canvas")
    lines.focus()
    lines.press("ArrowDown")
    expect(panel.locator(".dts-voice")).to_have_text(re.compile("^bucket 0, (un)?folded$"))
    play = panel.get_by_role("button", name="play through the sampled steps")
    play.click()
    expect(play).to_have_text("pause")
    page.wait_for_function("() => +document.querySelector('.dts-at').textContent < 60")
    panel.get_by_role("slider", name="step").fill(str(STEPS - 6))
    expect(play).to_have_text("play")
    play.click()
    expect(play).to_have_text("pause")
    expect(play).to_have_text("play", timeout=120_000)
    expect(panel.locator("header > .dts-sub")).to_have_text(re.compile(r"step \d+$|each rank's last sample$"))
    expect(panel.locator(".dts-at")).to_have_text(re.compile(r"^[1-9]\d*$"))
