"""HierarchicalClassifier: training and predicting behind the interface of scikit-learn.

Labels are paths, lists of paths, level columns or plain values; answers come back in the same form.
Probabilities are computed in double precision, so that a row gets the same ones to about 1e-15
whatever else is in its batch.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from hierlearn.decoding import Stop
from hierlearn.decoding.edges import most_specific
from hierlearn.errors import DataError, HierlearnError
from hierlearn.estimator.float64 import Precise
from hierlearn.estimator.incremental import IncrementalState
from hierlearn.estimator.inputs import (
    as_csr,
    as_texts,
    check_own_network,
    gather,
    read_weights,
    refuse_missing,
)
from hierlearn.estimator.label_format import LabelFormat, ParsedLabels, read_labels
from hierlearn.estimator.parameters import plan_of, storable
from hierlearn.estimator.score import exact_share, pooled_f1
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.prepare import Prepared, prepare, summary
from hierlearn.pipeline.train import describe_run, run
from hierlearn.training.processes import Processes, processes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.decoding import Decoder


class HierarchicalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network that classifies into a taxonomy.

    Whatever is None comes from the recipe. Parameters are checked in ``fit``.

    Args:
        recipe: a name of RECIPES, or "auto" to choose by the labels; ``recipe_`` says which.
        loss: a name of LOSSES, instead of the recipe's.
        loss_options: its options.
        network: a name of NETWORKS ("mlp"; "token-bag" for texts and sparse rows), or a torch
            module that returns (N, C) logits; a module is copied, not changed.
        network_options: options of a network given by name, such as ``{"width": 200}``.
        link: a name of LINKS: how to read the logits.
        decoder: a name of DECODERS: how ``predict`` decides.
        decoder_options: its options.
        unlabeled_descendants: what a label says of the classes below it: "negative" that they do
            not apply, "ignore" nothing.
        sep: what joins the names of a path, where the hierarchy is inferred.
        standardize: bring every column of numbers to mean 0 and deviation 1; sparse rows and texts
            are not scaled.
        epochs: passes over the training rows; 100.
        batch_size: rows a step; 128.
        learning_rate: of AdamW, at its peak; 0.001.
        weight_decay: of AdamW; 0.
        schedule: "cosine", "linear" or "constant".
        warmup: share of all steps over which the learning rate rises.
        max_grad_norm: the largest norm of the gradient.
        precision: "float32" or "bf16".
        prior_bias: begin with the last bias at the class priors.
        metric: a name of METRICS, for early stopping; "au-prc".
        patience: stop after this many epochs without a better metric, and keep the best weights.
        valid_fraction: share of the rows held out for that; used only with ``patience``.
        ensemble_size: how many networks to train; their probabilities are averaged.
        random_state: an int makes ``fit`` repeatable.
        device: "auto", or a device of torch.
        verbose: print what was chosen and show a progress bar.

    Attributes:
        hierarchy_: the taxonomy.
        classes_: the label of every column of ``predict_proba``: all classes in the hierarchy's
            order; for flat labels without a hierarchy, the labels in their own order.
        model_: the trained Pipeline.
        recipe_: the name of the recipe; ``recipe_reason_`` says why.
        history_: a record of every epoch.
        n_features_in_: the number of columns of X, unless X is texts.
        feature_names_in_: their names, where X is a frame.

    Example:
        >>> X = [[0.0, 0.1], [0.1, 0.0], [1.0, 0.1], [1.1, 0.0], [0.0, 1.1], [0.1, 1.0]]
        >>> y = ["animal/dog", "animal/dog", "animal/cat", "animal/cat", "plant", "plant"]
        >>> classifier = HierarchicalClassifier(random_state=0).fit(X, y)
        >>> classifier.predict([[0.0, 0.0], [0.0, 1.0]]).tolist()
        ['animal/dog', 'plant']
    """

    _is_text: bool  # whether the classifier learned from texts

    def __init__(
        self,
        recipe: str = "auto",
        *,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
        network: str | nn.Module | None = None,
        network_options: Mapping[str, Any] | None = None,
        link: str | None = None,
        decoder: str | None = None,
        decoder_options: Mapping[str, Any] | None = None,
        unlabeled_descendants: Literal["negative", "ignore"] = "negative",
        sep: str = "/",
        standardize: bool = True,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        schedule: str | None = None,
        warmup: float | None = None,
        max_grad_norm: float | None = None,
        precision: str | None = None,
        prior_bias: bool | None = None,
        metric: str | None = None,
        patience: int | None = None,
        valid_fraction: float = 0.1,
        ensemble_size: int = 1,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.recipe = recipe
        self.loss = loss
        self.loss_options = loss_options
        self.network = network
        self.network_options = network_options
        self.link = link
        self.decoder = decoder
        self.decoder_options = decoder_options
        self.unlabeled_descendants = unlabeled_descendants
        self.sep = sep
        self.standardize = standardize
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.warmup = warmup
        self.max_grad_norm = max_grad_norm
        self.precision = precision
        self.prior_bias = prior_bias
        self.metric = metric
        self.patience = patience
        self.valid_fraction = valid_fraction
        self.ensemble_size = ensemble_size
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # ------------------------------------------------------------------ training

    def fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on labeled rows, from the start.

        Args:
            X: (N, D) array, frame or sparse matrix, or a list of N texts. NaN is a missing value.
            y: the labels: a path a row, a list of paths a row, an (N, L) table with a column a
                level, or plain values of a flat problem; see docs/estimator.md.
            hierarchy: the taxonomy; by default that of the labels' paths.
            sample_weight: (N,) how much each row counts; a row of weight 0 is left out.
        """
        records: list[dict[str, Any]] = []
        with processes(str(self.device)) as here:
            prepared, dataset, form = self._begin(here, X, y, hierarchy, None, sample_weight)
            trainer = run(prepared, here, None, show=bool(self.verbose), keep_record=records.append)
        prepared.model.config |= describe_run(prepared, dataset, trainer)
        self._take_on(prepared.model, form, IncrementalState.after(prepared, trainer))
        self.history_ = records
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None = None,
        classes: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train one pass over these rows, from where the training is, or begin one.

        The first call fixes hierarchy and preprocessing. The learning rate stays constant;
        ``epochs``, ``schedule`` and ``patience`` play no part.

        Args:
            X: the rows, as ``fit`` takes them.
            y: their labels.
            hierarchy: the taxonomy, at the first call; or
            classes: all labels that may ever occur, at the first call. Inner classes among them
                may be the most specific label of a row. By default the labels of the first call.
            sample_weight: (N,) how much each row counts; a row of weight 0 is left out.
        """
        listing = None
        if classes is not None:
            listing = read_labels(list(classes) if isinstance(classes, set) else classes, self.sep)
        if not self.__sklearn_is_fitted__():
            with processes(str(self.device)) as here:
                prepared, dataset, form = self._begin(
                    here, X, y, hierarchy, listing, sample_weight, patience=None
                )
            prepared.model.network.to(here.device)
            prepared.model.config |= describe_run(prepared, dataset, None)
            settings = prepared.decision.settings
            self._take_on(prepared.model, form, IncrementalState(prepared.losses, settings))
            self.history_ = []
        elif hierarchy is not None and hierarchy != self.hierarchy_:
            raise HierlearnError(
                f"the hierarchy is fixed from the first call on: that was {self.hierarchy_!r}, "
                f"this is {hierarchy!r}; call fit to begin anew"
            )
        elif listing is not None:
            self._form.names(listing)
        inputs, given = self._read_inputs(X), read_labels(y, self.hierarchy_.sep)
        rows, weights = gather(inputs, self._form.names(given), self.hierarchy_, sample_weight)
        labels = Labels(
            rows.labels, self.hierarchy_, unlabeled_descendants=self.unlabeled_descendants
        )
        further = self._further or IncrementalState.anew(self.model_)
        record = further.learn(self.model_, rows.inputs, labels, weights)
        self._take_on(self.model_, self._form, further)
        self.history_ = [*self.history_, {**record, "epoch": len(self.history_) + 1}]
        return self

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Any, decoder: str | Decoder | None = None, **options: Any) -> Any:
        """Decide, and answer in the form of the training labels.

        Args:
            X: the rows.
            decoder: a name of DECODERS or a Decoder, instead of the model's own.
            options: what a decoder given by name takes.

        Returns:
            One label a row, None where the decoder stops at the root; or a list of labels a row,
            where the training labels were lists or the decoder answers sets.
        """
        p = self._log_nodes(X).exp()
        chosen = self._make_decoder(decoder, options)
        decided = chosen(p)
        if chosen.answers == "class":
            return self._form.answer(decided.tolist())
        if chosen.answers == "set":
            decided = most_specific(decided, self.hierarchy_)
        return self._form.answer_sets(row.nonzero()[:, 0].tolist() for row in decided)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C) the probability of every class, columns as in ``classes_``.

        A class is never more probable than its parent, unless a link was chosen that allows it.
        Over the classes of a flat problem the rows sum to 1 where the link is softmax, as it is
        for one label a row unless you choose otherwise.
        """
        found: NDArray[np.float64] = np.exp(self.predict_log_proba(X))
        return found

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return (N, C) the logarithms of the probabilities, accurate where those are tiny."""
        found: NDArray[np.float64] = self._log_nodes(X).numpy()[:, self._numbers]
        return found

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return how right ``predict`` is: 1 at best.

        One label a row: the share of rows whose label is answered exactly. Several labels a row, or
        a decoder that answers sets: the hierarchical F1 of all rows together. Under
        unlabeled_descendants="ignore" an answer below a label is not held against it, and a row
        without a label does not count. A label that an inferred hierarchy lacks counts as missed.

        Args:
            X: the rows.
            y: their labels.
            sample_weight: (N,) how much each row counts.
        """
        p = self._log_nodes(X).exp()
        given = read_labels(y, self.hierarchy_.sep)
        if len(given) != len(p):
            raise DataError(f"inputs have {len(p)} rows but labels have {len(given)}")
        wide = self._form.widened(given)
        labels = Labels(
            replace(self._form, hierarchy=wide).names(given),
            wide,
            unlabeled_descendants=self.unlabeled_descendants,
        )
        decoder = self._make_decoder(None, {})
        answers = torch.zeros(len(p), len(wide), dtype=torch.bool)
        answers[:, [wide.index(name) for name in self.hierarchy_.names]] = decoder.sets(p)
        single = decoder.answers == "class" and "several" not in (given.shape, self._form.shape)
        measure = exact_share if single else pooled_f1
        return measure(answers, labels, torch.from_numpy(read_weights(sample_weight, len(p))))

    def calibrate(self, X: Any, y: Any, risk: float = 0.05) -> Self:
        """Find how sure ``predict(X, decoder="stop")`` must be to go on down.

        On new rows like these a share of at most ``risk`` of its answers is wrong, in expectation
        (conformal risk control). What ``predict(X)`` answers does not change, unless the
        classifier's own decoder is "stop".

        Args:
            X: rows that the classifier was not trained on.
            y: their labels; an answer below a label counts as wrong.
            risk: the share of wrong answers, between 0 and 1.
        """
        p = self._log_nodes(X).exp()
        names = self._form.names(read_labels(y, self.hierarchy_.sep))
        targets = Labels(names, self.hierarchy_).targets()
        self.stop_threshold_ = Stop(self.hierarchy_).calibrate(p, targets, risk).threshold
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
        mine = {
            "params": storable(params),
            "labels": self._form.to_dict(),
            "stop_threshold": getattr(self, "stop_threshold_", None),
        }
        config = {**self.model_.config, "estimator": mine}
        return replace(self.model_, config=config).save(folder, force=force)

    @classmethod
    def load(cls, folder: Path | str, *, device: str = "cpu") -> Self:
        """Read a model folder, of ``save`` or of the command line.

        Args:
            folder: the folder.
            device: where to compute.
        """
        model = Pipeline.load(folder, device=device)
        mine = model.config.pop("estimator", {})
        new = cls(**mine.get("params", {}))
        if "labels" in mine:
            form = LabelFormat.from_dict(mine["labels"], model.hierarchy)
        else:
            sets = model.make_decoder().answers != "class"
            form = LabelFormat(model.hierarchy, "several" if sets else "one", dtype="str")
        new._is_text = model.preprocessor is not None and model.preprocessor.reads == "texts"
        if not new._is_text:
            new.n_features_in_ = model.network.inputs
        if model.config.get("feature_names"):
            new.feature_names_in_ = np.asarray(model.config["feature_names"], dtype=object)
        new._take_on(model, form, None)
        new.history_ = []
        if mine.get("stop_threshold") is not None:
            new.stop_threshold_ = mine["stop_threshold"]
        return new

    # ------------------------------------------------------------------ the parts

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _begin(
        self,
        here: Processes,
        X: Any,
        y: Any,
        hierarchy: Hierarchy | None,
        listing: ParsedLabels | None,
        sample_weight: ArrayLike | None,
        **changes: Any,
    ) -> tuple[Prepared, Dataset, LabelFormat]:
        """Read the first rows, and make ready what is trained on them."""
        if hierarchy is not None and not isinstance(hierarchy, Hierarchy):
            raise HierlearnError(
                f"hierarchy is {hierarchy!r}, not a Hierarchy; build one with "
                f"Hierarchy.from_paths, or read a file with Hierarchy.read"
            )
        plan = plan_of({**self.get_params(deep=False), **changes})
        inputs = self._read_inputs(X, reset=True)
        sep = self.sep if hierarchy is None else hierarchy.sep
        given = read_labels(y, sep)
        form = LabelFormat.of(given, hierarchy, sep, listing)
        columns = getattr(self, "feature_names_in_", ())
        dataset, weights = gather(inputs, form.names(given), form.hierarchy, sample_weight, columns)
        network = None
        if isinstance(self.network, torch.nn.Module):
            check_own_network(self.ensemble_size, dataset)
            network = copy.deepcopy(self.network)
        named = [] if listing is None else [one for row in form.names(listing) for one in row]
        prepared = prepare(dataset, plan, here.device, weights, network, named)
        if self.verbose and here.writes:
            print(summary(prepared))
        return prepared, dataset, form

    def _take_on(
        self, model: Pipeline, form: LabelFormat, further: IncrementalState | None
    ) -> None:
        """Become the classifier of a model."""
        self.model_ = model
        self.hierarchy_ = model.hierarchy
        self.recipe_ = model.config.get("recipe", {}).get("name")
        self.recipe_reason_ = model.config.get("recipe", {}).get("because")
        self.classes_, self._numbers = form.classes()
        self._form, self._further, self._precise = form, further, Precise(model)
        if hasattr(self, "stop_threshold_"):
            del self.stop_threshold_  # it promises nothing about other weights

    def _read_inputs(self, X: Any, *, reset: bool = False) -> Any:
        """Return X as a list of texts, (N, D) numbers, or CSR; as it was at first, unless reset."""
        texts = as_texts(X)
        if not reset and (texts is not None) != self._is_text:
            learned, is_now = ("texts", "numbers") if self._is_text else ("numbers", "texts")
            raise DataError(f"the classifier learned from {learned}, but X holds {is_now}")
        self._is_text = texts is not None
        if texts is not None:
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return texts
        sparse = hasattr(X, "tocsr")
        finite = True if sparse else "allow-nan"
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=finite
        )
        if reset:
            return as_csr(X) if sparse else X
        preprocessor = self.model_.preprocessor
        if not sparse:
            refuse_missing(X, preprocessor, getattr(self, "feature_names_in_", None))
        if preprocessor is None:  # the classifier learned from sparse rows
            return as_csr(X if sparse else csr_array(X))
        return X.toarray() if sparse else X

    def _log_nodes(self, X: Any) -> Tensor:
        """Return (N, C) float64 log p, in the hierarchy's order."""
        check_is_fitted(self)
        inputs = self._read_inputs(X)
        parts = self._precise.model.stream_probabilities(inputs, log=True)
        return torch.cat([part.double() for part in parts])

    def _make_decoder(self, decoder: str | Decoder | None, options: dict[str, Any]) -> Decoder:
        name = self.model_.decoder if decoder is None else decoder
        if name == "stop" and hasattr(self, "stop_threshold_"):
            options = {"threshold": self.stop_threshold_, **options}
        if decoder is None:
            return self.model_.make_decoder(**options)
        return self.model_.make_decoder(decoder, **options)
