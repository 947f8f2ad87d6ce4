"""What the files of a memory hold, read without hierlearn."""

import json

from safetensors.numpy import load_file


def names_in(path):
    """Return classes, ids and texts of a shard."""
    return json.loads(load_file(path)["names"].tobytes())


def change_names(tensors, change):
    """Change classes, ids or texts of the tensors of a shard, in place."""
    import torch

    names = json.loads(tensors["names"].numpy().tobytes())
    change(names)
    tensors["names"] = torch.tensor(list(json.dumps(names).encode()), dtype=torch.uint8)


def memory(folder):
    """Return the ids and texts of the rows that a model folder remembers."""
    manifest = json.loads((folder / "memory.json").read_text())
    ids, texts = [], []
    for shard in manifest["shards"]:
        names = names_in(folder / shard["file"])
        ids += names["ids"]
        texts += names["texts"] or ()
    return {"ids": ids, "texts": texts if manifest["texts"] else None}
