# SPDX-FileCopyrightText: 2026 The dtscope_jupyter authors
# SPDX-License-Identifier: Apache-2.0
"""A notebook that trains the 470M GPT under DDP and FSDP2 from cells, executed by nbclient; keeps it and its pictures.

Run: python benchmarks/gpu/notebook.py --ranks 2 --out FOLDER
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
CELL = """%%dtscope profile -n {ranks} --backend nccl --dir dtscope-runs/{parallel}
import sys
sys.path.insert(0, {here!r})
import gpt
import torch
import torch.distributed as dist

dist.init_process_group()
model, optimizer = gpt.build("470m", {parallel!r})
draw = gpt.batches("470m")
for number in range({steps}):
    loss = gpt.step(model, optimizer, draw())
    if number % 20 == 0 and dist.get_rank() == 0:
        print(f"step {{number}}: loss {{float(loss):.3f}}")
torch.cuda.synchronize()
dist.destroy_process_group()"""


def main() -> None:
    """Executes the notebook and writes it, one picture a report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cells = ["%load_ext dtscope_jupyter"]
    for parallel in ("ddp", "fsdp"):
        cells.append(CELL.format(ranks=options.ranks, parallel=parallel, here=str(HERE), steps=options.steps))
        cells.append(f"import dtscope_jupyter as dts\nprint(dts.open('dtscope-runs/{parallel}').diagnose())")
    v4: Any = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=240, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": "."}}).execute()
    (options.out / "gpt_470m.ipynb").write_text(v4.writes(notebook))
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            print(number, output.output_type, str(output.get("text") or data.get("text/plain") or output.get("evalue"))[:1500])
            picture = data.get("image/png")
            if picture:
                (options.out / f"report_{number}.png").write_bytes(base64.b64decode(picture))


if __name__ == "__main__":
    main()
