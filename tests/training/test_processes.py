"""One process is its own world; devices by name; how a lost process is worded."""

import signal
import subprocess
import sys
import threading

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.training.processes import (
    LostProcessError,
    Processes,
    find_device,
    handle_sigterm,
    is_loss,
    lost,
    processes,
)

GLOO = (
    "[/x/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer. This is. Good luck"
)


def test_alone():
    with processes("cpu") as here:
        assert (here.rank, here.world, here.device) == (0, 1, torch.device("cpu"))
        assert here.writes
        assert torch.equal(here.share(torch.arange(5)), torch.arange(5))
        assert float(here.total(3)) == 3
        here.wait()


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shape", [(7,), (2, 7), (1,)])
def test_shares_are_the_batch_taken_apart(world, shape):
    index = torch.arange(torch.Size(shape).numel()).view(shape)
    shares = [Processes(rank, world, torch.device("cpu")).share(index) for rank in range(world)]
    assert sorted(torch.cat(shares, dim=-1).flatten().tolist()) == index.flatten().tolist()
    sizes = [share.shape[-1] for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_a_total_leaves_its_count_alone():
    count = torch.tensor(3.0, dtype=torch.float64)
    assert Processes(0, 1, torch.device("cpu")).total(count).data_ptr() != count.data_ptr()


def test_devices():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda")
    with pytest.raises(HierlearnError, match="'gpu' is no device; use auto, cpu or cuda"):
        find_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_here():
    with pytest.raises(HierlearnError, match="there is no CUDA device here; use device=cpu"):
        find_device("cuda")


def test_a_loss_is_told_from_other_errors_and_worded():
    assert is_loss(RuntimeError(GLOO))
    assert is_loss(torch.distributed.DistBackendError("remote process exited"))
    assert not is_loss(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    error = lost(1, RuntimeError(GLOO), " in epoch 3")
    assert isinstance(error, LostProcessError)
    assert str(error) == (
        "process 1 lost the connection to another one in epoch 3; resume from the last checkpoint "
        "with resume=True ([/x/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by "
        "peer)"
    )


def test_the_end_is_heeded_in_the_main_thread_and_the_old_way_returns():
    before, threads = signal.getsignal(signal.SIGTERM), threading.active_count()
    with handle_sigterm(0):
        assert signal.getsignal(signal.SIGTERM) is not before
        assert threading.active_count() == threads + 1
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads
    seen = []

    def elsewhere():
        with handle_sigterm(0):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_handler_of_ones_own_stays():
    def mine(*_):
        pass

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with handle_sigterm(0):
            assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_end_is_heeded_while_an_error_is_on_its_way():
    script = """
import os, signal, time
from hierlearn.training.processes import handle_sigterm
try:
    with handle_sigterm(3):
        raise RuntimeError("the connection is lost")
except RuntimeError:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert "process 3 was terminated" in done.stderr
