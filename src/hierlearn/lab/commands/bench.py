"""``hierlearn bench``: what training costs on this machine, by part and by loss."""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import FILE, described, given, options, takes
from hierlearn.cli.train import ROWS, WHAT, make_plan, open_rows, prune_rows, rows_and_classes
from hierlearn.errors import HierlearnError, plural
from hierlearn.training.settings import Plan, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.terminal import Console
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.processes import Processes


TIMING = "What to time"  # a panel of --help
BATCH, CLASSES, DEPTH, EPOCHS = 256, 4000, 4, 3
OPTIONS = options(
    TIMING,
    losses=(str, "Losses by name: hcl,hxe; hcl-bf16 and hcl-plain on cuda."),
    rounds=(int, "Timed steps of each loss.", {"default": 20, "min": 1}),
    timed_epochs=(
        int,
        f"Timed epochs, after one to warm up; {EPOCHS} if none, 0: the losses alone.",
        {"min": 0},
    ),
    classes=(
        int,
        f"Classes of the tree that is made without data; {CLASSES} if none.",
        {"min": 1, "max": 1000000},
    ),
    depth=(int, f"Levels of that tree; {DEPTH} if none.", {"min": 1, "max": 4000}),
    json=(FILE, "Also write the figures to this JSON file."),
)
OWN = ("losses", "rounds", "timed_epochs", "classes", "depth", "json", "force")
WITHOUT_DATA = ("hierarchy", "sep", "batch_size", "device")  # what else matters there


@takes(
    *OPTIONS,
    shared.FORCE,
    *ROWS,
    *shared.SOURCE,
    *described(Plan, WHAT),
    *described(Settings, shared.HOW, batch_size=f"from the recipe; {BATCH} without data"),
)
def bench(
    data: Annotated[
        Optional[str], typer.Argument(help=f"{shared.DATA} Only losses are timed without it.")
    ] = None,
    **options: Any,
) -> None:
    """Show where time goes in an epoch of ``train`` on your data, and what each loss costs.

    With data, some epochs of the training that ``train`` would choose are timed, part by part, and
    a step (forward and backward) of losses on a batch of its rows. Without data, losses are timed
    on rows with random labels of --hierarchy, or of a tree that is made.

    Examples:
        bench
        bench rows.csv
        bench rows.csv --label class --recipe hcl --batch-size 512 --json times.json
        bench --hierarchy tree.csv --losses hcl,hxe --batch-size 64
    """
    from hierlearn.cli.rows import split_names

    chosen = given(options, [name for name in options if name not in OWN])
    names = None if options["losses"] is None else split_names(options["losses"])
    if names is not None:
        from hierlearn.errors import unknown_name
        from hierlearn.losses import LOSSES

        if not names:
            raise HierlearnError("no loss is named; name at least one")
        for name in names:
            if name not in LOSSES and name not in FORMS:
                raise HierlearnError(unknown_name("loss", name, [*LOSSES, *FORMS]))
    figures = (
        without_data(chosen, options, names)
        if data is None
        else with_data({"data": data, **chosen}, options, names)
    )
    if options["json"] is not None:
        from hierlearn.cli.output import write_json
        from hierlearn.terminal import Console, print_plain

        write_json(options["json"], figures)
        print_plain(Console(), f"wrote {options['json']}")


def without_data(
    chosen: Mapping[str, Any], options: Mapping[str, Any], names: Sequence[str] | None
) -> dict[str, Any]:
    """Time losses on random labels, and return the figures."""
    import torch

    from hierlearn.cli.rows import check_goes_with, check_not_given, open_hierarchy
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.terminal import Console
    from hierlearn.training.processes import find_device

    others = {name: value for name, value in chosen.items() if name not in WITHOUT_DATA}
    if options["timed_epochs"]:  # 0 is what is timed without data
        others["timed_epochs"] = options["timed_epochs"]
    check_goes_with(others, others, "data to train on")
    settings = {name: chosen[name] for name in ("batch_size", "device") if name in chosen}
    settings = Settings.from_dict({"batch_size": BATCH, **settings}).to_dict()
    sizes = given(options, ("classes", "depth"))
    if "hierarchy" in chosen:
        check_not_given(chosen["hierarchy"], "a taxonomy of its own", sizes)
        hierarchy = open_hierarchy(chosen["hierarchy"], sep=chosen.get("sep"))
    else:
        check_goes_with({"sep": None, **chosen}, ("sep",), "--hierarchy")
        hierarchy = spread(sizes.get("classes", CLASSES), sizes.get("depth", DEPTH))
    rows, device = settings["batch_size"], find_device(settings["device"])
    check_batch(rows, len(hierarchy))
    drawn = torch.randint(0, len(hierarchy), (rows,), generator=torch.Generator().manual_seed(0))
    targets = hierarchy.encode(drawn.tolist(), numbers=True).to(device)
    losses = bench_losses(Console(), LabelSpace.of(hierarchy), targets, names, options["rounds"])
    return {"device": device_name(device), "epoch": None, "losses": losses}


