"""``hierlearn export``: a model as an ONNX graph."""

from __future__ import annotations

from typing import Any

from hierlearn.cli import shared
from hierlearn.cli.generate import takes
from hierlearn.cli.outputs import output


@takes(
    output("out", "The .onnx file to write.", "--out", "-o", default=...),
    shared.FORCE,
    shared.TRUST,
)
def export(model: shared.ModelFolder, **options: Any) -> None:
    """Write a model as ONNX, with hierarchy.json and preprocessing.json beside it."""
    from hierlearn.cli.show import working
    from hierlearn.errors import HierlearnError
    from hierlearn.files.outputs import check_output
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.export import BESIDE, TOKENIZER, tokens_of
    from hierlearn.pipeline.export import export as write
    from hierlearn.terminal import Console, print_plain

    out = options["out"]
    if out.suffix.lower() != ".onnx":
        raise HierlearnError(f"{out}: the file to write must end in .onnx")
    if out.parent.resolve() == model.resolve():
        raise HierlearnError(f"{out.parent} holds the model; export to another folder")
    for path in (out, *(out.parent / name for name in BESIDE)):
        check_output(path, options["force"])
    loaded = Pipeline.load(model, trust=options["trust"])
    reads = "(N, D) float32"
    if tokens_of(loaded.preprocessor) is not None:
        reads = "(N, T) int64"
        check_output(out.parent / TOKENIZER, options["force"])
    with working("exporting"):
        written = write(loaded, out)
    console = Console()
    classes = len(loaded.hierarchy)
    print_plain(console, f"inputs {reads} -> probabilities (N, {classes}) float32")
    print_plain(console, f"wrote {', '.join(map(str, written))}")
