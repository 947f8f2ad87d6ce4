"""Dates: what a network can learn from a day and a time.

    year, days since 2000-01-01           standardized
    month, weekday, hour as an angle a    sin a, cos a

so that December is near January. The hour is left out where every training date is at midnight. A
missing date is 0 everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features.preprocessor import stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Dates = NDArray[np.datetime64]

ORIGIN = np.datetime64("2000-01-01", "D")
SCALED = ("year", "days")
CYCLES = {"month": 12, "weekday": 7, "hour": 24}


class DateParts:
    """One column of dates as numbers.

    Args:
        mean: (2,) of year and days over the training rows.
        scale: (2,) their standard deviations, 1 where they are constant.
        timed: whether some training date has a time.
    """

    def __init__(
        self, mean: NDArray[np.float64], scale: NDArray[np.float64], *, timed: bool
    ) -> None:
        self.mean = mean
        self.scale = scale
        self.timed = timed

    @classmethod
    def fit(cls, values: Dates) -> DateParts:
        """Learn from (N,) dates, NaT where one is missing."""
        known = values[~np.isnat(values)]
        if not len(known):
            return cls(np.zeros(2), np.ones(2), timed=False)
        parts = np.stack([date_parts(known)[name] for name in SCALED], axis=1)
        deviation = parts.std(axis=0)
        constant = parts.min(axis=0) == parts.max(axis=0)
        midnight = known.astype("datetime64[D]").astype(known.dtype)
        return cls(
            parts.mean(axis=0),
            np.where(constant, 1.0, deviation),
            timed=bool(np.any(known != midnight)),
        )

    @property
    def cycles(self) -> list[str]:
        """The parts that are angles."""
        return [name for name in CYCLES if name != "hour" or self.timed]

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(SCALED) + 2 * len(self.cycles)

    def names(self, column: str) -> list[str]:
        """Return the names of the columns: ``day year``, ``day sin month``."""
        angles = [f"{wave} {name}" for name in self.cycles for wave in ("sin", "cos")]
        return [f"{column} {name}" for name in (*SCALED, *angles)]

    def transform(self, values: Dates) -> NDArray[np.float32]:
        """Return (N, columns) numbers."""
        missing = np.isnat(values)
        parts = date_parts(np.where(missing, ORIGIN, values))
        scaled = np.stack([parts[name] for name in SCALED], axis=1)
        found = [(scaled - self.mean) / self.scale]
        for name in self.cycles:
            angle = 2 * np.pi * parts[name] / CYCLES[name]
            found.append(np.stack([np.sin(angle), np.cos(angle)], axis=1))
        result = np.concatenate(found, axis=1).astype(np.float32)
        result[missing] = 0
        return result

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return whether there are times, and the arrays mean and scale."""
        return {"timed": self.timed}, {"mean": self.mean.copy(), "scale": self.scale.copy()}

    @classmethod
    def from_state(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> DateParts:
        """Restore fitted dates."""
        mean, scale = stored(arrays, "mean"), stored(arrays, "scale")
        if not mean.shape == scale.shape == (2,):
            raise DataError(
                f"the stored preprocessor is damaged: mean {mean.shape} and scale {scale.shape} of "
                f"dates must be (2,)"
            )
        timed = bool(stored(settings, "timed"))
        return cls(mean.astype(np.float64), scale.astype(np.float64), timed=timed)


def date_parts(values: Dates) -> dict[str, NDArray[np.float64]]:
    """Return year, days, month from 0, weekday from Monday as 0, and hour of known dates."""
    days = values.astype("datetime64[D]")
    months = values.astype("datetime64[M]").astype(np.int64)
    seconds = values.astype("datetime64[s]").astype(np.int64)
    since = (days - ORIGIN).astype(np.int64)
    return {
        "year": (months // 12 + 1970).astype(np.float64),
        "days": since.astype(np.float64),
        "month": (months % 12).astype(np.float64),
        "weekday": ((since + 5) % 7).astype(np.float64),  # 2000-01-01 was a Saturday
        "hour": (seconds % 86400) / 3600,
    }
