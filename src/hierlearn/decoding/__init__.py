"""Stage 8: decoders turn node probabilities into decisions."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from hierlearn.decoding.classes import Argmax, Balanced, Cost, HierF1, Leaf, TopDown, greedy_chain
from hierlearn.decoding.decoder import Decoder, ancestor_sets
from hierlearn.decoding.guarantees import ConformalSets, Stop, risk_threshold
from hierlearn.decoding.probabilities import terminal_mass, terminal_scores
from hierlearn.decoding.sets import Coherent, ExpectedF, Subset
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hierlearn.hierarchy import Hierarchy


def as_decoder(name: str, value: Any) -> Callable[..., Decoder] | None:
    """Return an imported decoder as an entry."""
    del name
    return value if isinstance(value, type) and issubclass(value, Decoder) else None


BUILT_IN: dict[str, Callable[..., Decoder]] = {
    "argmax": Argmax,
    "leaf": Leaf,
    "top-down": TopDown,
    "coherent": Coherent,
    "cost": Cost,
    "balanced": Balanced,
    "hier-f1": HierF1,
    "expected-f": ExpectedF,
    "subset": Subset,
    "stop": Stop,
    "conformal": ConformalSets,
}
DECODERS = Registry(
    "decoder",
    BUILT_IN,
    group="hierlearn.decoders",
    expected="a subclass of hierlearn.decoding.Decoder",
    read=as_decoder,
)


CALIBRATED = "stop"  # what keeps a risk where no decoder is named


def calibratable(decoder: Decoder, name: str) -> Any:
    """Return a decoder that has ``calibrate``; raise for one that has not, by its name."""
    if not hasattr(decoder, "calibrate"):
        able = " or ".join(
            one for one, made in DECODERS.loaded.items() if hasattr(made, "calibrate")
        )
        raise HierlearnError(f"decoder {name} cannot be calibrated; a risk takes {able}")
    return decoder


def make_decoder(
    label_space: LabelSpace | Hierarchy, decoder: str | Decoder, /, **options: Any
) -> Decoder:
    """Return a decoder made by name, or check and return one that exists already.

    Args:
        label_space: the taxonomy and its terminal classes.
        decoder: a name of ``DECODERS``, or a decoder of this hierarchy.
        options: the options of a decoder given by name.
    """
    label_space = LabelSpace.of(label_space)
    hierarchy = label_space.hierarchy
    if isinstance(decoder, str):
        check_options(decoder, options)
        try:
            return DECODERS[decoder](label_space, **options)
        except TypeError as error:
            asked = ", ".join(f"{name}={value!r}" for name, value in options.items())
            raise HierlearnError(f"decoder {decoder} does not take {asked}: {error}") from None
    if not isinstance(decoder, Decoder):
        raise HierlearnError(f"a decoder is a name or a Decoder, not {decoder!r}")
    if options:
        raise HierlearnError(
            f"options {', '.join(options)} go with the name of a decoder; "
            f"give them to {type(decoder).__name__} itself"
        )
    if decoder.hierarchy != hierarchy:
        raise HierlearnError(
            f"the decoder is of another hierarchy ({len(decoder.hierarchy)} classes, fingerprint "
            f"{decoder.hierarchy.fingerprint[:8]}) than this one ({len(hierarchy)} classes, "
            f"{hierarchy.fingerprint[:8]}); make both of the same hierarchy"
        )
    return decoder


def check_options(decoder: str, options: Mapping[str, Any]) -> None:
    """Raise for an option that a decoder of DECODERS does not take, or one that it needs."""
    known = list(signature(DECODERS[decoder]).parameters.values())[1:]  # after the label space
    for one in known:
        required = one.kind is not Parameter.VAR_KEYWORD and one.default is Parameter.empty
        if required and one.name not in options:
            raise HierlearnError(f"decoder {decoder} needs the option {one.name}")
    if any(one.kind is Parameter.VAR_KEYWORD for one in known):
        return  # passed on to another decoder, which checks them
    taken = [one.name for one in known]
    for option in options:
        if option not in taken and not taken:
            raise HierlearnError(f"decoder {decoder} takes no options, but {option} was given")
        if option not in taken:
            raise HierlearnError(unknown_name(f"option of decoder {decoder}", option, taken))


__all__ = [
    "CALIBRATED",
    "DECODERS",
    "Argmax",
    "Balanced",
    "Coherent",
    "ConformalSets",
    "Cost",
    "Decoder",
    "ExpectedF",
    "HierF1",
    "Leaf",
    "Stop",
    "Subset",
    "TopDown",
    "ancestor_sets",
    "calibratable",
    "greedy_chain",
    "make_decoder",
    "risk_threshold",
    "terminal_mass",
    "terminal_scores",
]
