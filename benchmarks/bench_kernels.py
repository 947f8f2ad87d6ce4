"""The Triton kernels on a GPU, relative to torch's cross entropy and the plain paths.

All steps of a shape (forward and backward) alternate in one loop, each between two CUDA events; the
host does not wait in between, as in a training loop. Medians in milliseconds. The floor is the
bytes that must move (per entry, float32: 5 in, then 5 in and 4 out; bfloat16: 3, 3 and 2) at the
measured bandwidth of a copy.
Run with ``python benchmarks/bench_kernels.py``, all or the named parts; the figures go to
results/kernels.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from bench_losses import tree
from hierlearn.kernels.choose import without_kernels
from hierlearn.links import SoftmaxLink
from hierlearn.losses import HCLLoss
from hierlearn.losses.hcl.linear import LinearHCLLoss
from machine import write

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn import Hierarchy

SHAPES = {  # rows, classes of each level, rounds
    "(128, 398)": (128, (85, 310, 3), 200),
    "(4096, 398)": (4096, (85, 310, 3), 200),
    "(8192, 10000)": (8192, (10, 100, 1000, 8890), 40),
    "(2048, 100000)": (2048, (10, 100, 1000, 10000, 88890), 30),
}
# HCLLoss.paper with a floor, for which there are kernels
SIGMOIDS: dict[str, Any] = {
    "link": "sigmoid",
    "scope": "levels",
    "floor": 0.1,
    "normalize": "sum",
}
LARGE = ("(8192, 10000)", "(2048, 100000)")
VARIANTS = {  # how cost grows: rows, classes of each level
    "1 level": (8192, (10000,)),
    "2 levels, the first small": (8192, (100, 9900)),
    "2 equal levels": (8192, (5000, 5000)),
    "20 equal levels": (8192, (500,) * 20),
    "a large level in the middle": (8192, (100, 9800, 100)),
    "9,999 classes, unaligned rows": (8192, (10, 100, 1000, 8889)),
    "half the rows": (4096, (10, 100, 1000, 8890)),
    "half the classes": (8192, (10, 100, 1000, 3890)),
    "one row": (1, (10, 100, 1000, 8890)),
}
ALONG_EDGES: dict[str, dict[str, Any]] = {
    "softmax, ancestors": {},
    "softmax, no constraint": {"link": "softmax", "scope": None, "floor": 0.3},
    "sigmoid, ancestors": {"link": "sigmoid"},
}
MILLION = (10, 30, 90, 270, 810, 2430, 7290, 21870, 65610, 150000, 300000, 451590)
DEVICE = "cuda"
RESULT = Path(__file__).parent / "results" / "kernels.json"


class PlainHCL(HCLLoss):
    """HCL by plain operations."""

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        with without_kernels():
            return super().forward(*arguments, **options)


def labels(hierarchy: Hierarchy, rows: int) -> torch.Tensor:
    """Return closed targets of one random class per row, on the device."""
    structure = hierarchy.structure
    parent = torch.full((len(hierarchy),), -1)
    parent[torch.tensor(structure.edge_children)] = torch.tensor(structure.parent_ids)
    parent = parent.to(DEVICE)
    current = torch.randint(0, len(hierarchy), (rows,), device=DEVICE)
    targets = torch.zeros(rows, len(hierarchy), dtype=torch.bool, device=DEVICE)
    for _ in range(hierarchy.depth):
        here = (current >= 0).nonzero().flatten()
        targets[here, current[here]] = True
        current = torch.where(current >= 0, parent[current.clamp_min(0)], current)
    return targets


def step(loss: Callable[..., torch.Tensor], logits: torch.Tensor, targets: torch.Tensor) -> Any:
    def run() -> None:
        logits.grad = None
        loss(logits, targets).backward()

    return run


def check_agreement(
    fused: HCLLoss,
    plain: HCLLoss,
    logits: torch.Tensor,
    targets: torch.Tensor,
    close: float,
    precision: torch.dtype = torch.float32,
) -> None:
    """Exit if the kernels are wrong: their time would mean nothing."""
    found = []
    for loss, x in ((fused, logits), (plain, logits.to(precision))):
        x = x.detach().requires_grad_()
        value = loss(x, targets)
        value.backward()
        found.append((value.item(), x.grad.float()))
    (value, gradient), (expected, wanted) = found
    error = float((gradient - wanted).norm() / wanted.norm())
    if not (abs(value - expected) <= 1e-4 * expected and error <= close):
        sys.exit(f"kernels {value}, plain {expected}; gradients differ by {error}")


def captured(run: Callable[[], None]) -> Callable[[], None]:
    """Return the replay of a step captured in a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def alternate(steps: dict[str, Any], rounds: int, warm_up: int = 5) -> dict[str, float]:
    """Return the median milliseconds of each step; all alternate."""
    marks: dict[str, list[Any]] = {name: [] for name in steps}
    for run in steps.values():
        for _ in range(warm_up):
            run()
    torch.cuda.synchronize()
    for _ in range(rounds):
        for name, run in steps.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(begin.elapsed_time(end) for begin, end in pairs)
        for name, pairs in marks.items()
    }


