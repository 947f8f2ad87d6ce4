"""Ranks: an error that every process of torchrun meets is printed by one of them."""

from __future__ import annotations

import os
from datetime import timedelta
from hashlib import sha256

SECONDS = 5  # to reach the store of torchrun


def is_first_to_say(message: str) -> bool:
    """Whether no other process of this job has printed a message; True outside of torchrun.

    The processes count it in the store of torchrun. Where that is out of reach, all of them print.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=SECONDS))
        key = f"hierlearn/said/{attempt}/{sha256(message.encode()).hexdigest()}"
        return bool(store.add(key, 1) == 1)
    except (RuntimeError, ValueError):
        return True