def with_data(
    chosen: Mapping[str, Any], options: Mapping[str, Any], names: Sequence[str] | None
) -> dict[str, Any]:
    """Time epochs of a training and losses on its rows, and return the figures."""
    import time

    import torch

    from hierlearn.cli.output import working
    from hierlearn.cli.rows import check_not_given
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.prepare import prepare
    from hierlearn.training.processes import processes

    plan = make_plan(chosen)
    if plan.effort == "best":
        raise HierlearnError(
            "--effort best trains several models and bench times one; leave it out"
        )
    check_data(chosen["data"])
    check_not_given(chosen["data"], "data with a taxonomy", options, "classes", "depth")
    dataset, note = prune_rows(open_rows(chosen), chosen.get("min_rows"))
    count = EPOCHS if options["timed_epochs"] is None else options["timed_epochs"]
    console = Console()
    with processes(Settings.from_dict(plan.settings).device) as here:
        begun = time.perf_counter()
        prepared = prepare(dataset, plan, here.device)
        preparing = time.perf_counter() - begun
        rows = min(len(prepared.rows), prepared.decision.settings.batch_size)
        check_batch(rows, len(prepared.label_space))
        targets = prepared.rows.targets(torch.arange(rows, device=here.device))
        found = None
        if count:
            with working("epochs") as on_epoch:
                found = profile(prepared, here, count, on_epoch)
            print_plain(console, rows_and_classes(dataset), *filter(None, [note]))
            print_plain(console, *found.summary.split("\n"))
            print_epoch(console, found)
            print_plain(console, *notes(found, preparing))
    losses = bench_losses(console, prepared.label_space, targets, names, options["rounds"])
    epoch = None if found is None else {**found.to_dict(), "preparing": preparing}
    return {"device": device_name(here.device), "epoch": epoch, "losses": losses}


def check_data(source: str) -> None:
    """Raise on a taxonomy where rows are needed."""
    from pathlib import Path

    from hierlearn.datasets import DATASETS, READERS
    from hierlearn.hierarchy.formats.read import READERS as TAXONOMIES

    ending = Path(source).suffix.lower()
    rows = {".arff", *READERS} - {".txt"}
    if source not in DATASETS and ending in TAXONOMIES and ending not in rows:
        raise HierlearnError(
            f"{source} is a taxonomy without rows; give it as --hierarchy {source}, with data or "
            f"without"
        )


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
    from hierlearn.terminal import Table
    from hierlearn.training.solvers.timeline import PARTS

    after = "after a warm-up" if found.warmed_up else "without a warm-up"
    table = Table(title=f"an epoch, mean of {found.measured} {after}")
    table.add_column("part")
    table.add_column("milliseconds", justify="right")
    table.add_column("%", justify="right")
    table.add_column("what it is")
    for part, share in found.fractions.items():
        milliseconds = f"{1e3 * found.seconds[part]:,.2f}"
        table.add_row(part, milliseconds, f"{100 * share:.1f}", PARTS[part])
    size = plural(found.batch_size, "row")
    steps = f"{plural(found.steps, 'step')} of {'up to ' * (found.steps > 1)}{size}"
    table.add_row("total", f"{1e3 * found.total:,.2f}", "100.0", steps)
    console.print(table)


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
    from hierlearn.terminal import Table, print_plain

    hierarchy, device = label_space.hierarchy, targets.device
    cuda = device.type == "cuda"
    if names is None:
        names = [name for name in DEFAULT if hierarchy.is_tree or not LOSSES[name].needs_tree]
        names += ON_CUDA if cuda else ()
    with working("losses", total=rounds) as on_round:
        found = time_losses(label_space, targets, names, rounds, on_round)
    levels = ", ".join(f"{size:,}" for size in hierarchy.level_sizes)
    rows, classes = len(targets), plural(len(hierarchy), "class", "classes")
    batch = f"{plural(rows, 'row')}, {classes} ({levels}) on {device_name(device)}"
    print_plain(console, batch)
    table = Table(title=f"a step of a loss, median of {rounds}")
    table.add_column("loss")
    for column in ("milliseconds", "x bce", *(["memory / logits"] if cuda else [])):
        table.add_column(column, justify="right")
    for name, figures in found.items():
        more = [f"{figures['memory']:.2f}"] if cuda else []
        table.add_row(name, f"{figures['milliseconds']:.3f}", f"{figures['ratio']:.2f}", *more)
    console.print(table)
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
ON_CUDA = ("hcl-bf16", "hcl-plain")
FORMS = {"hcl-bf16": "hcl", "hcl-plain": "hcl"}


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

    from hierlearn.kernels.choose import without_kernels
    from hierlearn.losses import LOSSES

    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(tuple(targets.shape), generator=generator).to(targets.device)

    def step(loss: Any, x: Any, y: Any, *, plain: bool = False) -> Callable[[], None]:
        def run() -> None:
            with without_kernels() if plain else nullcontext():
                loss(x, y).backward()
            x.grad = None  # so that the next step's peak has it again

        return run

    found = {TORCH: step(binary_cross_entropy_with_logits, fresh(logits), targets.float())}
    for name in names:
        x = fresh(logits.bfloat16() if name == "hcl-bf16" else logits)
        loss: Any = LOSSES[FORMS.get(name, name)](label_space)
        found[name] = step(loss.to(targets.device), x, targets, plain=name == "hcl-plain")
    return found


def fresh(logits: Any) -> Any:
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
