"""``hierlearn demo``: what hierlearn is for, in a minute, on rows that come with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from hierlearn.cli.generate import FILE, FOLDER

WIDTH = 96  # of the picture


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
    from hierlearn.lab.demo import run_demo, show
    from hierlearn.pipeline.folder import check_free
    from hierlearn.terminal import Console, print_plain

    del force  # it was looked at before
    check_free(out / "model", force=True)  # a model is replaced, another folder is not
    plain = Console()
    found = run_demo(out, lambda text: print_plain(plain, f"... {text}"))
    console = Console(record=svg is not None, width=WIDTH if svg is not None else None)
    show(console, found)
    if svg is not None:
        import re

        from hierlearn.files.writing import atomic_write

        drawing = console.export_svg(title="hierlearn demo")
        fonts = r"@font-face \{.*?\}\s*|<!--.*?-->\s*"  # which it would load from the web
        with atomic_write(svg) as file:
            file.write(re.sub(fonts, "", drawing, flags=re.DOTALL))
    print_plain(
        plain,
        f"wrote {out / 'model'}; ask it yourself in Python: "
        f'hierlearn.load("{out / "model"}").predict(["stomach flu"])',
    )
