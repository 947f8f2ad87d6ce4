"""Stage 4: links turn logits into node log-probabilities."""

from typing import Any

from hierlearn.links.conditional import ConditionalLink
from hierlearn.links.head import Head
from hierlearn.links.link import Link, link_name, make_link
from hierlearn.links.max import MaxLink
from hierlearn.links.output import HeadOutput
from hierlearn.links.siblings import SiblingsLink
from hierlearn.links.sigmoid import SigmoidLink
from hierlearn.links.similarities import fit_temperature, from_similarities
from hierlearn.links.softmax import SoftmaxLink
from hierlearn.registry import Registry


def as_link(name: str, value: Any) -> type[Link] | None:
    """Return an imported link as an entry."""
    del name
    return value if isinstance(value, type) and issubclass(value, Link) else None


# Classes of links, each of which says what it takes beside the label space.
BUILT_IN: dict[str, type[Any]] = {
    "sigmoid": SigmoidLink,
    "softmax": SoftmaxLink,
    "conditional": ConditionalLink,
    "max": MaxLink,
    "siblings": SiblingsLink,
}
LINKS = Registry(
    "link",
    BUILT_IN,
    group="hierlearn.links",
    expected="a subclass of hierlearn.links.Link",
    read=as_link,
)

__all__ = [
    "LINKS",
    "ConditionalLink",
    "Head",
    "HeadOutput",
    "Link",
    "MaxLink",
    "SiblingsLink",
    "SigmoidLink",
    "SoftmaxLink",
    "fit_temperature",
    "from_similarities",
    "link_name",
    "make_link",
]
