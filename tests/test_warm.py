"""The processes of ``warm`` are like those of Python itself, but for what is imported already."""

import os
import signal
import subprocess
import sys

import pytest

import warm

COMMANDS = {"warm": warm.python, "plain": lambda: [sys.executable]}
each_python = pytest.mark.parametrize("kind", COMMANDS)


def run(kind, *words, **more):
    command = [*COMMANDS[kind](), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


@each_python
def test_words_streams_folder_and_variables(kind, tmp_path):
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ['OWN'], sys.stdin.read())\n"
    code += "print('told', file=sys.stderr); sys.exit(3)"
    variables = {**os.environ, "OWN": "value"}
    done = run(kind, "-c", code, "a b", "\udcff", cwd=tmp_path, env=variables, input="line")
    said = f"['-c', 'a b', '\\udcff'] {tmp_path} value line\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, said, "told\n")


@each_python
@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("import sys; sys.exit('why')", 1),
        ("raise ValueError", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import warnings; warnings.warn('once')", 1),
        ("import atexit, os; atexit.register(os._exit, 5)", 5),
    ],
)
def test_it_ends_as_it_would(kind, code, ends):
    assert run(kind, "-W", "error::UserWarning", "-c", code).returncode == ends


@each_python
def test_modules_and_scripts(kind, tmp_path):
    (tmp_path / "beside.py").write_text("name = 'beside'\n")
    code = "import beside, sys; print(__name__, beside.name, sys.argv[1:])\n"
    (tmp_path / "script.py").write_text(code)
    said = "__main__ beside ['x']\n"
    assert run(kind, tmp_path / "script.py", "x").stdout == said
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert run(kind, "-m", "script", "x", env=variables).stdout == said


@each_python
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_arrive(kind, number):
    code = "import signal, sys, time\n"
    code += f"signal.signal({int(number)}, lambda *_: sys.exit(7)); print('up', flush=True)\n"
    code += "time.sleep(600)"
    command = [*COMMANDS[kind](), "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "up\n"
        job.send_signal(number)
        assert job.wait(timeout=240) == 7


def test_torch_is_there_already():
    code = "import sys; print('torch' in sys.modules, 'pytest' in sys.modules)"
    assert run("warm", "-c", code).stdout == "True False\n"
