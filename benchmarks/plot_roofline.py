"""Draw docs/assets/roofline.svg from results/kernels.json: time against bytes and the floor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib as mpl

from machine import RESULTS

BYTES = 14  # per entry, float32: forward 5, backward 9
LINES = {
    "hcl, plain": ("HCL, plain path", "#999999", "v", ":"),
    "bce": ("torch's cross entropy, eager", "#444444", "s", "--"),
    "bce, compiled": ("the same, compiled", "#888844", "D", "--"),
    "hcl": ("HCL, kernels", "#0066aa", "o", "-"),
    "hcl, in a graph": ("HCL, kernels, in a CUDA graph", "#cc5500", "^", "-"),
}


def main() -> None:
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "roofline"  # the same file every time
    from matplotlib import pyplot as plt

    figures = json.loads((RESULTS / "kernels.json").read_text())["figures"]
    sizes = {}
    for shape in figures["shapes"]:
        rows, classes = map(int, re.findall(r"\d+", shape))
        sizes[shape] = rows * classes * BYTES / 1e6
    order = sorted(sizes, key=lambda shape: sizes[shape])
    figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
    limits = [sizes[order[0]] / 2, sizes[order[-1]] * 3]
    speed = figures["copy_terabytes_per_second"]
    axes.fill_between(limits, [size / speed / 1e3 for size in limits], 1e-5, color="#dddddd", lw=0)
    axes.plot(limits, [size / speed / 1e3 for size in limits], color="black", lw=1)
    axes.annotate(
        f"floor: {speed} TB/s",
        (sizes[order[1]], sizes[order[1]] / speed / 1e3),
        xytext=(8, -12),
        textcoords="offset points",
        fontsize=8,
    )
    for name, (label, color, marker, style) in LINES.items():
        times = [figures["shapes"][shape]["milliseconds"][name] for shape in order]
        axes.plot(
            [sizes[shape] for shape in order],
            times,
            label=label,
            color=color,
            marker=marker,
            ls=style,
            ms=5,
        )
    for place, shape in enumerate(order):  # the last two would overlap on one line
        height = 3.2e-4 if place == len(order) - 1 else 1.5e-4
        axes.annotate(shape, (sizes[shape], height), ha="center", fontsize=8, color="#333333")
        axes.axvline(sizes[shape], color="#bbbbbb", lw=0.6, zorder=0)
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=(1e-4, 300))
    axes.set_xlabel("megabytes that must move (14 bytes per entry)", fontsize=9)
    axes.set_ylabel("milliseconds, forward and backward", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    path = Path(__file__).parents[1] / "docs" / "assets" / "roofline.svg"
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
