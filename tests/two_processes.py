"""Two processes of a script, started by torchrun."""

import os
import signal
import subprocess

import warm
from training.datasets import environment


def launch(script, *words, restarts=0, seconds=600):
    """Run two processes of a script and return what became of them.

    Args:
        script: the file.
        words: its arguments.
        restarts: how often torchrun may start them again.
        seconds: after which all of them are killed.
    """
    command = [*warm.python(), "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", f"--max-restarts={restarts}", "--no-python"]
    with subprocess.Popen(
        [*command, *warm.python(), str(script), *map(str, words)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as job:
        try:
            out, err = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, job.returncode, out, err)
