"""Calibrated decoders: any decoder that has ``calibrate`` and a ``threshold``, by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.decoding import calibratable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.pipeline.pipeline import Pipeline


def find_threshold(pipeline: Pipeline, name: str, p: Tensor, targets: Tensor, risk: float) -> float:
    """Return the threshold of a decoder that keeps a risk on rows like these.

    Args:
        pipeline: whose decoder is calibrated with the pipeline's own options.
        name: of DECODERS.
        p: (N, C) node probabilities.
        targets: (N, C) bool, closed.
        risk: the fraction of wrong answers.
    """
    decoder = calibratable(pipeline.make_decoder(None if name == pipeline.decoder else name), name)
    return float(decoder.calibrate(p, targets, risk).threshold)


def make_calibrated(
    pipeline: Pipeline,
    thresholds: Mapping[str, float],
    decoder: str | Decoder | None,
    options: Mapping[str, Any],
) -> Decoder:
    """Return a decoder as ``Pipeline.make_decoder`` does, with the threshold found for it."""
    name = pipeline.decoder if decoder is None else decoder
    if not isinstance(name, str) or name not in thresholds:
        return pipeline.make_decoder(decoder, **options)
    # The pipeline's own decoder keeps the options that it was calibrated with.
    chosen = None if name == pipeline.decoder else name
    return pipeline.make_decoder(chosen, **{"threshold": thresholds[name], **options})
