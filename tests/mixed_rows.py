"""A realistic mixed table: offers of a shop, whose class no single kind of column tells.

The title tells the department and often the kind of thing; price and weight tell the size, and
brand, season and whether it is used tell the rest.
"""

import csv
import datetime

import numpy as np

THINGS = {
    "home/kitchen": ["knife", "pan", "bowl"],
    "home/garden": ["hose", "rake", "pot"],
    "sport/water": ["kayak", "fins", "board"],
    "sport/snow": ["skis", "sled", "goggles"],
}
FILLER = ["new", "great", "light", "strong", "classic", "blue", "red", "steel", "wood", "simple"]
BRANDS = ["Acme", "Bolt", "Corvo", "Dahl", "Edel", "Fjord", "Gild", "Hazel"]
COLUMNS = ("sku", "title", "price", "weight", "brand", "day", "used", "shop", "class")


def make_rows(count=900, seed=0):
    """Rows as dictionaries; every class is a department, and small or large."""
    rng = np.random.default_rng(seed)
    departments = list(THINGS)
    rows = []
    for number in range(count):
        place = int(rng.integers(4))
        department = departments[place]
        large = bool(rng.random() < 0.5)
        known = rng.random() < 0.8  # otherwise the title says nothing
        pool = THINGS[department] if known else FILLER
        words = [*rng.choice(FILLER, 3), str(rng.choice(pool)), *rng.choice(FILLER, 2)]
        price = float(np.exp(rng.normal(3.6 if large else 2.4, 0.5)))
        month = int(rng.choice([11, 12, 1, 2] if department == "sport/snow" else range(3, 11)))
        day = datetime.date(2023 + int(rng.integers(2)), month, int(rng.integers(1, 28)))
        brand = BRANDS[(2 * place + int(large)) % 8] if rng.random() < 0.7 else rng.choice(BRANDS)
        rows.append(
            {
                "sku": f"S{number:05d}-{rng.integers(1000)}",
                "title": " ".join(words),
                "price": f"{price:.2f}",
                "weight": "" if rng.random() < 0.1 else f"{rng.normal(3 if large else 2):.3f}",
                "brand": "" if rng.random() < 0.05 else str(brand),
                "day": day.isoformat(),
                "used": "yes" if rng.random() < (0.7 if large else 0.3) else "no",
                "shop": "main",
                "class": f"{department}/{'large' if large else 'small'}",
            }
        )
    return rows


def write_csv(path, rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path
