"""Prepare: from a dataset and a plan to rows, a loss and a network that are ready to train.

``INITIALIZERS`` maps a name to a function ``(network, labels, weights)`` that sets the last weights
of a network or an ensemble; "random" leaves them as they are.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed

from hierlearn.backbones import ALL, encoders_of, find_backbone, names_backbone, parse_encoder
from hierlearn.datasets.dataset import shown_texts
from hierlearn.datasets.tables.kinds import NO_VALUE, base_kind
from hierlearn.datasets.tables.stream import RowGroups
from hierlearn.datasets.tables.table import ColumnWarning, Table
from hierlearn.decoding import make_decoder
from hierlearn.errors import (
    DataError,
    DataWarning,
    HierlearnError,
    arg,
    plural,
    printable,
    quoted,
    unknown_name,
)
from hierlearn.features import TablePreprocessor, make_preprocessor
from hierlearn.features.combined import ChainPreprocessor
from hierlearn.features.embed import EmbedPreprocessor
from hierlearn.features.registry import find_step
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import labels_of_rows
from hierlearn.links import LINKS, link_name, make_link
from hierlearn.losses.joint import JointLoss
from hierlearn.networks import NETWORKS, InputSpec, read_output
from hierlearn.networks.build import HeadSpec, NetworkSpec, build_network, option_names, to_save
from hierlearn.networks.ensemble import (
    auxiliary_heads,
    head_names,
    heads_of,
    networks_in,
    staged_networks,
)
from hierlearn.networks.estimator import EstimatorHead
from hierlearn.networks.heads import HEADS
from hierlearn.networks.memories import memory_heads
from hierlearn.networks.network import AVERAGE, MAIN
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.networks.trees import FOREST, ForestHead
from hierlearn.registry import Registry
from hierlearn.training.choose import Decision, Facts, choose, default_network
from hierlearn.training.recipes import build_loss
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import derive, generator
from hierlearn.training.settings import Settings
from hierlearn.training.stream import ParquetRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.features.preprocessor import Preprocessor, Produced
    from hierlearn.hierarchy.labels import Labels
    from hierlearn.hierarchy.names import Label
    from hierlearn.links import HeadOutput, Link
    from hierlearn.losses import Loss
    from hierlearn.training.recipes import Recipe
    from hierlearn.training.settings import Plan

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    from collections.abc import Callable

    Initializer = Callable[[nn.Module, Labels, Floats | None], None]

MANY_LABELS = 50  # of which nearly all have one row: hardly a taxonomy
ONE_ROW_EACH = 0.9  # of the labels
FEW_UNLABELED = 0.05  # of the rows: blank cells may be an oversight
TUNING = "tuning"  # an option of a backbone: frozen, or which of its weights are trained
FROZEN = "frozen"


@dataclass(frozen=True)
class Prepared:
    """A plan resolved on a dataset.

    Attributes:
        plan: what was asked for.
        decision: the recipe, and why.
        label_space: what can be predicted.
        rows, valid: the training and the validation rows.
        held_out: the numbers of the validation rows in the dataset.
        preprocessor: fitted; None for inputs used as is.
        network: with initial weights.
        network_spec: how to build it again; None for a module that was passed in.
        loss: for all members of an ensemble.
        link: how logits are read when predicting.
    """

    plan: Plan
    decision: Decision
    label_space: LabelSpace
    rows: Rows
    valid: Rows | None
    held_out: Ints
    preprocessor: Preprocessor[Any, Any] | None
    network: nn.Module
    network_spec: NetworkSpec | None
    loss: Loss | JointLoss
    link: Link

    @property
    def overrides_link(self) -> bool:
        """Whether logits are read by ``link`` rather than by the links of the heads."""
        return self.network_spec is not None and self.network_spec.takes_link

    def read(self, found: Any) -> HeadOutput:
        """Return the output of the network as it is read when predicting."""
        return read_output(found, self.link, overrides_link=self.overrides_link, answer=self.answer)

    @property
    def answer(self) -> str:
        """The head that answers."""
        return self.decision.recipe.answer if self.decision.recipe.joint else AVERAGE


@dataclass(frozen=True)
class PrepareOptions:
    """Optional arguments beside dataset and plan.

    Attributes:
        weights: (N,) how much each row of the dataset counts.
        network: a module instead of a network by name.
        terminals: more terminal classes than those of the training rows.
        logits: whether the head must give logits, so that training can go on with more rows.
        encoder: the frozen encoder of the plan, fitted; None reads it.
        reuse: preprocessing of the same rows by what it is, filled here, where several recipes are
            trained on them; None prepares anew.
    """

    weights: Floats | None = None
    network: nn.Module | None = None
    terminals: Sequence[Label] = ()
    logits: bool = False
    encoder: Preprocessor[Any, Any] | None = None
    reuse: dict[tuple[bytes, str], tuple[Any, Any]] | None = None


def prepare(
    dataset: Dataset, plan: Plan, device: torch.device, options: PrepareOptions | None = None
) -> Prepared:
    """Fit the preprocessing, choose what the plan leaves open, build network and loss."""
    options, asked = options or PrepareOptions(), plan
    plan = resolve_backbone(plan)
    policy = plan.unlabeled_descendants

    # The rows: all of a file in order are not copied.
    picked, held_out = split_rows(dataset, plan)
    inputs: Any = dataset.inputs
    whole = isinstance(inputs, RowGroups) and np.array_equal(picked, np.arange(len(dataset)))
    raw = replace(dataset, splits={}) if whole else dataset.take(picked)
    embedder = options.encoder or fitted_embedder(raw, plan, device)
    train_set = raw if embedder is None else embedded(raw, embedder)
    labels = labels_of_rows(train_set.labels, dataset.hierarchy, unlabeled_descendants=policy)
    check_learnable(raw, labels)

    # The decision, and what can be wrong with it, before the work.
    decision = choose(gather_facts(train_set, labels, plan, device, options), plan)
    recipe, settings = decision.recipe, decision.settings
    settings.check_validation(len(held_out) > 0)
    options_of = {**recipe.preprocessing_options, **plan.preprocessing_options}
    own = (recipe.preprocessing, options_of, recipe.network == "embeddings")
    key = (hashlib.sha256(picked.tobytes()).digest(), repr(own))
    preprocessor, ready = (options.reuse or {}).get(key, (None, None))
    if ready is None:
        preprocessor = fitted_preprocessor(train_set, plan, recipe)
    label_space = LabelSpace.from_labels(labels, options.terminals)
    loss = build_loss(recipe.loss, label_space, **dict(recipe.loss_options))
    joint = {name: build_loss(name, label_space) for name in recipe.joint}
    make_decoder(label_space, decision.decoder, **dict(plan.decoder_options))
    weights = row_weights(picked, options.weights, len(dataset))

    # The network, with initial weights.
    spec, network = None, options.network
    if network is None:
        if preprocessor is not None:
            reads = InputSpec(preprocessor.produces, preprocessor.shape)
        else:
            read: Any = train_set.inputs
            reads = InputSpec("sparse" if train_set.is_sparse else "numbers", (read.shape[1],))
        spec = network_spec(decision, reads, loss, joint, labels)
        seeds = [settings.seed + number for number in range(settings.ensemble_size)]
        network = build_network(spec, label_space, [derive(seed, "weights") for seed in seeds])
        spec = to_save(spec, network)
        if names_backbone(plan.network):
            family, source = find_backbone(str(plan.network))
            for one in network.modules():
                if hasattr(one, "encoder") and hasattr(one, "heads"):
                    family.load(one.encoder, source)  # type: ignore[arg-type]
        initialize(network, labels, weights, settings)

    valid = None
    if len(held_out):
        held = dataset.take(held_out)
        held = held if embedder is None else embedded(held, embedder)
        truth = labels_of_rows(held.labels, dataset.hierarchy, unlabeled_descendants=policy)
        valid = make_rows(held.inputs, preprocessor, truth, device)
    if ready is None:
        rows = make_rows(train_set.inputs, preprocessor, labels, device, weights)
    else:
        rows = Rows(ready, labels, device, weights)
    if options.reuse is not None and ready is None:
        if any(one[0] != key[0] for one in list(options.reuse)):
            options.reuse.clear()  # of other rows
        options.reuse[key] = preprocessor, rows.inputs
    rows.ids, rows.groups, rows.numbers = train_set.ids, train_set.groups, picked
    rows.texts = shown_texts(raw.inputs)
    if embedder is not None:
        preprocessor = (
            embedder if preprocessor is None else ChainPreprocessor(embedder, preprocessor)
        )
    return Prepared(
        plan=asked,
        decision=decision,
        label_space=label_space,
        rows=rows,
        valid=valid,
        held_out=held_out,
        preprocessor=preprocessor,
        network=network,
        network_spec=spec,
        loss=for_heads(loss, network, joint, recipe.joint),
        link=reading_link(recipe.link, loss, label_space).to(device),
    )


def check_learnable(dataset: Dataset, labels: Labels) -> None:
    """Warn where labels leave hardly anything to learn.

    Args:
        dataset: the training rows.
        labels: of these rows.
    """
    counts = np.bincount(labels.terminal[1], minlength=len(dataset.hierarchy))
    classes, single = int((counts > 0).sum()), int((counts == 1).sum())
    if classes == 1 and labels.terminal_counts.all():
        name = dataset.hierarchy.names[int(counts.argmax())]
        warnings.warn(
            f"all training rows have the label {name!r}, so every answer will be that class",
            DataWarning,
            stacklevel=3,
        )
    if dataset.groups is not None and len(set(dataset.groups)) == 1:
        warnings.warn(
            f"all training rows belong to the group {dataset.groups[0]!r}, so none can be held out "
            f"to compare models, or to calibrate",
            DataWarning,
            stacklevel=3,
        )
    if classes >= MANY_LABELS and single >= ONE_ROW_EACH * classes:
        warnings.warn(
            f"{single:,} of {plural(classes, 'label')} have a single training row, as free text "
            f"and ids do; check that these are the labels (--label on the command line)",
            DataWarning,
            stacklevel=3,
        )

    blank = int((labels.terminal_counts == 0).sum())
    is_negative = labels.unlabeled_descendants == "negative"
    if 0 < blank <= FEW_UNLABELED * len(labels) and is_negative:
        rows = plural(len(labels), "training row")
        warnings.warn(
            f"{blank:,} of {rows} {'has' if blank == 1 else 'have'} no label, which says that no "
            f"class applies: other models are tried than without, and they may answer nothing; "
            f"leave such rows out if their label is only missing",
            DataWarning,
            stacklevel=3,
        )
    decimals = sum(map(is_decimal, dataset.hierarchy.names))
    if 2 * decimals > classes > 1 and dataset.hierarchy.depth == 1:
        first = next(filter(is_decimal, dataset.hierarchy.names))
        warnings.warn(
            f"labels are numbers with decimals, such as {first!r}, and each is a class of its own; "
            f"check that these are the labels (--label on the command line)",
            DataWarning,
            stacklevel=3,
        )


def is_decimal(name: str) -> bool:
    """Whether a name is a number that is no integer."""
    try:
        return math.isfinite(float(name)) and not float(name).is_integer()
    except ValueError:
        return False


# ---------------------------------------- rows


def split_rows(dataset: Dataset, plan: Plan) -> tuple[Ints, Ints]:
    """Return the training rows and the validation rows."""
    splits = dataset.splits
    held = [splits[name] for name in ("valid", "test") if name in splits]
    if "train" in splits:
        rows = splits["train"]
    else:
        left = np.ones(len(dataset), dtype=bool)
        for one in held:
            left[one] = False
        rows = np.flatnonzero(left)
    if "valid" in splits:
        return rows, splits["valid"]
    if not plan.valid_fraction:
        return np.sort(rows), rows[:0]
    count = round(plan.valid_fraction * len(rows))
    if not 0 < count < len(rows):
        raise HierlearnError(
            f"a fraction of {plan.valid_fraction} of {len(rows)} rows is {count} rows"
        )
    seed = Settings.from_dict(plan.settings).seed
    order = torch.randperm(len(rows), generator=generator(seed, "valid")).numpy()
    together = dataset.held_together
    if together is not None:
        _, groups = np.unique([str(together[row]) for row in rows], return_inverse=True)
        first = np.full(len(rows), len(rows))
        np.minimum.at(first, groups[order], np.arange(len(rows)))
        order = order[np.argsort(first[groups[order]], kind="stable")]
        ends = np.flatnonzero(np.diff(groups[order], append=-1)) + 1
        count = int(ends[np.abs(ends[:-1] - count).argmin()]) if len(ends) > 1 else count
    shuffled = rows[order]
    return np.sort(shuffled[count:]), np.sort(shuffled[:count])


def gather_facts(
    train_set: Dataset,
    labels: Labels,
    plan: Plan,
    device: torch.device | None = None,
    options: PrepareOptions | None = None,
) -> Facts:
    """Return the facts that a choice may depend on.

    Args:
        train_set: the training rows, encoded where the plan has a frozen encoder.
        labels: of these rows.
        plan: what was asked for, of which the named preprocessing tells what the network reads.
        device: where it is trained.
        options: what else was asked for.
    """
    name, inputs = plan.preprocessing, train_set.inputs
    kind: Kind | Produced = train_set.kind
    if name is not None or kind == "table":
        step = find_step(name or "table")
        kind = step.produces_for(train_set, **plan.preprocessing_options)
    options = options or PrepareOptions()
    width = len(inputs.kinds) if isinstance(inputs, Table) else 0
    if isinstance(inputs, np.ndarray) and inputs.ndim == 2:
        width = inputs.shape[1]
    return Facts.of(
        labels,
        kind,
        columns=Counter(inputs.kinds.values()) if isinstance(inputs, Table) else {},
        width=width,
        streamed=isinstance(inputs, RowGroups),
        logits=options.logits,
        module=options.network,
        device="cpu" if device is None else device.type,
    )


def fitted_preprocessor(
    train_set: Dataset, plan: Plan, recipe: Recipe
) -> Preprocessor[Any, Any] | None:
    """Return the preprocessing, fitted on the training rows; None for inputs used as is."""
    name, options = plan.preprocessing, dict(plan.preprocessing_options)
    if name is None:
        name, options = recipe.preprocessing, {**recipe.preprocessing_options, **options}
        if name is not None and train_set.kind == "table":  # it is the step of the numbers there
            name, options = None, {"numbers": name, **options}
    if name is None:
        as_is = recipe.network == "embeddings" and train_set.kind == "numbers"
        options = {"standardize": plan.standardize and not as_is, **options}
    preprocessor: Any = make_preprocessor(name, train_set, **options)
    inputs: Any = train_set.inputs
    if preprocessor is None:
        return None
    found: Preprocessor[Any, Any] = preprocessor
    found = fit_once(found, inputs.parts) if isinstance(inputs, RowGroups) else found.fit(inputs)
    warn_of_empty(train_set, found)
    return found


def warn_of_empty(train_set: Dataset, preprocessor: Preprocessor[Any, Any]) -> None:
    """Point out the columns without any value in the training rows; raise if there is no other."""
    inputs: Any = train_set.inputs
    empty: list[Any]
    if isinstance(inputs, Table):
        found = [name for name, why in inputs.ignored.items() if why == NO_VALUE]
        empty = [*found, *(name for name in inputs.names if inputs.missing(name).all())]
        known = len(inputs.names) + len(found)
    else:
        missing: Any = getattr(preprocessor, "missing", ())
        names: Any = train_set.feature_names or range(len(missing))
        lacking = np.flatnonzero(np.equal(missing, len(train_set))).tolist()
        empty = [names[column] for column in lacking]
        known = len(missing)
    if not empty:
        return
    if len(empty) == known:
        raise DataError(
            "no column has a value in any training row, so there is nothing to learn from; check "
            "how missing values are written"
        )
    what, has, are = ("columns", "have", "are") if len(empty) > 1 else ("column", "has", "is")
    warnings.warn(
        f"{what} {quoted(empty)} {has} no value in any training row, and {are} left out",
        ColumnWarning,
        stacklevel=2,
    )


def make_rows(
    inputs: Any,
    preprocessor: Any,
    labels: Labels,
    device: torch.device,
    weights: Floats | None = None,
) -> Rows:
    """Preprocess rows and make tensors of them, at once or as they are needed."""
    if isinstance(inputs, RowGroups):
        return ParquetRows(inputs, preprocessor, labels, device, weights)
    ready = inputs if preprocessor is None else preprocessor.transform(inputs)
    return Rows(ready, labels, device, weights)


def row_weights(rows: Ints, weights: Floats | None, count: int) -> Floats | None:
    """Return the weights of the given rows; raise on weights that are not finite or below 0."""
    if weights is None:
        return None
    found = np.asarray(weights, dtype=np.float64)
    if found.shape != (count,):
        raise DataError(f"weights {found.shape} must be ({count},), one per row")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(wrong):
        raise DataError(
            f"the weight of row {wrong[0]} is {found[wrong[0]]}; weights are finite, at least 0"
        )
    if not found[rows].any():
        raise DataError("every training row has weight 0")
    return found[rows]


# ---------------------------------------- the network and its link


def for_heads(
    loss: Loss,
    network: nn.Module,
    joint: Mapping[str, Loss] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Loss | JointLoss:
    """Return the loss, or one for every head of a network with several.

    Args:
        loss: of the main head, or of all heads alike.
        network: what is trained.
        joint: the losses of further heads by name.
        weights: what each of these counts, per row: 1 is the weight of the main head.
    """
    joint, weights = dict(joint or {}), dict(weights or {})
    for name, one in auxiliary_heads(network).items():
        joint[name] = build_loss(one.loss, loss.label_space, **one.options)
        weights[name] = one.weight
    if joint:
        return JointLoss.per_row({MAIN: loss, **joint}, {MAIN: 1.0, **weights})
    names = head_names(network)
    return JointLoss.same_for_all(loss, names) if len(names) > 1 else loss


def network_spec(
    decision: Decision,
    inputs: InputSpec,
    loss: Loss,
    joint: Mapping[str, Loss],
    labels: Labels,
) -> NetworkSpec:
    """Return the network of a decision; its heads read logits as their losses do."""

    def linear_options(wanted: str | None, loss: Loss) -> dict[str, str]:
        read = link_name(reading_link(wanted, loss, loss.label_space))
        return {"link": link_name(loss.link), "reading_link": read}

    recipe, size = decision.recipe, decision.settings.ensemble_size
    name = recipe.network or default_network(inputs.kind)
    options = dict(recipe.network_options)
    heads = {}
    if recipe.head != "linear" or recipe.head_options or joint:
        own = dict(recipe.head_options)
        determined: Any = getattr(HEADS.get(recipe.head), "options_from_labels", None)
        if determined is not None:  # by the training labels
            own |= determined(labels, recipe.head_options)
        if recipe.head == "linear":
            own = {**linear_options(recipe.link, loss), **own}
        heads[MAIN] = HeadSpec(recipe.head, own)
        heads |= {
            name: HeadSpec("linear", linear_options(None, one)) for name, one in joint.items()
        }
    spec = NetworkSpec(name, inputs, options, size if size > 1 else None, heads)
    if spec.takes_link:
        options.setdefault("link", link_name(loss.link))
    return spec


def reading_link(wanted: str | None, loss: Loss, label_space: LabelSpace) -> Link:
    """Return how logits are read when predicting.

    Args:
        wanted: a name of LINKS; "from-loss" for the loss's own; None for that where it is
            coherent, else for the max link.
        loss: what trains the logits.
        label_space: what can be predicted.
    """
    own = loss.reading_link
    if wanted is None:
        coherent = LINKS[own].coherent if own is not None else loss.link.coherent
        wanted = "from-loss" if coherent else "max"
    if wanted != "from-loss":
        return make_link(label_space, wanted)
    return loss.link if own is None else make_link(label_space, own)


BUILT_IN: dict[str, Initializer] = {"random": lambda network, labels, weights: None}  # noqa: ARG005
INITIALIZERS = Registry(
    "initializer",
    BUILT_IN,
    group="hierlearn.initializers",
    expected="a function of a network, labels and weights",
    read=lambda _, value: value if callable(value) else None,
)


def initialize(
    network: nn.Module, labels: Labels, weights: Floats | None, settings: Settings
) -> None:
    """Initialize the heads of a network as the settings say.

    Args:
        network: a network or an ensemble.
        labels: of the training rows.
        weights: (N,) how much each row counts; None for all alike.
        settings: ``prior_bias`` and ``head_init``.
    """
    networks: list[Any] = networks_in(network)
    shared: dict[Any, Any] = {}
    for one in networks:
        for head in getattr(one, "heads", {}).values():
            if hasattr(head, "fit_labels"):
                head.fit_labels(labels, weights, shared)
    if settings.prior_bias:
        found = labels.weighted_counts(None if weights is None else weights / weights.mean())
        closed, terminal = (torch.from_numpy(counts).double() for counts in found)
        for one in networks:
            if hasattr(one, "set_prior"):
                one.set_prior(closed, terminal, len(labels))
    INITIALIZERS[settings.head_init](network, labels, weights)


# ---------------------------------------- backbones


def resolve_backbone(plan: Plan) -> Plan:
    """Return a plan whose backbone is either a frozen encoder or the network.

    Args:
        plan: with ``network="prefix:source"``; others are returned as they are.
    """
    name = plan.network
    if name is None or not names_backbone(name):
        return plan
    family, source = find_backbone(name)
    options = dict(plan.network_options)
    tuning = options.pop(TUNING, FROZEN)
    if tuning != FROZEN:
        family.check_tuning(tuning)
    step = [option for option in find_step(family.step).options() if option != "source"]
    known = {*family.options(), *step, TUNING}
    after: set[str] = set()  # options of the network after a frozen encoder
    if tuning == FROZEN:
        known |= {"cache"}
        after = {option for network in NETWORKS for option in option_names(network) or ()}
    for option in options:
        wanted = family.training_options.get(option, "") or tuning
        if wanted != tuning:
            raise HierlearnError(
                f"{option} is for tuning {wanted!r}, not {tuning!r}; leave it out, or set "
                f"{arg('tuning=')}{wanted}"
            )
        if option not in known | after:
            raise HierlearnError(unknown_name(f"option of {name}", option, known))
    if tuning == FROZEN:
        if plan.encoder:
            raise HierlearnError(
                f"network={name!r} encodes all columns of texts; leave it out, or name the column "
                f"of every encoder with {arg('encoder=')} instead"
            )
        own = {k: options.pop(k) for k in [*options] if k in EmbedPreprocessor.options_of(name)}
        return replace(
            plan,
            network=None,
            network_options=options,
            encoder={ALL: {"source": name, **own}},
        )
    if plan.preprocessing is not None:
        raise HierlearnError(
            f"{name} reads {family.reads} by itself; leave out preprocessing {plan.preprocessing!r}"
        )
    first = {k: options.pop(k) for k in [*options] if k in step}
    description = family.describe(source)
    options |= {TUNING: tuning} if TUNING in family.options() else {}
    return replace(
        plan,
        network_options={"description": description, **options},
        preprocessing=family.step,
        preprocessing_options={"source": name, **first},
        settings={**family.settings_for(tuning), **plan.settings},
    )


def fitted_embedder(
    dataset: Dataset, plan: Plan, device: torch.device
) -> Preprocessor[Any, Any] | None:
    """Return the frozen encoder of a plan, or the encoders of its columns; None without any.

    Args:
        dataset: the training rows.
        plan: what was asked for.
        device: where to compute.
    """
    if not plan.encoder:
        return None
    given = encoders_of(plan.encoder)
    encoders = {column: parse_encoder(own) for column, own in given.items()}
    if isinstance(dataset.inputs, Table):
        encoders = by_column(encoders, dataset.inputs)
        table = TablePreprocessor(encoders=encoders, standardize=plan.standardize)
        return table.to(device).fit(dataset.inputs)
    if [*encoders] == [*dataset.feature_names]:  # the only column
        encoders = {ALL: encoders[dataset.feature_names[0]]}
    if [*encoders] != [ALL]:
        raise HierlearnError(
            f"{arg('encoder')} names the column {next(filter(None, encoders))!r}, but the inputs "
            f"are {dataset.kind} without columns; name the encoder alone"
        )
    step = EmbedPreprocessor(**encoders[ALL]).to(device)
    if dataset.kind != step.reads:
        raise HierlearnError(
            f"{step.source} reads {step.reads}, but the inputs are {dataset.kind}; name a column "
            f"of {step.reads}"
        )
    return step.fit_parts(dataset.input_parts)


def by_column(encoders: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Return the encoders of a table by column: one without a column encodes all of texts."""
    named = {column: own for column, own in encoders.items() if column != ALL}
    if ALL not in encoders:
        return named
    source = encoders[ALL]["source"]
    reads = find_backbone(source)[0].reads
    texts = [name for name, kind in table.kinds.items() if base_kind(kind) == "text"]
    texts = [name for name in texts if name not in named]
    if reads != "texts" or not texts:
        raise HierlearnError(
            f"{source} reads {reads}, and which columns hold them is not known; name one with "
            f"{arg('encoder=')}{next(iter(table.kinds))}={source}"
        )
    return {**dict.fromkeys(texts, encoders[ALL]), **named}


