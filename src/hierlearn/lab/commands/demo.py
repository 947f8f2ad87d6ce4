"""``hierlearn demo``: what hierlearn is for, in a minute, on rows that come with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from hierlearn.cli.generate import FILE, FOLDER

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.lab.demo import Demo, Shown
    from hierlearn.terminal import Console

WIDTH = 96  # of the picture
LONGEST = 58  # letters of a title
HCL = (
    "HCL is the paper's, on one linear layer, with class losses averaged over each batch;\n"
    "what it does as printed: hierlearn paper"
)


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write to.", metavar=FOLDER)
    ] = Path("demo"),
    svg: Annotated[
        Optional[Path],
        typer.Option(help="Also draw what is shown, as an SVG file.", metavar=FILE),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Compare an SVM, hierlearn and HCL; show an answer with its evidence, and one that stops.

    Examples:
        demo
        demo --out mine --svg demo.svg
    """
    from hierlearn.lab.demo import run_demo
    from hierlearn.pipeline.folder import check_free
    from hierlearn.terminal import Console, print_plain

    del force  # it was looked at before
    check_free(out / "model", force=True)  # a model is replaced, another folder is not
    plain = Console()
    found = run_demo(out, lambda text: print_plain(plain, f"... {text}"))
    console = Console(record=svg is not None, width=WIDTH if svg is not None else None)
    show(console, found)
    if svg is not None:
        write_svg(svg, console.export_svg(title="hierlearn demo"))
    print_plain(
        plain,
        f"wrote {out / 'model'}; ask it yourself in Python: "
        f'hierlearn.load("{out / "model"}").predict(["stomach flu"])',
    )


def write_svg(path: Path, drawing: str) -> None:
    """Write a drawing without the fonts that it would load from the web."""
    import re

    from hierlearn.files.writing import atomic_write

    alone = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
    with atomic_write(path) as file:
        file.write(re.sub(r"<!--.*?-->\s*", "", alone, flags=re.DOTALL))


def show(console: Console, found: Demo) -> None:
    """Print the table, the verdict and two answers."""
    from hierlearn.terminal import Table, print_plain

    hierarchy = found.dataset.hierarchy
    names = ("chapter", "block", "category")
    table = Table(
        title=f"{len(found.dataset.splits['test']):,} phrases of doctors, to be assigned to "
        f"{len(hierarchy.leaves):,} diagnoses",
    )
    table.add_column("right answers (%)")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("levels wrong\nper mistake", justify="right")
    table.add_column("seconds", justify="right")
    best = [max(one.accuracy[k] for one in found.methods) for k in range(len(names))]
    least = min(one.severity for one in found.methods)
    for one in found.methods:
        cells = [
            marked(f"{100 * value:.1f}", value == top)
            for value, top in zip(one.accuracy, best, strict=True)
        ]
        severity = marked(f"{one.severity:.2f}", one.severity == least)
        table.add_row(one.name, *cells, severity, f"{one.seconds:.1f}")
    console.print(table)
    print_plain(console, *verdict(found).splitlines())
    print_plain(console, *HCL.splitlines())
    print_plain(console, "")
    print_plain(console, *explained(found.explained, hierarchy))
    if found.stopped is not None:
        print_plain(console, "")
        print_plain(console, *stopped(found.stopped, found.risk, hierarchy))


def marked(text: str, best: bool) -> Any:
    """Return a cell, bold where it is the best."""
    from hierlearn.terminal import Text

    return Text(text, style="bold green" if best else "")


def verdict(found: Demo) -> str:
    """Return who wins, and how sure that is."""
    gain, low, high = (100 * one for one in found.gain)
    first, second = found.methods[0].name, found.methods[1].name
    if low > 0:
        winner, loser, sign = second, first, 1
    elif high < 0:
        winner, loser, sign = first, second, -1
    else:
        return (
            f"Neither wins: {second} is right on {gain:+.1f} points more categories than {first} "
            f"(95 % interval {low:+.1f} to {high:+.1f})."
        )
    ends = sorted((sign * low, sign * high))
    return (
        f"Winner: {winner}. It finds the right category for {sign * gain:.1f} points more of the "
        f"phrases\nthan the {loser} (95 % interval {ends[0]:.1f} to {ends[1]:.1f})."
    )


def explained(shown: Shown, hierarchy: Hierarchy) -> list[str]:
    """Return the lines of an answer with the rows behind it."""
    lines = [
        f'"{shown.text}"',
        f"  -> {titled(shown.answer, hierarchy)}, because the memory holds",
    ]
    lines += [
        f'     {100 * one.weight:3.0f} %  "{one.text}" ({hierarchy.bare_names[place]})'
        for one in shown.evidence
        for place in [hierarchy.index(one.labels[0])]
    ]
    return lines


def stopped(shown: Shown, risk: tuple[float, float], hierarchy: Hierarchy) -> list[str]:
    """Return the lines of an answer that stopped above a mistake."""
    asked, found = (100 * one for one in risk)
    return [
        f'"{shown.text}"',
        f"  -> {titled(shown.answer, hierarchy)}, and stops there: it is not sure of more",
        f"     its best guess would have been {titled(shown.first, hierarchy)};",
        f"     right is {titled(shown.truth, hierarchy)}",
        f"     told to be wrong at most {asked:.0f} % of the time, it is on {found:.1f} % of "
        f"new phrases:",
        "     the promise is about the average over draws of rows, and one draw varies around it",
    ]


def titled(name: str, hierarchy: Hierarchy) -> str:
    """Return a class by its bare name and its title."""
    from hierlearn.hierarchy.names import shorten

    number = hierarchy.index(name)
    title = hierarchy.titles[number]
    return f"{hierarchy.bare_names[number]} {shorten(title, LONGEST) if title else ''}".rstrip()
