"""Predictor on Dask: the answers of one process, also where a worker is killed."""

import os
import signal

import pandas as pd
import pytest

from hierlearn import Predictor
from service import slow_predictor
from service.slow_predictor import Slow, lines_of, wait_for
from small_models import made_model, write_rows

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install dask")
dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install dask")
pytestmark = pytest.mark.filterwarnings("default")
SECONDS = 240  # at most, on a slow machine


@pytest.fixture(scope="module")
def client():
    distributed.protocol.pickle.cloudpickle.register_pickle_by_value(slow_predictor)
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as made:
        yield made


def test_when_a_worker_is_killed_nothing_is_lost_and_nothing_doubled(
    client, tmp_path_factory, tmp_path
):
    model = made_model("numbers", tmp_path_factory.mktemp("dask"))
    rows = pd.read_csv(write_rows("numbers", tmp_path / "rows.csv", 800, 3))
    log = tmp_path / "log"
    slow = Slow(model, keep=["id"], log=str(log))
    expected = Predictor(model, keep=["id"])(rows)
    table = dd.from_pandas(rows, npartitions=8)
    future = client.compute(table.map_partitions(slow, meta=expected.head(0)))
    os.kill(wait_for(log, 3, SECONDS), signal.SIGKILL)
    found = future.result(SECONDS)
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)
    assert len(lines_of(log)) > 8, "no partition was begun again"