def embedded(dataset: Dataset, embedder: Preprocessor[Any, Any]) -> Dataset:
    """Return a dataset of the numbers that an encoder gives."""
    found = [embedder.transform(part) for part in dataset.input_parts()]
    return replace(dataset, inputs=np.concatenate(found), feature_names=())


# ---------------------------------------- fitting once for all processes


def fit_once(
    preprocessor: Preprocessor[Any, Any], parts: Callable[[], Iterable[Any]]
) -> Preprocessor[Any, Any]:
    """Return the preprocessor, fitted by the first process of a training.

    All processes must call this. An error of the first one is raised by all.

    Args:
        preprocessor: not fitted.
        parts: returns the training rows, one part after another.
    """
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return preprocessor.fit_parts(parts)
    found: list[Any] = [None, None]  # the state, and what went wrong
    if distributed.get_rank() == 0:
        try:
            found[0] = preprocessor.fit_parts(parts).state()
        except Exception as error:
            found[1] = str(error)
            distributed.broadcast_object_list(found)
            raise
    distributed.broadcast_object_list(found)
    if found[1] is not None:
        raise DataError(found[1])
    if distributed.get_rank() == 0:
        return preprocessor
    return type(preprocessor).from_state(*found[0])


# ---------------------------------------- what is said of it


