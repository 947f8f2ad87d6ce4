"""Stage 4: links turn logits into node log-probabilities."""

from __future__ import annotations

from typing import Any

from hierlearn.links.conditional import ConditionalLink
from hierlearn.links.link import Link, MaxLink, SigmoidLink, link_name, make_link
from hierlearn.links.output import Head, HeadOutput
from hierlearn.links.siblings import SiblingsLink
from hierlearn.links.similarities import from_similarities
from hierlearn.links.softmax import SoftmaxLink
from hierlearn.registry import Registry, subclass_of

# Classes of links, each of which says what it takes beside the label space.
BUILT_IN: dict[str, type[Any]] = {
    "sigmoid": SigmoidLink,
    "softmax": SoftmaxLink,
    "conditional": ConditionalLink,
    "max": MaxLink,
    "siblings": SiblingsLink,
}
KINDS = {kind: name for name, kind in BUILT_IN.items()}
LINKS = Registry(
    "link",
    BUILT_IN,
    group="hierlearn.links",
    expected="a subclass of hierlearn.links.Link",
    read=subclass_of(Link),
)


def link_kind(link: Link | None) -> str | None:
    """Return the name of a built-in link, by which kernels know it; a subclass has none."""
    return KINDS.get(type(link))


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
    "from_similarities",
    "link_kind",
    "link_name",
    "make_link",
]
