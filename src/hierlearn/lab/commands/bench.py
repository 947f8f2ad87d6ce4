"""``hierlearn bench``: what training costs on this machine, by part and by loss."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, described, given, options, takes
from hierlearn.cli.train import ROWS, WHAT, make_plan, open_rows, prune_rows, rows_and_classes
from hierlearn.errors import HierlearnError, plural
from hierlearn.training.settings import Plan, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.terminal import Console
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.processes import Processes


TIMING = "What to time"  # a panel of --help
EPOCHS = 3
OPTIONS = options(
    TIMING,
    losses=(str, "Losses by name: hcl,hxe."),
    rounds=(int, "Timed steps of each loss.", {"default": 20, "min": 1}),
    timed_epochs=(
        int,
        "Timed epochs, after one to warm up; 0: the losses alone.",
        {"default": EPOCHS, "min": 0},
    ),
    json=(FILE, "Also write the figures to this JSON file."),
)
OWN = ("losses", "rounds", "timed_epochs", "json", "force")


@takes(
    *OPTIONS,
    shared.FORCE,
    *ROWS,
    *shared.SOURCE,
    *described(Plan, WHAT),
    *described(Settings, shared.HOW),
)
def bench(
    data: Annotated[str, typer.Argument(help=shared.DATA)] = "synthetic", **options: Any
) -> None:
    """Show where time goes in an epoch of ``train`` on your data, and what each loss costs.

    Some epochs of the training that ``train`` would choose are timed, part by part, and a step
    (forward and backward) of losses on a batch of its rows.

    Examples:
        bench rows.csv --label class
        bench rows.csv --label class --recipe hcl --batch-size 512 --json times.json
        bench synthetic --dataset-option depth=5 --losses hcl,hxe --timed-epochs 0
    """
    import torch

    from hierlearn.cli.output import working, write_json
    from hierlearn.cli.rows import split_names
    from hierlearn.losses import LOSSES
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.prepare import prepare
    from hierlearn.training.processes import processes

    chosen = {"data": data, **given(options, [name for name in options if name not in OWN])}
    names = None if options["losses"] is None else split_names(options["losses"])
    if names == []:
        raise HierlearnError("no loss is named; name at least one")
    for name in names or ():
        if name not in LOSSES:
            raise LOSSES.unknown(name)
    plan = make_plan(chosen)
    if plan.effort == "best":
        raise HierlearnError(
            "--effort best trains several models and bench times one; leave it out"
        )
    dataset, note = prune_rows(open_rows(chosen), chosen.get("min_rows"))
    console, found = Console(), None
    with processes(Settings.from_dict(plan.settings).device) as here:
        begun = time.perf_counter()
        prepared = prepare(dataset, plan, here.device)
        preparing = time.perf_counter() - begun
        rows = min(len(prepared.rows), prepared.decision.settings.batch_size)
        check_batch(rows, len(prepared.label_space))
        targets = prepared.rows.targets(torch.arange(rows, device=here.device))
        if options["timed_epochs"]:
            with working("epochs") as on_epoch:
                found = profile(prepared, here, options["timed_epochs"], on_epoch)
            print_plain(console, rows_and_classes(dataset), *filter(None, [note]))
            print_plain(console, *found.summary.split("\n"))
            print_epoch(console, found)
            print_plain(console, *notes(found, preparing))
    losses = bench_losses(console, prepared.label_space, targets, names, options["rounds"])
    if options["json"] is not None:
        epoch = None if found is None else {**found.to_dict(), "preparing": preparing}
        figures = {"device": device_name(here.device), "epoch": epoch, "losses": losses}
        write_json(options["json"], figures)
        print_plain(console, f"wrote {options['json']}")


def check_batch(rows: int, classes: int) -> None:
    """Raise on a batch that does not fit into memory."""
    from hierlearn.networks.layers import check_memory

    batch = f"a batch of {rows:,} rows of {classes:,} classes takes"
    entries = 16 * classes  # bytes of logits, their gradient, and targets twice
    check_memory(batch, rows * (entries + 64), "ask for fewer rows or classes")


@dataclass(frozen=True)
class Profile:
    """Where time goes in an epoch.

    Attributes:
        summary: what is trained.
        seconds: the mean of every part; see ``training.timeline.PARTS``.
        measured: over how many epochs.
        warmed_up: whether epochs came before these.
        without_waiting: the mean seconds of an epoch in which nobody waits for the GPU after each
            part; None on a CPU, where nobody waits.
        epochs: of the whole training, at most.
        steps: per epoch.
        batch_size: rows per step.
    """

    summary: str
    seconds: dict[str, float]
    measured: int
    warmed_up: bool
    without_waiting: float | None
    epochs: int
    steps: int
    batch_size: int

    @property
    def total(self) -> float:
        """The seconds of all parts."""
        return sum(self.seconds.values())

    @property
    def fractions(self) -> dict[str, float]:
        """The share of every part in the epoch."""
        total = self.total
        return {part: seconds / total for part, seconds in self.seconds.items()}

    @property
    def whole(self) -> float:
        """The seconds of the epochs of a whole training that does not stop early."""
        return self.epochs * (self.total if self.without_waiting is None else self.without_waiting)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {**asdict(self), "total": self.total, "fractions": self.fractions}


def profile(
    prepared: Prepared,
    here: Processes,
    epochs: int = 3,
    on_epoch: Callable[[int], None] | None = None,
) -> Profile:
    """Train some epochs as ``train`` does, and measure their parts; no model is kept.

    Args:
        prepared: what is trained.
        here: this process, the only one.
        epochs: how many to measure after those that warm up, or as many validations, where these
            are several epochs apart.
        on_epoch: called with the number of epochs that are over.
    """
    import tempfile
    from contextlib import suppress
    from pathlib import Path

    from hierlearn.pipeline.run import Reporting, run
    from hierlearn.training.prepare import summary
    from hierlearn.training.solvers.timeline import EnoughEpochs, EpochTimer

    if here.world > 1:
        raise HierlearnError(
            f"a profile is of one process, not of {here.world}; start it without torchrun"
        )
    settings = prepared.decision.settings
    timer = EpochTimer(here.device, epochs, settings.validate_every, on_epoch)
    sentence = summary(prepared)
    reporting = Reporting(bar=False, timeline=timer)
    # The folder is for checkpoints and the log, which cost time.
    with tempfile.TemporaryDirectory() as folder, suppress(EnoughEpochs):
        run(prepared, here, Path(folder), reporting=reporting)
    one_step = settings.optimizer != "adamw"
    rows = len(prepared.rows)
    return Profile(
        summary=sentence,
        seconds=timer.means(),
        measured=len(timer.measured) - timer.warmed_up * timer.block,
        warmed_up=timer.warmed_up,
        without_waiting=timer.uninterrupted(),
        epochs=1 if one_step else settings.epochs,
        steps=1 if one_step else -(-rows // settings.batch_size),
        batch_size=rows if one_step else min(rows, settings.batch_size),
    )


def print_epoch(console: Console, found: Profile) -> None:
    """Print where time goes in an epoch."""
    from hierlearn.terminal import print_table
    from hierlearn.training.solvers.timeline import PARTS

    after = "after a warm-up" if found.warmed_up else "without a warm-up"
    rows = [
        [part, PARTS[part], f"{1e3 * found.seconds[part]:,.2f}", f"{100 * share:.1f}"]
        for part, share in found.fractions.items()
    ]
    size = plural(found.batch_size, "row")
    steps = f"{plural(found.steps, 'step')} of {'up to ' * (found.steps > 1)}{size}"
    rows.append(["total", steps, f"{1e3 * found.total:,.2f}", "100.0"])
    heads = ["part", "what it is", "milliseconds", "%"]
    print_table(console, heads, rows, f"an epoch, mean of {found.measured} {after}", 2)


def notes(found: Profile, preparing: float) -> list[str]:
    """Say what a whole training takes, and what the clock does not show."""
    length = f"{plural(found.epochs, 'epoch')} take" + "s" * (found.epochs == 1)
    said = [f"{length} about {found.whole:,.1f} s; preparing the rows took {preparing:,.1f} s"]
    if found.without_waiting is not None:
        said.append(
            f"without waiting for the GPU after each part, an epoch takes "
            f"{1e3 * found.without_waiting:,.2f} ms"
        )
    return said


def bench_losses(
    console: Console,
    label_space: LabelSpace,
    targets: Tensor,
    names: Sequence[str] | None,
    rounds: int,
) -> dict[str, Any]:
    """Time losses, print their table, and return the figures.

    Args:
        console: where the table goes.
        label_space: what can be predicted.
        targets: (N, C) of a batch, on the device.
        names: of the losses; None for those that are used most.
        rounds: timed steps of each.
    """
    from hierlearn.cli.output import working
    from hierlearn.losses import LOSSES
    from hierlearn.terminal import print_plain, print_table

    hierarchy, device = label_space.hierarchy, targets.device
    cuda = device.type == "cuda"
    if names is None:
        names = [name for name in DEFAULT if hierarchy.is_tree or not LOSSES[name].needs_tree]
    with working("losses", total=rounds) as on_round:
        found = time_losses(label_space, targets, names, rounds, on_round)
    levels = ", ".join(f"{size:,}" for size in hierarchy.level_sizes)
    rows, classes = len(targets), plural(len(hierarchy), "class", "classes")
    batch = f"{plural(rows, 'row')}, {classes} ({levels}) on {device_name(device)}"
    print_plain(console, batch)
    heads = ["loss", "milliseconds", "x bce", *(["memory / logits"] if cuda else [])]
    cells = [
        [
            *(name, f"{figures['milliseconds']:.3f}", f"{figures['ratio']:.2f}"),
            *([f"{figures['memory']:.2f}"] if cuda else []),
        ]
        for name, figures in found.items()
    ]
    print_table(console, heads, cells, f"a step of a loss, median of {rounds}")
    return {"rows": rows, "classes": len(hierarchy), "rounds": rounds, "steps": found}


def device_name(device: torch.device) -> str:
    """Name the device, and the threads of a CPU."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"the CPU, {plural(torch.get_num_threads(), 'thread')}"


# ---------------------------------------- steps of losses


WARM_UP = 3
TORCH = "bce of torch"  # what the others are compared with
DEFAULT = ("bce", "focal", "leaf-ce", "soft-labels", "hxe", "cond-softmax", "mcloss", "hcl")


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
    import torch

    steps, cuda = make_steps(label_space, targets, names), targets.is_cuda
    times: dict[str, list[float]] = {name: [] for name in steps}
    peaks: dict[str, int] = {}
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
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return {
        name: {
            "milliseconds": 1e3 * seconds,
            "ratio": seconds / medians[TORCH],
            **({"memory": peaks[name] / (4 * targets.numel())} if cuda else {}),
        }
        for name, seconds in medians.items()
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

    def step(loss: Any, y: Any) -> Callable[[], None]:
        x = logits.clone().requires_grad_()

        def run() -> None:
            loss(x, y).backward()
            x.grad = None  # so that the next step's peak has it again

        return run

    found = {TORCH: step(binary_cross_entropy_with_logits, targets.float())}
    for name in names:
        found[name] = step(LOSSES[name](label_space).to(targets.device), targets)
    return found
