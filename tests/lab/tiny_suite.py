"""Tiny files in the place of public sets, so that a suite trains in seconds."""

import numpy as np

HEADER = """@RELATION tiny
@ATTRIBUTE width numeric
@ATTRIBUTE height numeric
@ATTRIBUTE class hierarchical 1,1/1,1/2,2,2/1
@DATA
"""
LEAVES = ("1/1", "1/2", "2/1")
FILES = {
    "diatoms": {"train": "Diatoms_train.arff", "test": "Diatoms_test.arff"},
    "imclef07d": {"train": "ImCLEF07D_Train.arff", "test": "ImCLEF07D_Test.arff"},
    "cellcycle_fun": {split: f"cellcycle_FUN.{split}.arff" for split in ("train", "valid", "test")},
}
ROWS = {"train": 40, "valid": 16, "test": 20}
FAST = {"epochs": 2, "batch_size": 16, "device": "cpu"}
NETWORK = {"options": {"width": 8}}


def write_set(folder, name, seed=0):
    """Write the files of a set, drawn around three classes."""
    generator = np.random.default_rng(seed)
    for split, file in FILES[name].items():
        lines = []
        for _ in range(ROWS[split]):
            leaf = int(generator.integers(3))
            x, y = generator.normal([leaf, -leaf], 0.4)
            lines.append(f"{x:.4f},{y:.4f},{LEAVES[leaf]}")
        (folder / file).write_text(HEADER + "\n".join(lines) + "\n")
