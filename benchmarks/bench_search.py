"""The search of a memory: exact and approximate, against the matmul that exact search needs.

Rows look like trained embeddings: 4,000 clusters of unequal size in a space of 24 dimensions, sent
through a ReLU layer to 256 numbers and stored in float16 ("clusters"), and a harder case without
clusters in 64 dimensions ("spread"). Queries are float32 and new. ``matmul`` is the time of
queries @ rows.T alone, block by block, on rows that are converted already, and also in the dtype
that the rows are stored in. Times are milliseconds per query row, the least and the median of
several runs. The approximate index needs faiss and runs on the processor only.
Run with ``python benchmarks/bench_search.py [--rows 100000 1000000] [--device cuda]``; the figures
go to results/search.json, or results/search_gpu.json for a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from typing import Any

import torch

from hierlearn.memory.search import CPU, GPU, nearest
from machine import seconds, versions, write

WIDTH = 256
CLUSTERS = 4000


def embeddings(rows: int, kind: str, seed: int) -> torch.Tensor:
    """Return (rows, 256) float32 rows; the seed chooses rows, the world stays the same."""
    world, own = (torch.Generator().manual_seed(one) for one in (7, seed))
    inner, clusters = (24, CLUSTERS) if kind == "clusters" else (64, 1)
    first = torch.randn(inner, WIDTH, generator=world) / inner**0.5
    second = torch.randn(WIDTH, WIDTH, generator=world) / 4
    centers = 3 * torch.randn(clusters, inner, generator=world) * (clusters > 1)
    sizes = torch.arange(1, clusters + 1).float().rsqrt()
    out = torch.empty(rows, WIDTH)
    for part in out.split(50_000):
        chosen = torch.multinomial(sizes, len(part), replacement=True, generator=own)
        noise = torch.randn(len(part), inner, generator=own) * (1 if clusters > 1 else 2)
        hidden = torch.relu((centers[chosen] + noise) @ first)
        part.copy_(hidden @ second + 0.05 * torch.randn(len(part), WIDTH, generator=own))
    return out


def timed(run: Any, queries: int, repeat: int, device: str) -> dict[str, float]:
    """Return milliseconds per query row."""

    def wait() -> None:
        run()
        if device == "cuda":
            torch.cuda.synchronize()

    found = seconds(wait, repeat=repeat)
    return {key: round(1000 * found[key] / queries, 5) for key in ("min", "median")}


def matmul(queries: torch.Tensor, memory: torch.Tensor) -> None:
    """Multiply all queries with all rows, in the blocks of the search, and keep nothing."""
    blocks = CPU if queries.device.type == "cpu" else GPU
    out = queries.new_empty(min(blocks.queries, len(queries)), blocks.rows)
    for rows in memory.split(blocks.rows):
        for part in queries.split(blocks.queries):
            torch.mm(part, rows.t(), out=out[: len(part), : len(rows)])


def exact(memory: torch.Tensor, queries: torch.Tensor, options: Any) -> dict[str, Any]:
    """Time the exact search and the matmul alone."""
    count, device = len(queries), options.device
    figures: dict[str, Any] = {"queries": count, "exact": {}}
    for k in options.k:
        figures["exact"][str(k)] = timed(
            lambda k=k: nearest(queries, memory, k), count, options.repeat, device
        )
    # Float32 rows of the whole memory would take a gigabyte: a part is as fast per row.
    part = memory[: 1 << 16].float()
    alone = timed(lambda: matmul(queries, part), count, options.repeat, device)
    scale = len(memory) / len(part)
    figures["matmul"] = {key: round(scale * value, 5) for key, value in alone.items()}
    if device == "cuda":
        stored = queries.to(memory.dtype)
        figures["matmul_stored_dtype"] = timed(
            lambda: matmul(stored, memory), count, options.repeat, device
        )
    figures["fraction_of_matmul"] = {
        k: round(figures["matmul"]["min"] / found["min"], 3)
        for k, found in figures["exact"].items()
    }
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        nearest(queries, memory, max(options.k))
        peak = torch.cuda.max_memory_allocated() - before
        figures["peak_mebibytes"] = round(peak / 2**20)
    return figures


def approximate(
    memory: torch.Tensor, queries: torch.Tensor, exact_ms: dict[str, Any], options: Any
) -> dict[str, Any]:
    """Build an index for each k and measure its recall on queries that it has not seen."""
    from hierlearn.memory.index import ApproximateIndex

    figures = {}
    for k in options.k:
        begin = time.perf_counter()
        index = ApproximateIndex.build(memory, k=k, recall=options.recall)
        built = time.perf_counter() - begin
        found, expected = index.search(queries, k)[1], nearest(queries, memory, k)[1]
        hits = [
            len(set(a) & set(b)) for a, b in zip(found.tolist(), expected.tolist(), strict=True)
        ]
        times = timed(lambda i=index, k=k: i.search(queries, k), len(queries), options.repeat, "")
        figures[str(k)] = {
            **times,
            "build_seconds": round(built, 1),
            "recall": round(sum(hits) / (len(queries) * found.shape[1]), 4),
            "recall_when_built": round(index.recall, 4),
            "probes": index.probes,
            "candidates": index.candidates,
            "times_faster": round(exact_ms[str(k)]["min"] / times["min"], 1),
        }
    return figures


def main(options: Any) -> None:
    figures: dict[str, Any] = {"width": WIDTH, "stored": "float16", **versions("faiss-cpu")}
    has_index = importlib.util.find_spec("faiss") is not None and options.device == "cpu"
    name = "search" if options.device == "cpu" else "search_gpu"
    command = " ".join(["python benchmarks/bench_search.py", *sys.argv[1:]])
    for kind in options.kinds:
        queries = embeddings(options.queries, kind, seed=2).to(options.device)
        memory = embeddings(max(options.rows), kind, seed=1).half().to(options.device)
        for rows in options.rows:
            found = exact(memory[:rows], queries, options)
            if has_index and not options.exact_only:
                found["index"] = approximate(memory[:rows], queries, found["exact"], options)
            figures.setdefault(kind, {})[str(rows)] = found
            print(kind, rows, found, flush=True)
            path = write(name, figures, command)  # as far as it got
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--k", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--kinds", nargs="+", default=["clusters", "spread"])
    parser.add_argument("--recall", type=float, default=0.99)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--exact-only", action="store_true")
    main(parser.parse_args())
