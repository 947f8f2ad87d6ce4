"""Losses whose classes lie in several processes: each has some subtrees and the classes above."""

from __future__ import annotations

from hierlearn.losses.sharded.loss import RowBatch, ShardedLoss
from hierlearn.losses.sharded.parts import check_loss

__all__ = ["RowBatch", "ShardedLoss", "check_loss"]
