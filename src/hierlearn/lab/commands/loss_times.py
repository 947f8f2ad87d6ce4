"""What a step of a loss costs, forward and backward, beside torch's cross entropy."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace

WARM_UP = 3
TORCH = "bce of torch"  # what the others are compared with
DEFAULT = ("bce", "focal", "leaf-ce", "soft-labels", "hxe", "cond-softmax", "mcloss", "hcl")
ON_CUDA = ("hcl-bf16", "hcl-plain")
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "hcl-bf16": ("hcl", {}),
    "hcl-plain": ("hcl", {"fused": False}),
}


def spread(classes: int, depth: int) -> Hierarchy:
    """Return a tree whose levels grow by the same factor, children spread evenly."""
    from hierlearn.hierarchy import Hierarchy

    if depth > classes:
        raise HierlearnError(f"{classes} classes cannot fill {depth} levels; ask for fewer levels")
    factor = max(classes ** (1 / depth), 1.0)
    shares = [factor**level for level in range(depth)]
    sizes = [max(1, int(classes * share / sum(shares))) for share in shares[:-1]]
    sizes.append(classes - sum(sizes))
    parents: list[int] = []
    first = count = 0
    for size in sizes:
        begin = len(parents)
        parents += [first + place * count // size if count else -1 for place in range(size)]
        first, count = begin, size
    return Hierarchy.from_parents(parents)


def random_targets(hierarchy: Hierarchy, rows: int) -> Tensor:
    """Return (N, C) targets of rows with one random label each."""
    import torch

    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    return hierarchy.encode(drawn.tolist(), numbers=True)


def check_losses(names: Sequence[str]) -> None:
    """Raise on no names, and on one that is not known."""
    from hierlearn.errors import unknown_name
    from hierlearn.losses import LOSSES

    if not names:
        raise HierlearnError("no loss is named; name at least one")
    for name in names:
        if name not in LOSSES and name not in FORMS:
            raise HierlearnError(unknown_name("loss", name, [*LOSSES, *FORMS]))


def time_losses(
    label_space: LabelSpace,
    targets: Tensor,
    names: Sequence[str],
    rounds: int,
    on_round: Callable[[int], None],
) -> dict[str, dict[str, float]]:
    """Return milliseconds, ratio and, on a GPU, memory of a step of each loss, torch's first.

    Args:
        label_space: what can be predicted.
        targets: (N, C) of the rows of a batch, on the device; logits are drawn.
        names: of the losses.
        rounds: timed steps of each; the median counts.
        on_round: called with the number of rounds that are over.
    """
    steps = make_steps(label_space, targets, names)
    found = in_turn(steps, rounds, targets.device, on_round)
    base = found[TORCH][0]
    return {
        name: {
            "milliseconds": 1e3 * seconds,
            "ratio": seconds / base,
            **({"memory": memory / (4 * targets.numel())} if memory is not None else {}),
        }
        for name, (seconds, memory) in found.items()
    }


def make_steps(
    label_space: LabelSpace, targets: Tensor, names: Sequence[str]
) -> dict[str, Callable[[], None]]:
    """Return a step of each loss, and of torch's cross entropy first."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    from hierlearn.losses import LOSSES

    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(tuple(targets.shape), generator=generator).to(targets.device)

    def step(loss: Any, x: Any, y: Any) -> Callable[[], None]:
        def run() -> None:
            loss(x, y).backward()
            x.grad = None  # so that the next step's peak has it again

        return run

    found = {TORCH: step(binary_cross_entropy_with_logits, fresh(logits), targets.float())}
    for name in names:
        kind, options = FORMS.get(name, (name, {}))
        x = fresh(logits.bfloat16() if name == "hcl-bf16" else logits)
        loss: Any = LOSSES[kind](label_space, **options)
        found[name] = step(loss.to(targets.device), x, targets)
    return found


def fresh(logits: Any) -> Any:
    """Return a leaf tensor with the same values."""
    return logits.detach().clone().requires_grad_()


def in_turn(
    steps: dict[str, Callable[[], None]], rounds: int, device: Any, on_round: Callable[[int], None]
) -> dict[str, tuple[float, int | None]]:
    """Return of each step the median seconds and, on a GPU, the peak memory."""
    import torch

    cuda = device.type == "cuda"
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks: dict[str, int | None] = dict.fromkeys(steps)
    for number in range(-WARM_UP, rounds):
        for name, run in steps.items():
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            start = time.perf_counter()
            run()
            if cuda:
                torch.cuda.synchronize()
                peaks[name] = torch.cuda.max_memory_allocated() - before
            if number >= 0:
                times[name].append(time.perf_counter() - start)
        on_round(max(number + 1, 0))
    return {name: (statistics.median(times[name]), peaks[name]) for name in steps}
