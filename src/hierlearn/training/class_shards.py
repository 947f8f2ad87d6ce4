"""ClassShardTrainer: a training whose last layer and loss are shared out by classes.

Every process holds the last layer of some subtrees and of the classes above them, with gradients
and the state of the optimizer. The rest of the network is copied into every process, each of which
encodes its share of the rows; then all have the features of all rows, and each computes the logits
and the loss of its own classes (losses/sharded). Gradients are those of one process.

What is written is whole: checkpoints and models are those of one process, and any number of
processes may resume from them. A checkpoint is written block by block, so that no process ever
holds the state of all classes. Only before the first step and after the last one does every process
hold the weights of all classes, as a process that predicts does.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import Streamed
from hierlearn.hierarchy.exchange import Exchange, gather_rows
from hierlearn.hierarchy.sharded import ShardedHierarchy
from hierlearn.hierarchy.shards import cut
from hierlearn.links import HeadOutput
from hierlearn.losses.sharded import RowBatch, ShardedLoss, check_loss
from hierlearn.networks.ensemble import TINY, finite_members, members_of
from hierlearn.networks.linear import encoder_of, linear_head
from hierlearn.networks.sparse import SparseRows
from hierlearn.training.columns import ShardColumns
from hierlearn.training.shard_labels import ShardLabels
from hierlearn.training.step import seed_noise
from hierlearn.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss
    from hierlearn.training.checkpoint import Checkpoint
    from hierlearn.training.rows import Rows
    from hierlearn.training.settings import Settings

ENTRIES = 1 << 24  # probabilities of validation rows that are computed at a time


def check_class_shards(
    network: nn.Module, loss: Loss | JointLoss, rows: Rows, settings: Settings
) -> None:
    """Raise on what cannot be trained with classes in shards."""
    if settings.optimizer != "adamw":
        raise HierlearnError(
            f"parallel classes is for optimizer adamw, not {settings.optimizer}; use parallel ddp"
        )
    if members_of(network) is not None:
        raise HierlearnError(
            f"parallel classes trains one network, not {settings.ensemble_size}; use ensemble_size "
            f"1 or parallel ddp"
        )
    if settings.accumulate > 1:
        raise HierlearnError(
            f"parallel classes computes a batch at once, not in {settings.accumulate} parts; use "
            f"accumulate 1 or parallel ddp"
        )
    head = linear_head(network)
    if head is None:
        raise HierlearnError(
            "parallel classes needs a Network with one LinearHead, whose classes it shares out; "
            "use head linear without joint losses, or parallel ddp"
        )
    learns = any(True for _ in encoder_of(network).parameters())
    if isinstance(rows.inputs, SparseRows) and not learns:
        raise HierlearnError(
            "parallel classes needs dense features, but this network is a linear layer on sparse "
            "rows; use network token-bag or mlp, or parallel ddp"
        )
    check_loss(loss, head.link)


class ClassShardTrainer(Trainer):
    """Train a network whose last layer is shared out among the processes by classes.

    Attributes:
        hierarchy: the classes of this process.
        columns: which of their weights this process holds.
        sent_per_step: the bytes that it gave to the others in the last step, in one copy; the
            gradients of the encoder are not among them.
    """

    sharded: ClassVar[bool] = True
    sent_per_step = 0

    def place(self, network: nn.Module) -> nn.Module:
        """Leave this process's classes in the last layer of the network."""
        here, head = self.processes, linear_head(network)
        assert head is not None  # check_class_shards has looked
        self.head = head
        shards = cut(self.head.link.label_space, here.world)
        exchange = Exchange(here.rank, here.world)
        self.hierarchy = ShardedHierarchy(shards.shard(here.rank), exchange).to(self.rows.device)
        self.columns = ShardColumns(shards, exchange)
        self.labels = ShardLabels(self.rows.labels, self.hierarchy)
        self.set_layer(*(self.columns.own(one.detach()) for one in self.layer))
        return network.to(self.rows.device)

    @property
    def layer(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the last layer."""
        return self.head.linear.weight, self.head.linear.bias

    def set_layer(self, weight: Tensor, bias: Tensor) -> None:
        """Replace the parameters of the last layer."""
        self.head.linear.weight, self.head.linear.bias = nn.Parameter(weight), nn.Parameter(bias)

    def distribute(self) -> None:
        """Average the gradients of the encoder, and share out the loss."""
        encoder = encoder_of(self.network)
        self.encoder: nn.Module = encoder
        if any(one.requires_grad for one in encoder.parameters()):
            self.encoder = DistributedDataParallel(encoder)
        self.parts = ShardedLoss(cast("Loss", self.loss), self.hierarchy, link=self.head.link).to(
            self.rows.device
        )

    def collect(self) -> None:
        """Give every process the whole last layer."""
        self.encoder = self.forward
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.state.clear()
        for group in self.optimizer.param_groups:  # which would keep the shared out layer
            group["params"] = []
        self.stopping.weights = {}  # restored already
        weight, bias = (self.columns.whole(one.detach()) for one in self.layer)
        self.set_layer(weight, bias)

    # ------------------------------------------------------------------ a step

    def compute_gradients(self, index: Tensor, epoch: int, place: int) -> Tensor:
        """Add the gradients of a batch to those of the parameters, and return (1,) its loss.

        Args:
            index: (n,) the rows of this process.
            epoch: the number of the epoch, from 0.
            place: the number of the batch in it, from 0.
        """
        del epoch
        sent = self.hierarchy.exchange.bytes
        exchange = self.hierarchy.exchange
        counts = exchange.gather(torch.tensor(len(index), device=self.rows.device)).tolist()
        self.timeline.enter("input")
        x = self.rows.take(index)
        index = index.to(self.rows.device)
        every = exchange.gather_rows(index, counts)
        weights = self.rows.weights
        batch = RowBatch(
            len(every),
            lambda rows: self.labels.take(every[rows]),
            None if weights is None else weights[every],
        )
        self.timeline.enter("network")
        seed_noise(self, place, [len(index)], 0)
        half = self.settings.precision == "bf16"
        with torch.autocast(self.rows.device.type, torch.bfloat16) if half else nullcontext():
            features = self.encoder(x)
            self.timeline.enter("loss")
            # Gradients of the encoder are averaged, and each process has those of its rows alone.
            features = gather_rows(exchange, features, counts, self.processes.world)
            value = self.parts(features, *self.layer, batch)
        value.backward()
        self.sent_per_step = self.hierarchy.exchange.bytes - sent
        return cast("Tensor", value.detach()[None])

    def apply_gradients(self) -> None:
        """Clip the gradients by the norm of all of them, and let the optimizer use them."""
        limit = self.settings.max_grad_norm
        if limit is not None:
            squares = torch.zeros((), dtype=torch.float64, device=self.rows.device)
            ours = {id(one) for one in self.layer}
            for one in self.network.parameters():
                if one.grad is not None and id(one) in ours:
                    counted = one.grad * self.hierarchy.counted
                    squares += counted.double().square().sum()
                elif one.grad is not None and self.processes.writes:
                    squares += one.grad.double().square().sum()
            norm = self.hierarchy.exchange.total(squares).sqrt()
            scale = (limit / (norm + TINY)).clamp_max(1.0)
            for one in self.network.parameters():
                if one.grad is not None:
                    one.grad.mul_(scale.to(one.grad.dtype))
        self.optimizer.step()

    # ------------------------------------------------------------------ validation and checkpoints

    @torch.no_grad()
    def valid_probabilities(self) -> list[Tensor]:
        """Return (N, C) probabilities of the validation rows; in the first process alone."""
        assert self.valid is not None
        self.network.eval()
        step = max(1, ENTRIES // len(self.loss.label_space))
        found = []
        for begin in range(0, len(self.valid), step):
            rows = torch.arange(begin, min(begin + step, len(self.valid)))
            features = encoder_of(self.network)(self.valid.take(rows))
            logits = self.columns.at_first(torch.addmm(self.layer[1], features, self.layer[0]))
            if logits is not None:
                output = HeadOutput.from_logits(logits, self.head.reading_link or self.head.link)
                found.append(self.read(output).probabilities)
        self.network.train()
        return [torch.cat(found)] if found else []

    def _check_weights(self) -> None:
        """Raise on weights that are not finite, in all processes alike."""
        wrong = (~finite_members(self.network)).sum().double()
        if bool(self.hierarchy.exchange.total(wrong) > 0):
            self._refuse_member(0, "weights")

    def _checkpoint(self) -> None:
        self.timeline.enter("checkpoints")
        if self.save is not None:
            self._check_weights()
            tensors: dict[str, Any] = self.tensors()
            if self.processes.writes:
                self.save(self.step, tensors, self.metadata())
            else:  # which send their columns in the order in which they are written
                for name in sorted(tensors):
                    if isinstance(tensors[name], Streamed):
                        for _ in tensors[name].blocks():
                            pass
            self.saved = self.step
        self.processes.wait()

    @staticmethod
    def snapshot(value: Tensor) -> Tensor:  # type: ignore[override]
        """Return a tensor as it is, since it is written at once."""
        return value.detach()

    def tensors(self) -> dict[str, Any]:
        """Return every tensor that the training needs to resume; those of classes are streamed."""
        found: dict[str, Any] = dict(super().tensors())
        for key in self.of_classes(found):
            found[key] = self.columns.streamed(found[key])
        return found

    def of_classes(self, tensors: dict[str, Tensor]) -> Iterator[str]:
        """Yield the names of the tensors that hold one column per class."""
        ours = {id(one) for one in self.layer}
        names = [name for name, one in self.network.named_parameters() if id(one) in ours]
        numbers = [
            number for number, one in enumerate(self.network.parameters()) if id(one) in ours
        ]
        for key in [*tensors]:
            part, _, name = key.partition("/")
            if part == "optimizer":
                number, _, kind = name.partition(".")
                if int(number) in numbers and kind != "step":
                    yield key
            elif (part == "network" and name in names) or (
                part == "best" and name.partition("/")[2] in names
            ):
                yield key

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue where a checkpoint of any number of processes left the training."""
        found = dict(checkpoint.tensors)
        for key in self.of_classes(found):
            if found[key].dim() and found[key].shape[-1] == len(self.loss.label_space):
                found[key] = self.columns.own(found[key])
        checkpoint.tensors.clear()
        super().resume(replace(checkpoint, tensors=found))
