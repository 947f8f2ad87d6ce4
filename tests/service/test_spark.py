"""Predictor in Spark's mapInPandas, as the page has it, and where a Python worker is killed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from small_models import made_model, write_rows

pytest.importorskip("pyspark", reason="Spark is not installed: pip install pyspark")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which was not found", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "engines.md"
QUIET = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
KILLED = """
import sys, threading
import pandas as pd
from pyspark.sql import SparkSession
from service.slow_predictor import Slow, lines_of, wait_for
from hierlearn import Predictor
from pathlib import Path
import os, signal

if __name__ == "__main__":
    model, log = sys.argv[1], Path("log")
    rows = pd.read_csv("rows.csv")
    expected = Predictor(model, keep=["id"])(rows).sort_values("id", ignore_index=True)
    slow = Slow(model, keep=["id"], log=str(log.absolute()))
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "100").getOrCreate()
    killer = threading.Thread(target=lambda: os.kill(wait_for(log, 3, 240), signal.SIGKILL))
    killer.start()
    schema = "id string, path string, class string, probability double, level long, stopped boolean"
    table = spark.createDataFrame(rows[["id", "a", "b", "c"]]).repartition(8)
    found = table.mapInPandas(lambda batches: map(slow, batches), schema).toPandas()
    killer.join()
    spark.stop()
    found = found.sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)
    assert len(lines_of(log)) > 8, lines_of(log)
    print("the same")
"""


def run(code, folder, *words):
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py", *words],
        cwd=folder,
        env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_block_of_the_page(tmp_path):
    text = PAGE.read_text()
    first = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    spark = re.search(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    assert run(first + spark, tmp_path)[-1] == "True"


@pytest.mark.slow
def test_when_a_worker_is_killed_nothing_is_lost_and_nothing_doubled(tmp_path):
    model = made_model("numbers", tmp_path)
    write_rows("numbers", tmp_path / "rows.csv", 800, 3)
    assert run(KILLED, tmp_path, str(model))[-1] == "the same"
