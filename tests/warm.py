"""Python processes that need not import torch: each is a fork of a server that has.

``[*warm.python(), "-m", "hierlearn", "--help"]`` is a command like
``[sys.executable, "-m", "hierlearn", "--help"]``, and sooner done. It is a small client that passes
its words, folder, variables and streams to the server, which forks a process that has done nothing
but import. The client passes on signals, and ends as that process ends: with its exit code, or by
its signal. When the tests end, so does the server.

What a process imports, its memory and the seed of its hashes are not those of a process of its own:
tests of these start ``sys.executable``.
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time

PRELOADED = [
    "hierlearn.cli.train",
    "hierlearn.estimator",
    "hierlearn.memory.index",
    "hierlearn.metrics.modules",
    "hierlearn.networks",
    "hierlearn.pipeline",
    "hierlearn.reports",
    "hierlearn.lab.summary",
    "hierlearn.lab.runner",
    "matplotlib.figure",
    "pandas",
    "pyarrow.parquet",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "torch._dynamo",
    "torch.distributed.run",
    "yaml",
]
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SECONDS = 240  # until the server has imported everything on a slow machine

_server = None  # of this process


def python():
    """Return the words of a command that runs Python on the words that follow."""
    global _server
    if _server is None:
        _server = Server()
    assert _server.job.poll() is None, "the server of Python processes has ended; see its error"
    return [sys.executable, "-S", "-E", __file__, _server.address]


class Server:
    """A server that ends with this process."""

    def __init__(self):
        import atexit
        import subprocess
        import tempfile

        self.folder = tempfile.mkdtemp(prefix="warm-")
        self.address = f"{self.folder}/s"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
        # torch asks NVML for GPUs: to initialize CUDA here would deny it to every fork
        variables = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        self.job = subprocess.Popen(
            [sys.executable, __file__, "--serve", self.address],
            env={**kept, **variables},
            stdin=subprocess.PIPE,  # closed when this process ends, even if it is killed
        )
        atexit.register(self.stop)

    def stop(self):
        import shutil

        self.job.stdin.close()
        self.job.kill()
        self.job.wait()
        shutil.rmtree(self.folder)


# ---------------------------------------------------------------------- the client


def connect(address):
    """Return a connection to the server, which may still import."""
    end = time.monotonic() + SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def be_client(address, words):
    """Let the server run Python on some words; end as that process ends."""
    pending, process = [], 0

    def forward(number, frame):
        if process:
            os.kill(process, number)
        else:
            pending.append(number)

    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    connection = connect(address)
    ignored = [int(one) for one in FORWARDED if signal.getsignal(one) is signal.SIG_IGN]
    request = [words, os.getcwd(), dict(os.environ), ignored]  # noqa: PTH109
    text = json.dumps(request).encode()  # bytes that are not UTF-8 travel as surrogates
    streams = array.array("i", [0, 1, 2])
    connection.sendmsg([b"%12d" % len(text)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    connection.sendall(text)
    answers = connection.makefile("r")
    process = int(answers.readline())
    for number in pending:
        os.kill(process, number)
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ---------------------------------------------------------------------- the server


def serve(address):
    """Serve until nobody needs it; return in each process that is to run Python, with its words."""
    import gc
    import importlib

    from torchvision_operators import declare_operators

    declare_operators()  # torchmetrics imports torchvision, which may be of another build
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # what needs it will say so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what was imported stays where it is, shared by all forks
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(16)
    while True:
        ready, _, _ = select.select([listener, 0], [], [], 1.0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            os._exit(0)
        if listener in ready:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                return keep(connection)
            connection.close()


def keep(connection):
    """Start a process and tell the client how it ends; return in that process, with its words."""
    size, (_, _, streams) = receive(connection)
    text = b""
    while len(text) < size:
        text += connection.recv(size - len(text))
    words, folder, variables, ignored = json.loads(text)
    process = os.fork()
    if not process:
        connection.close()
        become(folder, variables, streams, ignored)
        return words
    for one in (0, 1, 2, *streams):
        os.close(one)
    connection.sendall(b"%d\n" % process)
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            with contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        ready, _, _ = select.select([connection], [], [], 0.01)
        if ready:  # the client was killed
            os.kill(process, signal.SIGKILL)


def receive(connection):
    """Return the size of a request and the streams that came with it."""
    streams = array.array("i")
    size, found, _, _ = connection.recvmsg(12, socket.CMSG_LEN(3 * streams.itemsize))
    level, kind, data = found[0]
    streams.frombytes(data)
    return int(size), (level, kind, list(streams))


def become(folder, variables, streams, ignored):
    """Take over the folder, the variables and the streams of the client."""
    import random

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in FORWARDED:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = writer(1, "strict", os.isatty(1))
    sys.stderr = sys.__stderr__ = writer(2, "backslashreplace", True)


def writer(number, errors, line_buffering):
    """Return a stream as Python opens it when it starts."""
    import io

    encoding, _, other = os.environ.get("PYTHONIOENCODING", "").partition(":")
    return io.TextIOWrapper(
        open(number, "wb", closefd=False),
        encoding or "utf-8",
        other or errors,
        line_buffering=line_buffering,
    )


def run_and_exit(words, paths):
    """Run Python on words and end as it does, without the time that freeing all memory takes."""
    import atexit
    import threading

    code = 0
    try:
        run(words, paths)
    except SystemExit as error:
        code = 0 if error.code is None else error.code
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def run(words, paths):
    """Run Python on words: ``-m MODULE``, ``-c CODE`` or a script; ``-W ACTION::CATEGORY``."""
    import builtins
    import runpy
    import types
    import warnings

    while words[0] == "-W":
        action, _, category = words[1].partition("::")
        warnings.filterwarnings(action, category=getattr(builtins, category))
        words = words[2:]
    given = os.environ.get("PYTHONPATH", "")
    sys.path[:] = ["", *filter(None, given.split(os.pathsep)), *paths]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(words[0])  # noqa: PTH120
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        others = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), sys.path[0]]
        without = [one for one in sys.path if one not in others]
        run_and_exit(serve(sys.argv[2]), without)
    else:
        be_client(sys.argv[1], sys.argv[2:])
