"""``hierlearn bench``: what the losses cost on this machine, beside torch's cross entropy."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import given, option, takes
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.hierarchy import Hierarchy

WARM_UP = 3


OPTIONS = [
    option("rows", int, 256, "Rows of a batch.", min=1),
    option("classes", int, None, "Classes of the tree; 4000 if none.", min=1, max=1_000_000),
    option("levels", int, None, "Levels of the tree; 4 if none.", min=1, max=4_000),
    option("losses", str, None, "Losses by name: hcl,hcl-hier; hcl-bf16 and hcl-plain on cuda."),
    option("rounds", int, 20, "Timed steps of each loss.", min=1),
]


@takes(*OPTIONS, shared.DEVICE, shared.DATA_DIR)
def bench(
    source: Annotated[
        Optional[str],
        typer.Argument(help="Name of a dataset or a hierarchy file; a tree is made if none."),
    ] = None,
    **options: Any,
) -> None:
    """Time a step (forward and backward) of the losses, in turn, on a batch of random rows."""
    from hierlearn.cli.show import working
    from hierlearn.cli.sources import check_goes_with, check_not_given, open_hierarchy, split_names
    from hierlearn.networks.layers import check_memory
    from hierlearn.terminal import Console, Table, print_plain
    from hierlearn.training.processes import find_device

    rows, rounds, losses = (options[name] for name in ("rows", "rounds", "losses"))
    if source is not None:
        sizes = given(options, ("classes", "levels"))
        check_not_given(source, "a taxonomy of its own", sizes)
        hierarchy = open_hierarchy(source, data_dir=options["data_dir"])
    else:
        check_goes_with(given(options, ("data_dir",)), "a named dataset")
        hierarchy = spread(options["classes"] or 4000, options["levels"] or 4)
    place = find_device(options["device"])
    cuda = place.type == "cuda"
    usual = ["hcl", "hcl-hier", "hcl-cl", *(["hcl-bf16", "hcl-plain"] if cuda else [])]
    names = usual if losses is None else split_names(losses)
    if not names:
        raise HierlearnError("no loss is named; name at least one")
    batch = f"a batch of {rows:,} rows of {len(hierarchy):,} classes takes"
    check_memory(batch, 4 * rows * len(hierarchy), "ask for fewer rows or classes")
    steps = make_steps(hierarchy, rows, names, place)
    console = Console()
    levels = ", ".join(f"{size:,}" for size in hierarchy.level_sizes)
    print_plain(
        console, f"{rows:,} rows, {len(hierarchy):,} classes ({levels}) on {described(place)}"
    )
    with working("timing", total=rounds) as on_round:
        found = in_turn(steps, rounds, place, on_round)
    table = Table(title=f"a step, median of {rounds}")
    table.add_column("loss")
    for column in ("milliseconds", "x bce", *(["memory / logits"] if cuda else [])):
        table.add_column(column, justify="right")
    for name, (seconds, memory) in found.items():
        ratio = seconds / found["bce of torch"][0]
        more = [f"{memory / (4 * rows * len(hierarchy)):.2f}"] if cuda else []
        table.add_row(name, f"{1e3 * seconds:.3f}", f"{ratio:.2f}", *more)
    console.print(table)


def spread(classes: int, levels: int) -> Hierarchy:
    """Return a tree whose levels grow by the same factor, children spread evenly."""
    from hierlearn.hierarchy import Hierarchy

    if levels > classes:
        raise HierlearnError(f"{classes} classes cannot fill {levels} levels; ask for fewer levels")
    factor = max(classes ** (1 / levels), 1.0)
    shares = [factor**level for level in range(levels)]
    sizes = [max(1, int(classes * share / sum(shares))) for share in shares[:-1]]
    sizes.append(classes - sum(sizes))
    parents: list[int] = []
    first = count = 0
    for size in sizes:
        begin = len(parents)
        parents += [first + place * count // size if count else -1 for place in range(size)]
        first, count = begin, size
    return Hierarchy.from_parents(parents)


def make_steps(
    hierarchy: Hierarchy, rows: int, names: list[str], device: Any
) -> dict[str, Callable[[], None]]:
    """Return a step of each loss, and of torch's cross entropy first."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    from hierlearn.errors import unknown_name
    from hierlearn.losses import LOSSES

    forms = {"hcl-bf16": ("hcl", {}), "hcl-plain": ("hcl", {"fused": False})}
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, len(hierarchy), (rows,), generator=generator)
    targets = hierarchy.encode(drawn.tolist(), numbers=True).to(device)
    numbers = targets.float()
    logits = torch.randn(rows, len(hierarchy), generator=generator).to(device)

    def step(loss: Any, x: Any, y: Any) -> Callable[[], None]:
        def run() -> None:
            loss(x, y).backward()
            x.grad = None  # so that the next step's peak has it again

        return run

    found = {"bce of torch": step(binary_cross_entropy_with_logits, fresh(logits), numbers)}
    for name in names:
        kind, options = forms.get(name, (name, {}))
        if kind not in LOSSES:
            raise HierlearnError(unknown_name("loss", name, [*LOSSES, *forms]))
        x = fresh(logits.bfloat16() if name == "hcl-bf16" else logits)
        loss: Any = LOSSES[kind](hierarchy, **options)  # type: ignore[arg-type]
        found[name] = step(loss.to(device), x, targets)
    return found


def fresh(logits: Any) -> Any:
    """Return a leaf tensor with the same values."""
    return logits.detach().clone().requires_grad_()


def in_turn(
    steps: dict[str, Callable[[], None]], rounds: int, device: Any, on_round: Callable[[int], None]
) -> dict[str, tuple[float, int]]:
    """Return of each step the median seconds and, on a GPU, the peak memory."""
    import torch

    cuda = device.type == "cuda"
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks = dict.fromkeys(steps, 0)
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


def described(device: Any) -> str:
    """Name the device, and the threads of a CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"the CPU, {plural(torch.get_num_threads(), 'thread')}"
