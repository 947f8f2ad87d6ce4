"""Predicting on Ray: the parts of tables through Ray Data, by a pool of actors.

Every part is one row of a Ray dataset, and ``map_batches`` gives it to an actor, which reads its
rows, predicts and writes its file; answers do not travel through Ray. Ray starts an actor that dies
again with what it was given, and a part that is written twice is written to the same name.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn import errors
from hierlearn.errors import HierlearnError, plural
from hierlearn.service.engines.part_files import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hierlearn.service.engines.part_job import PartJob

QUIET = {
    "enable_progress_bars": False,
    "enable_operator_progress_bars": False,
    "print_on_execution_start": False,
}


class PartWorker:
    """An actor of Ray Data: writes the parts that it is given, and returns their records.

    Args:
        job: what is predicted.
    """

    def __init__(self, job: PartJob) -> None:
        self.job = job

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the records of parts, or why there is none."""
        found = [self.written(int(number)) for number in batch["part"]]
        return {name: [one[name] for one in found] for name in found[0]}

    def written(self, number: int) -> dict[str, Any]:
        """Write a part; an error of ours is returned, since it is the same on every attempt."""
        nothing: dict[str, Any] = Record(number, 0, 0, 0, 0, 0, "")._asdict()
        try:
            record = self.job.run(number)
        except HierlearnError as error:
            return {**nothing, "error": str(error), "kind": type(error).__name__}
        return {**record._asdict(), "error": "", "kind": ""}


def predict_parts(
    job: PartJob,
    numbers: list[int],
    *,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    on_record: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Write parts on a cluster that this process is connected to; return their records.

    Args:
        job: what is predicted.
        numbers: which parts.
        workers: how many actors; by default one per GPU where there are any, else one per core.
        gpus_per_worker: of an actor; by default 1 where the cluster has GPUs and the device may be
            one.
        on_record: called for every part, in order.

    Raises:
        HierlearnError: the first error in the order of the rows, as one process raises it.
    """
    import ray
    from ray.data import ActorPoolStrategy

    if not numbers:
        return []
    gpus, count = resources(ray.cluster_resources(), job.predictor.device, workers, gpus_per_worker)
    records: list[Record] = []
    with quiet_data():
        rows = ray.data.from_items(
            [{"part": number} for number in numbers], override_num_blocks=len(numbers)
        )
        found = rows.map_batches(
            PartWorker,
            fn_constructor_args=(job,),
            batch_size=1,
            batch_format="numpy",
            compute=ActorPoolStrategy(size=min(count, len(numbers))),
            num_cpus=1,
            num_gpus=gpus or None,
        )
        for batch in found.iter_batches(batch_size=1, prefetch_batches=0, batch_format="numpy"):
            one = {name: cells[0] for name, cells in batch.items()}
            message, kind = one.pop("error"), one.pop("kind")
            if message:
                raise getattr(errors, str(kind), HierlearnError)(str(message))
            record = Record(*(type_of(one[name]) for name in Record._fields))
            records.append(record)
            on_record(record)
    return records


def type_of(value: Any) -> Any:
    """Return a value of NumPy as one of Python."""
    return value.item() if hasattr(value, "item") else value


def resources(
    cluster: dict[str, float], device: str, workers: int | None, gpus_per_worker: float | None
) -> tuple[float, int]:
    """Return the GPUs of a worker, and how many workers there are.

    Args:
        cluster: what the cluster has.
        device: where the user wants to compute.
        workers: how many workers the user wants; None for as many as fit.
        gpus_per_worker: the GPUs of one; None for 1 where there are any.
    """
    there = cluster.get("GPU", 0.0)
    if gpus_per_worker is None:
        gpus_per_worker = 1.0 if there and device != "cpu" else 0.0
    if gpus_per_worker > there:
        raise HierlearnError(
            f"gpus_per_worker is {gpus_per_worker:g}, but the cluster has {there:g} GPUs; leave it "
            f"out"
        )
    cores = int(cluster.get("CPU", 1.0))
    fit = min(cores, int(there / gpus_per_worker)) if gpus_per_worker else cores
    if workers is not None and workers > fit:
        raise HierlearnError(
            f"workers is {workers}, but the cluster has {plural(cores, 'core')} and {there:g} GPUs "
            f"for {fit}; ask for fewer"
        )
    return gpus_per_worker, max(1, workers or fit)


@contextmanager
def quiet_data() -> Iterator[None]:
    """Let Ray Data yield results in order, and print nothing."""
    from ray.data import DataContext

    context = DataContext.get_current()
    options = context.execution_options
    before = {name: getattr(context, name) for name in QUIET if hasattr(context, name)}
    ordered = options.preserve_order
    logger = logging.getLogger("ray.data")
    level = logger.level
    for name in before:
        setattr(context, name, QUIET[name])
    options.preserve_order = True
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        options.preserve_order = ordered
        logger.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)
