from hierlearn.errors import did_you_mean, place, quoted, unknown_name


def test_quoted_cuts_long_lists():
    assert quoted(["a", "b"]) == "'a', 'b'"
    assert quoted("abcdefg", most=2) == "'a', 'b' and 5 more"


def test_unknown_name_hints_and_lists():
    known = ["hcl", "bce"]
    assert unknown_name("loss", "hlc", known) == (
        "unknown loss 'hlc'; did you mean 'hcl'? known: bce, hcl"
    )
    assert unknown_name("loss", "zzz", known) == "unknown loss 'zzz'; known: bce, hcl"


def test_did_you_mean_is_silent_without_a_near_name():
    assert did_you_mean("zzz", ["animal"]) == ""


def test_place_names_what_is_known():
    assert place("a.csv") == "a.csv"
    assert place("a.csv", 3, "width") == "a.csv, line 3, column 'width'"
