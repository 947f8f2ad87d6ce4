"""Any scikit-learn estimator as a head: what it says of classes becomes probabilities of nodes.

flat        one estimator of the terminal classes; a node has the sum of what lies at or below it
per-parent  one estimator per parent, of its children and, where rows end there, of itself;
            a node has the product along its path
per-level   one estimator per level, of the classes there and of those where rows end above;
            what it gives to a parent and its children is shared out as per-parent does
per-class   one yes or no per class, for rows with several labels or none; a node has the maximum
            of what lies at or below it

Estimators are fitted by ``training/solvers/estimator.py`` and stored by skops, which loads no code:
among the tensors of a model they are one array of bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, arg, shown, unknown_name
from hierlearn.files.reading import parse_json
from hierlearn.files.tensors import CheckpointError
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import Head, HeadOutput
from hierlearn.links.output import safe_log
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.network import Network
from hierlearn.registry import check_allowed, imported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.networks.inputs import InputSpec

    Doubles = NDArray[np.float64]

Strategy = Literal["flat", "per-parent", "per-level", "per-class"]
BASES = {
    "catboost": "catboost:CatBoostClassifier",
    "extra-trees": "sklearn.ensemble:ExtraTreesClassifier",
    "forest": "sklearn.ensemble:RandomForestClassifier",
    "hist-gradient-boosting": "sklearn.ensemble:HistGradientBoostingClassifier",
    "lightgbm": "lightgbm:LGBMClassifier",
    "linear-svc": "sklearn.svm:LinearSVC",
    "logistic": "sklearn.linear_model:LogisticRegression",
    "svc": "sklearn.svm:SVC",
    "xgboost": "xgboost:XGBClassifier",
}
KNOWN = ("sklearn", "lightgbm", "xgboost", "catboost", "numpy", "scipy", "collections")
ROOT = -1  # the parent of the top classes


# ---------------------------------------- estimators in words


def describe(value: Any) -> Any:
    """Return an estimator that is not fitted as plain values: its class, and what differs in it."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        usual = type(value)().get_params(deep=False) if _has_defaults(type(value)) else {}
        given = value.get_params(deep=False)
        changed = {key: one for key, one in given.items() if not _same(one, usual.get(key, ...))}
        place = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"class": place, "params": {key: describe(one) for key, one in changed.items()}}
    if isinstance(value, tuple):
        return {"tuple": [describe(one) for one in value]}
    if isinstance(value, list):
        return [describe(one) for one in value]
    if isinstance(value, dict):
        return {"dict": {str(key): describe(one) for key, one in value.items()}}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise HierlearnError(
        f"{arg('base')} has a parameter that cannot be stored, {shown(value)}; use numbers, texts, "
        f"lists and estimators"
    )


def in_words(value: Any) -> Any:
    """Return an estimator as one text that ``build`` reads; anything else as it is."""
    is_estimator = hasattr(value, "get_params") and not isinstance(value, type)
    return json.dumps(describe(value)) if is_estimator else value


def _has_defaults(kind: type) -> bool:
    try:
        kind()
    except TypeError:  # an estimator of estimators needs some
        return False
    return True


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (str, int, float)) and a == b)


def build(words: Any, params: Mapping[str, Any] | None = None) -> Any:
    """Return a new estimator.

    Args:
        words: a name of BASES, ``package.module:Class``, or what ``describe`` returned, as JSON
            too.
        params: more of its arguments.
    """
    if isinstance(words, str) and words.startswith("{"):
        words = parse_json(words)
    if isinstance(words, str):
        if ":" not in BASES.get(words, words):
            raise HierlearnError(f"{unknown_name('base', words, BASES)}, or package.module:Class")
        words = {"class": BASES.get(words, words), "params": {}}
    place = str(words["class"])
    if place.partition(":")[0].partition(".")[0] not in KNOWN:
        check_allowed("base", place)
    kind = imported(place, "base")
    try:
        return kind(**{key: _built(one) for key, one in words["params"].items()}, **(params or {}))
    except TypeError as error:
        raise HierlearnError(f"{arg('base')} {place} cannot be made ({error})") from None


