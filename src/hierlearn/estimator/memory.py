"""MemoryMixin: what a classifier with a memory can do beside predicting.

explain, kneighbors        the rows that an answer was taken from
remember, forget, remap    new rows, fewer rows, another taxonomy: without training
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hierlearn.estimator.inputs import parse_weights
from hierlearn.estimator.label_format import LabelFormat, ParsedLabels, name_of, parse_labels
from hierlearn.estimator.parameters import as_plain
from hierlearn.memory.taxonomy import grown
from hierlearn.pipeline import explain as evidence
from hierlearn.pipeline import remember as growth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.explain import Evidence
    from hierlearn.pipeline.pipeline import Pipeline


class MemoryMixin:
    """The methods of a classifier whose answers come from remembered rows."""

    pipeline_: Pipeline
    hierarchy_: Hierarchy
    _label_format: LabelFormat

    def explain(self, X: Any, n_neighbors: int = 3) -> list[list[Evidence]]:
        """Return the training rows that every answer was taken from, the weightiest first.

        The weight of a row is its share of the answer: the probability of a class is the sum of
        the weights of all rows that have it.

        Args:
            X: the rows.
            n_neighbors: how many training rows to name, at most.
        """
        check_is_fitted(self)
        found = evidence.explain(self.pipeline_, self._read_inputs(X), n_neighbors)
        form = self._label_format
        return [
            [replace(one, labels=tuple(labels_of(one.labels, form))) for one in row]
            for row in found
        ]

    def kneighbors(self, X: Any = None, n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the nearest remembered rows, as scikit-learn's neighbors do.

        Args:
            X: the rows; None for the remembered rows themselves, each without itself.
            n_neighbors: how many.
            return_distance: whether to return distances too.

        Returns:
            (N, k) distances between embeddings, ascending, and (N, k) the numbers of the remembered
            rows; only these where ``return_distance`` is false.
        """
        check_is_fitted(self)
        inputs = None if X is None else self._read_inputs(X)
        distances, index = evidence.kneighbors(self.pipeline_, inputs, n_neighbors)
        return (distances, index) if return_distance else index

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
        evidence.rows_of(self.pipeline_)
        given = parse_labels(y, self.hierarchy_.sep)
        form = extended(self._label_format, given, hierarchy)
        inputs, names = self._read_inputs(X), named(form, given)
        count = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
        weights = parse_weights(sample_weight, count)
        keep = [int(row) for row in np.flatnonzero(weights > 0)]
        growth.remember(
            self.pipeline_,
            [inputs[row] for row in keep] if isinstance(inputs, list) else inputs[keep],
            [names[row] for row in keep],
            hierarchy=form.hierarchy,
            ids=None if ids is None else [str(ids[row]) for row in keep],
            weights=None if np.all(weights[keep] == 1) else weights[keep],
        )
        self._set_pipeline(self.pipeline_, form, None)
        return self

    def forget(self, ids: Iterable[str]) -> int:
        """Remove the rows with some ids from the memory, and return how many they were.

        Nothing of a row is left in the memory; what training learned from it stays in the weights.
        Rows of ``fit`` have their numbers as ids, "0" being the first.

        Args:
            ids: of the rows.
        """
        check_is_fitted(self)
        listed = [ids] if isinstance(ids, str) else [str(one) for one in ids]
        gone = growth.forget(self.pipeline_, listed)
        self._set_pipeline(self.pipeline_, self._label_format, None)
        return gone

    def remap(
        self,
        hierarchy: Hierarchy,
        mapping: Mapping[str, str | Sequence[str] | None] | None = None,
        labels: Mapping[str, str | Sequence[str]] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, int]:
        """Move to another taxonomy without training; return how many classes and rows change.

        Args:
            hierarchy: the new taxonomy.
            mapping: old path -> new path, several where a class is split, None where it is removed.
            labels: the new labels of single rows by id, for rows of a class that is split.
            dry_run: only count.
        """
        check_is_fitted(self)
        found = growth.remap(self.pipeline_, hierarchy, mapping, labels, dry_run=dry_run)
        if not dry_run:
            thresholds = getattr(self, "thresholds_", None)
            form = replace(self._label_format, hierarchy=hierarchy, inferred=False)
            self._set_pipeline(self.pipeline_, form, None)
            if thresholds is not None:  # the answers are those of before, by other names
                self.thresholds_ = thresholds
        return found

    # ------------------------------------------------------------------ the parts

    if TYPE_CHECKING:

        def _read_inputs(self, X: Any) -> Any: ...

        def _set_pipeline(self, pipeline: Pipeline, form: LabelFormat, state: None) -> None: ...


def extended(form: LabelFormat, given: ParsedLabels, hierarchy: Hierarchy | None) -> LabelFormat:
    """Return the form of labels with the classes of new rows."""
    values = {**form.values, **given.cells}
    if given.are_numbers and not form.numbers:
        values |= {name_of(label): as_plain(label) for _, label in given.labels()}
    if hierarchy is None and form.inferred:
        hierarchy = form.extended_hierarchy(given)
    elif hierarchy is None and not given.are_numbers:
        hierarchy = grown(form.hierarchy, (label for _, label in given.labels()))
    return replace(form, hierarchy=hierarchy or form.hierarchy, values=values)


def named(form: LabelFormat, given: ParsedLabels) -> list[list[str]]:
    """Return the labels of every row by name."""
    names = form.hierarchy.names
    return [[names[form.hierarchy.index(label)] for label in row] for row in form.names(given)]


def labels_of(names: Iterable[str], form: LabelFormat) -> list[Any]:
    """Return classes in the form of the training labels."""
    return [form.label(form.hierarchy.index(name)) for name in names]
