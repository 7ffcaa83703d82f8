"""A fit of groups: each group has the tree, the merges and the labels of a fit of the group alone, to the last bit."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hard_cases import CASES, cases, full

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage
from rapids_slink.metrics import METRICS
from rapids_slink.points.output import on_host
from rapids_slink.runtime.device import to_host


def valid_rows(metric, rng, n=240):
    """Rows for a metric, with ties, and repeated rows."""
    rows = METRICS[metric].rows
    if rows == "packed":
        return rng.integers(0, 256, (n, 3)).astype(np.uint8)
    if rows == "boolean":
        X = (rng.random((n, 9)) < 0.4).astype(float)
        X[:, 0] = 1
        return X
    if rows == "sphere":
        return np.radians(rng.uniform((-89, -179), (89, 179), (n, 2)).round())
    if metric == "hamming":
        return rng.integers(0, 4, (n, 7)).astype(float)
    return rng.integers(1, 5, (n, 5)) + rng.choice([0.0, 0.25], (n, 5))


def random_keys(n, rng, groups=12):
    """Groups from one row to a half of all."""
    return np.minimum((rng.pareto(0.7, n)).astype(int), groups)[rng.permutation(n)]


def assert_like_alone(model, X, keys, n_clusters=None, **parameters):
    """Compare a model of groups with a fit of each group alone."""
    labels, tree, linkage = to_host(model.labels_), on_host(model.mst_), on_host(model.linkage_)
    n, X, groups = len(keys), np.asarray(X), on_host(model.groups_)
    codes = pd.factorize(keys, use_na_sentinel=False)[0]
    assert len(groups) == codes.max() + 1
    owner = np.concatenate([codes, codes[tree["src"]]])  # of leaves and of merges
    np.testing.assert_array_equal(codes[tree["src"]], codes[tree["dst"]])
    number = np.full(n + len(linkage), -1)
    seen = []
    for g in range(codes.max() + 1):
        rows = np.flatnonzero(codes == g)
        how = dict(parameters)
        if how.get("min_samples"):
            how["min_samples"] = min(how["min_samples"], rows.size - 1) or None
        if n_clusters is not None:
            how["n_clusters"] = min(n_clusters, rows.size)
        alone = SingleLinkage(**{"n_clusters": None, "device": "cpu", **how}).fit(X[rows])
        number[rows] = np.arange(rows.size)
        of_group = np.flatnonzero(codes[tree["src"]] == g)
        number[n + of_group] = rows.size + np.arange(of_group.size)
        edges, merges = tree.iloc[of_group], linkage.iloc[of_group]
        np.testing.assert_array_equal(number[edges["src"]], alone.mst_["src"])
        np.testing.assert_array_equal(number[edges["dst"]], alone.mst_["dst"])
        np.testing.assert_array_equal(edges["weight"], alone.mst_["weight"])
        children = np.sort(number[merges[["left", "right"]].to_numpy()], axis=1)
        np.testing.assert_array_equal(children, alone.linkage_[["left", "right"]])
        np.testing.assert_array_equal(merges["height"], alone.linkage_["height"])
        np.testing.assert_array_equal(merges["size"], alone.linkage_["size"])
        np.testing.assert_array_equal(pd.factorize(labels[rows])[0], alone.labels_)
        assert groups["rows"][g] == rows.size
        assert groups["clusters"][g] == alone.n_clusters_
        assert groups["first_label"][g] == labels[rows].min() == labels[rows[0]]
        seen.append(np.unique(labels[rows]))
    assert owner.size == n + len(linkage)
    every = np.concatenate(seen)
    np.testing.assert_array_equal(np.sort(every), np.arange(model.n_clusters_))  # no label stands in two groups
    np.testing.assert_array_equal(pd.factorize(labels)[0], labels)  # by first appearance
    assert (np.diff(linkage["height"]) >= 0).all()


@pytest.mark.parametrize("name", cases())
def test_hard_cases(device, name):
    X = CASES[name]("float64" if name in ("largest_magnitude", "squares_underflow") else "float32")
    keys = np.random.default_rng(0).integers(0, max(1, len(X) // 60), len(X))
    model = rapids_slink.fit(X, 3, groups=keys, device=device)
    assert_like_alone(model, X, keys, 3)


POWERS = [full(name, 3.0) for name in METRICS if name not in ("cosine", "haversine")]
POWERS += [("cosine", 2.0), ("haversine", 2.0), ("minkowski", 0.5), full("minkowski", 1.3), ("minkowski", 2.5)]


@pytest.mark.parametrize(("metric", "p"), POWERS)
@pytest.mark.parametrize("min_samples", [None, 3])
def test_metrics(device, metric, p, min_samples):
    rng = np.random.default_rng(1)
    X, how = valid_rows(metric, rng), {"metric": metric, "p": p, "min_samples": min_samples}
    keys = random_keys(len(X), rng)
    model = rapids_slink.fit(X, 2, groups=keys, device=device, **how)
    assert_like_alone(model, X, keys, 2, **how)


@pytest.mark.parametrize(("metric", "missing"), [("euclidean", "pairwise"), full("cityblock", "pairwise"),
                                                 full("hamming", "pairwise"), full("hamming", "hiercc")])  # fmt: skip
def test_missing_values(device, metric, missing):
    rng = np.random.default_rng(2)
    X, keys = rng.integers(1, 5, (200, 8)).astype(float), rng.integers(0, 9, 200)
    X[rng.random(X.shape) < 0.1] = np.nan
    how = {"metric": metric, "missing": missing}
    assert_like_alone(rapids_slink.fit(X, 2, groups=keys, device=device, **how), X, keys, 2, **how)


@pytest.mark.parametrize("how", [{"distance_threshold": 0.7}, {"max_distance": 0.6}, {"distance_threshold": 0.0}])
def test_distances_hold_for_all_groups(device, how):
    rng = np.random.default_rng(3)
    X, keys = rng.normal(size=(300, 2)), rng.integers(0, 10, 300)
    model = SingleLinkage(None, device=device, **how).fit(X, groups=keys)
    assert_like_alone(model, X, keys, **how)
    for threshold in (0.1, 0.5):
        labels = to_host(model.cut(distance_threshold=threshold))
        alone = SingleLinkage(None, distance_threshold=threshold, device="cpu").fit(X[keys == 4])
        np.testing.assert_array_equal(pd.factorize(labels[keys == 4])[0], alone.labels_)


def test_a_number_of_clusters_beside_a_largest_distance(device):
    """A group of more trees than clusters keeps its trees."""
    X = np.array([[0.0], [5], [9], [0], [1], [1.5]])
    model = rapids_slink.fit(X, 2, groups=[0, 0, 0, 1, 1, 1], max_distance=2.0, device=device)
    assert to_host(model.labels_).tolist() == [0, 1, 2, 3, 4, 4]
    assert on_host(model.groups_)["clusters"].tolist() == [3, 2]


@pytest.mark.parametrize("tree", ["line", full("lists")])
def test_large_groups_take_their_usual_way(device, tree, prescribe):
    prescribe(tree=tree)
    rng = np.random.default_rng(4)
    for d, metric in ((1, "euclidean"), (3, "euclidean"), (12, "cosine"), (6, "braycurtis")):
        X, keys = rng.random((400, d)).round(2) + 0.01, random_keys(400, rng)
        how = {"metric": metric}
        model = rapids_slink.fit(X, 3, groups=keys, device=device, **how)
        assert model.report_["spanning_tree"]["large_groups"] > 1
        assert_like_alone(model, X, keys, 3, **how)
        assert_like_alone(rapids_slink.fit(X, 3, groups=keys, min_samples=4, device=device, **how), X, keys, 3,
                          min_samples=4, **how)  # fmt: skip


def test_later_cuts(device):
    rng = np.random.default_rng(5)
    X, keys = rng.normal(size=(200, 3)), rng.integers(0, 8, 200)
    model = rapids_slink.fit(X, 2, groups=keys, device=device)
    labels = to_host(model.cut([1, 2, 7, 10**6]))
    for g in range(8):
        rows = keys == g
        alone = SingleLinkage(2, device="cpu").fit(X[rows])
        for column, k in enumerate((1, 2, 7, 10**6)):
            expected = alone.cut(min(k, int(rows.sum())))
            np.testing.assert_array_equal(pd.factorize(labels[rows, column])[0], expected)
    np.testing.assert_array_equal(labels[:, 1], to_host(model.labels_))
    sizes = np.bincount(to_host(model.cut(3)))
    large = to_host(model.cut(3, min_cluster_size=4))
    np.testing.assert_array_equal(np.bincount(large[large >= 0]), sizes[sizes >= 4])
    assert to_host(model.cut(1, names="first_row")).tolist() == [np.flatnonzero(keys == key)[0] for key in keys]
    with pytest.raises(ValueError, match="n_clusters must be at least 1, the number of each group's clusters, got 0"):
        model.cut(0)
    with pytest.raises(ValueError, match="n_clusters must not hold a value twice"):
        model.cut([2, 2])
    with pytest.raises(TypeError, match=r"n_clusters must be an integer, got 1\.5"):
        model.cut(1.5)
    with pytest.raises(ValueError, match="give exactly one of n_clusters and distance_threshold, got both"):
        model.cut(2, distance_threshold=1.0)


DAYS = [datetime.date(2020, 1, day) for day in (2, 1, 2)]
DATES = pd.date_range("2020-01-01", periods=4)
KINDS = {
    "int": [7, -3, 7, 10**12],
    "int8": np.array([127, -128, 127, 0], np.int8),
    "uint64": np.array([2**64 - 1, 2**64 - 3, 2**64 - 1, 2**64 - 2], np.uint64),
    "float": [0.5, -0.0, 0.0, 2.5],
    "str": ["b", "a", "b", "c"],
    "bool": [True, False, True, True],
    "categorical": pd.Categorical(["x", "y", "x", "z"], categories=["z", "unused", "y", "x"]),
    "datetime": DATES[[1, 0, 1, 3]],
    "timedelta": DATES[[1, 0, 1, 3]] - DATES[0],
    "period": pd.PeriodIndex(["2020-01", "2020-02", "2020-01", "2020-03"], freq="M"),
    "nullable": pd.array([4, 2, 4, 9], dtype="Int64"),
    "arrow": pd.array(["b", "a", "b", "c"], dtype="string[pyarrow]"),
    "object": [("a", 1), "a", ("a", 1), 3],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_column", [True, False])
def test_keys_of_every_kind(kind, as_column):
    keys = pd.Series(KINDS[kind], name="key")
    keys = pd.concat([keys, keys.iloc[::-1]], ignore_index=True)
    df = pd.DataFrame({"x": np.arange(8.0) ** 2, "y": np.ones(8)})
    X, groups = (df.assign(key=keys), "key") if as_column else (df, keys)
    model = rapids_slink.fit(X, 1, groups=groups, device="cpu")
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["x", "y"]
    np.testing.assert_array_equal(model.labels_, pd.factorize(keys)[0])
    assert model.groups_["key"].dtype == keys.dtype
    assert model.groups_["key"].tolist() == list(dict.fromkeys(keys.tolist()))
    assert list(model.groups_) == ["key", "rows", "clusters", "first_label"]
    again = rapids_slink.fit(df, 1, groups=keys.tolist() if kind == "object" else keys.array, device="cpu")
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert next(iter(again.groups_)) == "group"


@pytest.mark.parametrize("keys", [[1.0, np.nan, 1.0, np.nan], ["a", None, "a", None], [pd.NaT, DATES[0]] * 2,
                                  pd.array([1, None, None, 1], dtype="Int64"),
                                  pd.Categorical(["a", None, None, "a"])])  # fmt: skip
def test_missing_keys(keys):
    df = pd.DataFrame({"x": [0.0, 1, 2, 3], "key": keys})
    with pytest.raises(ValueError, match=r"column 'key' of groups has 2 missing keys.*dropna=False"):
        rapids_slink.fit(df, 1, groups="key", device="cpu")
    model = rapids_slink.fit(df, 1, groups="key", dropna=False, device="cpu")
    missing = df["key"].isna().to_numpy()
    assert set(model.labels_[missing]).isdisjoint(model.labels_[~missing])
    assert model.n_clusters_ == 2
    np.testing.assert_array_equal(model.groups_["key"].isna(), missing[:2] if missing[0] != missing[1] else [0, 1])


def test_several_columns_of_keys(device):
    rng = np.random.default_rng(6)
    df = pd.DataFrame({"a": rng.choice(list("xyz"), 90), "x": rng.normal(size=90), "b": rng.integers(0, 3, 90)})
    by_names = rapids_slink.fit(df, 2, groups=["a", "b"], device=device)
    by_frame = rapids_slink.fit(df[["x"]], 2, groups=df[["a", "b"]], device=device)
    pd.testing.assert_frame_equal(on_host(by_names.groups_), on_host(by_frame.groups_))
    assert list(by_names.groups_) == ["a", "b", "rows", "clusters", "first_label"]
    assert by_names.groups_["rows"].sum() == 90
    keys = list(zip(df["a"], df["b"], strict=True))
    assert_like_alone(by_names, df[["x"]], pd.Series(keys), 2)
    sizes = on_host(by_names.groups_).set_index(["a", "b"])["rows"]
    pd.testing.assert_series_equal(sizes.sort_index(), df.groupby(["a", "b"]).size(), check_names=False)


def test_a_list_as_long_as_the_rows_names_columns_unless_it_repeats():
    df = pd.DataFrame({"v": ["a", "a"], "j": ["b", "c"], "x": [0.0, 1.0]})
    model = rapids_slink.fit(df, 1, groups=["v", "j"], device="cpu")
    assert list(model.groups_)[:2] == ["v", "j"]
    assert model.labels_.tolist() == [0, 1]
    numbers = pd.DataFrame(np.eye(3))
    assert rapids_slink.fit(numbers, 1, groups=[0, 1, 1], device="cpu").labels_.tolist() == [0, 1, 1]
    assert rapids_slink.fit(numbers[:2], 1, groups=[0, 1], device="cpu").n_features_in_ == 1
    with pytest.raises(ValueError, match="one key for each of 3 rows, got 2; as a name of a column, 1 occurs twice"):
        rapids_slink.fit(numbers, groups=[1, 1], device="cpu")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    "keys", [[2**53, 2**53 + 1, None], DAYS, [Decimal("1.5"), Decimal(2), None], [b"a", b"b", b"a"]]
)
def test_keys_are_saved_as_they_are(library, keys, tmp_path):
    module = pytest.importorskip(library)
    is_integer = isinstance(keys[0], int)
    columns = {"x": [0.0, 1.0, 2.0], "k": pd.array(keys, "Int64") if is_integer and library == "pandas" else keys}
    table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    model = rapids_slink.fit(table, 1, groups="k", dropna=False, device="cpu")
    model.save(tmp_path / "model.slink")
    again = rapids_slink.load(tmp_path / "model.slink")
    assert type(again.groups_) is type(table)
    if library == "pandas":
        pd.testing.assert_frame_equal(again.groups_, model.groups_)
    else:
        assert again.groups_.equals(model.groups_)
    np.testing.assert_array_equal(again.cut(1), model.labels_)


BIG = [2**53, 2**53 + 1, 2**53]
EXACT = {
    "missing": [*BIG[:2], None],
    "beside floats": [*BIG[:2], 0.5],
    "NumPy's beside floats": [*map(np.int64, BIG[:2]), 0.5],
    "NumPy's, missing": [*map(np.int64, BIG[:2]), None],
    "masked": np.ma.array(BIG, mask=[False, False, True]),
    "masked, swapped bytes": np.ma.array(np.array(BIG, ">i8"), mask=[False, False, True]),
    "Int64": pd.array([*BIG[:2], None], dtype="Int64"),
    "beyond 64 bits": [2**70, 2**70 + 1, 2**70],
    "swapped bytes": np.array(BIG, ">i8"),
    "swapped floats": np.array([1.5, 2.5, 1.5], ">f8"),
}


@pytest.mark.parametrize("kind", EXACT)
def test_keys_are_not_rounded(kind):
    X = pd.DataFrame({"x": [0.0, 1.0, 2.0]})
    model = rapids_slink.fit(X, 1, groups=EXACT[kind], dropna=False, device="cpu")
    third = 0 if kind in ("beyond 64 bits", "swapped bytes", "swapped floats") else 2
    assert model.labels_.tolist() == [0, 1, third]
    assert model.groups_["group"].iloc[:2].tolist() == list(EXACT[kind])[:2]
    if isinstance(EXACT[kind], np.ndarray) and kind.startswith("swapped"):  # as a column of a FITS table
        column = rapids_slink.fit(X.assign(k=pd.Series(EXACT[kind])), 1, groups="k", device="cpu")
        assert column.labels_.tolist() == [0, 1, 0]


def test_keys_of_arrow():
    """Of 64 bits beside missing ones, and of columns of one name."""
    pa = pytest.importorskip("pyarrow")
    keys = pd.Series([2**64 - 1, None, 2**64 - 2], dtype="UInt64")
    model = rapids_slink.fit(pa.table({"x": [0.0, 1.0, 2.0]}), 1, groups=keys, dropna=False, device="cpu")
    assert model.groups_["group"].to_pylist() == [2**64 - 1, None, 2**64 - 2]
    columns = pa.Table.from_arrays([pa.array([1, 2, 1]), pa.array([1, 1, 1])], names=["a", "a"])
    assert rapids_slink.fit(np.eye(3), 1, groups=columns, device="cpu").labels_.tolist() == [0, 1, 0]


def test_intervals_cannot_be_saved(tmp_path):
    df = pd.DataFrame({"age": pd.cut([1, 5, 9], 2), "x": [0.0, 1.0, 2.0]})
    model = rapids_slink.fit(df, 1, groups="age", device="cpu")
    assert model.groups_["age"].dtype == df["age"].dtype
    with pytest.raises(TypeError, match="groups_ cannot be saved: Parquet keeps no categories of intervals"):
        model.save(tmp_path / "model.slink")


@pytest.mark.parametrize("name", [0, ("id", "k"), 1.5])
def test_models_of_columns_with_any_names_are_saved(name, tmp_path):
    df = pd.DataFrame({name: list("aba"), "x": [0.0, 1.0, 2.0]})
    model = rapids_slink.fit(df, 1, groups=name, device="cpu")
    model.save(tmp_path / "model.slink")
    pd.testing.assert_frame_equal(rapids_slink.load(tmp_path / "model.slink").groups_, model.groups_)


COLUMNS = {
    "text": ["b", None, "b"],
    "rounded": [2**53, 2**53 + 1, None],
    "days": DAYS,
    "days, missing": [*DAYS[:2], None],
    "decimal": [Decimal("1.5"), None, Decimal("1.5")],
    "bool": [True, None, False],
}


@pytest.mark.parametrize("kind", [*COLUMNS, "categorical", "zone"])
@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("as_column", [True, False])
def test_keys_of_tables_stay_as_they_are(library, kind, as_column):
    """No key is rounded, and those of the groups have the types of the table."""
    module = pytest.importorskip(library)
    values, is_polars = COLUMNS.get(kind, ["x", "y", "x"]), library == "polars"
    keys = module.Series("key", values) if is_polars else module.array(values)
    if kind == "categorical":
        keys = keys.cast(module.Categorical) if is_polars else keys.dictionary_encode()
    elif kind == "zone":
        when = [datetime.datetime(2020, 1, day, tzinfo=datetime.UTC) for day in (2, 1, 2)]
        keys = module.Series("key", when) if is_polars else module.array(when)
    x = {"x": [0.0, 1.0, 2.0]}
    table = module.DataFrame(x) if is_polars else module.table(x)
    X, groups = table, keys
    if as_column:
        X, groups = (table.with_columns(keys) if is_polars else table.append_column("key", keys)), "key"
    model = rapids_slink.fit(X, 1, groups=groups, dropna=False, device="cpu")
    column = model.groups_["key" if as_column or is_polars else "group"]
    of_rows, of_groups = ((c.to_list() if is_polars else c.to_pylist()) for c in (keys, column))
    assert of_groups == list(dict.fromkeys(of_rows))
    assert type(model.groups_) is type(table)
    assert column.dtype == keys.dtype if is_polars else column.type == keys.type
    expected = [of_groups.index(key) for key in of_rows]
    assert np.asarray(model.labels_).tolist() == np.asarray(model.cut(1)).tolist() == expected
    text = module.Series(["one", "two", "six"]) if is_polars else module.array(["one", "two", "six"])
    of_text = rapids_slink.fit(text, 1, groups=keys, dropna=False, metric="levenshtein", device="cpu")
    assert np.asarray(of_text.labels_).tolist() == expected
    beside = pd.DataFrame(x, index=list("wxy"))  # of an index, which columns of tables do not have
    assert rapids_slink.fit(beside, 1, groups=keys, dropna=False, device="cpu").labels_.tolist() == expected


def test_single_rows_and_one_group(device):
    X = np.random.default_rng(7).normal(size=(50, 3))
    singles = rapids_slink.fit(X, 5, groups=np.arange(50)[::-1], device=device)
    assert len(singles.linkage_) == len(singles.mst_) == 0
    assert to_host(singles.labels_).tolist() == list(range(50))
    assert to_host(singles.cut(3)).tolist() == list(range(50))
    whole = rapids_slink.fit(X, 5, groups=np.zeros(50, int), device=device)
    alone = rapids_slink.fit(X, 5, device=device)
    pd.testing.assert_frame_equal(on_host(whole.linkage_), on_host(alone.linkage_))
    np.testing.assert_array_equal(to_host(whole.labels_), to_host(alone.labels_))
    assert whole.to_scipy().shape == (49, 4)


def test_nothing_is_compared_across_groups(device):
    """Rows of zeros, and rows without a common feature, are refused within a group alone."""
    zeros = np.array([[0.0, 0], [1, 2], [0, 0], [3, 1], [0, 0]])
    assert rapids_slink.fit(zeros, 1, groups=[0, 0, 1, 1, 2], metric="braycurtis", device=device).n_clusters_ == 3
    with pytest.raises(ValueError, match="rows 0 and 2 of X are zero in every column"):
        rapids_slink.fit(zeros, 1, groups=[0, 1, 0, 1, 2], metric="braycurtis", device=device)
    gaps = np.array([[1.0, np.nan], [2, 3], [np.nan, 1], [4, 4]])
    assert rapids_slink.fit(gaps, 1, groups=[0, 0, 1, 1], missing="pairwise", device=device).n_clusters_ == 2
    with pytest.raises(ValueError, match="rows 0 and 2 of X have no feature that is present in both"):
        rapids_slink.fit(gaps, 1, groups=[0, 1, 0, 1], missing="pairwise", device=device)


def test_values_that_overflow_across_groups_alone(device):
    X = np.array([[1e200, 0], [1e200, 3], [-1e200, 0], [-1e200, 4]])
    assert on_host(rapids_slink.fit(X, 1, groups=[0, 0, 1, 1], device=device).mst_)["weight"].tolist() == [3, 4]
    assert rapids_slink.plan(X, groups=[0, 0, 1, 1], device=device)["fits"]
    with pytest.raises(ValueError, match="euclidean distances may overflow float64: the values of column 0 span 2e"):
        rapids_slink.fit(X, 1, groups=[0, 1, 0, 1], device=device)
    X[1, 1] = np.nan
    with pytest.raises(ValueError, match="X contains values that are not finite: column 1 has 1 NaN"):
        rapids_slink.fit(X, 1, groups=[0, 0, 1, 1], device=device)


def test_a_million_groups(device):
    n = 1_000_000
    X = np.random.default_rng(8).normal(size=(n, 1)).astype(np.float32)
    model = rapids_slink.fit(X, groups=np.arange(n) // 2 * 2, device=device)
    assert model.n_clusters_ == n
    assert len(model.groups_) == n // 2
    assert len(model.linkage_) == n // 2


def test_the_model_lives_on(tmp_path):
    rng = np.random.default_rng(9)
    df = pd.DataFrame({"key": rng.choice(list("abc"), 60), "x": rng.normal(size=60), "y": rng.normal(size=60)})
    model = rapids_slink.fit(df, 3, groups="key", prediction_data=True, device="cpu")
    model.save(tmp_path / "model.slink")
    again = rapids_slink.load(tmp_path / "model.slink")
    pd.testing.assert_frame_equal(again.groups_, model.groups_)
    pd.testing.assert_series_equal(again.cut(2), model.cut(2))
    assert len(model.to_frame(medoids=True)) == 9
    assert model.to_newick().count(";") == 3
    for refused in ("predict", "append"):
        with pytest.raises(ValueError, match=f"{refused} is for models without groups"):
            getattr(model, refused)(df[["x", "y"]])
    with pytest.raises(ValueError, match="SciPy has no linkage of a forest"):
        model.to_scipy()
    assert not model._labels_are_a_cut
    assert "groups" in str(model.report_)
    figure = pytest.importorskip("matplotlib.figure").Figure()
    assert len(model.plot_clusters(df, ax=figure.subplots()).collections) > 1  # the column of keys is no feature
    model.plot_tree(df, ax=figure.subplots())
    with pytest.raises(ValueError, match="explore shows cuts at one distance"):
        model.explore(df)
    model.fit(df[["x", "y"]])
    assert not hasattr(model, "groups_")
    assert model._labels_are_a_cut


NO_COLUMN = r"as a name of a column, 'z' is not in \['x', 'y'\]"


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ("z", ValueError, r"groups must name a column of X, or hold a key for each row: 'z' is not in \['x', 'y'\]"),
        ([0, 1], ValueError, "groups must hold one key for each of 4 rows, got 2"),
        (np.zeros((4, 2)), ValueError, r"groups must hold one key for each row, got shape \(4, 2\): pass a DataFrame"),
        (pd.Series([0, 1, 0, 1], index=[3, 2, 1, 0]), ValueError, "groups has another index than X"),
        ([[1], [2], [1], [2]], TypeError, "by whose values no frame groups"),
        ([], ValueError, "groups"),
        (["x", "z"], ValueError, rf"one key for each of 4 rows, got 2; {NO_COLUMN}"),
        (["z"], ValueError, rf"one key for each of 4 rows, got 1; {NO_COLUMN}"),
    ],
)
def test_errors(groups, error, message):
    df = pd.DataFrame({"x": [0.0, 1, 2, 3], "y": [0.0, 1, 2, 3]})
    with pytest.raises(error, match=message):
        rapids_slink.fit(df, groups=groups, device="cpu")


def test_plan():
    df = pd.DataFrame({"key": [1, 1, 2], "x": [0.0, 1.0, 2.0]})
    plan = rapids_slink.plan(df, groups="key", device="cpu")
    assert (plan["way"], plan["fits"], plan["groups"]) == ("groups", True, {"groups": 2, "rows_of_largest": 2})
    assert plan["memory"]["peak_bytes"] > 0
    refused = rapids_slink.plan(df, groups="key", memory_limit=300, device="cpu")
    assert not refused["fits"]
    assert "memory_limit=300 is too small" in refused["refused"]
    with pytest.raises(ValueError, match="a plan of groups takes the rows and their keys"):
        rapids_slink.plan((3, 2), groups=[1, 1, 2], device="cpu")


def test_refusals():
    X = np.random.default_rng(0).normal(size=(4, 2))
    with pytest.raises(ValueError, match="groups='x' names a column, and X is ndarray: pass an array of keys"):
        rapids_slink.fit(X, groups="x", device="cpu")
    with pytest.raises(ValueError, match=r"groups='k' names a column, and X is dict\. Pass pandas\.DataFrame\(X\)"):
        rapids_slink.fit({"k": [1], "x": [2.0]}, groups="k", device="cpu")
    df = pd.DataFrame({"k": [1, 1, 2, 2], "x": [0.0, 1.0, 5.0, 5.5]})
    with pytest.raises(TypeError, match=r"X is of type DataFrameGroupBy\. Pass the frame itself, and groups="):
        rapids_slink.fit(df.groupby("k"), device="cpu")
    with pytest.raises(TypeError, match="groups is of type DataFrameGroupBy: pass the columns by which it groups"):
        rapids_slink.fit(df, groups=df.groupby("k"), device="cpu")
    with pytest.raises(TypeError, match=r"groups is of type ndarray\. Pass pandas\.DataFrame\(groups\)"):
        rapids_slink.fit(X, groups=df.to_records(index=False).view(np.ndarray), device="cpu")
    with pytest.raises(ValueError, match="metric='precomputed' takes no groups"):
        rapids_slink.fit(np.zeros((4, 4)), groups=[0, 0, 1, 1], metric="precomputed", device="cpu")
    for refused in (HDBSCAN.fit, HDBSCAN.fit_predict):
        with pytest.raises(ValueError, match="HDBSCAN takes no groups"):
            refused(HDBSCAN(device="cpu"), X, groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="n_clusters must be at least 1"):
        rapids_slink.fit(X, 0, groups=[0, 0, 1, 1], device="cpu")
    with pytest.raises(ValueError, match="Found array with 0 feature"):
        rapids_slink.fit(pd.DataFrame({"x": [1, 2]}), groups="x", device="cpu")
    df = pd.DataFrame(np.zeros((2, 2)), columns=["x", "x"])
    with pytest.raises(ValueError, match="groups='x' names a column that is there 2 times"):
        rapids_slink.fit(df, groups="x", device="cpu")
    wide = pd.DataFrame(np.zeros((2, 3000)))
    with pytest.raises(ValueError, match=r"'z' is not in \[0, 1, 2, 3, 4, 5, \.\.\., 2999\]$"):
        rapids_slink.fit(wide, groups="z", device="cpu")


@pytest.mark.parametrize("count", [10**20, 2**63, 2**63 - 1, 2**31])
def test_numbers_beyond_all_rows(device, count):
    """A number of clusters, or of neighbours, above a group's rows is that of its rows, however large."""
    X, keys = np.random.default_rng(2).normal(size=(20, 2)), np.arange(20) % 3
    model = rapids_slink.fit(X, count, groups=keys, min_samples=count, device=device)
    assert_like_alone(model, X, keys, count, min_samples=20)
    assert to_host(model.cut(count)).tolist() == to_host(model.cut(20)).tolist()
    words = [f"{x:.0f}" for x in 1e3 * X[:, 0]]
    how = {"groups": keys, "metric": "levenshtein", "device": device}
    texts, all_rows = (rapids_slink.fit(words, 2, min_samples=m, **how) for m in (count, 20))
    pd.testing.assert_frame_equal(on_host(texts.linkage_), on_host(all_rows.linkage_))
