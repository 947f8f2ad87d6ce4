"""Dates in the forms that people write: one format is found per column, and parses it."""

import datetime

import numpy as np
import pandas as pd
import pytest

from hierlearn.datasets.tables.dates import DAYS, TIMES, find_formats, parse_dates
from hierlearn.datasets.tables.kinds import find_kind
from hierlearn.datasets.tables.read import read_table

WRITTEN = {
    "%b %d %Y": ["Nov 23 1994", "Jan 5 2001"],
    "%d %b %Y": ["23 Nov 1994", "05 January 2001"],
    "%b %d, %Y": ["November 23rd, 1994", "Jan. 5, 2001"],
    "%a, %b %d, %Y": ["Wednesday, November 23, 1994", "Fri, Jan 5, 2001"],
    "%a, %d %b %Y %H:%M:%S": ["Wed, 23 Nov 1994 11:11:12 +0100", "Fri, 05 Jan 2001 00:00:00 GMT"],
    "%a %b %d %H:%M:%S %Y": ["Wed Nov 23 10:11:12 1994", "Fri Jan  5 00:00:00 2001"],
    "%d-%b-%Y": ["23-Nov-1994", "5-JAN-2001"],
    "%d.%m.%Y": ["23.11.1994", "5.1.2001"],
    "%d/%m/%Y": ["23/11/1994", "05/01/2001"],
    "%m/%d/%Y %I:%M:%S %p": ["11/23/1994, 10:11:12 AM", "1/5/2001, 12:00:00 am"],
    "%m/%d/%Y %I:%M %p": ["11/23/1994 10:11 a.m.", "1/5/2001 12:00AM"],
    "%Y/%m/%d %H:%M": ["1994/11/23 10:11", "2001/01/05 00:00"],
    "%Y-%m": ["1994-11", "2001-01"],
    "%m/%Y": ["11/1994", "1/2001"],
    "%b %Y": ["November 1994", "Jan 2001"],
    "iso": ["1994-11-23T10:11:12Z", "2001-01-05T00:00:00.250+00:00"],
}


def parse_date(cell, form="iso"):
    """One date, None where there is none."""
    (found,) = parse_dates([cell], form)
    return None if np.isnat(found) else found


@pytest.mark.parametrize(("form", "texts"), WRITTEN.items())
def test_what_people_write_is_recognized(form, texts):
    assert find_kind("when", texts).kind == f"date:{form}"
    day = form == "iso" or "%d" in form
    timed = "%M" in form or form == "iso"
    second = 12 if "%S" in form or form == "iso" else 0
    first = datetime.datetime(1994, 11, 23 if day else 1, *((10, 11, second) if timed else ()))
    expected = [first, datetime.datetime(2001, 1, 5 if day else 1)]
    assert parse_dates(texts, form).tolist() == expected


def test_every_format_reads_what_strptime_writes():
    draw = np.random.default_rng(0)
    for form in [day + time for day in DAYS for time in TIMES]:
        for years, days, seconds in draw.integers((0, 0, 0), (90, 360, 86400), (5, 3)).tolist():
            when = datetime.datetime(1970 + years, 1, 1) + datetime.timedelta(days, seconds)
            text = when.strftime(form)
            assert parse_date(text, form).item() == datetime.datetime.strptime(text, form), text


@pytest.mark.parametrize(
    "texts",
    [
        ["T-38A", "B-737-300"],
        ["1.10.3", "2.4.11"],
        ["555-1234", "555-9999"],
        ["2020-02-30", "2021-02-29"],
        ["The War 2010", "Alien 1979"],
        ["1/2", "3/4"],
        ["May", "June"],
    ],
)
def test_what_is_no_date_stays_a_word(texts):
    assert find_formats(texts) == []
    assert find_kind("x", texts).kind in ("category", "text")


def test_the_values_of_the_column_tell_the_day_from_the_month():
    few = ["01/02/2003", "03/04/2005"]
    assert find_formats(few) == ["%m/%d/%Y", "%d/%m/%Y"]
    assert find_formats([*few, "31/01/2003"]) == ["%d/%m/%Y"]
    assert find_formats([*few, "01/31/2003"]) == ["%m/%d/%Y"]


@pytest.mark.parametrize(
    ("years", "expected"),
    [
        ((94, 99, 3), (1994, 1999, 2003)),
        ((15, 18, 22), (2015, 2018, 2022)),
        ((35, 48, 60, 77, 90, 99, 3), (1935, 1948, 1960, 1977, 1990, 1999, 2003)),
        ((25, 30, 45), (2025, 2030, 2045)),
    ],
)
def test_the_years_of_a_column_tell_the_century_of_two_digits(years, expected):
    texts = [f"11/23/{year:02}" for year in years]
    (form,) = find_formats(texts)
    assert form.startswith("%m/%d/%y since 19")
    found = parse_dates(texts, form).astype("datetime64[Y]").astype(int) + 1970
    assert tuple(found) == expected
    before = parse_dates([f"11/23/{years[0] - 2:02}"], form).item().year
    assert before == expected[0] - 2  # later rows may lie a little before the training rows


def test_a_format_is_saved_with_its_column_and_dates_may_be_missing(tmp_path):
    path = tmp_path / "rows.csv"
    days = ["11/23/94", "NA", "1/5/01", "", "12/31/35"]
    path.write_text("day,x,y\n" + "".join(f"{day},{n},a\n" for n, day in enumerate(days)))
    table = read_table(path, label="y").inputs
    assert table.kinds["day"].startswith("date:%m/%d/%y since 1")
    assert np.isnat(table.columns["day"]).tolist() == [False, True, False, True, False]
    assert f"1 date: day ({table.kinds['day'][5:]})" in table.summary()
    given = read_table(path, label="y", column_kinds={"day": "date:%m/%d/%y"}).inputs
    assert given.kinds["day"] == table.kinds["day"]  # a format without its century gets one


def test_directives_that_only_strptime_knows_are_left_to_it():
    assert parse_date("327 1994", "%j %Y") == np.datetime64("1994-11-23T00:00:00")
    assert parse_date("x", "%j %Y") is None


def test_integers_are_read_by_their_digits(tmp_path):
    """As in a Parquet file or a frame, where a gap makes floats of them."""
    cells = [20240131, np.int64(20231224), 20220704.0, float("nan"), 20240230, 2024.5, True, np.inf]
    texts = ["20240131", "20231224", "20220704", "", "20240230", "2024.5", "yes", "inf"]
    found = parse_dates(cells, "%Y%m%d")
    assert np.array_equal(found, parse_dates(texts, "%Y%m%d"), equal_nan=True)
    assert np.isnat(found).tolist() == [False] * 3 + [True] * 5
    rows = {"day": [20200101 + 100 * (row % 12) for row in range(40)], "class": ["a/b", "a/c"] * 20}
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    kinds = {"day": "date:%Y%m%d"}
    one, other = (
        read_table(tmp_path / name, label="class", column_kinds=kinds).inputs
        for name in ("rows.parquet", "rows.csv")
    )
    assert one.kinds == other.kinds == kinds
    assert np.array_equal(one.columns["day"], other.columns["day"])
