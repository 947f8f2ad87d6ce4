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
    gone = {} if manifest["forgotten"] is None else load_file(folder / manifest["forgotten"])
    ids, texts = [], []
    for shard in manifest["shards"]:
        names, without = names_in(folder / shard["file"]), set(gone.get(shard["file"], ()))
        kept = [row for row in range(shard["rows"]) if row not in without]
        ids += [names["ids"][row] for row in kept]
        texts += [(names["texts"] or ids)[row] for row in kept] if manifest["texts"] else []
    return {"ids": ids, "texts": texts if manifest["texts"] else None}
