"""HierarchicalClassifier: training and predicting behind the interface of scikit-learn.

Labels are paths, levels, sets of labels or plain values; answers have the same form.
Probabilities are those of ``Pipeline`` and of the command line, in single precision: a row gets the
same ones to the last bit whatever else is in its batch.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hierlearn.datasets.dataset import Dataset, count_rows
from hierlearn.decoding import calibratable
from hierlearn.decoding.decoder import most_specific
from hierlearn.decoding.probabilities import terminal_log_distribution, widened_logs
from hierlearn.errors import DataError, HierlearnError
from hierlearn.estimator.incremental import IncrementalState
from hierlearn.estimator.inputs import (
    as_csr,
    as_texts,
    as_trained,
    check_own_network,
    input_attributes,
    parse_groups,
    parse_weights,
    read_frame,
)
from hierlearn.estimator.labels import (
    LabelFormat,
    ParsedLabels,
    as_ids,
    check_hierarchy,
    check_not_encoded,
    class_of,
    classes_of,
    parse_labels,
    weigh_rows,
    with_values,
)
from hierlearn.estimator.parameters import (
    PARAMETERS,
    make_plan,
    storable,
    with_parameters,
)
from hierlearn.estimator.scoring import truth, weighted_exact
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.answers import Answers, f1
from hierlearn.metrics.measure import Evaluation, figures
from hierlearn.networks.memories import candidates_of, remembered
from hierlearn.pipeline import remember as growth
from hierlearn.pipeline.explain import explain, reasons, rows_of
from hierlearn.pipeline.missing import checked_missing, note_missing
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.run import Reporting, describe_run
from hierlearn.pipeline.seen_rows import note_rows
from hierlearn.pipeline.train import SingleTraining, training_job
from hierlearn.terminal import print_lines
from hierlearn.training.prepare import PrepareOptions, summary
from hierlearn.training.processes import Processes, processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.decoding import Decoder
    from hierlearn.estimator.labels import ParsedLabels
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.blend import BlendTraining
    from hierlearn.pipeline.explain import Evidence, Reason
    from hierlearn.training.settings import Plan


@with_parameters
class HierarchicalClassifier(
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
    history_: list[dict[str, Any]]
    missing: str

    def __init__(self, recipe: str = "auto", **parameters: Any) -> None:
        for name in parameters.keys() - PARAMETERS.keys():
            raise TypeError(
                f"HierarchicalClassifier.__init__() got an unexpected keyword argument {name!r}"
            )
        for name, (_, default) in PARAMETERS.items():
            setattr(self, name, recipe if name == "recipe" else parameters.get(name, default))

    # ---------------------------------------- training

    def fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        sample_weight: ArrayLike | None = None,
        groups: Sequence[Any] | None = None,
    ) -> Self:
        """Train on labeled rows, from the start.

        Args:
            X: (N, D) array, sparse matrix or frame, or a list of N texts. NaN is a missing value.
                Columns of a frame may be numbers, categories, texts, dates and booleans.
            y: the labels: one path per row, as a string, a list of levels or a row of an (N, L)
                table; a set of labels per row; or plain values of a flat problem; see
                docs/estimator.md.
            hierarchy: the taxonomy, instead of the parameter; by default that of the labels' paths.
            sample_weight: (N,) how much each row counts; a row of weight 0 is left out.
            groups: (N,) what each row belongs to, such as a patient or a recording. Rows of one
                group stay together wherever rows are held out, to choose a model or to calibrate.
        """
        plan, dataset, form, options = self._read_first(
            X, y, hierarchy, None, sample_weight, groups
        )
        with processes(str(self.device or "auto")) as here:
            return self._fit_job(self._job(here, plan, dataset, options), form)

    def partial_fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        classes: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train one pass over these rows, from where the training is, or start one.

        The first call fixes hierarchy and preprocessing. The learning rate stays constant;
        ``epochs``, ``schedule`` and ``patience`` are not used. With a memory the first call trains
        as ``fit`` does, and later ones remember, also new classes: see ``remember``.

        Args:
            X: the rows, as ``fit`` takes them.
            y: their labels.
            hierarchy: the taxonomy, at the first call; or
            classes: all labels that may ever occur, at the first call. Inner classes among them
                may be the most specific label of a row. By default the labels of the first call.
            sample_weight: (N,) how much each row counts; a row of weight 0 is left out.
        """
        if self.class_weight == "balanced":
            raise HierlearnError(
                "class_weight='balanced' needs all rows at once; for partial_fit give a mapping "
                "from classes to weights"
            )
        listing = None
        if classes is not None:
            listing = parse_labels(list(classes) if isinstance(classes, set) else classes, self.sep)
        if not self.__sklearn_is_fitted__():
            changes = {"patience": None, "effort": "quick", "time_limit": None}
            plan, dataset, form, options = self._read_first(
                X, y, hierarchy, listing, sample_weight, **changes
            )
            # What should go on training needs weights, unless a memory is asked for.
            options = replace(options, logits=True)
            with processes(str(self.device or "auto")) as here:
                job = self._job(here, plan, dataset, options)
                assert isinstance(job, SingleTraining)
                if candidates_of(job.prepared.network) is not None:
                    return self._fit_job(job, form)
            prepared = job.prepared
            job.reporting.message(summary(prepared))
            prepared.network.to(here.device)
            pipeline = Pipeline.from_prepared(prepared)
            pipeline.config |= describe_run(prepared, dataset, None)
            settings = prepared.decision.settings
            self._set_pipeline(pipeline, form, IncrementalState(prepared.loss, settings))
            self.history_ = []
        elif remembered(self.pipeline_.network) is not None:
            given = self._parse_more(y)
            form = self._label_format.extended(given, hierarchy)
            if listing is not None:
                form = form.extended(listing, hierarchy)
                form.class_names(listing)
            return self._remember(X, given, form, None, sample_weight)
        elif hierarchy is not None and hierarchy != self.hierarchy_:
            raise HierlearnError(
                f"the hierarchy is fixed from the first call on: that was {self.hierarchy_!r}, "
                f"this is {hierarchy!r}; call fit to start again"
            )
        elif listing is not None:
            self._label_format.names(listing)
        return self._train_pass(X, self._parse_more(y), sample_weight)

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
        return Evaluation(figures(self._answers(X, y)[0], metrics))

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
        answers, several = self._answers(X, y)
        weights = torch.from_numpy(parse_weights(sample_weight, len(answers.p)))
        if several or answers.decoder.answers != "class":
            return float(f1(answers, weights=weights))
        return weighted_exact(answers, weights)

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
        name = None if decoder == self.pipeline_.decoder else decoder
        made = calibratable(self.pipeline_.make_decoder(name), decoder)
        threshold = float(made.calibrate(p, targets, risk).threshold)
        self.thresholds_ = {**getattr(self, "thresholds_", {}), decoder: threshold}
        return self

    # ---------------------------------------- the memory

    def explain(self, X: Any, n_neighbors: int = 3) -> list[list[Evidence]]:
        """Return the training rows that every answer was taken from, the weightiest first.

        The weight of a row is its share of the answer: the probability of a class is the sum of
        the weights of all rows that have it. That does not hold where labels are partial
        (unlabeled_descendants="ignore"), nor where other heads answer too (answer="average").

        Args:
            X: the rows.
            n_neighbors: how many training rows to name, at most.
        """
        check_is_fitted(self)
        found = explain(self.pipeline_, self._read_inputs(X), n_neighbors)
        form = self._label_format
        return [
            [
                replace(
                    one,
                    labels=tuple(form.label(form.hierarchy.index(label)) for label in one.labels),
                )
                for one in row
            ]
            for row in found
        ]

    def reasons(self, X: Any, count: int = 3) -> list[list[Reason]]:
        """Return the words of texts, or cells of tables, that every answer rests on most.

        For any model that reads texts or tables: they are left out one at a time, and the effect is
        how much less probable the answer becomes. Where an answer is a set of classes, the best
        leaf is looked at.

        Args:
            X: the rows.
            count: how many words or cells to name, at most.
        """
        check_is_fitted(self)
        inputs = self._read_inputs(X)
        is_class = self.pipeline_.make_decoder().answers == "class"
        decided = self.pipeline_.predict(inputs, None if is_class else "leaf")
        return reasons(self.pipeline_, inputs, [path or None for path in decided], count)

    def remember(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        ids: Sequence[str] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add labeled rows to the memory, and the classes that they bring; nothing is trained.

        Args:
            X: the rows.
            y: their labels, as ``fit`` takes them. A path that is new becomes a class below its
                parent.
            hierarchy: a hierarchy with the new classes, where ``fit`` was given one and the labels
                do not tell their parents; it must have all classes so far, as they are.
            ids: by which the rows can be forgotten; by default numbers that continue those of the
                training rows.
            sample_weight: (N,) how much each row counts; a row of weight 0 is left out.
        """
        check_is_fitted(self)
        rows_of(self.pipeline_)
        given = self._parse_more(y)
        form = self._label_format.extended(given, hierarchy)
        return self._remember(X, given, form, ids, sample_weight)

    def forget(self, ids: Iterable[str | int] | str | int) -> int:
        """Remove the rows with some ids from the memory, and return how many they were.

        Nothing of a row is left in the memory; what training learned from it stays in the weights.
        Rows of ``fit`` have their numbers as ids, "0" being the first.

        Args:
            ids: of the rows, or of one.
        """
        check_is_fitted(self)
        gone = growth.forget(self.pipeline_, as_ids(ids))
        self._set_pipeline(self.pipeline_, self._label_format, None)
        return gone

    def remap(
        self,
        hierarchy: Hierarchy,
        mapping: Mapping[Any, Any] | None = None,
        labels: Mapping[Any, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Move to another taxonomy without training; return how many classes and rows change.

        Args:
            hierarchy: the new taxonomy.
            mapping: old label -> new label, a list where a class is split, None where it is
                removed. Labels are paths, or numbers where ``fit`` was given numbers.
            labels: the new labels of single rows by id, for rows of a class that is split.
            dry_run: only count.
        """
        check_is_fitted(self)
        check_hierarchy(hierarchy)
        old = self._label_format
        form = replace(old, hierarchy=hierarchy, inferred=False)
        ends, own = dict(mapping or {}), dict(labels or {})
        if not old.numbers:
            form = with_values(form, [*ends.values(), *own.values()])
        form.array(range(len(form.hierarchy)))  # raises before anything changes
        found = growth.remap(
            self.pipeline_,
            hierarchy,
            {class_of(key, old): classes_of(end, form) for key, end in ends.items()},
            {str(row): classes_of(end, form) for row, end in own.items()},
            dry_run=dry_run,
        )
        if not dry_run:
            thresholds = getattr(self, "thresholds_", None)
            self._set_pipeline(self.pipeline_, form, None)
            if thresholds is not None:  # the answers are those of before, by other names
                self.thresholds_ = thresholds
        return found

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
        if not reset and (texts is not None) != self._is_text:
            step = self.pipeline_.preprocessor
            other = "a table" if step is not None and step.reads == "table" else "numbers"
            learned, is_now = ("texts", "numbers") if self._is_text else (other, "texts")
            raise DataError(f"the classifier learned from {learned}, but X holds {is_now}")
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

    def _answers(self, X: Any, y: Any) -> tuple[Answers, bool]:
        """Return what is answered beside the labels, and whether these may be several per row."""
        p, given, form = self._nodes(X), self._parse_more(y), self._label_format
        if len(given) != len(p):
            raise DataError(f"inputs have {len(p)} rows but labels have {len(given)}")
        labels, mask = truth(given, form, self.pipeline_)
        decoder = self._make_decoder(None, {})
        answers = Answers(p, labels, self.pipeline_.label_space, mask, decoder)
        return answers, "several" in (given.shape, form.shape)

    def _make_decoder(self, decoder: str | Decoder | None, options: dict[str, Any]) -> Decoder:
        """Return a decoder as ``Pipeline.make_decoder`` does, with the threshold found for it."""
        pipeline, thresholds = self.pipeline_, getattr(self, "thresholds_", {})
        name = pipeline.decoder if decoder is None else decoder
        if not isinstance(name, str) or name not in thresholds:
            return pipeline.make_decoder(decoder, **options)
        # The pipeline's own decoder keeps the options that it was calibrated with.
        chosen = None if name == pipeline.decoder else name
        return pipeline.make_decoder(chosen, **{"threshold": thresholds[name], **options})

    def _read_first(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None,
        listing: ParsedLabels | None,
        sample_weight: ArrayLike | None,
        groups: Sequence[Any] | None = None,
        **changes: Any,
    ) -> tuple[Plan, Dataset, LabelFormat, PrepareOptions]:
        """Return what to train, the rows, the form of their labels, and what goes with them."""
        hierarchy = self.hierarchy if hierarchy is None else hierarchy
        check_hierarchy(hierarchy)
        plan = make_plan({**self.get_params(deep=False), **changes})
        inputs = self._read_inputs(X, reset=True)
        sep = self.sep if hierarchy is None else hierarchy.sep
        given = parse_labels(y, sep)
        if given.are_numbers and given.shape == "one":
            check_not_encoded(sep, hierarchy_given=hierarchy is not None)
        form = LabelFormat.from_labels(given, hierarchy, sep, listing)
        columns = getattr(self, "feature_names_in_", ())
        dataset, weights = self._gather(inputs, given, form, sample_weight, columns, groups)
        network = None
        if isinstance(self.network, torch.nn.Module):
            check_own_network(self.ensemble_size or 1, dataset)
            network = copy.deepcopy(self.network)
        listed = () if listing is None else list(chain(*form.names(listing)))
        return plan, dataset, form, PrepareOptions(weights, network, listed)

    def _gather(
        self,
        inputs: Any,
        given: ParsedLabels,
        form: LabelFormat,
        sample_weight: ArrayLike | None,
        columns: Sequence[str] = (),
        groups: Sequence[Any] | None = None,
    ) -> tuple[Dataset, NDArray[np.float64] | None]:
        """Return the rows that count, and their weights; None where all count alike."""
        labels: Any = form.names(given)
        names = tuple(columns) if getattr(inputs, "kind", None) != "table" else inputs.names
        together = None if groups is None else parse_groups(groups)
        dataset = Dataset(inputs, labels, form.hierarchy, feature_names=names, groups=together)
        weights = parse_weights(sample_weight, len(dataset))
        if self.class_weight is not None:
            weighed = weigh_rows(self.class_weight, labels, form, weights)
            weights = parse_weights(weighed, len(dataset))
        counting = weights > 0
        if not counting.all():
            dataset, weights = dataset.take(counting), weights[counting]
        return dataset, None if np.ptp(weights) == 0 else weights

    def _job(
        self, here: Processes, plan: Plan, dataset: Dataset, options: PrepareOptions
    ) -> SingleTraining | BlendTraining:
        verbose = bool(self.verbose)
        reporting = Reporting(bar=verbose, on_message=print_lines if verbose else None)
        return training_job(dataset, plan, here, options.weights, reporting, options)

    def _fit_job(self, job: SingleTraining | BlendTraining, form: LabelFormat) -> Self:
        """Train to the end."""
        records: list[dict[str, Any]] = []
        job.reporting = replace(job.reporting, on_epoch=records.append)
        pipeline = job.run()
        note_rows(pipeline, job.dataset, job.rows, job.held_out)
        state = None
        if isinstance(job, SingleTraining):
            assert job.fitted is not None
            settings = job.prepared.decision.settings
            state = IncrementalState(job.prepared.loss, settings, job.fitted.optimizer)
        self._set_pipeline(pipeline, form, state)
        self.history_ = records
        return self

    def _train_pass(self, X: Any, given: ParsedLabels, sample_weight: ArrayLike | None) -> Self:
        """Train one pass over rows; where there is a memory, its last rows are these."""
        inputs = self._read_inputs(X, learns=True)
        rows, weights = self._gather(inputs, given, self._label_format, sample_weight)
        policy = self.unlabeled_descendants
        labels = Labels(rows.labels, self.hierarchy_, unlabeled_descendants=policy)
        state = self._incremental or IncrementalState.from_pipeline(self.pipeline_)
        record = state.partial_fit(self.pipeline_, rows.inputs, labels, weights)
        self.pipeline_.seen = None  # rows of earlier calls are gone
        self._set_pipeline(self.pipeline_, self._label_format, state)
        self.history_ = [*self.history_, {**record, "epoch": len(self.history_) + 1}]
        return self

    def _remember(
        self,
        X: Any,
        given: ParsedLabels,
        form: LabelFormat,
        ids: Sequence[str] | None,
        sample_weight: ArrayLike | None,
    ) -> Self:
        """Add rows whose labels are read already; ``form`` has all of their classes."""
        inputs = self._read_inputs(X, learns=True)
        count = count_rows(inputs)
        if len(given) != count:
            raise DataError(f"inputs have {count} rows but labels have {len(given)}")
        listed = None if ids is None else as_ids(ids)
        if listed is not None and len(listed) != count:
            raise DataError(f"inputs have {count} rows but there are {len(listed)} ids")
        weights = parse_weights(sample_weight, count)
        names = form.class_names(given)
        form.array(range(len(form.hierarchy)))  # raises before anything changes
        keep = [int(row) for row in np.flatnonzero(weights > 0)]
        growth.remember(
            self.pipeline_,
            [inputs[row] for row in keep] if isinstance(inputs, list) else inputs[keep],
            [names[row] for row in keep],
            hierarchy=form.hierarchy,
            ids=None if listed is None else [listed[row] for row in keep],
            weights=None if np.all(weights[keep] == 1) else weights[keep],
        )
        self._set_pipeline(self.pipeline_, form, None)
        return self
