"""Every engine: the same results and errors as one job after the other, killed workers included."""

import os
import shutil
import tempfile
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from hierlearn.errors import HierlearnError
from hierlearn.lab.study import Study
from hierlearn.service.engine import (
    ENGINES,
    RETRIES,
    Job,
    Serial,
    as_engine,
    count_cores,
    engine_of,
    open_executor,
)
from lab import small_studies as small
from service.job_functions import (
    answer,
    counted,
    fail,
    kill_this_process,
    killed_once,
    process_number,
    threads,
)

PACKAGES = {"dask": "distributed", "ray": "ray"}


@pytest.fixture(scope="module")
def surroundings():
    """What Ray's processes need: a short path for their sockets, and the jobs of these tests."""
    folder = tempfile.mkdtemp(prefix="hl", dir="/tmp")
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("PYTHONPATH", path.strip(os.pathsep))
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=list(ENGINES))
def executor(request, surroundings):
    """Two workers, started once per engine."""
    if request.param in PACKAGES:
        pytest.importorskip(PACKAGES[request.param])
    with open_executor(request.param, workers=2) as opened:
        yield opened


def ends(engine, jobs):
    return sorted(engine.run(jobs), key=lambda one: one.number)


def results(engine, jobs):
    return [one.result() for one in ends(engine, jobs)]


def test_results_are_those_of_one_job_after_the_other(executor):
    jobs = [Job(answer, {"rows": [1, 2]}, (number,)) for number in range(7)]
    assert results(executor, jobs) == results(Serial(), jobs)
    assert executor.workers == 2


def test_an_engine_is_an_executor(executor):
    assert [one.result() for one in [executor.submit(divmod, 7, n) for n in (2, 3)]] == [
        (3, 1),
        (2, 1),
    ]
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result()


def test_the_job_of_a_killed_worker_runs_again_and_no_other(executor, tmp_path):
    runs = tmp_path / "runs"
    jobs = [Job(killed_once, "rows", (str(runs), number)) for number in range(4)]
    assert results(executor, jobs) == [("rows", number) for number in range(4)]
    assert sorted(runs.read_text().split()) == ["0", "1", "1", "2", "3"]


def test_an_error_is_an_outcome_and_the_same_everywhere(executor):
    found = ends(executor, [Job(fail, "rows"), Job(answer, "rows", (1,))])
    assert found[1].value == ("rows", 1)
    assert type(found[0].error) is ValueError
    with pytest.raises(ValueError, match=r"^no rows$") as caught:
        found[0].result()
    assert "in fail" in str(caught.value.__cause__)  # where it was raised


def test_data_is_loaded_once_per_worker_and_may_change(executor):
    first, second = np.arange(3), np.arange(5)
    jobs = [Job(process_number, data) for data in (first, second) for _ in range(4)]
    found = results(executor, jobs)
    for four in (found[:4], found[4:]):
        assert len(set(four)) == len({process for process, _ in four})


