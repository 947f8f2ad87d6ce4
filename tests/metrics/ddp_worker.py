"""One process of the DDP test of the torchmetrics classes.

Run as ``python ddp_worker.py RANK WORLD RENDEZVOUS_FILE SPLIT``: process RANK takes its rows of the
batch, updates every class in two steps and prints what each computes, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from metrics.module_function_pairs import BATCH, module_function_pairs


def main(rank: int, world: int, rendezvous: str, split: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world
    )
    rows = slice(0, split) if rank == 0 else slice(split, None)
    values = {}
    for name, (module, inputs, _) in module_function_pairs().items():
        mine, targets = inputs[rows], BATCH.targets[rows]
        half = len(mine) // 3
        for part in (slice(0, half), slice(half, None)):
            module.update(mine[part], targets[part])
        values[name] = module.compute().tolist()
    print(json.dumps(values))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
