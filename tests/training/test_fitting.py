"""The first process fits the preprocessing for all; its error is that of all."""

import numpy as np
import pytest

from hierlearn.errors import DataError
from hierlearn.features import NumericPreprocessor
from hierlearn.training import prepare as fitting


class Group:
    """A process group of two whose first process has spoken before the second listens."""

    def __init__(self):
        self.rank, self.said = 0, None

    def is_initialized(self):
        return True

    def get_world_size(self):
        return 2

    def get_rank(self):
        return self.rank

    def broadcast_object_list(self, found):
        if self.rank == 0:
            self.said = list(found)
        else:
            found[:] = self.said


@pytest.fixture
def group(monkeypatch):
    made = Group()
    monkeypatch.setattr(fitting, "distributed", made)
    return made


def never():
    raise AssertionError("the second process reads nothing")


def test_others_get_what_the_first_has_fitted(group):
    rows = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    first = fitting.fit_once(NumericPreprocessor(), lambda: [rows[:4], rows[4:]])
    group.rank = 1
    second = fitting.fit_once(NumericPreprocessor(), never)
    alone = NumericPreprocessor().fit(rows)
    for found in (first, second):
        np.testing.assert_array_equal(found.transform(rows), alone.transform(rows))


def test_an_error_of_the_first_is_raised_by_all(group):
    def parts():
        raise DataError("rows, line 8 of b.parquet, column 'x': 'red' is not a finite number")

    for group.rank in (0, 1):
        with pytest.raises(DataError, match=r"line 8 of b\.parquet"):
            fitting.fit_once(NumericPreprocessor(), parts if group.rank == 0 else never)