def summary(prepared: Prepared) -> str:
    """Return what will be trained: backbone, columns, a plain sentence, the details."""
    decision, loss = prepared.decision, prepared.loss
    settings = decision.settings
    size, length = settings.ensemble_size, plural(settings.epochs, "epoch")
    for staged in staged_networks(prepared.network)[:1]:
        length = f"{length} shared by {len(staged.parts)} parts, trained one after another"
    network, solver = prepared.network, settings.optimizer
    trained_by = type(prepared.loss).__name__
    if prepared.overrides_link or prepared.network_spec is None:
        trained, read = link_name(loss.link), link_name(prepared.link)
        trained_by += f" on the {trained} link, read by the {read} link"
    for memory, *_ in [*memory_heads(network).values()][:1]:
        kind = f"a memory ({memory.distance} distance, {memory.neighbors} neighbors)"
        if solver == "none":
            trained_by, length = kind, "nothing is trained"
            break
        joint = " and ".join(decision.recipe.joint)
        also = f", with further heads trained by {joint}" if joint else ""
        compared = f"{memory.candidates:,} candidates per step"
        if not memory.candidates:
            compared = f"batches of {settings.batch_size:,} rows compared with each other"
        trained_by = (
            f"a memory ({memory.distance} distance / {memory.scale.value:g}, {memory.neighbors} "
            f"neighbors, {compared}), trained by {decision.recipe.loss}{also}"
        )
    for svm in heads_of(network, SparseLinearHead)[:1]:
        trained_by = f"linear SVMs, {svm.strategy}"
        length = f"solved at once with penalty {settings.l2_penalty:.3g}"
    for one in heads_of(network, EstimatorHead)[:1]:
        trained_by, length = f"{type(one.make()).__name__}, {one.strategy}", "fitted at once"
    for forest in heads_of(network, ForestHead)[:1]:
        kind = "trees of a random forest" if forest.kind == FOREST else "extremely random trees"
        least = plural(forest.min_samples_leaf, "row")
        trained_by = f"{forest.trees} {kind} (at least {least} per leaf)"
        length = "grown at once"
    if solver == "kernel":
        trained_by, length = "a kernel machine", "solved at once"
    encoder, step = "", prepared.preprocessor
    first: Any = step.first if isinstance(step, ChainPreprocessor) else step
    if isinstance(first, EmbedPreprocessor):
        encoder = f"encoder: {printable(first.source)}, frozen, {first.columns:,} features\n"
    elif names_backbone(prepared.plan.network):
        sizes = [(one.numel(), one.requires_grad) for one in prepared.network.parameters()]
        learning, every = sum(n for n, learns in sizes if learns), sum(n for n, _ in sizes)
        name = printable(str(prepared.plan.network))
        encoder = f"encoder: {name}; {learning:,} of {every:,} weights are trained\n"
    columns = "" if step is None else step.summary()
    what, _, _ = decision.recipe.description.partition(": ")
    return (
        f"{encoder}"
        f"{columns and f'columns: {printable(columns)}{chr(10)}'}"
        f"model: {what}, because {decision.why}; {plural(len(prepared.rows), 'training row')}, "
        f"{len(prepared.valid or ()):,} for validation\n"
        f"details: recipe {decision.name}, {trained_by}, decoder {decision.decoder}, {length}, "
        f"{plural(size, 'network')} on {prepared.rows.device}"
    )