def bandwidth() -> float:
    """Return the bytes per second that a copy reads and writes."""
    source = torch.randn(1 << 29, device=DEVICE)
    target = torch.empty_like(source)
    found = alternate({"copy": lambda: target.copy_(source)}, 20)
    return 2 * source.nbytes / found["copy"] * 1e3


def peak(run: Callable[[], None], logits: torch.Tensor) -> float:
    """Return the most memory beyond what was held before, in units of the logits."""
    run()
    logits.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / logits.nbytes


def shapes(copied: float) -> dict[str, Any]:
    found = {}
    for shape, (rows, sizes, rounds) in SHAPES.items():
        torch._dynamo.reset()
        torch.manual_seed(0)
        hierarchy = tree(sizes)
        targets = labels(hierarchy, rows)
        numbers = targets.float()  # torch's cross entropy takes no others
        x, half, other = (torch.randn(rows, len(hierarchy), device=DEVICE) for _ in range(3))
        half = half.bfloat16()
        for one in (x, half, other):
            one.requires_grad_()
        fused, plain = (
            HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE),
            PlainHCL(hierarchy, **SIGMOIDS).to(DEVICE),
        )
        check_agreement(fused, plain, x, targets, 1e-4)
        check_agreement(fused, plain, half, targets, 1e-2)
        steps = {
            "bce": step(binary_cross_entropy_with_logits, x, numbers),
            "bce, compiled": step(torch.compile(binary_cross_entropy_with_logits), x, numbers),
            "hcl, plain": step(plain, x, targets),
            "hcl": step(fused, x, targets),
            "hcl, bfloat16": step(HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE), half, targets),
            "hcl, in a graph": captured(
                step(HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE), other, targets)
            ),
        }
        if shape in LARGE:
            steps["hcl, compiled"] = step(
                torch.compile(HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE)), x, targets
            )
        times = alternate(steps, rounds)
        entries = rows * len(hierarchy)
        floors = {"float32": 14e3 * entries / copied, "bfloat16": 8e3 * entries / copied}
        found[shape] = {
            "levels": sizes,
            "milliseconds": {name: round(value, 4) for name, value in times.items()},
            "floor_milliseconds": {name: round(value, 4) for name, value in floors.items()},
            "hcl_over_floor": round(times["hcl"] / floors["float32"], 2),
            "hcl_bfloat16_over_floor": round(times["hcl, bfloat16"] / floors["bfloat16"], 2),
            "bce_over_hcl": round(times["bce"] / times["hcl"], 2),
            "bce_over_hcl_in_a_graph": round(times["bce"] / times["hcl, in a graph"], 2),
            "float32_over_bfloat16": round(times["hcl"] / times["hcl, bfloat16"], 2),
            "float32_over_bfloat16_in_graphs": speedup_in_graphs(
                hierarchy, x, half, targets, rounds
            ),
            "peak_memory_in_logits": {
                name: round(peak(steps[name], x), 3) for name in ("bce", "hcl, plain", "hcl")
            },
        }
        print(shape, found[shape], flush=True)
        del x, half, other, steps, fused, plain, targets, numbers
    return found


def speedup_in_graphs(
    hierarchy: Hierarchy, x: torch.Tensor, half: torch.Tensor, targets: torch.Tensor, rounds: int
) -> float:
    """Return how much faster bfloat16 is without the host: both captured in CUDA graphs."""
    steps = {
        name: captured(
            step(HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE), one.detach().requires_grad_(), targets)
        )
        for name, one in (("float32", x), ("bfloat16", half))
    }
    times = alternate(steps, rounds)
    return round(times["float32"] / times["bfloat16"], 2)


def growth(copied: float) -> dict[str, Any]:
    """Return times over the floor for other hierarchies and sizes."""
    found = {}
    for name, (rows, sizes) in VARIANTS.items():
        hierarchy = tree(sizes)
        targets = labels(hierarchy, rows)
        x = torch.randn(rows, len(hierarchy), device=DEVICE, requires_grad=True)
        times = alternate(
            {"hcl": captured(step(HCLLoss(hierarchy, **SIGMOIDS).to(DEVICE), x, targets))}, 30
        )
        floor = 14e3 * x.numel() / copied
        found[name] = {
            "rows": rows,
            "levels": sizes,
            "milliseconds": round(times["hcl"], 4),
            "over_floor": round(times["hcl"] / floor, 2),
        }
        print(name, found[name], flush=True)
    return found


