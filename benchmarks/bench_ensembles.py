"""Three ways to train the members of an ensemble at once, on the paper's network.

    stacked   weights along a first dimension, one batched matmul (StackedEnsemble)
    vmap      torch.func.stack_module_state and torch.func.vmap over functional_call
    looped    one member after another (LoopedEnsemble)

A step is forward, binary cross entropy, backward and AdamW, every member on its own rows, without
dropout (vmap cannot draw a member's noise from a generator of its own). All ways alternate in one
run; the losses of the first step are compared before anything is timed.
Run with ``python benchmarks/bench_ensembles.py [--device cuda]``; the figures go to
results/ensembles.json, by device.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import binary_cross_entropy_with_logits

from hierlearn import Hierarchy
from hierlearn.networks import NETWORKS, InputSpec
from hierlearn.networks.ensemble import LoopedEnsemble, StackedEnsemble
from machine import RESULTS, machine, write

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES, CLASSES, BATCH = 371, 398, 128  # of Diatoms
SIZES = (2, 10)
ROUNDS = 60


def networks(count: int) -> list[torch.nn.Module]:
    """Return the members, each with weights of its own."""
    hierarchy = Hierarchy.from_paths([f"c{number}" for number in range(CLASSES)])
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        made.append(NETWORKS["mlp"](hierarchy, InputSpec.numbers(FEATURES), dropout=0.0))
    return made


def vmapped(members: list[torch.nn.Module]) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return the members as one function of stacked parameters, and the parameters."""
    state = stack_module_state(members)
    parameters, buffers = state
    base = copy.deepcopy(members[0]).to("meta")

    def one(weights: Any, held: Any, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = functional_call(base, (weights, held), (x,)).logits
        return logits

    run = vmap(one)
    return lambda x: run(parameters, buffers, x), list(parameters.values())


def make_steps(count: int, device: torch.device) -> dict[str, Callable[[], torch.Tensor]]:
    """Return one step of every way, each with its own copy of the same members."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, BATCH, FEATURES, generator=generator).to(device)
    y = (torch.rand(count, BATCH, CLASSES, generator=generator) < 0.01).float().to(device)
    steps = {}
    for way in ("stacked", "vmap", "looped"):
        members = [one.to(device) for one in networks(count)]
        if way == "vmap":
            forward, weights = vmapped(members)
        else:
            made = (StackedEnsemble if way == "stacked" else LoopedEnsemble)(members).to(device)
            weights = list(made.parameters())

            def forward(x: torch.Tensor, made: Any = made) -> torch.Tensor:
                logits: torch.Tensor = made(x, apart=True).logits
                return logits

        optimizer = torch.optim.AdamW(weights, fused=True)

        def step(forward: Any = forward, optimizer: Any = optimizer) -> torch.Tensor:
            logits = forward(x)
            losses = binary_cross_entropy_with_logits(logits, y, reduction="none").mean((1, 2))
            optimizer.zero_grad(set_to_none=True)
            losses.sum().backward()
            optimizer.step()
            return losses.detach()

        steps[way] = step
    return steps


def timed(steps: dict[str, Callable[[], torch.Tensor]], device: torch.device) -> dict[str, float]:
    """Return the median milliseconds of each way; all alternate."""
    first = {way: step() for way, step in steps.items()}
    for way, losses in first.items():
        torch.testing.assert_close(losses, first["stacked"], msg=f"{way} differs")
    times: dict[str, list[float]] = {way: [] for way in steps}
    for _ in range(ROUNDS):
        for way, step in steps.items():
            if device.type == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times[way].append(1e3 * (time.perf_counter() - start))
    return {way: round(statistics.median(values), 3) for way, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = torch.device(parser.parse_args().device)
    figures: dict[str, Any] = {"machine": machine()}
    for count in SIZES:
        found = timed(make_steps(count, device), device)
        figures[f"{count} members"] = {
            "milliseconds": found,
            "vmap_over_stacked": round(found["vmap"] / found["stacked"], 2),
            "looped_over_stacked": round(found["looped"] / found["stacked"], 2),
        }
        print(count, figures[f"{count} members"], flush=True)
    path = RESULTS / "ensembles.json"
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(write("ensembles", {**before, name: figures}, "python benchmarks/bench_ensembles.py"))


if __name__ == "__main__":
    main()
