"""The parameters of the estimator, made from Plan and Settings; to a Plan, and to JSON.

A field that is added to Settings is a parameter: None there, which leaves it to the recipe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.networks.estimator import in_words
from hierlearn.training.fields import entry, names, setting, settings_of
from hierlearn.training.settings import Plan, Settings

if TYPE_CHECKING:
    from hierlearn.training.fields import Setting

C = TypeVar("C", bound=type)
PLACE = "{parameters}"  # where a docstring takes the list of parameters


@dataclass(frozen=True)
class EstimatorOptions:
    """What only the estimator has, or has with another default."""

    valid_fraction: float = setting(
        0.1, "Fraction of the rows held out for early stopping; used only with patience."
    )
    sep: str = setting("/", "Separator of the names of a path, where the hierarchy is inferred.")
    hierarchy: Any = setting(
        None, "The taxonomy; None infers it from the labels' paths. That of fit takes precedence."
    )
    class_weight: Any = setting(
        None,
        'How much rows count: "balanced", or a mapping from classes to weights, which hold for the '
        "classes below, too.",
    )
    missing: Literal["impute", "error"] = setting(
        "impute",
        "What becomes of a row to predict on that lacks a value where no training row does: it is "
        "imputed with a warning, or an error.",
    )
    random_state: int | None = setting(
        None, "An integer makes fit reproducible; a RandomState is drawn from."
    )
    verbose: bool = setting(False, "Print what was chosen and show a progress bar.")


def parameters_of(*classes: type) -> dict[str, tuple[Setting, Any]]:
    """Return every parameter by name, with its default; what a later class says wins.

    Args:
        classes: dataclasses whose fields are parameters; those of Settings are None by default.
    """
    found: dict[str, tuple[Setting, Any]] = {}
    for cls in classes:
        for name, one in settings_of(cls).items():
            if one.description.estimator:
                unset = issubclass(cls, Settings) or one.kind is dict
                found[name] = one, None if unset else one.default
    return found


PARAMETERS = parameters_of(Plan, Settings, EstimatorOptions)


def signature_of(found: Mapping[str, tuple[Setting, Any]]) -> list[Parameter]:
    """Return the parameters of ``__init__``: self, the recipe, and the others by keyword."""
    either, keyword = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    return [
        Parameter("self", either),
        *(
            Parameter(name, either if name == "recipe" else keyword, default=default)
            for name, (_, default) in found.items()
        ),
    ]


def with_parameters(cls: C) -> C:
    """Give a class the signature of ``__init__`` and the documentation of its parameters."""
    made: Any = cls
    made.__init__.__signature__ = Signature(signature_of(PARAMETERS))
    made.__doc__ = (cls.__doc__ or "").replace(PLACE, document(PARAMETERS))
    return cls


def document(found: Mapping[str, tuple[Setting, Any]]) -> str:
    """Return the list of parameters for a docstring."""
    lines = []
    for name, (one, default) in found.items():
        text = f"{one.description.help}{names(one)}"
        if name == "network":
            text += " Or a torch module that returns (N, C) logits; it is copied, not changed."
        if default is None and one.default not in (None, {}):
            text += f" None: the recipe's, else {one.default!r}."
        lines.append(entry(name, text, default))
    return "\n".join(lines).strip()


def make_plan(params: Mapping[str, Any]) -> Plan:
    """Return what to train; every value is checked on the way."""
    from sklearn.utils import check_random_state
    from torch import nn

    settings = {
        name: as_plain(params[name])
        for name in settings_of(Settings)
        if params.get(name) is not None
    }
    seed = params["random_state"]
    if seed is None or isinstance(seed, np.random.RandomState):
        seed = check_random_state(seed).randint(2**31 - 1)
    seed = replace(settings_of(Settings)["seed"], name="random_state").checked(as_plain(seed))
    chosen: dict[str, Any] = {
        name: {} if one.kind is dict and params[name] is None else as_plain(params[name])
        for name, one in settings_of(Plan).items()
    }
    network = chosen["network"]
    if isinstance(network, nn.Module):
        chosen["network"] = None
    elif network is not None and not isinstance(network, str):
        raise HierlearnError(
            f"network must be a name of NETWORKS, 'package.module:name', a torch module or None, "
            f"not {network!r}"
        )
    if chosen["base"] is not None:
        chosen["base"] = in_words(chosen["base"])
    if params["patience"] is None:
        chosen["valid_fraction"] = 0.0
    return Plan(**chosen, settings={**settings, "seed": seed})


def storable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON holds them.

    A generator of random numbers becomes None, as does the hierarchy, which has a file of its own.
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        elsewhere = name == "hierarchy" or isinstance(value, np.random.RandomState)
        found[name] = None if elsewhere else as_plain(in_words(value))
        if isinstance(value, Mapping):  # JSON has no other keys than strings
            found[name] = {str(key): as_plain(one) for key, one in value.items()}
        try:
            json.dumps(found[name])
        except TypeError as error:
            raise HierlearnError(
                f"the parameter {name} cannot be written as JSON ({error}), so the classifier "
                f"cannot be saved; use plain values, or pickle it"
            ) from None
    return found


def as_plain(value: Any) -> Any:
    """Return Python's own number for one of NumPy's."""
    return value.item() if isinstance(value, np.generic) else value
