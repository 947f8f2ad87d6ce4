"""MemoryMixin: what a classifier with a memory can do beside predicting.

explain, kneighbors        the rows that an answer was taken from
remember, forget, remap    new rows, fewer rows, another taxonomy: without training
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from hierlearn.datasets.dataset import count_rows
from hierlearn.errors import DataError, LabelError
from hierlearn.estimator.incremental import IncrementalState, recipe_of
from hierlearn.estimator.inputs import check_hierarchy, parse_weights
from hierlearn.estimator.label_format import (
    NUMERIC,
    LabelFormat,
    ParsedLabels,
    is_list,
    is_number,
    name_of,
)
from hierlearn.estimator.parameters import as_plain
from hierlearn.memory.taxonomy import grown
from hierlearn.pipeline import explain as evidence
from hierlearn.pipeline import remember as growth
from hierlearn.pipeline.reasons import reasons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.pipeline.explain import Evidence
    from hierlearn.pipeline.pipeline import Pipeline
    from hierlearn.pipeline.reasons import Reason


class MemoryMixin:
    """The methods of a classifier whose answers come from remembered rows."""

    pipeline_: Pipeline
    hierarchy_: Hierarchy
    _label_format: LabelFormat
    _incremental: IncrementalState | None

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
        found = evidence.explain(self.pipeline_, self._read_inputs(X), n_neighbors)
        form = self._label_format
        return [
            [replace(one, labels=tuple(labels_of(one.labels, form))) for one in row]
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
        given = self._parse_more(y)
        form = extended(self._label_format, given, hierarchy)
        return self._remember(X, given, form, ids, sample_weight)

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
        names = named(form, given)
        form.array(range(len(form.hierarchy)))  # raises before anything changes
        keep = [int(row) for row in np.flatnonzero(weights > 0)]
        before = self.pipeline_.label_space
        growth.remember(
            self.pipeline_,
            [inputs[row] for row in keep] if isinstance(inputs, list) else inputs[keep],
            [names[row] for row in keep],
            hierarchy=form.hierarchy,
            ids=None if listed is None else [listed[row] for row in keep],
            weights=None if np.all(weights[keep] == 1) else weights[keep],
        )
        self._set_changed(form, before)
        return self

    def _remember_more(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None,
        listing: ParsedLabels | None,
        sample_weight: ArrayLike | None,
        *,
        train: bool,
    ) -> Self:
        """Do what ``partial_fit`` does from its second call on.

        Args:
            X: the rows.
            y: their labels.
            hierarchy: a hierarchy with the new classes, as ``remember`` takes it.
            listing: labels that may occur; new ones become classes too.
            sample_weight: (N,) how much each row counts.
            train: also train one pass over the rows.
        """
        if train:
            recipe_of(self.pipeline_)  # raises before anything changes
        given = self._parse_more(y)
        form = extended(self._label_format, given, hierarchy)
        if listing is not None:
            form = extended(form, listing, hierarchy)
            named(form, listing)
        self._remember(X, given, form, None, sample_weight)
        return self._train_pass(X, given, sample_weight) if train else self

    def forget(self, ids: Iterable[str | int] | str | int) -> int:
        """Remove the rows with some ids from the memory, and return how many they were.

        Nothing of a row is left in the memory; what training learned from it stays in the weights.
        Rows of ``fit`` have their numbers as ids, "0" being the first.

        Args:
            ids: of the rows, or of one.
        """
        check_is_fitted(self)
        before = self.pipeline_.label_space
        gone = growth.forget(self.pipeline_, as_ids(ids))
        self._set_changed(self._label_format, before)
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
        before = self.pipeline_.label_space
        found = growth.remap(
            self.pipeline_,
            hierarchy,
            {class_of(key, old): classes_of(end, form) for key, end in ends.items()},
            {str(row): classes_of(end, form) for row, end in own.items()},
            dry_run=dry_run,
        )
        if not dry_run:
            thresholds = getattr(self, "thresholds_", None)
            self._set_changed(form, before)
            if thresholds is not None:  # the answers are those of before, by other names
                self.thresholds_ = thresholds
        return found

    # ------------------------------------------------------------------ the parts

    def _set_changed(self, form: LabelFormat, before: LabelSpace) -> None:
        """Set the fitted attributes; the state of the training lasts while the classes do."""
        state = self._incremental if self.pipeline_.label_space == before else None
        self._set_pipeline(self.pipeline_, form, state)

    if TYPE_CHECKING:

        def _parse_more(self, y: Any) -> ParsedLabels: ...

        def _read_inputs(self, X: Any, *, learns: bool = False) -> Any: ...

        def _set_pipeline(
            self, pipeline: Pipeline, form: LabelFormat, state: IncrementalState | None
        ) -> None: ...

        def _train_pass(
            self, X: Any, given: ParsedLabels, sample_weight: ArrayLike | None
        ) -> Self: ...


def as_ids(ids: Iterable[str | int] | str | int) -> list[str]:
    """Return one id or several as a list of strings."""
    return [str(ids)] if isinstance(ids, (str, int, np.integer)) else [str(one) for one in ids]


def extended(form: LabelFormat, given: ParsedLabels, hierarchy: Hierarchy | None) -> LabelFormat:
    """Return the form of labels with the classes of new rows."""
    check_hierarchy(hierarchy)
    if hierarchy is None and form.inferred:
        hierarchy = form.extended_hierarchy(given)
    elif hierarchy is None and not given.are_numbers:
        hierarchy = grown(form.hierarchy, (label for _, label in given.labels()))
    form = replace(
        form, hierarchy=hierarchy or form.hierarchy, values={**form.values, **given.cells}
    )
    if form.numbers or not given.are_numbers:
        return form
    return with_values(form, (label for _, label in given.labels()))


def with_values(form: LabelFormat, labels: Iterable[Any]) -> LabelFormat:
    """Return the form in which numbers among some labels are those of their classes.

    Args:
        form: the form of training labels; one of strings stays as it is.
        labels: labels, lists of labels, or None.
    """
    rows = [label if is_list(label) else [label] for label in labels]
    numbers = [label for row in rows for label in row if is_number(label)]
    if not numbers or form.dtype == "object" or np.dtype(form.dtype).kind not in NUMERIC:
        return form
    values = {name_of(label): as_plain(label) for label in numbers}
    dtype = str(np.result_type(np.dtype(form.dtype), np.asarray(numbers)))
    return replace(form, values={**form.values, **values}, dtype=dtype)


def class_of(label: Any, form: LabelFormat) -> str:
    """Return the class that a label means, by name; what a string means is checked later.

    Args:
        label: a string or a number.
        form: the form of the labels, which says what a number means.
    """
    if not is_number(label):
        return str(label)
    hierarchy, name = form.hierarchy, label if form.numbers else name_of(label)
    found = hierarchy.names[hierarchy.index(name)] if name in hierarchy else None
    if found is None or not (form.numbers or found == name):
        raise LabelError(
            f"the label {as_plain(label)!r} is no class of {hierarchy!r}; name classes by their "
            f"paths, or by numbers such as fit was given"
        )
    return found


def classes_of(labels: Any, form: LabelFormat) -> list[str]:
    """Return the classes that one label, several or None mean, by name."""
    rows = [] if labels is None else labels if is_list(labels) else [labels]
    return [class_of(label, form) for label in rows]


def named(form: LabelFormat, given: ParsedLabels) -> list[list[str]]:
    """Return the labels of every row by name."""
    names = form.hierarchy.names
    return [[names[form.hierarchy.index(label)] for label in row] for row in form.names(given)]


def labels_of(names: Iterable[str], form: LabelFormat) -> list[Any]:
    """Return classes in the form of the training labels."""
    return [form.label(form.hierarchy.index(name)) for name in names]
