"""DBSCAN of Dask collections: the labels of one device, wherever the rows lie."""

import numpy as np
import pandas as pd
import pytest

from rapids_slink import DBSCAN
from rapids_slink.distributed import within

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


def rows(d, n=400):
    rng = np.random.default_rng(d)
    return pd.DataFrame(rng.integers(1, 14, (n, d)).astype(float), columns=[f"x{i}" for i in range(d)])


@pytest.fixture
def blocks(monkeypatch):
    """Several blocks of few rows."""
    monkeypatch.setitem(within.MIN_BLOCK_ROWS, "cpu", 90)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("d", "how"), [(2, {}), (3, {"metric": "cityblock"}), (7, {"metric": "cosine"}), (3, {"box": 13.0})]
)
def test_the_labels_of_one_device(d, how, client):
    X = rows(d)
    for (eps, m), parts in zip(((1.0, 4), (2.0, 60), (0.0, 2)), (5, 1, 3), strict=True):
        eps = eps / 50 if how.get("metric") == "cosine" else eps
        model = DBSCAN(eps, m, device="cpu", **how).fit(dd.from_pandas(X, npartitions=parts))
        alone = DBSCAN(eps, m, device="cpu", **how).fit(X)
        pd.testing.assert_series_equal(model.labels_.compute(), alone.labels_)
        np.testing.assert_array_equal(model.core_sample_indices_, alone.core_sample_indices_)
        assert (model.n_clusters_, model.n_features_in_) == (alone.n_clusters_, d)
        assert model.feature_names_in_.tolist() == list(X.columns)
        assert not hasattr(model, "components_")
        assert model.report_["pairs"]["pairs_of_blocks"] >= 3


@pytest.mark.usefixtures("blocks")
def test_arrays(client):
    X = rows(3)
    model = DBSCAN(1.5, 6, device="cpu").fit(da.from_array(X.to_numpy(), chunks=(150, -1)))
    np.testing.assert_array_equal(model.labels_.compute(), DBSCAN(1.5, 6, device="cpu").fit(X).labels_)
    assert isinstance(model.labels_, da.Array)


def test_what_is_refused(client):
    X = dd.from_pandas(rows(3), npartitions=2)
    for parameters, of_fit, message in (
        ({}, {"sample_weight": np.ones(400)}, "sample_weight is for rows on one device"),
        ({}, {"groups": "x0"}, "groups of DBSCAN are for rows on one device"),
        ({"metric": "precomputed"}, {}, "takes a matrix in one piece"),
        ({"missing": "pairwise"}, {}, "missing= takes points in one piece"),
        ({"metric": "levenshtein"}, {}, "takes no Dask collection"),
    ):
        with pytest.raises(ValueError, match=message):
            DBSCAN(device="cpu", **parameters).fit(X, **of_fit)
