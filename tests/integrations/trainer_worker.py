"""Run by torchrun: train with Hugging Face's Trainer on several processes, and write the losses."""

import json
import os
import sys
from pathlib import Path

import torch
import transformers

from hierlearn.integrations.transformers import LabelCollator, TrainerLoss, curriculum_callback
from hierlearn.losses import LOSSES
from integrations.tiny import NAMES, TREE, arguments, bert, dataset, step_losses, token_rows

# Rows without a known label, so that processes have batches of different weight.
LOST = (1, 2, 5, 8, 9, 11, 20)


def train(name, folder, batch_size, accumulation):
    """Train eight rows per step over all processes; return the losses and the weights."""
    tokens, index = token_rows(24)
    labels = [None if row in LOST else NAMES[one] for row, one in enumerate(index)]
    loss = LOSSES[name](TREE)
    trainer = transformers.Trainer(
        bert(),
        arguments(
            folder,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
        ),
        train_dataset=dataset(tokens, labels),
        data_collator=LabelCollator(loss, unlabeled_descendants="ignore"),
        compute_loss_func=TrainerLoss(loss),
        callbacks=[curriculum_callback(loss)],
    )
    trainer.train()
    weights = [float(one.detach().sum()) for one in trainer.model.parameters()]
    return {"losses": step_losses(trainer), "weights": weights}


def main():
    """Train what the arguments name, once per loss."""
    folder = Path(sys.argv[1])
    transformers.utils.logging.set_verbosity_error()
    for name in sys.argv[2].split(","):
        found = train(name, folder, 2, 2)
        if torch.distributed.get_rank() == 0:
            (folder / f"{name}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    os._exit(0)  # the Trainer leaves its process group, whose threads must not be destroyed


if __name__ == "__main__":
    main()
