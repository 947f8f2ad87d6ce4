"""The decoder of a command, and its threshold where a risk is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import option
from hierlearn.options import parse_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.datasets import Dataset
    from hierlearn.decoding import Decoder
    from hierlearn.pipeline import Pipeline

RISK = "Risk control"  # a panel of --help
RISK_OPTIONS = [
    option("risk", float, None, "Fraction of wrong answers to allow: 0.05.", panel=RISK),
    option(
        "calibrate",
        str,
        None,
        "Labeled rows that were used neither to train nor to select the model.",
        panel=RISK,
    ),
    option("calibrate_rows", str, None, "Split of --calibrate to use, or all.", panel=RISK),
]


def choose_decoder(model: Pipeline, options: Mapping[str, Any]) -> tuple[Decoder, str]:
    """Return the decoder of the options, and one sentence about it."""
    from hierlearn.decoding import CALIBRATED, calibratable
    from hierlearn.decoding.calibration import check_risk
    from hierlearn.errors import HierlearnError

    name, threshold, risk, source = (
        options.get(one) for one in ("decoder", "threshold", "risk", "calibrate")
    )
    chosen = parse_pairs(options["decoder_option"] or (), "--decoder-option")
    if threshold is not None:
        if "threshold" in chosen:
            raise HierlearnError("--threshold is given twice; leave it out of --decoder-option")
        chosen["threshold"] = threshold
    if risk is None:
        if source is not None or options.get("calibrate_rows") is not None:
            raise HierlearnError("--calibrate goes with --risk; say how many errors to allow")
        made = model.make_decoder(name, **chosen)
        return made, summary_of(made, name or model.decoder)
    check_risk(risk)
    if "threshold" in chosen:
        raise HierlearnError("--risk finds the threshold itself; leave --threshold out")
    if source is None:
        raise HierlearnError(
            "--risk needs --calibrate DATA: labeled rows that were used neither to train nor to "
            "select the model, because the guarantee rests on them"
        )
    name = name or CALIBRATED
    made = calibratable(model.make_decoder(name, **chosen), name)
    return calibrated(model, made, name, options)


def calibrated(
    model: Pipeline, decoder: Any, name: str, options: Mapping[str, Any]
) -> tuple[Decoder, str]:
    """Return the decoder whose threshold keeps the risk on new rows."""
    from hierlearn.cli.model_rows import label_notes
    from hierlearn.cli.show import working
    from hierlearn.errors import plural
    from hierlearn.pipeline.evaluate import predictions

    source, risk = options["calibrate"], options["risk"]
    picked, condition = calibration_rows(model, options)
    with working("calibrating"):
        found = predictions(model, picked)
    made: Decoder = decoder.calibrate(found.p, found.targets, risk)
    rows = plural(len(picked), "row")
    wrong = "have a label outside the answer" if made.answers == "candidates" else "are wrong"
    notes = "".join(f"; {note}" for note in label_notes(model, picked))
    return made, (
        f"{summary_of(made, name)}, found on {rows} of {source}: on average over such draws of "
        f"rows at most a fraction {risk:.3g} of new answers {wrong}, if the rows are drawn "
        f"alike{condition}{notes}"
    )


def calibration_rows(model: Pipeline, options: Mapping[str, Any]) -> tuple[Dataset, str]:
    """Return the rows of --calibrate, and what remains to be assumed of them."""
    from hierlearn.cli.model_rows import is_table, open_labeled, pick_rows

    source = options["calibrate"]
    if is_table(source):  # options of the dataset to predict on are not for it
        options = {**options, "dataset_option": None, "data_dir": None, "id_column": None}
    dataset = open_labeled(model, source, options)
    picked, which = pick_rows(dataset, options["calibrate_rows"], "--calibrate-rows", model)
    return picked, check_unseen(model, picked, source if which == "all" else f"{source} ({which})")


def check_unseen(model: Pipeline, rows: Dataset, name: str) -> str:
    """Raise on calibration rows that the model was trained on; return what remains to be assumed.

    Args:
        model: the model.
        rows: the calibration rows.
        name: where they come from.
    """
    from hierlearn.cli.model_rows import seen_rows
    from hierlearn.errors import HierlearnError, plural

    found = seen_rows(model, rows, selecting=True)
    if found is None:
        return " and those were not used to train or select the model, which it cannot tell"
    if not found.by_chance:
        raise HierlearnError(
            f"{found.known:,} of the {plural(found.rows, 'row')} of {name} were used to train or "
            f"select the model, so they cannot guarantee any risk; calibrate on other rows, such "
            f"as --calibrate-rows test"
        )
    if not found.known:
        return ""
    return f"; {found.known:,} of those equal a training row, as may happen by chance"


def summary_of(decoder: Any, name: str) -> str:
    """Name a decoder and its threshold."""
    threshold = getattr(decoder, "threshold", None)
    return f"decoder {name}" + ("" if threshold is None else f" at threshold {threshold:.4g}")