def trees(copied: float) -> dict[str, Any]:
    """Return the times of what goes along the edges of a tree: kernels and the plain path."""
    found = {}
    for shape in LARGE:
        rows, sizes, rounds = SHAPES[shape]
        torch.manual_seed(0)
        hierarchy = tree(sizes)
        targets = labels(hierarchy, rows)
        numbers = targets.float()
        x, other = (torch.randn(rows, len(hierarchy), device=DEVICE) for _ in range(2))
        half = other.bfloat16()
        for one in (x, half):
            one.requires_grad_()
        entries = rows * len(hierarchy)
        floors = {"float32": 14e3 * entries / copied, "bfloat16": 8e3 * entries / copied}
        figures: dict[str, Any] = {"levels": sizes}
        for name, options in ALONG_EDGES.items():
            fused, plain = (kind(hierarchy, **options).to(DEVICE) for kind in (HCLLoss, PlainHCL))
            with without_kernels():  # in double precision, for which not all rows have room
                check_agreement(fused, plain, x[:256], targets[:256], 1e-4, torch.float64)
            steps = {
                "bce": step(binary_cross_entropy_with_logits, x, numbers),
                "kernels": step(fused, x, targets),
                "kernels, bfloat16": step(HCLLoss(hierarchy, **options).to(DEVICE), half, targets),
            }
            times = alternate(steps, rounds)
            times["peak"] = peak(steps["kernels"], x)
            with without_kernels():
                times |= alternate({"plain": step(plain, x, targets)}, 3, warm_up=1)
            figures[name] = compared(times, floors)
            print(shape, name, figures[name], flush=True)
        link = SoftmaxLink(hierarchy).to(DEVICE)
        grads = (torch.randn_like(x), torch.randn_like(x))

        def pair(link: SoftmaxLink = link, grads: Any = grads, x: torch.Tensor = x) -> None:
            x.grad = None
            torch.autograd.backward(link.log_probabilities(x), grads)

        times = alternate({"kernels": pair}, rounds)
        with without_kernels():
            times |= alternate({"plain": pair}, 3, warm_up=1)
        # In 4 bytes, out 8; in 4 and 8, out 4.
        figures["softmax link"] = compared(times, {"float32": 28e3 * entries / copied})
        print(shape, "softmax link", figures["softmax link"], flush=True)
        found[shape] = figures
        del x, half, other, targets, numbers, grads, steps, pair
    return found


def compared(times: dict[str, float], floors: dict[str, float]) -> dict[str, Any]:
    """Return times with their ratios to the floors and to each other."""
    found: dict[str, Any] = {
        "milliseconds": {name: round(value, 4) for name, value in times.items() if name != "peak"},
        "floor_milliseconds": {name: round(value, 4) for name, value in floors.items()},
        "over_floor": round(times["kernels"] / floors["float32"], 2),
        "plain_over_kernels": round(times["plain"] / times["kernels"], 1),
    }
    if "bce" in times:
        found["bce_over_kernels"] = round(times["bce"] / times["kernels"], 2)
        found["bfloat16_over_floor"] = round(times["kernels, bfloat16"] / floors["bfloat16"], 2)
    if "peak" in times:
        found["peak_memory_in_logits"] = round(times["peak"], 2)
    return found


def linear() -> dict[str, Any]:
    """Return time and memory of LinearHCLLoss: 4096 rows, 1024 features, a million classes."""
    hierarchy = tree(MILLION)
    rows, features = 4096, 1024
    targets = labels(hierarchy, rows)
    inputs = torch.randn(rows, features, device=DEVICE)
    found: dict[str, Any] = {"rows": rows, "features": features, "levels": MILLION}
    found["targets_gigabytes"] = round(targets.nbytes / 1e9, 2)
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, half in (("float32", False), ("bfloat16 autocast", True)):
        layer = LinearHCLLoss(hierarchy, features, **SIGMOIDS).to(DEVICE)
        before = torch.cuda.memory_allocated()

        def run(layer: LinearHCLLoss = layer, half: bool = half) -> None:
            layer.zero_grad()
            with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
                loss = layer(inputs, targets)
            loss.backward()

        run()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        parameters = sum(one.nbytes for one in layer.parameters())
        beyond = torch.cuda.max_memory_allocated() - before - parameters
        found[name] = {
            "seconds": round(statistics.median(times), 3),
            "weights_gigabytes": round(parameters / 1e9, 2),
            "gigabytes_beyond_weights_gradient_and_targets": round(beyond / 1e9, 2),
        }
        print(name, found[name], flush=True)
        del layer, run
    return found


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("bench_kernels needs a GPU")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    copied = bandwidth()
    figures: dict[str, Any] = {"copy_terabytes_per_second": round(copied / 1e12, 3)}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "shapes": lambda: shapes(copied),
        "growth_in_graphs": lambda: growth(copied),
        "linear": linear,
        "trees": lambda: trees(copied),
    }
    wanted = sys.argv[1:] or [*parts]  # the names of parts; the others keep their figures
    for name in set(parts) - set(wanted):
        figures[name] = json.loads(RESULT.read_text())["figures"][name]
    for name in wanted:  # written after each part: all of them take minutes
        figures[name] = parts[name]()
        path = write("kernels", figures, "python benchmarks/bench_kernels.py")
    print(f"wrote benchmarks/results/{path.name}")


if __name__ == "__main__":
    main()
