"""The metrics, and what the tests of them share."""

import math
from functools import cache

import numpy as np
from hard_cases import CASES, FAMILY, covering, shape

from rapids_slink.metrics import METRICS

#: The metrics of packed bits: test_compact.py.
PACKED = [name for name, metric in METRICS.items() if metric.rows == "packed"]
#: (name, p) of everything that SciPy has, and of what it has not.
OTHERS = {"minkowski", "containment", "inner_product", "haversine", *PACKED}
SCIPYS = [
    *((name, 2.0) for name in METRICS if name not in OTHERS),
    *(("minkowski", p) for p in (1.0, 1.5, 2.0, 2.3, 3.0, 4.0, 12.0, 40.5, math.inf)),
]
ALL_METRICS = [*SCIPYS, ("minkowski", 0.6), ("containment", 2.0), ("inner_product", 2.0)]
HARD = [name for name in CASES if shape(name)[0] > 1]  # SciPy has no linkage of one


def with_cases(metrics, *quick, also=()):
    """Return a sample of parameters ``metric, p, name``; each metric with a `quick` case is quick.

    Each metric with a case that is `also` is in the sample.

    Each metric meets each family of cases, and each kind of metric, which has searches of its own, meets each case.
    """

    def traits(values):
        metric, p, name = values
        return {(metric, p, FAMILY[name]), (METRICS[metric].filter, METRICS[metric].boxes, name)}

    each = [(metric, p, name) for metric, p in metrics for name in HARD]
    return covering(each, traits, *([values for values in each if values[2] in names] for names in (quick, also)))


def takes_booleans(metric):
    return METRICS[metric].rows == "boolean"


def without_zeros(X, metric):
    """Return the rows, with a one in each row of zeros if the metric gives such rows no distance from each other.

    The rows are changed in place.
    """
    if METRICS[metric].formula.is_undefined_for_zeros:
        X[~X.any(axis=1), 0] = 1
    return X


@cache
def points(name, metric):
    """Return at most 450 rows of a case: a read-only float64 array.

    For metrics of booleans a value says whether it was above its column's median.
    """
    X = CASES[name]("float64")
    X = X[:: -(-len(X) // 450)]
    if takes_booleans(metric):
        X = (np.median(X, axis=0) < X).astype(np.float64)
    X = np.ascontiguousarray(X)
    X.flags.writeable = False
    return X
