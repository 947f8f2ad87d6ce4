"""A study of sparse rows: described, compared, and recognized however the rows are stored."""

import json
from dataclasses import replace

from scipy.sparse import csc_array, csr_array

from lab.small_studies import dataset, run


def test_sparse_rows_are_compared_and_recognized(tmp_path):
    dense = dataset()
    sparse = replace(dense, inputs=csr_array(dense.inputs))
    first = run(tmp_path / "study", ("bce",), data=sparse)
    stored = json.loads((tmp_path / "study" / "study.json").read_text())["dataset"]
    assert stored["inputs"] == {"kind": "sparse", "features": 32, "density": 1.0}
    assert stored["digest"] == sparse.digest()[:16]
    runs = first.runs()
    assert len(runs) == 2
    # The same rows stored otherwise are the same study, which is not run again.
    again = run(tmp_path / "study", ("bce",), data=replace(dense, inputs=csc_array(dense.inputs)))
    assert again.runs() == runs
