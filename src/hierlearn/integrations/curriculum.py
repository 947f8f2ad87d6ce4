"""The state of a curriculum: what checkpoints keep of it, and what evaluating must not change."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from hierlearn.losses import Loss

WHOLE, EPOCH = "loss/", "epoch/"  # what begins the names of state_dict and of epoch_state


def curriculum_state(loss: Loss) -> dict[str, Tensor]:
    """Return copies of the state of a loss: its ``state_dict`` and its ``epoch_state``."""
    parts = ((WHOLE, loss.state_dict()), (EPOCH, loss.epoch_state()))
    return {
        f"{begin}{name}": value.detach().clone()
        for begin, state in parts
        for name, value in state.items()
    }


def load_curriculum_state(loss: Loss, state: Mapping[str, Tensor]) -> None:
    """Restore what ``curriculum_state`` returned.

    Raises:
        HierlearnError: where the state is that of another loss or another hierarchy.
    """
    own = {name: tuple(value.shape) for name, value in curriculum_state(loss).items()}
    given = {name: tuple(value.shape) for name, value in state.items()}
    if own != given:
        raise HierlearnError(
            f"the checkpoint holds {given or 'no state'} of a curriculum, but this "
            f"{type(loss).__name__} has {own or 'no state'}; resume with the loss and the "
            f"hierarchy of the checkpoint"
        )
    parts = {
        begin: {name.removeprefix(begin): state[name] for name in state if name.startswith(begin)}
        for begin in (WHOLE, EPOCH)
    }
    loss.load_state_dict(parts[WHOLE])
    loss.load_epoch_state(parts[EPOCH])


@contextmanager
def unchanged(loss: Loss) -> Iterator[None]:
    """Leave the state of a curriculum as it is: the rows of an evaluation are not of the epoch."""
    state = curriculum_state(loss)
    try:
        yield
    finally:
        load_curriculum_state(loss, state)
