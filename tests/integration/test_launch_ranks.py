# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A rank looks like one of torchrun's, in the notebook's state of the moment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ranks import CELL

from dtscope_jupyter.launch import values

if TYPE_CHECKING:
    from ranks import Ranks

INIT = "import torch, torch.distributed as dist\ndist.init_process_group()\n"


class TestEnvironment:
    def test_it_has_torchruns_variables(self, ranks: Ranks) -> None:
        found = ranks.value("import os\nx = dict(os.environ)", "x", 3)
        for rank, variables in enumerate(found):
            assert (variables["RANK"], variables["LOCAL_RANK"], variables["GROUP_RANK"]) == (str(rank), str(rank), "0")
            assert (variables["WORLD_SIZE"], variables["LOCAL_WORLD_SIZE"]) == ("3", "3")
            assert variables["MASTER_ADDR"] == "127.0.0.1"
            assert variables["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
        assert len({variables["MASTER_PORT"] for variables in found}) == 1

    def test_it_takes_over_what_the_notebook_has_now(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "beside_the_notebook.py").write_text("answer = 42")
        monkeypatch.setenv("FLAVOUR", "vanilla")
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend("")
        source = "import os, beside_the_notebook\nx = os.environ['FLAVOUR'], os.getcwd(), beside_the_notebook.answer"
        assert ranks.value(source, "x") == [("vanilla", str(tmp_path), 42)] * 2

    def test_a_variable_that_torch_reads_at_import_makes_a_new_warm_process(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
        before = ranks.warm.pid
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert ranks.value("import torch\nx = torch.get_num_threads()", "x") == [2, 2]
        assert ranks.warm.pid != before

    @pytest.mark.parametrize(("text", "threads"), [("2,1", 2), ("many", len(os.sched_getaffinity(0)))])
    def test_threads_are_read_as_openmp_does(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, text: str, threads: int) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert ranks.value("import torch\nx = torch.get_num_threads()", "x") == [threads] * 2

    def test_one_rank_has_every_core(self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert ranks.value("import torch\nx = torch.get_num_threads()", "x", 1) == [len(os.sched_getaffinity(0))]

    def test_ranks_draw_different_numbers_unless_seeded(self, ranks: Ranks) -> None:
        first, second = ranks.value("import numpy, random\nx = numpy.random.rand(), random.random()", "x")
        assert first[0] != second[0]
        assert first[1] != second[1]


class TestRendezvous:
    def test_init_after_destroy_works(self, ranks: Ranks) -> None:
        again = INIT + "x = torch.ones(1) * (1 + dist.get_rank())\ndist.all_reduce(x)\ndist.destroy_process_group()\n"
        assert [float(x) for x in ranks.value(again * 3, "x")] == [3.0, 3.0]

    def test_it_is_on_loopback_and_the_default_backend_is_the_one_asked_for(self, ranks: Ranks) -> None:
        source = INIT + "import os\nx = os.environ['GLOO_SOCKET_IFNAME'], dist.group.WORLD._get_backend(torch.device('cpu')).name()"
        assert ranks.value(source, "x", backend="gloo") == [("lo" if sys.platform == "linux" else "lo0", "gloo")] * 2

    def test_a_cell_that_sets_its_own_address_finds_its_peers(self, ranks: Ranks) -> None:
        source = """
            import os, socket, torch, torch.distributed as dist
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            os.environ["MASTER_PORT"] = port
            dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2)
            x = dist.get_world_size()
        """
        import socket

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        assert ranks.value(source, "x", pushed=values.dump({"port": port})) == [2, 2]

    def test_a_port_taken_is_rank_0s_error(self, ranks: Ranks) -> None:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            source = "import os, torch.distributed as dist\nos.environ['MASTER_PORT'] = port\ndist.init_process_group('gloo')"
            job = ranks.run(source, pushed=values.dump({"port": port}))
        assert job.failure is not None
        assert "in use" in job.failure.reason or "in use" in job.failure.traceback

    def test_a_program_without_process_group_is_fine(self, ranks: Ranks) -> None:
        assert ranks.value("x = 1", "x") == [1, 1]


class TestProgram:
    def test_it_is_main_and_its_classes_go_to_data_loader_workers_and_back(self, ranks: Ranks) -> None:
        source = """
            import torch
            class Item:
                def __init__(self, value): self.value = value
            class Numbers(torch.utils.data.Dataset):
                def __len__(self): return 8
                def __getitem__(self, index): return Item(index)
            loader = torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, collate_fn=list)
            x = sorted(item.value for batch in loader for item in batch), __name__
        """
        assert ranks.value(source, "x") == [(list(range(8)), "__main__")] * 2

    def test_the_last_expression_is_shown_and_source_is_found(self, ranks: Ranks) -> None:
        job = ranks.run("from __future__ import annotations\nimport inspect\ndef f(a: Missing): return 1\ninspect.getsource(f)")
        assert job.failure is None
        assert ranks.log(job, 1) == "'def f(a: Missing): return 1\\n'\n"

    def test_a_custom_sum_of_values_comes_back(self, ranks: Ranks) -> None:
        class Shift:
            def __call__(self, value: int) -> int:
                return value + 1

        pushed = values.dump({"shift": Shift(), "start": 3})
        job = ranks.run("x = shift(start)\nclass Own: pass\ny = Own()", pushed=pushed, pulled={"x": True, "y": False, "z": False})
        assert job.results()["x"] == [4, 4]
        assert type(job.results()["y"]).__name__ == "Own"
        assert job.unpulled == ["--pull z: rank 0 has no such value to give: the cell never set it"]

    def test_a_pulled_value_that_cant_travel_is_named(self, ranks: Ranks) -> None:
        job = ranks.run("import threading\nx = threading.Lock()", pulled={"x": False})
        assert job.failure is None
        assert len(job.unpulled) == 1
        assert "a lock can't be sent" in job.unpulled[0]

    def test_a_full_disk_is_no_error_of_print(self, ranks: Ranks) -> None:
        """/dev/full has no space, as the log's disk."""
        source = """
            import os, sys
            full = os.open("/dev/full", os.O_WRONLY)
            log = os.dup(1)
            os.dup2(full, 1)
            print("lost" * 10000, flush=True)
            sys.stdout.buffer.write(b"lost"); sys.stdout.flush()
            os.dup2(log, 1)
            print("kept")
        """
        job = ranks.run(source)
        assert job.failure is None, job.failure
        assert ranks.log(job, 1) == "kept\n"

    def test_a_pulled_value_that_cant_be_read_is_named_and_the_rest_comes(self, ranks: Ranks) -> None:
        source = """
            class Broken:
                def __reduce__(self): return eval, ("1 / 0",)
            class Leaving:
                def __reduce__(self): raise SystemExit(4)
            x, y, z = Broken(), Leaving(), 3
        """
        job = ranks.run(source, pulled={"x": False, "y": False, "z": False})
        assert job.results() == {"z": 3}
        assert len(job.unpulled) == 2
        assert "--pull y" in job.unpulled[0]
        assert "--pull x: it can't be read in the notebook (ZeroDivisionError: division by zero); bring back" in job.unpulled[1]

    def test_streams_that_the_program_took_away_are_no_trouble(self, ranks: Ranks) -> None:
        job = ranks.run("import sys\nsys.stdout = None\nsys.stderr.close()")
        assert (job.failure, job.notes) == (None, [])

    def test_output_of_children_and_of_c_goes_to_the_log(self, ranks: Ranks) -> None:
        job = ranks.run("import os, sys\nprint('py')\nos.system('echo child')\nos.write(2, b'raw\\n')\nsys.stderr.write('err\\n');")
        assert ranks.log(job, 0).split() == ["py", "child", "raw", "err", "4"]
        assert Path(job.options.logs[0]).stat().st_mode & 0o777 == 0o600


class TestKeep:
    def test_ranks_variables_and_process_groups_stay(self, ranks: Ranks) -> None:
        first = ranks.run(INIT + "x = dist.get_rank()", keep=True)
        second = ranks.run("y = torch.tensor([x + 1])\ndist.all_reduce(y)\nz = y.item()", keep=False, world=first.world, pulled={"z": True})
        assert second.results()["z"] == [3, 3]
        assert second.pids == first.pids
        assert all(not Path(f"/proc/{pid}").exists() for pid in first.pids)

    def test_an_exception_leaves_them_alive(self, ranks: Ranks) -> None:
        first = ranks.run("x = 1\nraise ValueError('no')", keep=True)
        assert first.failure is not None
        assert first.world is not None
        assert not first.world.gone()
        assert ranks.run("y = x", world=first.world, pulled={"y": True}).results()["y"] == [1, 1]


def test_the_cells_name_is_in_the_traceback(ranks: Ranks) -> None:
    job = ranks.run("def f():\n    return 1 / 0\nf()")
    assert job.failure is not None
    assert "Cell In[7], line 2, in f\n    return 1 / 0" in job.failure.traceback
    assert CELL not in job.failure.traceback
    assert "dtscope_jupyter" not in job.failure.traceback
