"""The rule that finds the kinds of columns, and dates in their formats."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from hierlearn.datasets.tables.dates import find_formats, parse_dates
from hierlearn.datasets.tables.kinds import as_string, check_kind, find_kind, parse_values
from hierlearn.errors import DataError

DAY = datetime.date(2024, 2, 29)
TITLES = [f"a title with the number {row}" for row in range(40)]


def parse_date(cell, form="iso"):
    """One date, None where there is none."""
    (found,) = parse_dates([cell], form)
    return None if np.isnat(found) else found


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.5", "-3e4", ""], "number"),
        ([1, 2.5, None, decimal.Decimal("7.5")], "number"),
        (["1"] * 9 + ["2"] * 9 + ["red"], "number"),  # one to be corrected
        (["1"] * 5 + ["red"] * 5, "category"),
        (["1", "NA", "n/a", "2"], "number"),
        (["NA", "none", "one"], "category"),
        (["1,000", "2,500.5"], "number"),
        (["$5", "$7.50"], "number"),
        (["1.2.3", "1.2.4"], "category"),
        (["true", "False", ""], "boolean"),
        ([True, False, None], "boolean"),
        (["yes", "No"], "boolean"),
        (["f", "m"], "category"),
        (["0", "1"], "number"),
        (["2024-01-31", "2024-02-29"], "date:iso"),
        (["2024-01-31T10:00:00Z", "2024-02-29 10:30"], "date:iso"),
        (["31.01.2024", "01.02.2024"], "date:%d.%m.%Y"),
        (["01/31/2024", "02/01/2024"], "date:%m/%d/%Y"),
        (["31/01/2024", "02/01/2024 "], "date:%d/%m/%Y"),
        (["2024/01/31 10:30", "2024/02/01 00:00"], "date:%Y/%m/%d %H:%M"),
        (["Jan 31, 2024", "Feb 01, 2024"], "date:%b %d, %Y"),
        ([DAY, None, datetime.date(2020, 1, 1)], "date:iso"),
        ([pd.Timestamp(DAY), pd.NaT, pd.Timestamp("2020-01-01")], "date:iso"),
        (TITLES, "text"),
        (TITLES[:3] * 20, "category"),  # several words, but few different ones
        (["red", "green", "red"], "category"),
        ([f"name{row % 30}" for row in range(40)], "category"),
        (["New York", "Rome", "Oslo"] * 10, "category"),
    ],
)
def test_the_kind_of_a_column(cells, kind):
    found = find_kind("column", cells)
    assert (found.kind, found.skip) == (kind, "")


@pytest.mark.parametrize(
    ("name", "cells", "skip"),
    [
        ("x", ["", None, float("nan")], "has no value"),
        ("x", ["a"] * 30, "has one value"),
        ("x", ["7"] * 30, "has one value"),
        ("x", ["a", ""] * 15, ""),  # that it is missing may tell something
        ("sku", [f"S{row}" for row in range(30)], "looks like an id"),
        ("sku", [f"S{row}" for row in range(19)], ""),  # too few rows to tell
        ("sku", [f"S{row % 29}" for row in range(30)], ""),
        ("id", list(map(str, range(30))), "looks like an id"),
        ("customer_id", list(range(30)), "looks like an id"),
        ("rowId", list(range(30)), "looks like an id"),
        ("Unnamed: 0", list(range(30)), "looks like an id"),
        ("paid", list(range(30)), ""),
        ("id", [0.5 + row for row in range(30)], ""),
        ("price", list(range(30)), ""),
    ],
)
def test_a_column_that_cannot_help_is_skipped(name, cells, skip):
    assert find_kind(name, cells).skip == skip


def test_two_formats_that_fit_every_date_are_reported():
    found = find_kind("day", ["01/02/2024", "03/04/2024"])
    assert (found.kind, found.also) == ("date:%m/%d/%Y", "%d/%m/%Y")
    assert find_formats(["01/02/2024", "13/04/2024"]) == ["%d/%m/%Y"]
    assert find_formats(["red", "blue"]) == []


def test_dates_are_those_of_pandas():
    texts = ["2024-02-29", "1969-12-31 23:59:59", "2024-02-29T10:00:00+02:00", "2024-02-29T08:00Z"]
    expected = [pd.Timestamp(text) for text in texts]
    expected = [one.tz_convert(None) if one.tzinfo else one for one in expected]
    np.testing.assert_array_equal(
        parse_dates(texts, "iso"), np.array(expected, dtype="datetime64[s]")
    )
    assert parse_date(DAY) == np.datetime64("2024-02-29T00:00:00")
    assert parse_date(np.datetime64("2024-02-29T01:02:03.5")) == np.datetime64(
        "2024-02-29T01:02:03"
    )
    assert parse_date("2024-02-30") is None
    assert parse_date(5) is None
    assert np.isnat(parse_dates(["", None, "x"], "iso")).all()


@pytest.mark.parametrize(
    ("cells", "kind", "message"),
    [
        (["yes", "maybe"], "boolean", "here 1: 'maybe' is neither true nor false; leave the cell"),
        (["2024-01-01", "soon"], "date:iso", "here 1: 'soon' is not a date of the form iso; leave"),
    ],
)
def test_a_cell_of_another_kind_is_named(cells, kind, message):
    with pytest.raises(DataError, match=message):
        parse_values(cells, kind, lambda row: f"here {row}", "leave the cell empty")


def test_integers_are_written_alike_whatever_their_type():
    assert [as_string(one) for one in (7, 7.0, np.float64(7), "7", " 7 ")] == ["7"] * 5
    assert [as_string(one) for one in (None, float("nan"), pd.NA, pd.NaT, "")] == [""] * 5


def test_wrong_kinds_and_cells_that_are_no_values_raise():
    with pytest.raises(DataError, match="column 'zip': unknown kind 'categry'; did you mean 'cat"):
        check_kind("zip", "categry")
    with pytest.raises(DataError, match="only a date has a format, not 'text:%d'"):
        check_kind("zip", "text:%d")
    with pytest.raises(DataError, match=r"column 'tags' holds \['a'\] \(list\), not a number"):
        find_kind("tags", [["a"], ["b"]])
