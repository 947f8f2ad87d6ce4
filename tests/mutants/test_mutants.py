"""The mutants of ``run.py`` still fit the code; running all of them takes half an hour."""

import ast

from mutants.run import MUTANTS, ROOT, SOURCE


def test_a_mutant_is_one_fault():
    for mutant in MUTANTS:
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"{mutant.what}: {mutant.file} has changed"
        broken = text.replace(mutant.old, mutant.new)
        assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text)), mutant.what
        assert all((ROOT / "tests" / name).exists() for name in mutant.tests.split()), mutant.what


def test_there_are_enough_of_them():
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS) >= 30
