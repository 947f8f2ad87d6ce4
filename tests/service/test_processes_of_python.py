"""Predictor in processes of Python: the answers of one process; a killed one breaks the pool."""

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pandas as pd
import pytest

from hierlearn import Predictor
from small_models import made_model, write_rows


def test_what_a_broken_pool_lacks_is_answered_by_the_next(tmp_path_factory, tmp_path):
    model = made_model("numbers", tmp_path_factory.mktemp("processes"))
    rows = pd.read_csv(write_rows("numbers", tmp_path / "rows.csv", 400, 3))
    predictor = Predictor(model, keep=["id"])
    missing = {begin: rows[begin : begin + 100] for begin in range(0, 400, 100)}
    done = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        done[0] = pool.submit(predictor, missing.pop(0)).result()
        os.kill(next(iter(pool._processes)), signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            pool.submit(predictor, missing[100]).result()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        done.update(zip(missing, pool.map(predictor, missing.values()), strict=True))
    found = pd.concat([done[begin] for begin in sorted(done)])
    pd.testing.assert_frame_equal(found, predictor(rows), check_exact=True)
