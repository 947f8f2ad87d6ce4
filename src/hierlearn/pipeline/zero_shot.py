"""Zero-shot: classes predicted by their titles, without any training row.

A sentence encoder turns inputs and titles into vectors; their cosine similarities become node
probabilities by ``from_similarities``. Up to its softmax that is linear in the vector of a row, so
the averaged vectors of the titles are the weights of a linear head on vectors of length 1, and what
comes out is a pipeline like any other: it predicts, stops, controls risk, and is saved and loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import normalize

from hierlearn.backbones import find_backbone, parse_encoder
from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.hierarchy import LabelSpace
from hierlearn.links import from_similarities, make_link
from hierlearn.links.similarities import TEMPERATURE, terminal_scores
from hierlearn.networks import InputSpec
from hierlearn.networks.build import NetworkSpec, build_network
from hierlearn.networks.linear import EMBEDDINGS
from hierlearn.pipeline.pipeline import Pipeline, versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import HeadOutput

    # Texts to (N, F) vectors: what ``encode`` of many libraries does.
    Encode = Callable[[Sequence[str]], Any]

FIELDS = ("title", "path")  # of a template
ABOVE = " > "  # between the titles of a path


@dataclass(frozen=True)
class TitleOptions:
    """How titles are written and compared.

    Attributes:
        template: the sentence of a class; ``{title}`` is its title, or its name where it has none,
            and ``{path}`` the titles from the top class down to it.
        temperature: what similarities are divided by.
        inner_titles: whether the titles of inner classes count beside those of terminal classes.
    """

    template: str = "{title}"
    temperature: float = TEMPERATURE
    inner_titles: bool = False

    def __post_init__(self) -> None:
        check_template(self.template)
        if not self.temperature > 0:
            raise HierlearnError(
                f"{arg('temperature')} must be a number above 0, not {self.temperature!r}"
            )


def check_template(template: str) -> None:
    """Raise on a template without a title, or with other fields."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise HierlearnError(f"template {template!r} cannot be read ({error})") from None
    for name in fields:
        if name not in FIELDS:
            raise HierlearnError(unknown_name("field of a template", name, FIELDS))
    if not fields:
        raise HierlearnError(
            f"template {template!r} has no {{title}}; write one such as 'a photo of {{title}}'"
        )


def title_sentences(
    label_space: LabelSpace | Hierarchy, options: TitleOptions | None = None
) -> tuple[list[str], list[int]]:
    """Return the sentences of the classes, and the class of each.

    Args:
        label_space: what can be predicted.
        options: how titles are written.
    """
    space, options = LabelSpace.of(label_space), options or TitleOptions()
    hierarchy = space.hierarchy
    titles = [
        title or name for title, name in zip(hierarchy.titles, hierarchy.bare_names, strict=True)
    ]
    classes = [*range(len(hierarchy))] if options.inner_titles else space.terminals.tolist()
    found = []
    for number in classes:
        path = ABOVE.join(titles[one] for one in (*hierarchy.ancestors(number), number))
        found.append(options.template.format(title=titles[number], path=path))
    return found, classes


def zero_shot(
    inputs: Any,
    label_space: LabelSpace | Hierarchy,
    *,
    encoder: str | Mapping[str, Any] | Encode,
    **options: Any,
) -> HeadOutput:
    """Return node probabilities of inputs by their similarity to the titles of the classes.

    Args:
        inputs: N texts, or whatever the encoder reads.
        label_space: what can be predicted, or a Hierarchy with titles.
        encoder: ``hf:PATH``, with options ``hf:PATH,pooling=cls``, or a function from texts to
            (N, F) vectors, such as the ``encode`` of a sentence encoder.
        options: of ``TitleOptions``: template, temperature, inner_titles.
    """
    if isinstance(encoder, (str, Mapping)):
        pipeline = zero_shot_pipeline(label_space, encoder, **options)
        with torch.no_grad():
            return pipeline.output(inputs)
    chosen, space = make_options(options), LabelSpace.of(label_space)
    sentences, classes = title_sentences(space, chosen)
    vectors, titles = unit_vectors(encoder(inputs)), unit_vectors(encoder(sentences))
    return from_similarities(
        vectors @ titles.T, space, classes=classes, temperature=chosen.temperature
    )


def zero_shot_pipeline(
    label_space: LabelSpace | Hierarchy,
    encoder: str | Mapping[str, Any],
    *,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Pipeline:
    """Return a pipeline that answers by the titles of classes; nothing is trained.

    Args:
        label_space: what can be predicted, or a Hierarchy with titles.
        encoder: ``hf:PATH``, or a mapping of ``source`` and the options of the encoder.
        device: where to compute.
        options: of ``TitleOptions``: template, temperature, inner_titles.
    """
    chosen, space = make_options(options), LabelSpace.of(label_space)
    device = torch.device(device)
    wanted = parse_encoder(encoder)
    family, _ = find_backbone(wanted["source"])
    if family.reads != "texts":
        raise HierlearnError(
            f"{wanted['source']} reads {family.reads}, but titles are texts; use an encoder of "
            f"texts, such as hf:PATH, or from_similarities with similarities of your own"
        )
    step = EmbedPreprocessor(**wanted).to(device)
    sentences, classes = title_sentences(space, chosen)
    titles = unit_vectors(step.fit(sentences).transform(sentences))
    spec = NetworkSpec(EMBEDDINGS, InputSpec.numbers(step.columns), {"link": "softmax"})
    network = build_network(spec, space)
    with torch.no_grad():
        layer: Any = network.heads.main.linear  # type: ignore[union-attr]
        weights = terminal_scores(titles.T, space, classes) / chosen.temperature  # (F, T)
        layer.weight.zero_().index_copy_(1, space.terminal_ids(), weights)
        layer.bias.zero_()
    return Pipeline(
        label_space=space,
        network=network.to(device).eval(),
        link=make_link(space, "softmax").to(device),
        preprocessor=step,
        network_spec=spec,
        config={
            "name": "zero-shot",
            "recipe": {"name": "zero-shot", "encoder": step.source, **vars(chosen)},
            "versions": versions(),
            "metrics": {},
        },
    )


def make_options(options: Mapping[str, Any]) -> TitleOptions:
    """Return the options of titles; raise on others."""
    known = [*TitleOptions.__dataclass_fields__]
    for name in options:
        if name not in known:
            raise HierlearnError(unknown_name("option", name, known))
    return TitleOptions(**options)


def unit_vectors(found: Any) -> Tensor:
    """Return (N, F) vectors of length 1; raise on what is none."""
    rows = torch.as_tensor(np.array(found) if not isinstance(found, torch.Tensor) else found)
    if rows.dim() != 2 or not rows.is_floating_point():
        raise HierlearnError(
            f"an encoder returns (N, F) floats, not {rows.dtype} of shape {tuple(rows.shape)}"
        )
    return normalize(rows.float(), dim=1)
