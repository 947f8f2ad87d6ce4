"""FEATURES: the preprocessing steps by name, and the choice among them.

A step of your own takes one line, ``FEATURES["mine"] = MyPreprocessor``, with ``name = "mine"`` in
the class: it is then made, fitted, saved and restored like the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError, arg, unknown_name
from hierlearn.features.combined import (
    ChainPreprocessor,
    SeveralPreprocessor,
)
from hierlearn.features.embed import EmbedPreprocessor, TokenPreprocessor
from hierlearn.features.images import ImagePreprocessor
from hierlearn.features.numbers import NumericPreprocessor, PiecewiseLinearPreprocessor
from hierlearn.features.preprocessor import Preprocessor, stored
from hierlearn.features.table import TablePreprocessor
from hierlearn.features.texts import LatentPreprocessor, TextPreprocessor
from hierlearn.registry import Registry, subclass_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset


BUILT_IN: dict[str, type[Preprocessor[Any, Any]]] = {
    NumericPreprocessor.name: NumericPreprocessor,
    PiecewiseLinearPreprocessor.name: PiecewiseLinearPreprocessor,
    TextPreprocessor.name: TextPreprocessor,
    LatentPreprocessor.name: LatentPreprocessor,
    TablePreprocessor.name: TablePreprocessor,
    TokenPreprocessor.name: TokenPreprocessor,
    ImagePreprocessor.name: ImagePreprocessor,
}
FEATURES = Registry(
    "preprocessing",
    BUILT_IN,
    group="hierlearn.features",
    expected="a subclass of hierlearn.features.Preprocessor",
    read=subclass_of(Preprocessor),
)

# Made by a training of other steps and of backbones, never chosen by name.
INTERNAL: dict[str, type[Preprocessor[Any, Any]]] = {
    SeveralPreprocessor.name: SeveralPreprocessor,
    EmbedPreprocessor.name: EmbedPreprocessor,
    ChainPreprocessor.name: ChainPreprocessor,
}


def make_preprocessor(
    name: str | None, dataset: Dataset, **options: Any
) -> Preprocessor[Any, Any] | None:
    """Make a preprocessor, not yet fitted.

    Args:
        name: a key of ``FEATURES``; None leaves the choice to ``preprocessor_for``.
        dataset: what it is for.
        options: the arguments of its class.

    Raises:
        HierlearnError: naming an unknown step or option.
        DataError: if the step does not take the inputs of the dataset.
    """
    if name is None:
        return preprocessor_for(dataset, **options)
    step = find_step(name)
    for option in options:
        if option not in step.options():
            what = f"option of preprocessing {name!r}"
            raise HierlearnError(unknown_name(what, option, step.options()))
    if not step.accepts(dataset):
        raise DataError(
            f"preprocessing {name!r} reads {step.reads}, but the inputs are {dataset.kind}; "
            f"choose another, or leave the choice to the data"
        )
    return step(**options)


def preprocessor_for(dataset: Dataset, **options: Any) -> Preprocessor[Any, Any] | None:
    """Make the step of ``FEATURES`` for a dataset by default; None for sparse rows, kept as is.

    Args:
        dataset: what it is for.
        options: arguments of steps in ``FEATURES``; the chosen one gets those that it takes.

    Raises:
        HierlearnError: naming an option that no step takes, or that only a named step takes.
        DataError: if no step accepts the dataset.
    """
    known = {option for step in FEATURES.loaded.values() for option in step.options()}
    for option in options:
        if option not in known:
            raise HierlearnError(unknown_name("option of preprocessing", option, known))
    accepting = [step for step in FEATURES.loaded.values() if step.accepts(dataset)]
    if accepting:
        chosen = next((step for step in accepting if step.by_default), accepting[0])
        others = [step for step in accepting if step is not chosen]
        for option in [one for one in options if one not in chosen.options()]:
            for other in others:
                if option in other.options():
                    raise HierlearnError(
                        f"option {option!r} is of preprocessing {other.name!r}, but inputs that "
                        f"are {dataset.kind} go through {chosen.name!r} unless another is named; "
                        f"pass {arg('preprocessing', other.name)}"
                    )
        return chosen(**{key: options[key] for key in options if key in chosen.options()})
    if dataset.kind == "sparse":
        return None
    raise DataError(
        f"no preprocessing of {', '.join(FEATURES)} accepts inputs that are {dataset.kind}; "
        f"add one to FEATURES"
    )


def from_state(
    settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> Preprocessor[Any, Any]:
    """Restore a preprocessor of any class from what its ``state`` returned."""
    name = str(stored(settings, "name"))
    if name in INTERNAL:
        return INTERNAL[name].from_state(settings, arrays)
    if name not in FEATURES:
        raise DataError(unknown_name("preprocessor", name, [*FEATURES, *INTERNAL]))
    return FEATURES[name].from_state(settings, arrays)


def find_step(name: str) -> type[Preprocessor[Any, Any]]:
    """Return a class of ``FEATURES`` by name."""
    step = FEATURES[name]
    if step.name != name:
        raise HierlearnError(
            f"{step.__name__} is registered as {name!r} but has the name {step.name!r}; it could "
            f"not be restored: make them equal"
        )
    return step