def test_jobs_share_out_the_cores(executor):
    assert results(executor, [Job(threads, None)]) == [max(1, count_cores() // 2)]


def test_results_come_while_jobs_are_made(executor):
    made = []

    def jobs():
        for number in range(40):
            made.append(number)
            yield Job(answer, "rows", (number,))

    with closing(executor.run(jobs())) as found:
        next(found)
        assert len(made) < 40


def test_a_study_is_that_of_one_candidate_after_the_other(executor, tmp_path):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, count_cores() // 2))  # as many as each of two workers has
    try:
        alone = small.run(tmp_path / "one")
    finally:
        torch.set_num_threads(before)
    told = []
    both = small.run(tmp_path / "two", executor=executor, on_step=lambda *step: told.append(step))
    assert small.without_seconds(both) == small.without_seconds(alone)
    for candidate in alone.candidates:
        for name, values in alone.rows(candidate).items():
            np.testing.assert_array_equal(both.rows(candidate)[name], values)
    assert {number for number, step, of in told if step == of} == {0, 1, 2}


def test_an_error_of_a_candidate_is_raised_by_the_study(executor, tmp_path):
    with pytest.raises(HierlearnError, match=r"became (nan|inf|-inf) in epoch"):
        small.run(
            tmp_path / "s",
            executor=executor,
            settings={"learning_rate": 1e30, "schedule": "constant"},
        )
    assert not (tmp_path / "s" / "runs.jsonl").exists()  # the corrected command begins there


def test_a_study_goes_on_with_another_engine(executor, tmp_path):
    class StopError(Exception):
        pass

    def stop_after_the_first(number, step, of):
        if any((tmp_path / "s" / "rows").glob("*.safetensors")):
            raise StopError

    with pytest.raises(StopError):
        small.run(tmp_path / "s", executor=executor, on_step=stop_after_the_first)
    before = {run["candidate"]: run["seconds"] for run in Study.open(tmp_path / "s").runs()}
    assert 0 < len(before) < 3
    study = small.run(tmp_path / "s")
    after = {run["candidate"]: run["seconds"] for run in study.runs()}
    assert len(after) == 3
    assert {key: after[key] for key in before} == before


def killed_error(name):
    """Return what an engine raises when it gives a job up."""
    if name == "dask":
        return pytest.importorskip("distributed").KilledWorker("job", None, 3)
    if name == "ray":
        return pytest.importorskip("ray").exceptions.WorkerCrashedError()
    return BrokenProcessPool()


def test_a_job_that_an_engine_gave_up_is_named(executor, monkeypatch):
    whole = executor.submit

    def submit(function, *args):
        if args[1] != 1:  # the number of the job
            return whole(function, *args)
        future = Future()
        future.set_exception(killed_error(executor.name))
        return future

    monkeypatch.setattr(executor, "submit", submit)
    found = ends(executor, [Job(answer, "rows", (number,)) for number in range(3)])
    assert [found[0].value, found[2].value] == [("rows", 0), ("rows", 2)]
    with pytest.raises(HierlearnError, match=r"a job was lost.* with its worker: it was killed, p"):
        found[1].result()


def test_a_job_that_kills_every_process_is_run_four_times(tmp_path):
    runs = tmp_path / "runs"
    jobs = [Job(kill_this_process, "rows", (str(runs),)), Job(answer, "rows", (1,))]
    with open_executor("processes", workers=2) as engine:
        found = ends(engine, jobs)
    with pytest.raises(HierlearnError, match="lost with its worker: it was killed, perhaps"):
        found[0].result()
    assert found[1].value == ("rows", 1)
    assert runs.read_text().split() == ["killed"] * (RETRIES + 1)


# ---------------------------------------------------------------------- Executors of others


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_runs_jobs(kind):
    more = {} if kind is ThreadPoolExecutor else {"mp_context": get_context("forkserver")}
    with kind(2, **more) as pool:
        engine = as_engine(pool)
        jobs = [Job(answer, np.arange(2), (number,)) for number in range(3)]
        found = results(engine, jobs)
    assert [(data.tolist(), value) for data, value in found] == [([0, 1], n) for n in range(3)]


def test_threads_share_the_data_itself():
    data = {"function": lambda: None}  # which cannot be pickled
    with ThreadPoolExecutor(2) as pool:
        ((found, _),) = results(as_engine(pool), [Job(answer, data, (1,))])
    assert found is data


class FirstComesLast(Executor):
    """Runs jobs at once, but the first when the third is submitted."""

    _max_workers = 1

    def __init__(self):
        self.calls = []

    def submit(self, fn, /, *args, **kwargs):
        self.calls.append((Future(), lambda: fn(*args, **kwargs)))
        run = {1: [], 3: [0, 2]}.get(len(self.calls), [-1])
        for future, call in [self.calls[number] for number in run]:
            future.set_result(call())
        return self.calls[-1][0]


def test_data_is_released_while_a_job_of_other_data_runs():
    # Arrays of other shapes cannot be compared, so data must be told apart by identity.
    shapes = [(2,), (2, 3), (5,)]
    jobs = [Job(answer, np.zeros(shape), (number,)) for number, shape in enumerate(shapes)]
    found = results(as_engine(FirstComesLast()), jobs)
    assert [(data.shape, number) for data, number in found] == list(
        zip(shapes, range(3), strict=True)
    )


def test_a_broken_executor_is_named(tmp_path):
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        jobs = [
            Job(kill_this_process, "rows", (str(tmp_path / "runs"),)),
            Job(answer, "rows", (1,)),
        ]
        found = ends(as_engine(pool), jobs)
    for one in found:
        with pytest.raises(HierlearnError, match="the executor is broken for good; open a new one"):
            one.result()


def test_dask_own_executor_is_known_as_such(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        engine = as_engine(client.get_executor())
        assert engine.name == "dask"
        # The only worker holds the only copy of the data, which is sent again.
        runs = tmp_path / "runs"
        jobs = [Job(killed_once, "rows", (str(runs), number)) for number in (1, 2)]
        assert results(engine, jobs) == [("rows", 1), ("rows", 2)]
        assert results(engine, [Job(counted, "rows", (str(runs), 3))]) == [("rows", 3)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "daks"}, "unknown engine 'daks'; did you mean 'dask'"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"address": "tcp://a:1"}, "address needs an engine with workers elsewhere, 'dask' or"),
        (
            {"engine": "ray", "address": "a:1", "workers": 2},
            "address names a cluster with workers of its own",
        ),
    ],
)
def test_what_cannot_be_opened(given, message):
    with pytest.raises(HierlearnError, match=message), open_executor(**given):
        pass


@pytest.mark.parametrize("given", [None, "dask", True])
def test_what_is_no_executor(given):
    with (
        pytest.raises(HierlearnError, match=r"must be an Executor of concurrent.futures"),
        engine_of(given),
    ):
        pass
