"""Groups of a Dask DataFrame: the bits of one device, wherever the rows of a group lie."""

import numpy as np
import pandas as pd
import pytest
from dask_clusters import dask, dd
from hard_cases import full

import rapids_slink
from rapids_slink import DBSCAN, SingleLinkage
from rapids_slink.distributed import within

pytestmark = [pytest.mark.xdist_group("dask"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


def rows_with_keys(kind, n=300):
    rng = np.random.default_rng(3)
    keys = {
        "sorted": np.sort(rng.integers(0, 20, n)),
        "spread": rng.integers(0, 20, n),
        "text": rng.choice(list("abcdefg"), n),
        "one": np.zeros(n, int),
        "singles": np.arange(n),
    }[kind]
    return pd.DataFrame({"x": rng.integers(0, 9, n) / 4, "key": keys, "y": rng.normal(size=n).round(1)})


@pytest.mark.parametrize("kind", ["sorted", "text", *map(full, ("spread", "one", "singles"))])
@pytest.mark.parametrize("parts", [full(1), 5])
def test_the_bits_of_one_device(kind, parts, client):
    parts = dd.from_pandas(rows_with_keys(kind), npartitions=parts, sort=False)
    df = parts.compute()  # whose text is Arrow's
    model = rapids_slink.fit(parts, 3, groups="key", device="cpu")
    alone = rapids_slink.fit(df, 3, groups="key", device="cpu")
    for name in ("linkage_", "mst_", "groups_"):
        pd.testing.assert_frame_equal(getattr(model, name).compute().reset_index(drop=True), getattr(alone, name))
    pd.testing.assert_series_equal(model.labels_.compute(), alone.labels_)
    assert (model.n_clusters_, model.n_features_in_) == (alone.n_clusters_, 2)
    assert model.feature_names_in_.tolist() == ["x", "y"]
    pd.testing.assert_series_equal(model.cut(2).compute(), alone.cut(2), check_names=False)
    cuts, expected = (one.cut(distance_threshold=[0.2, 1.0]) for one in (model, alone))
    pd.testing.assert_frame_equal(cuts.compute(), expected)


@pytest.mark.parametrize(
    "how",
    [
        *map(full, ({"metric": "minkowski", "p": 3}, {"metric": "braycurtis"}, {"min_samples": 3})),
        {"min_samples": 3, "metric": "haversine"},
    ],
)
def test_parameters(how, client):
    df = rows_with_keys("spread")
    df["x"] = df["x"] / 2 if how.get("metric") == "haversine" else df["x"] + 3
    parts = dd.from_pandas(df, npartitions=4, sort=False)
    how = {"max_distance": 0.5, "device": "cpu", **how}
    model, alone = (SingleLinkage(None, **how).fit(X, groups="key") for X in (parts, df))
    pd.testing.assert_frame_equal(model.mst_.compute().reset_index(drop=True), alone.mst_)
    pd.testing.assert_series_equal(model.labels_.compute(), alone.labels_)


def test_keys_beside_the_rows(client):
    df = rows_with_keys("spread")
    parts = dd.from_pandas(df, npartitions=3, sort=False)
    model = rapids_slink.fit(parts[["x", "y"]], 2, groups=parts["key"], device="cpu")
    alone = rapids_slink.fit(df[["x", "y"]], 2, groups=df["key"], device="cpu")
    pd.testing.assert_series_equal(model.labels_.compute(), alone.labels_)
    several = rapids_slink.fit(parts.assign(half=parts["x"] > 1), 2, groups=["key", "half"], device="cpu")
    alone = rapids_slink.fit(df.assign(half=df["x"] > 1), 2, groups=["key", "half"], device="cpu")
    pd.testing.assert_frame_equal(several.groups_.compute().reset_index(drop=True), alone.groups_)


def test_partitions_of_as_many_rows_as_keys(client):
    df = rows_with_keys("text", 8).assign(half=[0, 0, 1, 1] * 2)
    parts = dd.from_pandas(df, npartitions=4, sort=False)
    model, alone = (rapids_slink.fit(X, 1, groups=["key", "half"], device="cpu") for X in (parts, df))
    assert model.labels_.compute().tolist() == alone.labels_.tolist()
    with pytest.raises(ValueError, match="groups of a Dask DataFrame must be a column, columns"):
        rapids_slink.fit(parts, groups=["key", "key"], device="cpu")


def test_columns_of_keys_are_no_features_of_later_calls(client):
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    df = rows_with_keys("text")
    model = rapids_slink.fit(dd.from_pandas(df, npartitions=3, sort=False), 2, groups="key", device="cpu")
    assert len(model.plot_clusters(df, ax=axes).collections) > 1


def test_refused(client):
    df = rows_with_keys("spread")
    parts = dd.from_pandas(df, npartitions=3, sort=False)
    with pytest.raises(ValueError, match="groups of a Dask DataFrame must be a column"):
        rapids_slink.fit(parts, groups=df["key"].to_numpy(), device="cpu")
    words = r"a column, columns, or a Dask Series like it, and 'z' is not in \['x', 'key', 'y'\]"
    with pytest.raises(ValueError, match=words):
        rapids_slink.fit(parts, groups=["key", "z"], device="cpu")
    with pytest.raises(ValueError, match="groups must name a column of X, or hold a key for each row: 'z' is not in"):
        rapids_slink.fit(parts, groups="z", device="cpu")
    with pytest.raises(TypeError, match="groups is a Dask collection, and X is in one piece: compute it"):
        rapids_slink.fit(df[["x", "y"]], groups=parts["key"], device="cpu")
    with pytest.raises(ValueError, match="groups of a Dask Array have no column"):
        rapids_slink.fit(parts[["x", "y"]].to_dask_array(lengths=True), groups="x", device="cpu")
    missing = dd.from_pandas(df.assign(key=df["key"].where(df["key"] > 2)), npartitions=3, sort=False)
    with pytest.raises(ValueError, match=r"partition \d of X: column 'key' of groups has \d+ missing.*dropna=False"):
        rapids_slink.fit(missing, groups="key", device="cpu")
    model = rapids_slink.fit(missing, 1, groups="key", dropna=False, device="cpu")
    assert model.n_clusters_ == 18


def rows(d, n=400):
    rng = np.random.default_rng(d)
    return pd.DataFrame(rng.integers(1, 14, (n, d)).astype(float), columns=[f"x{i}" for i in range(d)])


@pytest.fixture
def blocks(monkeypatch):
    """Several blocks of few rows."""
    monkeypatch.setitem(within.MIN_BLOCK_ROWS, "cpu", 90)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("d", "how"), [(2, {}), full(3, {"metric": "cityblock"}), (7, {"metric": "cosine"}), full(3, {"box": 13.0})]
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
    model = DBSCAN(1.5, 6, device="cpu").fit(dask.array.from_array(X.to_numpy(), chunks=(150, -1)))
    np.testing.assert_array_equal(model.labels_.compute(), DBSCAN(1.5, 6, device="cpu").fit(X).labels_)
    assert isinstance(model.labels_, dask.array.Array)


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
