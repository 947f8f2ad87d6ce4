"""HierarchicalClassifier: training and predicting behind the interface of scikit-learn.

Labels are paths, levels, sets of labels or plain values; answers have the same form.
Probabilities are those of ``Pipeline`` and of the command line, in single precision: a row gets the
same ones to the last bit whatever else is in its batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hierlearn.decoding.edges import most_specific
from hierlearn.decoding.mass import terminal_log_distribution, widened_logs
from hierlearn.errors import DataError
from hierlearn.estimator.calibration import find_threshold, make_calibrated
from hierlearn.estimator.fitting import FittingMixin
from hierlearn.estimator.inputs import (
    as_csr,
    as_texts,
    as_trained,
    check_learned,
    input_attributes,
    parse_weights,
    read_frame,
)
from hierlearn.estimator.label_format import LabelFormat, parse_labels
from hierlearn.estimator.memory import MemoryMixin
from hierlearn.estimator.parameters import (
    PARAMETERS,
    check_parameters,
    storable,
    with_parameters,
)
from hierlearn.estimator.score import evaluate, score
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline.missing import checked_missing, note_missing
from hierlearn.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.decoding import Decoder
    from hierlearn.estimator.incremental import IncrementalState
    from hierlearn.estimator.label_format import ParsedLabels
    from hierlearn.metrics.evaluation import Evaluation


@with_parameters
class HierarchicalClassifier(
    FittingMixin,
    MemoryMixin,
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A network that classifies into a taxonomy.

    Whatever is None comes from the recipe. Parameters are checked in ``fit``.

    Args:
        {parameters}

    Attributes:
        hierarchy_: the taxonomy.
        classes_: the label of every column of ``predict_proba``: the terminal classes (the leaves,
            and inner classes that occur as a label) in the order of their labels; of several labels
            per row, all classes in the hierarchy's order.
        pipeline_: the trained Pipeline.
        recipe_: the name of the recipe; ``recipe_reason_`` says why.
        history_: a record of every epoch.
        thresholds_: by name, what ``calibrate`` found.
        n_features_in_: the number of columns of X, unless X is texts.
        feature_names_in_: their names, where X is a frame.

    Example:
        >>> X = [[0.0, 0.1], [0.1, 0.0], [1.0, 0.1], [1.1, 0.0], [0.0, 1.1], [0.1, 1.0]]
        >>> y = ["animal/dog", "animal/dog", "animal/cat", "animal/cat", "plant", "plant"]
        >>> classifier = HierarchicalClassifier(random_state=0).fit(X, y)
        >>> classifier.predict([[0.0, 0.0], [0.0, 1.0]]).tolist()
        ['animal/dog', 'plant']
    """

    _is_text: bool  # whether X holds texts
    missing: str

    def __init__(self, recipe: str = "auto", **parameters: Any) -> None:
        check_parameters(parameters, "HierarchicalClassifier.__init__")
        for name, (_, default) in PARAMETERS.items():
            setattr(self, name, recipe if name == "recipe" else parameters.get(name, default))

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Any, decoder: str | Decoder | None = None, **options: Any) -> Any:
        """Decide, and answer in the form of the training labels.

        Args:
            X: the rows.
            decoder: a name of DECODERS or a Decoder, instead of the model's own.
            options: what a decoder given by name takes.

        Returns:
            One label per row, None where the decoder stops at the root; or one list of labels per
            row, where the training labels were lists or the decoder answers sets.
        """
        p = self._nodes(X)
        chosen = self._make_decoder(decoder, options)
        decided = chosen(p)
        if chosen.answers == "class":
            return self._label_format.answer(decided.tolist())
        if chosen.answers == "set":
            decided = most_specific(decided, self.hierarchy_)
        return self._label_format.answer_sets(row.nonzero()[:, 0].tolist() for row in decided)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class of ``classes_``, as scikit-learn's scores read it.

        One label per row: (N, T), how probable it is that the row's label is each of the terminal
        classes; rows sum to 1. The most probable one is what ``predict`` answers, unless its
        decoder weighs mistakes (``cost``) or may stop above; ``predict(X, decoder="leaf")`` always
        does. Several labels per row: (N, C), the probability of every class.
        """
        found: NDArray[np.float64] = np.exp(self.predict_log_proba(X))
        return found

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithms of ``predict_proba``, accurate where those are tiny."""
        logs, ids, space = self._nodes(X, log=True), self._class_ids, self.pipeline_.label_space
        if self._label_format.shape == "several":
            logs = widened_logs(logs)
        else:
            logs = terminal_log_distribution(logs, space)
            ids = np.searchsorted(space.terminals, ids)
        found: NDArray[np.float64] = np.ascontiguousarray(logs.numpy()[:, ids])
        return found

    def predict_node_proba(self, X: Any) -> NDArray[np.float32]:
        """Return (N, C) the probability of every class, columns as in ``hierarchy_.names``.

        That is what metrics read. A class is never more probable than its parent, unless a link was
        chosen that allows it.
        """
        return self._nodes(X).numpy()

    def evaluate(self, X: Any, y: Any, metrics: Sequence[str] | None = None) -> Evaluation:
        """Return the figures of what ``predict`` answers by name: a dict that prints as a table.

        They are those of ``hierlearn evaluate``: accuracy of every level, exact answers, levels
        wrong per mistake, hierarchical F1, calibration. A label that the taxonomy lacks is scored
        at the nearest class above it, with a warning.

        Args:
            X: the rows.
            y: their labels, as ``fit`` takes them.
            metrics: names of METRICS, each of which must be defined for these rows; by default
                those that are shown, "all" for every one, None where one is not defined.
        """
        p = self._nodes(X)
        given = self._parse_more(y)
        if len(given) != len(p):
            raise DataError(f"inputs have {len(p)} rows but labels have {len(given)}")
        decoder = self._make_decoder(None, {})
        return evaluate(p, given, self._label_format, self.pipeline_, decoder, metrics)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return how often ``predict`` is right: 1 at best.

        One label per row: "exact" of ``evaluate``, the fraction of rows predicted exactly. Several
        labels, or a decoder that answers sets: "f1", the hierarchical F1 of all rows. Under
        unlabeled_descendants="ignore" an answer below a label is not wrong, and a row without a
        label does not count.

        Args:
            X: the rows.
            y: their labels.
            sample_weight: (N,) how much each row counts.
        """
        p = self._nodes(X)
        given = self._parse_more(y)
        if len(given) != len(p):
            raise DataError(f"inputs have {len(p)} rows but labels have {len(given)}")
        weights = torch.from_numpy(parse_weights(sample_weight, len(p)))
        decoder = self._make_decoder(None, {})
        return score(p, given, self._label_format, self.pipeline_, decoder, weights)

    def calibrate(self, X: Any, y: Any, risk: float = 0.05, decoder: str = "stop") -> Self:
        """Find the threshold of ``predict(X, decoder="stop")``: how sure it must be to go deeper.

        On new rows like these at most a fraction ``risk`` of its answers is wrong, in expectation
        (conformal risk control). What ``predict(X)`` answers does not change, unless the
        classifier's own decoder is calibrated. The threshold is kept in ``thresholds_``.

        Args:
            X: rows that the classifier was not trained on.
            y: their labels; an answer below a label counts as wrong.
            risk: the fraction of wrong answers, between 0 and 1.
            decoder: a name of DECODERS that has ``calibrate``.
        """
        p = self._nodes(X)
        names = self._label_format.names(self._parse_more(y))
        targets = Labels(names, self.hierarchy_).targets()
        threshold = find_threshold(self.pipeline_, decoder, p, targets, risk)
        self.thresholds_ = {**getattr(self, "thresholds_", {}), decoder: threshold}
        return self

    # ------------------------------------------------------------------ a folder

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write a model folder: safetensors and JSON, no pickle; see Pipeline.

        Args:
            folder: where to; it must not exist, or be empty.
            force: replace a model that is there.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False)
        if isinstance(self.network, torch.nn.Module):
            del params["network"]  # Pipeline.save says what to do
        own = {
            "params": storable(params),
            "labels": self._label_format.to_dict(),
            "thresholds": getattr(self, "thresholds_", {}),
        }
        config = {**self.pipeline_.config, "estimator": own}
        return replace(self.pipeline_, config=config).save(folder, force=force)

    @classmethod
    def load(cls, folder: Path | str, *, device: str = "cpu", trust: bool = False) -> Self:
        """Read a model folder, of ``save`` or of the command line.

        Args:
            folder: the folder.
            device: where to compute.
            trust: whether a network factory outside of hierlearn may be imported and called.
        """
        pipeline = Pipeline.load(folder, device=device, trust=trust)
        own = pipeline.config.pop("estimator", {})
        new = cls(**own.get("params", {}))
        if "labels" in own:
            form = LabelFormat.from_dict(own["labels"], pipeline.hierarchy)
        else:
            form = LabelFormat.of_answers(pipeline.make_decoder().answers, pipeline.hierarchy)
        new.__dict__.update(input_attributes(pipeline))
        new._set_pipeline(pipeline, form, None)
        new.history_ = []
        if own.get("thresholds"):
            new.thresholds_ = own["thresholds"]
        return new

    # ------------------------------------------------------------------ the parts

    def _parse_more(self, y: Any) -> ParsedLabels:
        """Parse labels of rows that come after the training, whose lists are read as its were."""
        return parse_labels(y, self.hierarchy_.sep, self._label_format.shape)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "pipeline_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _set_pipeline(
        self, pipeline: Pipeline, form: LabelFormat, state: IncrementalState | None
    ) -> None:
        """Set the fitted attributes."""
        self.pipeline_ = pipeline
        self.hierarchy_ = pipeline.hierarchy
        self.recipe_ = pipeline.config.get("recipe", {}).get("name")
        self.recipe_reason_ = pipeline.config.get("recipe", {}).get("because")
        self.classes_, self._class_ids = form.classes(pipeline.label_space)
        self._label_format, self._incremental = form, state
        self.__dict__.pop("thresholds_", None)  # they were calibrated for other weights

    def _read_inputs(self, X: Any, *, reset: bool = False, learns: bool = False) -> Any:
        """Return X as texts, a Table, (N, D) numbers or CSR; as it was at first, unless reset.

        Args:
            X: the rows.
            reset: whether they are the first ones.
            learns: whether the model learns from them, and so does not impute what they lack.
        """
        texts = as_texts(X)
        if not reset:
            check_learned(texts is not None, self.pipeline_, self._is_text)
        self._is_text = texts is not None
        if texts is not None:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return texts
        if (table := read_frame(self, X, reset=reset)) is not None:
            return table if reset else self._noted(table, None, learns=learns)
        sparse = hasattr(X, "tocsr")
        finite = True if sparse else "allow-nan"
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=finite
        )
        if reset:
            return as_csr(X) if sparse else X
        rows = as_trained(X, self.pipeline_)
        return self._noted(rows, getattr(self, "feature_names_in_", None), learns=learns)

    def _noted(self, inputs: Any, names: Any, *, learns: bool) -> Any:
        """Return rows, after a warning of what they lack that no training row did."""
        self.pipeline_.missing = checked_missing(self.missing)
        note_missing(self.pipeline_, inputs, names, learns=learns)
        return inputs

    def _nodes(self, X: Any, *, log: bool = False) -> Tensor:
        """Return (N, C) node probabilities or their logarithms, in the hierarchy's order."""
        check_is_fitted(self)
        inputs = self._read_inputs(X)
        return torch.cat([*self.pipeline_.stream_probabilities(inputs, log=log)])

    def _make_decoder(self, decoder: str | Decoder | None, options: dict[str, Any]) -> Decoder:
        thresholds = getattr(self, "thresholds_", {})
        return make_calibrated(self.pipeline_, thresholds, decoder, options)
