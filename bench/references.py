"""Seconds that were published elsewhere, shown beside ours: not measured here, and on other hardware.

The cuSLINK paper's (ECML PKDD 2023) data of tables 2 and 3 are random points of these shapes and real road networks of
these numbers of nodes; MNIST is the same, and Deep-1B of the shape of our case.
"""

from __future__ import annotations

A100, DGX = "paper (A100)", "paper (DGX-1)"

#: Table 2: nearest neighbours of 100, 1,000 and 10,000 queries among 100,000 rows.
NEAREST = {
    "nn1-100k-100-128": 0.55e-3,
    "nn1-100k-100-256": 0.967e-3,
    "nn1-100k-1k-64": 1.85e-3,
    "nn1-100k-1k-128": 3.39e-3,
    "nn1-100k-1k-256": 6.46e-3,
    "nn1-100k-10k-64": 17e-3,
    "nn1-100k-10k-128": 32e-3,
    "nn1-100k-10k-256": 62.2e-3,
}
#: Table 3: spanning trees of road networks.
ROADS = {
    "road-263k": 20.217e-3,
    "road-321k": 22.606e-3,
    "road-436k": 23.680e-3,
    "road-1.07m": 35.552e-3,
    "road-1.21m": 36.884e-3,
    "road-1.52m": 51.879e-3,
    "road-1.89m": 61.366e-3,
    "road-2.76m": 81.994e-3,
    "road-3.60m": 96.100e-3,
    "road-6.26m": 127.545e-3,
    "road-14.1m": 278.841e-3,
    "road-24m": 478.898e-3,
}
#: Table 4: from points to labels.
FITS = {"mnist-60k-784": 0.926, "deep-8m-96": 1806.0}

REFERENCES: dict[tuple[str, str], dict[str, float]] = {
    **{(case, "nearest_neighbors"): {A100: seconds} for case, seconds in NEAREST.items()},
    **{(case, "spanning_tree"): {A100: seconds} for case, seconds in ROADS.items()},
    **{(case, "fit"): {DGX: seconds} for case, seconds in FITS.items()},
    # 176,700 queries a second, by certex's own benchmark
    ("queries-1m-10m-128", "nearest_10"): {"certex (H100 NVL)": 1e6 / 176_700},
}


def references_of(case: str, stage: str) -> dict[str, float]:
    """Return the published seconds of a stage of a case, by where they come from."""
    return REFERENCES.get((case, stage), {})