def _built(value: Any) -> Any:
    """Return what ``describe`` was given."""
    if isinstance(value, list):
        return [_built(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "class" in value:
        return build(value)
    if "tuple" in value:
        return tuple(_built(one) for one in value["tuple"])
    return {key: _built(one) for key, one in value["dict"].items()}


# ---------------------------------------- the head


@dataclass(frozen=True)
class Part:
    """One fitted estimator.

    Attributes:
        estimator: None where there is nothing to decide.
        classes: (K,) the numbers of the classes that it tells apart.
        at: the parent or the level that it is for; the class, for a yes or no.
    """

    estimator: Any
    classes: NDArray[np.int64]
    at: int = ROOT


class EstimatorHead(Head):
    """Answer by fitted scikit-learn estimators.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree for all but "flat", "per-class".
        base: a name of BASES, ``package.module:Class``, or what ``describe`` returns.
        strategy: how the taxonomy is divided among estimators.
        params: arguments of the base.

    Attributes:
        fitted: the estimators, as bytes.
    """

    fitted: Tensor
    sized_by_data: ClassVar[tuple[str, ...]] = ("fitted",)

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        base: Any,
        strategy: str = "flat",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.label_space = LabelSpace.of(label_space)
        if strategy not in get_args(Strategy):
            raise HierlearnError(unknown_name("strategy", str(strategy), get_args(Strategy)))
        if strategy in ("per-parent", "per-level") and not self.label_space.hierarchy.is_tree:
            raise HierlearnError(
                f"{arg('strategy')} {strategy} needs a tree, and some classes have several "
                f"parents; use flat"
            )
        self.base, self.strategy, self.params = base, strategy, dict(params or {})
        self.make()  # fails before the work
        self.parts: list[Part] = []
        self.register_buffer("fitted", torch.empty(0, dtype=torch.uint8))

    def make(self) -> Any:
        """Return a new estimator that is not fitted."""
        return build(self.base, self.params)

    def set(self, parts: list[Part]) -> None:
        """Replace the estimators."""
        self.parts = parts
        self.fitted = torch.frombuffer(bytearray(_dump(parts)), dtype=torch.uint8).clone()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take estimators of any size."""
        found = state.get(f"{prefix}fitted")
        if found is not None:
            self.fitted = self.fitted.new_empty(found.shape)
        super()._load_from_state_dict(state, prefix, *rest)
        if self.fitted.numel() and not self.fitted.is_meta:
            roots = {*KNOWN, *_roots(self.base)}
            self.parts = _restore(self.fitted.cpu().numpy().tobytes(), roots, self.label_space)

    def forward(self, features: Tensor | SparseRows) -> HeadOutput:
        """Return the node log-probabilities of (N, D) rows."""
        if not self.parts:
            raise HierlearnError("no estimator has been fitted, so there is nothing to answer from")
        rows = as_array(features)
        kind = torch.float32 if isinstance(features, SparseRows) else features.dtype
        p = torch.from_numpy(self.probabilities(rows))
        # In double precision 1 - p keeps what float32 would lose near 1.
        return HeadOutput(safe_log(p).to(kind), safe_log(1 - p).to(kind))

    def probabilities(self, rows: Any) -> Doubles:
        """Return (N, C) node probabilities, in double precision."""
        hierarchy = self.label_space.hierarchy
        count, classes = rows.shape[0], len(hierarchy)
        if self.strategy == "per-class":
            p = np.zeros((count, classes))
            for part in self.parts:
                p[:, part.at] = (
                    class_probabilities(part, rows) @ part.classes
                )  # 0 for no, 1 for yes
            return hierarchy.max_up(torch.from_numpy(p)).clamp(0, 1).numpy()
        if self.strategy == "flat":
            mass = np.zeros((count, classes))
            mass[:, self.parts[0].classes] = class_probabilities(self.parts[0], rows)
            return hierarchy.sum_up(torch.from_numpy(mass)).clamp(0, 1).numpy()
        return self._from_the_top(rows)

    def _from_the_top(self, rows: Any) -> Doubles:
        """Return p of every node: that of its parent, times its share among the siblings."""
        hierarchy = self.label_space.hierarchy
        p = np.zeros((rows.shape[0], len(hierarchy)))
        parents = families(self.label_space)
        by_level: dict[int, Doubles] = {}
        if self.strategy == "per-level":
            for part in self.parts:
                found = np.zeros_like(p)
                found[:, part.classes] = class_probabilities(part, rows)
                by_level[part.at] = found
        of_parent = {part.at: part for part in self.parts}
        for parent, members in parents.items():
            above = 1.0 if parent == ROOT else p[:, parent, None]
            if self.strategy == "per-level":
                level = 0 if parent == ROOT else int(hierarchy.levels[parent])
                shares = by_level[level][:, members] + 1e-12  # all alike where nothing is known
                shares = shares / shares.sum(axis=1, keepdims=True)
            else:
                part = of_parent[parent]
                shares = np.zeros((rows.shape[0], len(members)))
                shares[:, np.searchsorted(members, part.classes)] = class_probabilities(part, rows)
            below = members != parent
            p[:, members[below]] = above * shares[:, below]
        return p


def families(label_space: LabelSpace) -> dict[int, NDArray[np.int64]]:
    """Return what each parent decides between, from the top: its children, and itself if terminal.

    The numbers ascend.
    """
    hierarchy = label_space.hierarchy
    offsets, children = hierarchy.structure.children
    found = {ROOT: np.arange(hierarchy.level_sizes[0])}
    for parent in np.flatnonzero(np.diff(offsets)).tolist():
        own = [parent] if label_space.is_terminal[parent] else []
        below = children[offsets[parent] : offsets[parent + 1]]
        found[parent] = np.sort(np.concatenate([np.array(own, dtype=np.int64), below]))
    return found


def class_probabilities(part: Part, rows: Any) -> Doubles:
    """Return (N, K) what an estimator gives to each of its classes; rows sum to 1."""
    count, classes = rows.shape[0], len(part.classes)
    if part.estimator is None:
        return np.full((count, classes), 1 / classes)
    if hasattr(part.estimator, "predict_proba"):
        p = np.asarray(part.estimator.predict_proba(rows), dtype=np.float64)
    else:
        scores = np.asarray(part.estimator.decision_function(rows), dtype=np.float64)
        if scores.ndim == 1:
            scores = np.stack([np.zeros_like(scores), scores], axis=1)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
    total: Doubles = np.maximum(p.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return p / total


def as_array(features: Tensor | SparseRows) -> Any:
    """Return rows as NumPy or SciPy has them."""
    if not isinstance(features, SparseRows):
        return features.detach().cpu().numpy()
    from scipy import sparse

    parts = (features.values, features.columns, features.offsets)
    return sparse.csr_matrix(
        tuple(one.detach().cpu().numpy() for one in parts), shape=features.shape
    )


# ---------------------------------------- as bytes


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ImportError as error:
        raise HierlearnError(
            f"estimators are stored by skops ({error}); install it with: pip install skops"
        ) from None


def _dump(parts: list[Part]) -> bytes:
    held = {
        "estimators": [part.estimator for part in parts],
        "classes": json.dumps([part.classes.tolist() for part in parts]),
        "at": json.dumps([part.at for part in parts]),
    }
    found: bytes = _skops().dumps(held)
    return found


def _roots(words: Any) -> set[str]:
    """Return the packages that a base names; those outside of KNOWN had to be trusted."""
    if isinstance(words, str) and words.startswith("{"):
        words = parse_json(words)
    if isinstance(words, str):
        words = {"class": BASES.get(words, words), "params": {}}
    if isinstance(words, dict) and "class" in words:
        inner = [words["params"]]
        return {str(words["class"]).partition(":")[0].partition(".")[0]}.union(*map(_roots, inner))
    values = words.values() if isinstance(words, dict) else words if isinstance(words, list) else ()
    return set().union(*map(_roots, (one for one in values if not isinstance(one, str))))


def _restore(content: bytes, roots: set[str], space: LabelSpace) -> list[Part]:
    """Return stored estimators; raise on types outside of some packages, and on damage."""
    skops = _skops()
    try:
        strange = [
            kind
            for kind in skops.get_untrusted_types(data=content)
            if kind.partition(".")[0] not in roots
        ]
        if strange:
            raise HierlearnError(f"it names {', '.join(strange[:3])}, which is other code")
        held = skops.loads(content, trusted=skops.get_untrusted_types(data=content))
        numbers = [np.array(one, dtype=np.int64) for one in json.loads(held["classes"])]
        parts = [
            Part(*one)
            for one in zip(held["estimators"], numbers, json.loads(held["at"]), strict=True)
        ]
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise CheckpointError(f"the stored estimator cannot be read: {reason}") from None
    if any(
        len(p.classes) and not 0 <= p.classes.min() <= p.classes.max() < len(space) for p in parts
    ):
        raise CheckpointError("the stored estimator names classes that the hierarchy lacks")
    return parts


def estimator(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    base: Any = "logistic",
    strategy: str = "flat",
    **params: Any,
) -> Network:
    """Return a network of scikit-learn estimators; see EstimatorHead."""
    if inputs.kind not in ("numbers", "sparse"):
        raise HierlearnError(
            f"an estimator reads numbers or sparse rows, not inputs of kind {inputs.kind!r}; use "
            f"a network, or preprocessing that gives numbers"
        )
    return Network(nn.Identity(), EstimatorHead(label_space, base, strategy, params))


estimator.solver = "estimator"  # type: ignore[attr-defined]  # it is fitted, not trained
