"""Summary: what will be trained, and why, for the terminal and the model folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.backbones import names_backbone
from hierlearn.errors import plural
from hierlearn.features.combined import ChainPreprocessor
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.links import link_name
from hierlearn.networks.memories import memory_heads
from hierlearn.networks.trees import forest_heads
from hierlearn.printable import printable
from hierlearn.training.solvers.stages import staged_networks

if TYPE_CHECKING:
    from hierlearn.training.prepare import Prepared


def summary(prepared: Prepared) -> str:
    """Return what will be trained: backbone, columns, a plain sentence, the details."""
    decision, loss = prepared.decision, prepared.loss
    settings = decision.settings
    size, length = settings.ensemble_size, plural(settings.epochs, "epoch")
    if settings.optimizer == "lbfgs":
        length = f"solved by L-BFGS with penalty {settings.l2_penalty:.3g}"
    for staged in staged_networks(prepared.network)[:1]:
        length = f"{length} shared by {len(staged.parts)} parts, trained one after another"
    if settings.optimizer == "trees":
        length = "grown at once"
    links = ""
    if prepared.rereads or prepared.network_spec is None:
        trained, read = link_name(loss.link), link_name(prepared.link)
        links = f" on the {trained} link, read by the {read} link"
    trained_by = f"{type(prepared.loss).__name__}{links}"
    memories = memory_heads(prepared.network)
    if memories:
        (head, *_), *_ = memories.values()
        joint = " and ".join(decision.recipe.joint)
        also = f", with further heads trained by {joint}" if joint else ""
        trained_by = (
            f"a memory ({head.distance} distance / {head.scale.value:g}, {head.neighbors} "
            f"neighbors, {head.candidates:,} candidates per step), trained by "
            f"{decision.recipe.loss}{also}"
        )
        if settings.optimizer == "none":
            trained_by = f"a memory ({head.distance} distance, {head.neighbors} neighbors)"
            length = "nothing is trained"
    forests = forest_heads(prepared.network)
    if forests:
        trained_by = (
            f"{forests[0].trees} extremely randomized trees (at least "
            f"{plural(forests[0].min_samples_leaf, 'row')} per leaf)"
        )
    columns = "" if prepared.preprocessor is None else prepared.preprocessor.summary()
    what, _, _ = decision.recipe.description.partition(": ")
    return (
        f"{backbone_line(prepared)}"
        f"{columns and f'columns: {printable(columns)}{chr(10)}'}"
        f"model: {what}, because {decision.why}; {plural(len(prepared.rows), 'training row')}, "
        f"{len(prepared.valid or ()):,} for validation\n"
        f"details: recipe {decision.name}, {trained_by}, decoder {prepared.decoder}, {length}, "
        f"{plural(size, 'network')} on {prepared.rows.device}"
    )


def backbone_line(prepared: Prepared) -> str:
    """Return a line on the backbone, and on what of it is trained; empty without one."""
    step: Any = prepared.preprocessor
    first = step.first if isinstance(step, ChainPreprocessor) else step
    if isinstance(first, EmbedPreprocessor):
        return f"encoder: {printable(first.source)}, frozen, {first.columns:,} features\n"
    name = prepared.plan.network
    if not names_backbone(name):
        return ""
    sizes = [(one.numel(), one.requires_grad) for one in prepared.network.parameters()]
    trained = sum(size for size, learns in sizes if learns)
    every = sum(size for size, _ in sizes)
    return f"encoder: {printable(str(name))}; {trained:,} of {every:,} weights are trained\n"
