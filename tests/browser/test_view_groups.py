# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""The map grouped by process groups, of a real run of four ranks in two groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import dtscope_jupyter as dts
from tests.browser import lab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


def train() -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group()
    groups = [dist.new_group(ranks, group_desc=name) for ranks, name in (([0, 2], "even"), ([1, 3], None))]
    parameter = torch.nn.Parameter(torch.ones(64))
    optimizer = torch.optim.SGD([parameter], 0.01)
    for _ in range(12):
        parameter.sum().backward()
        dist.all_reduce(parameter.grad, group=groups[dist.get_rank() % 2])
        optimizer.step()
        optimizer.zero_grad()


def read_out(page: Page, ranks: int) -> list[list[str]]:
    """What the map reads out of its first column, from top to bottom, in its parts."""
    lab.wait_frame(page)
    canvas, voice = page.locator("[data-panel=map] canvas"), page.locator("[data-panel=map] .dts-voice")
    canvas.focus()
    canvas.press("Home")
    for _ in range(ranks):
        canvas.press("ArrowUp")
    found = []
    for _ in range(ranks):
        lab.wait_frame(page)
        found.append(voice.inner_text().split(", "))
        canvas.press("ArrowDown")
    return found


def test_ranks_of_one_group_stand_together(page: Page, tmp_path: Path) -> None:
    run = dts.profile(train, nprocs=4, directory=tmp_path / "run", collect=["steps", "collectives"])
    page.add_init_script(lab.KEEP_TEXTS)
    lab.open_file(page, run.save_html(tmp_path / "run.html"))
    expect(page.get_by_label("group by").locator("option:enabled")).to_have_text(["none", "host", "process group"])
    page.get_by_label("group by").select_option("group")
    page.wait_for_function("() => ['group', 'even', '2'].every(name => window.drawn.includes(name))")
    order, groups = zip(*((words[0], words[-1]) for words in read_out(page, 4)), strict=True)
    assert order == ("rank 0", "rank 2", "rank 1", "rank 3")
    assert groups[0] == groups[1] != groups[2] == groups[3]
    assert groups[0] == "group even"


def test_costly_ranks_come_first_within_their_groups(page: Page, tmp_path: Path) -> None:
    run = dts.profile(train, nprocs=4, directory=tmp_path / "run", collect=["steps", "collectives"])
    lab.open_file(page, run.save_html(tmp_path / "run.html"))
    page.get_by_label("group by").select_option("group")
    page.get_by_label("order").select_option("cost")
    means = run.table("steps").groupby("rank")["exposed_ms"].mean()
    order = [int(words[0].removeprefix("rank ")) for words in read_out(page, 4)]
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}
    assert order[0] == means.idxmax()
    assert means[order[0]] >= means[order[1]]
    assert means[order[2]] >= means[order[3]]
