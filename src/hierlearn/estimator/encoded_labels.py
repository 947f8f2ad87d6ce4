"""Labels that scikit-learn replaced by integers before ``fit`` saw them.

``cross_val_predict(method="predict_proba")``, VotingClassifier, StackingClassifier and
BaggingClassifier encode y: of ``animal/dog`` an integer is left, and the classifier would learn a
flat problem in silence. The integers themselves do not show it, so the callers are looked at.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from hierlearn.errors import LabelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

REMEDY = "hierlearn.cross_val_proba(classifier, X, y) gives probabilities fold by fold"
REMEDIES = {"cross_val_predict": REMEDY}
OTHERWISE = "average networks with ensemble_size=, or blend recipes with effort='best'"


def check_not_encoded(sep: str, *, hierarchy_given: bool) -> None:
    """Raise where a caller in scikit-learn encoded paths, or labels of a given hierarchy.

    Args:
        sep: what joins the names of a path.
        hierarchy_given: whether integers would be read as class numbers of a hierarchy.
    """
    frames = list(callers())
    for frame in frames:
        name, labels = original_labels(frame)
        paths = [label for label in labels if sep in label]
        if paths or (labels and hierarchy_given):
            raise LabelError(
                f"{name} of scikit-learn replaced the labels by integers ({(paths or labels)[0]!r} "
                f"and so on), so their taxonomy is lost; {REMEDIES.get(name, OTHERWISE)}"
            )
    # In a process of its own what the labels were cannot be seen.
    names = [frame.f_code.co_name for frame in frames]
    if "_fit_and_predict" in names and "cross_val_predict" not in names:
        frame = frames[names.index("_fit_and_predict")]
        if "proba" in str(frame.f_locals.get("method")):
            warnings.warn(
                f"cross_val_predict of scikit-learn replaces labels by integers, so a taxonomy in "
                f"their names is lost; {REMEDY}",
                UserWarning,
                stacklevel=4,
            )


def callers() -> Iterator[FrameType]:
    """Give the frames of scikit-learn that lead here, the nearest first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn."):
            yield frame
        frame = frame.f_back


def original_labels(frame: FrameType) -> tuple[str, list[str]]:
    """Return who encoded labels in a frame, and the labels in order; none where nobody did."""
    from sklearn.preprocessing import LabelEncoder

    values = frame.f_locals
    owner = values.get("self", values.get("ensemble"))
    name = frame.f_code.co_name if owner is None else type(owner).__name__
    held = [*values.values(), *getattr(owner, "__dict__", {}).values()]
    if "ensemble" in values:  # of BaggingClassifier, which has no encoder
        held.append(values["ensemble"])
    for one in held:
        is_encoder = isinstance(one, LabelEncoder) or one is values.get("ensemble")
        if is_encoder and hasattr(one, "classes_"):
            return name, [str(label) for label in one.classes_]
    return name, []
