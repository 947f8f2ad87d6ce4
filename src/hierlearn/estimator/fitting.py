"""Fitting: what trains a HierarchicalClassifier, at once or with more rows as they come."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.estimator.class_weight import weigh_rows
from hierlearn.estimator.encoded_labels import check_not_encoded
from hierlearn.estimator.incremental import IncrementalState
from hierlearn.estimator.inputs import (
    check_hierarchy,
    check_own_network,
    check_same_length,
    gather,
    parse_weights,
)
from hierlearn.estimator.label_format import LabelFormat, ParsedLabels, parse_labels
from hierlearn.estimator.parameters import make_plan
from hierlearn.hierarchy.labels import Labels
from hierlearn.networks.memories import candidates_of, remembered
from hierlearn.pipeline.best import BlendTraining
from hierlearn.pipeline.calibrate import calibrate
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.reporting import Reporting
from hierlearn.pipeline.seen_rows import note_rows
from hierlearn.pipeline.train import describe_run, run
from hierlearn.terminal import print_lines
from hierlearn.training.prepare import Extras, Prepared, prepare
from hierlearn.training.processes import Processes, processes
from hierlearn.training.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.training.plan import Plan


@dataclass(frozen=True)
class FirstRows:
    """The rows that a training begins with.

    Attributes:
        plan: what to train.
        dataset: the rows.
        form: of their labels.
        extras: their weights, a module instead of a network by name, classes that may occur.
    """

    plan: Plan
    dataset: Dataset
    form: LabelFormat
    extras: Extras


class FittingMixin:
    """The methods of a classifier that train it."""

    if TYPE_CHECKING:
        class_weight: Any
        device: Any
        ensemble_size: Any
        hierarchy: Hierarchy | None
        hierarchy_: Hierarchy
        history_: list[dict[str, Any]]
        network: Any
        pipeline_: Pipeline
        sep: str
        unlabeled_descendants: Any
        verbose: Any
        _incremental: IncrementalState | None
        _label_format: LabelFormat

        def __sklearn_is_fitted__(self) -> bool: ...

        get_params: Callable[..., dict[str, Any]]

        def _parse_more(self, y: Any) -> ParsedLabels: ...
        def _read_inputs(self, X: Any, *, reset: bool = False, learns: bool = False) -> Any: ...
        def _remember_more(self, *args: Any, **options: Any) -> Self: ...
        def _set_pipeline(
            self, pipeline: Pipeline, form: LabelFormat, state: IncrementalState | None
        ) -> None: ...

    def fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        sample_weight: ArrayLike | None = None,
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
        """
        first = self._read_first(X, y, hierarchy, None, sample_weight)
        with processes(str(self.device or "auto")) as here:
            if first.plan.effort == "best":
                return self._fit_blend(here, first)
            return self._fit_prepared(here, self._prepare(here, first), first)

    def _fit_blend(self, here: Processes, first: FirstRows) -> Self:
        """Train several recipes, and blend them."""
        if first.extras.network is not None:
            raise HierlearnError(
                "effort 'best' chooses networks itself; leave out the module, or use effort 'quick'"
            )
        reporting = Reporting(
            bar=bool(self.verbose), on_message=print_lines if self.verbose else None
        )
        job = BlendTraining(first.dataset, first.plan, here, first.extras.weights, reporting)
        pipeline = job.run()
        note_rows(pipeline, first.dataset, job.rows, job.held_out)
        self._set_pipeline(pipeline, first.form, None)
        self.history_ = []
        return self

    def _read_first(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None,
        listing: ParsedLabels | None,
        sample_weight: ArrayLike | None,
        **changes: Any,
    ) -> FirstRows:
        """Read the first rows, and what to train on them."""
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
        names = form.names(given)
        row_weights = self._row_weights(inputs, names, form, sample_weight)
        dataset, weights = gather(inputs, names, form.hierarchy, row_weights, columns)
        network = None
        if isinstance(self.network, torch.nn.Module):
            check_own_network(self.ensemble_size or 1, dataset)
            network = copy.deepcopy(self.network)
        listed = () if listing is None else list(chain(*form.names(listing)))
        return FirstRows(plan, dataset, form, Extras(weights, network, listed))

    def _row_weights(
        self, inputs: Any, names: Any, form: LabelFormat, sample_weight: ArrayLike | None
    ) -> ArrayLike | None:
        """Return the weights of rows times those of their classes."""
        if self.class_weight is None:
            return sample_weight
        check_same_length(inputs, names)
        return weigh_rows(self.class_weight, names, form, parse_weights(sample_weight, len(names)))

    def _prepare(self, here: Processes, first: FirstRows) -> Prepared:
        """Prepare what is trained on the first rows."""
        prepared = prepare(first.dataset, first.plan, here.device, first.extras)
        if self.verbose and here.writes:
            print_lines(summary(prepared))
        return prepared

    def _fit_prepared(self, here: Processes, prepared: Prepared, first: FirstRows) -> Self:
        """Train to the end."""
        records: list[dict[str, Any]] = []
        reporting = Reporting(bar=bool(self.verbose), on_epoch=records.append)
        fitted = run(prepared, here, reporting=reporting)
        pipeline = Pipeline.from_prepared(prepared)
        pipeline.config |= describe_run(prepared, first.dataset, fitted)
        calibrate(pipeline, prepared, first.dataset, here, first.extras.weights, reporting)
        note_rows(pipeline, first.dataset, prepared.trained, prepared.held_out)
        self._set_pipeline(pipeline, first.form, IncrementalState.from_training(prepared, fitted))
        self.history_ = records
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        classes: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        train: bool = False,
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
            train: with a memory, also train one pass over the new rows, of several classes since
                they are each other's neighbors; earlier rows keep their embeddings.
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
            first = self._read_first(X, y, hierarchy, listing, sample_weight, **changes)
            # What should go on training needs weights, unless a memory is asked for.
            first = replace(first, extras=replace(first.extras, logits=True))
            with processes(str(self.device or "auto")) as here:
                prepared = self._prepare(here, first)
                if candidates_of(prepared.network) is not None:
                    return self._fit_prepared(here, prepared, first)
            prepared.network.to(here.device)
            pipeline = Pipeline.from_prepared(prepared)
            pipeline.config |= describe_run(prepared, first.dataset, None)
            settings = prepared.decision.settings
            self._set_pipeline(pipeline, first.form, IncrementalState(prepared.loss, settings))
            self.history_ = []
        elif remembered(self.pipeline_.network) is not None:
            return self._remember_more(X, y, hierarchy, listing, sample_weight, train=train)
        elif hierarchy is not None and hierarchy != self.hierarchy_:
            raise HierlearnError(
                f"the hierarchy is fixed from the first call on: that was {self.hierarchy_!r}, "
                f"this is {hierarchy!r}; call fit to start again"
            )
        elif listing is not None:
            self._label_format.names(listing)
        return self._train_pass(X, self._parse_more(y), sample_weight)

    def _train_pass(self, X: Any, given: ParsedLabels, sample_weight: ArrayLike | None) -> Self:
        """Train one pass over rows; where there is a memory, its last rows are these."""
        names = self._label_format.names(given)
        inputs = self._read_inputs(X, learns=True)
        row_weights = self._row_weights(inputs, names, self._label_format, sample_weight)
        rows, weights = gather(inputs, names, self.hierarchy_, row_weights)
        policy = self.unlabeled_descendants
        labels = Labels(rows.labels, self.hierarchy_, unlabeled_descendants=policy)
        state = self._incremental or IncrementalState.from_pipeline(self.pipeline_)
        record = state.partial_fit(self.pipeline_, rows.inputs, labels, weights)
        self.pipeline_.seen = None  # rows of earlier calls are gone
        self._set_pipeline(self.pipeline_, self._label_format, state)
        self.history_ = [*self.history_, {**record, "epoch": len(self.history_) + 1}]
        return self
