"""Strings by edits and by differing characters, against plain Python over all pairs."""

from math import inf

import numpy as np
import pandas as pd
import pytest
from hard_cases import full
from item_cases import EVERY_STRING_METRIC, SPECIAL, all_ends, edits, pairs_within, table, words
from scipy.cluster.hierarchy import linkage

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage
from rapids_slink.items import cpu, forest, search
from rapids_slink.items.strings import Strings, _decoded
from rapids_slink.metrics import ITEM_METRICS
from rapids_slink.runtime.device import CPU, cuda, to_host


def strings_of(values, metric="levenshtein"):
    return Strings.read({"X": values}, ITEM_METRICS[metric], CPU)


@pytest.mark.parametrize("metric", ["levenshtein", full("string_hamming")])
def test_all_pairs_have_the_distances_of_the_definition(metric):
    values = SPECIAL + words(12, longest=200, seed=1)
    expected = table(metric, values)
    n = len(values)
    src, dst = all_ends(n)
    found = strings_of(values, metric).distances(src, dst)
    np.testing.assert_array_equal(found, expected.ravel())
    for most in (0, 1, 2, 5, 63, 64):
        found = strings_of(values, metric).distances(src, dst, most)
        np.testing.assert_array_equal(found, np.where(expected <= most, expected, inf).ravel())


@pytest.mark.parametrize("metric", ["levenshtein", full("string_hamming")])
def test_the_matrix_of_all_distances(metric):
    for values in (SPECIAL + words(16, longest=140, seed=22), ["", ""], ["a"], ["a" * 65, "", "b" * 64]):
        for length in sorted({len(x) for x in values} if metric == "string_hamming" else {0}):
            own = [x for x in values if metric != "string_hamming" or len(x) == length]
            distances, expected = search.all_distances(strings_of(own, metric)), table(metric, own)
            others = ~np.eye(len(own), dtype=bool)
            np.testing.assert_array_equal(distances[others], expected[others])


@pytest.mark.parametrize("samples", [1, 4])
def test_which_groups_store_all_distances(samples, monkeypatch, prescribe):
    """Those of which it takes little memory; all have the same tree."""
    values, keys = words(500, letters="ABCDEF", longest=12, seed=23), np.repeat([0, 1, 2, 3], [200, 150, 30, 120])

    def fitted(**more):
        how = {"distance_threshold": 1, "min_samples": samples, "metric": "levenshtein", "device": "cpu"}
        return SingleLinkage(None, **how, **more).fit(values, groups=keys)

    stored = fitted()
    distinct = [len(set(values[begin:end])) for begin, end in ((0, 200), (200, 350), (380, 500))]
    assert stored.report_["spanning_tree"]["pairs_weighed"] == sum(n * (n - 1) // 2 for n in distinct)
    with monkeypatch.context() as patch:
        patch.setattr(forest, "MATRIX_SHARE", 0)
        limited = fitted()
    prescribe(items="projections")
    searched = fitted()
    for other in (limited, searched):
        assert "pairs_weighed" not in other.report_["spanning_tree"]
        assert other.report_["neighbors"]["rows_scanned_exactly"] >= sum(distinct)
    for other in (limited, searched):
        pd.testing.assert_frame_equal(other.mst_, stored.mst_)
        np.testing.assert_array_equal(other.labels_, stored.labels_)


def test_edits_of_ten_thousand_characters():
    rng = np.random.default_rng(0)
    a = "".join(rng.choice(list("ACGT"), 10_000))
    b = a[:3000] + "T" + a[3001:7000] + a[7005:] + "ACG"
    found = rapids_slink.pairs([a, b, a[::-1]], metric="levenshtein", max_distance=20, device="cpu")
    changed = int(a[3000] != "T")
    assert found[["src", "dst"]].to_numpy().tolist() == [[0, 1]]
    assert found["weight"][0] <= 8 + changed
    exact = strings_of([a[:900], b[2500:3400]]).distances(np.array([0], "int32"), np.array([1], "int32"))
    assert exact[0] == edits(a[:900], b[2500:3400])


def test_which_search_serves():
    """Keys where they take less time than the pairs of items."""

    def by_keys(length, groups, limit=1.0, wanted=None):
        n = sum(groups)
        starts = np.arange(0, (n + 1) * length, length)
        items = Strings(np.zeros(n * length, "int32"), starts, ITEM_METRICS["levenshtein"], CPU, 1)
        number = np.repeat(np.arange(len(groups)), groups)
        src = None if wanted is None else np.arange(n) < wanted
        return search.ItemSearch(items, search.groups_of(number, len(groups), CPU), limit).is_by_keys(src)

    assert by_keys(14, [2000])
    assert not by_keys(14, [20])  # 15 keys a string, and 10 pairs
    assert not by_keys(14, [20] * 50)
    assert by_keys(14, [200] * 50)
    assert by_keys(14, [2000], wanted=1500)
    assert not by_keys(14, [2000], wanted=3)  # a few with all others
    assert by_keys(14, [20_000], 2.0)
    assert not by_keys(14, [20_000], 3.0)
    assert not by_keys(300, [2000])
    assert by_keys(300, [400_000])  # a search by projections looks at all pairs


@pytest.mark.parametrize("limit", [1, 2])
@EVERY_STRING_METRIC
def test_strings_within_the_limit_share_a_key_and_projections_are_near(metric, limit):
    values = sorted(set(words(200, seed=5) + SPECIAL[:15]))
    items = strings_of(values, metric)
    item, key = items.keys(limit, slice(0, len(values)))
    assert item.size == round(items.keys_an_item(limit) * len(values))
    keys = [set(key[item == i].tolist()) for i in range(len(values))]
    bits = np.unpackbits(items.projection(limit).values, axis=1).astype(int)
    distances = table(metric, values)
    for i, j in zip(*np.nonzero(distances <= limit), strict=True):
        assert keys[i] & keys[j]
        assert abs(bits[i] - bits[j]).sum() <= 2 * distances[i, j]


@EVERY_STRING_METRIC
def test_a_key_that_a_string_has_many_times_counts_once(metric, monkeypatch):
    """Whichever letter of a run is deleted, the same string is left."""
    monkeypatch.setitem(search.SMALL_GROUP, "cpu", 1)
    monkeypatch.setitem(search.COSTS, "cpu", search.Costs(0, 1, 1, 1))
    near = ["a" * 200 + "b", "a" * 200 + "c"]
    items = strings_of([*words(60, seed=21), *near], metric)
    distinct = search.distinct_items(items, np.zeros(len(items), "int32"))
    candidates = list(search.ItemSearch(distinct.items, distinct.groups, 1)._that_share_a_key())
    assert sum(part[0].size for part in candidates) < 60 * 60
    found = rapids_slink.pairs(near, metric=metric, max_distance=1, device="cpu")
    assert found.to_numpy().tolist() == [[0, 1, 1]]


def test_strings_whose_sums_of_powers_are_equal_have_different_hashes():
    """By any odd number the sums of the Thue-Morse word of 1,024 letters and of its complement are equal modulo 2⁶⁴."""
    word = "".join("ab"[i.bit_count() % 2] for i in range(1024))
    values = [word, word.translate(str.maketrans("ab", "ba")), word]
    assert len(set(strings_of(values).hashes().tolist())) == 2
    model = rapids_slink.fit(values, None, max_distance=3, metric="levenshtein", device="cpu")
    assert model.labels_.tolist() == [0, 1, 0]


@EVERY_STRING_METRIC
def test_hashes_that_collide(metric, monkeypatch):
    """Such strings are compared like any others."""
    values, real = ["ab", "ab", "ba", "b", "ba", "ab", "", "ba"], cpu.hash_strings
    distinct = search.distinct_items(strings_of(values, metric), np.zeros(8, "int32"))
    assert distinct.copies.first.tolist() == [0, 2, 3, 6]
    assert distinct.of_row.tolist() == [0, 0, 1, 2, 1, 0, 3, 1]
    monkeypatch.setattr(cpu, "hash_strings", lambda strings: 0 * real(strings))
    distances = table(metric, values)
    for samples in (1, 3):
        found, exact = (
            SingleLinkage(None, max_distance=1, metric=how, min_samples=samples, device="cpu").fit(X).mst_
            for how, X in ((metric, values), ("precomputed", np.where(distances <= 1, distances, inf)))
        )
        pd.testing.assert_frame_equal(found, exact)
    found = rapids_slink.pairs(values, metric=metric, max_distance=1, device="cpu")
    pd.testing.assert_frame_equal(found, pairs_within(distances, 1))
    nearest = rapids_slink.nearest_neighbors(values, values[2:], metric=metric, device="cpu")
    assert nearest["dst"].tolist() == [3, 3, 0, 1, 0, 3, 4, 0]


@pytest.mark.parametrize("samples", [3, 1000])
def test_copies_are_counted_and_not_compared(samples, watch):
    """Of 16,000 strings 10 differ: the pairs of the 10 are all that is compared."""
    distinct = words(400, letters="ABCDEFGH", longest=12, seed=20)[:10]
    compared = watch(Strings, "distances", lambda result, *_, **more: result.size)
    values = distinct * 1600
    model = SingleLinkage(None, distance_threshold=1, metric="levenshtein", min_samples=samples, device="cpu")
    model.fit(values)
    assert sum(compared) <= 100
    edges = table("levenshtein", distinct)[np.triu_indices(10, 1)]
    heights = np.sort(model.linkage_["height"].to_numpy())
    assert not heights[: 16_000 - 10].any()
    tree = linkage(edges, "single")[:, 2]
    np.testing.assert_array_equal(heights[16_000 - 10 :], tree)


@EVERY_STRING_METRIC
@pytest.mark.parametrize("samples", [1, 2])
def test_nothing_is_within_a_negative_distance(metric, samples):
    values = ["ab", "abc", "ab", ""]
    how = {"metric": metric, "max_distance": -1, "device": "cpu"}
    model = SingleLinkage(None, min_samples=samples, prediction_data=True, **how).fit(values)
    assert model.labels_.tolist() == [0, 1, 2, 3]
    if samples == 1:
        assert model.predict(values).tolist() == [-1] * 4
    assert rapids_slink.pairs(values, **how).empty
    assert rapids_slink.pairs(values, values, **how).empty
    assert rapids_slink.count_pairs(values, **how | {"max_distance": [-1, 0]}).tolist() == [0, 1]
    assert rapids_slink.deduplicate(values, **how).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["stored", "projections"])
def test_core_distances_above_the_level_in_groups_of_single_rows(way, prescribe):
    """A pair that is farther than the rest is searched for again from both of its rows."""
    prescribe(items=way)
    near = ["a" * i for i in range(40)]
    model = SingleLinkage(
        None, distance_threshold=1.5, metric="levenshtein", min_samples=2, device="cpu"
    ).fit([*near, "b" * 90, "c" * 90], groups=np.repeat([0, 1], [40, 2]))  # fmt: skip
    assert model.linkage_["height"].tolist() == [1] * 37 + [2] * 2 + [90]


def test_hdbscan_of_text_has_no_prediction_data():
    with pytest.raises(ValueError, match="prediction_data=True of HDBSCAN takes the rows' features"):
        HDBSCAN(metric="levenshtein", prediction_data=True, device="cpu").fit(words(150, seed=8))


def test_groups_of_columns():
    frame = pd.DataFrame({"cdr3": words(200, seed=9), "v": list("ab") * 100, "j": np.arange(200) // 50})
    frame.index = frame.index + 1000
    model = SingleLinkage(None, metric="levenshtein", max_distance=1, device="cpu").fit(frame, groups=["v", "j"])
    keys = frame.groupby(["v", "j"]).ngroup().to_numpy()
    apart = SingleLinkage(None, metric="levenshtein", max_distance=1, device="cpu").fit(frame["cdr3"], groups=keys)
    np.testing.assert_array_equal(pd.factorize(model.labels_)[0], pd.factorize(apart.labels_)[0])
    assert model.labels_.index.equals(frame.index)
    assert list(model.groups_) == ["v", "j", "rows", "clusters", "first_label"]
    assert model.feature_names_in_.tolist() == ["cdr3"]


@pytest.mark.parametrize("limit", [None, 1, 3])
@EVERY_STRING_METRIC
def test_predict(metric, limit):
    values, new = pd.DataFrame({"name": words(90, seed=13)}), pd.DataFrame({"name": words(60, seed=14)})
    n_clusters = None if limit else 40
    model = SingleLinkage(n_clusters, metric=metric, max_distance=limit, prediction_data=True, device="cpu").fit(values)
    distances = table(metric, new["name"], values["name"])
    nearest = distances.argmin(axis=1)
    near = distances.min(axis=1) <= limit if limit else distances.min(axis=1) < model.linkage_["height"][50]
    expected = np.where(near, model.labels_.to_numpy()[nearest], -1)
    np.testing.assert_array_equal(model.predict(new), expected)
    assert model.report_["predict"] == {"rows": 60, "noise": int((~near).sum())}
    np.testing.assert_array_equal(model.predict(new["name"].tolist()), expected)


def test_saved_models_of_text_predict(tmp_path):
    values = words(50, seed=15)
    model = SingleLinkage(5, metric="levenshtein", prediction_data=True, device="cpu").fit(values)
    model.save(tmp_path / "words.slink")
    loaded = rapids_slink.load(tmp_path / "words.slink", device="cpu")
    np.testing.assert_array_equal(loaded.predict(SPECIAL), model.predict(SPECIAL))


@pytest.mark.parametrize("n_new", [1, 30, 89])
@pytest.mark.parametrize("limit", [None, 2])
@EVERY_STRING_METRIC
def test_append(metric, limit, n_new):
    frame = pd.DataFrame({"name": words(90, seed=16)})
    parameters = {"metric": metric, "max_distance": limit, "prediction_data": True, "device": "cpu"}
    whole = SingleLinkage(90, **parameters).fit(frame)
    model = SingleLinkage(90 - n_new, **parameters).fit(frame[: 90 - n_new])
    model.set_params(n_clusters=90).append(frame[90 - n_new :])
    pd.testing.assert_frame_equal(model.mst_, whole.mst_)
    pd.testing.assert_frame_equal(model.linkage_, whole.linkage_)
    pd.testing.assert_series_equal(model.labels_, whole.labels_)
    np.testing.assert_array_equal(model.predict(["A", "B"]), whole.predict(["A", "B"]))


def test_what_models_of_text_refuse():
    model = SingleLinkage(1, metric="levenshtein", prediction_data=True, device="cpu").fit(pd.DataFrame({"a": ["x"]}))
    with pytest.raises(ValueError, match=r"X must have the columns that SingleLinkage was fitted on, \['a'\]"):
        model.predict(pd.DataFrame({"b": ["x"]}))
    with pytest.raises(ValueError, match="medoids are of rows of features, and metric='levenshtein' has none"):
        model.to_frame(medoids=True)
    with pytest.raises(ValueError, match="X has 1 null"):
        model.append([None])
    weighted = SingleLinkage(2, metric="levenshtein", min_samples=2, prediction_data=True, device="cpu").fit([*"abc"])
    with pytest.raises(ValueError, match="append is for min_samples=1"):
        weighted.append(["d"])


def inputs():
    strings = ["ab", "", "é😀"]
    yield "list", strings
    yield "tuple", tuple(strings)
    yield "array", np.array(strings)
    yield "column", np.array(strings)[:, None]
    yield "objects", np.array(strings, object)
    yield "series", pd.Series(strings, index=[5, 6, 7], name="name")
    yield "string dtype", pd.Series(strings, dtype="string")
    yield "category", pd.Series(strings, dtype="category")
    yield "frame", pd.DataFrame({"name": strings})
    yield "index", pd.Index(strings)


@pytest.mark.parametrize("values", [pytest.param(x, id=name) for name, x in inputs()])
def test_types_of_input(values):
    model = rapids_slink.fit(values, 3, metric="levenshtein", device="cpu")
    assert model.linkage_["height"].tolist() == [2.0, 2.0]
    of_pandas = isinstance(values, pd.Series | pd.DataFrame | pd.Index)
    assert isinstance(model.labels_, pd.Series if of_pandas else np.ndarray)
    if isinstance(values, pd.Series):
        assert model.labels_.index.equals(values.index)
    assert len(rapids_slink.pairs(values, values, metric="levenshtein", max_distance=0, device="cpu")) == 3


def test_polars_and_arrow():
    polars = pytest.importorskip("polars")
    strings = ["ab", "", "é😀"]
    for values in (polars.Series("name", strings), polars.DataFrame({"name": strings})):
        model = rapids_slink.fit(values, 3, metric="levenshtein", device="cpu")
        assert model.linkage_["height"].to_list() == [2.0, 2.0]
        assert isinstance(model.labels_, polars.Series)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (["a", None], ValueError, "X has 1 null: drop these rows, or fill them with a text"),
        (pd.Series(["a", np.nan], name="cdr3"), ValueError, "column 'cdr3' of X has 1 null"),
        (pd.Series(["a", pd.NA], dtype="string"), ValueError, "X has 1 null"),
        (["a", 3], TypeError, "metric='levenshtein' takes text, and X holds 3 in row 1, of type int"),
        (np.zeros((3, 1)), TypeError, "metric='levenshtein' takes text, and X holds 0.0 in row 0, of type float"),
        (np.zeros((3, 2)), ValueError, r"takes one column of text, and X has shape \(3, 2\)"),
        (pd.DataFrame({"a": "x", "b": ["y"]}), ValueError, r"X has 2 columns: pass one of \['a', 'b'\], and others as"),
        ([], ValueError, "X has no rows"),
        ("text", TypeError, "metric='levenshtein' takes text, and X is of type str"),
        ([b"ab"], TypeError, r"X holds b'ab' in row 0, of type bytes"),
        (None, TypeError, "X is of type NoneType"),
        ({"a", "b"}, TypeError, "X is of type set"),
        ({"a": "x"}, TypeError, "X is of type dict"),
        (pd.DataFrame(index=range(3)), ValueError, "takes one column of text, and X has 0 columns$"),
    ],
)
def test_what_is_refused(values, error, message):
    with pytest.raises(error, match=message):
        rapids_slink.fit(values, metric="levenshtein", device="cpu")


def test_memory_limit():
    values = words(6000, letters="ABCDEFGHIJKLMNOP", longest=16, seed=17)
    said = r"memory_limit='1MB' is too small for 6,000 rows: needs at"
    with pytest.raises(rapids_slink.DeviceMemoryError, match=said):
        rapids_slink.fit(values, metric="levenshtein", max_distance=1, memory_limit="1MB", device="cpu")
    how = {"metric": "levenshtein", "max_distance": 2, "device": "cpu"}
    model, count = rapids_slink.fit(values, **how), rapids_slink.count_pairs(values, **how)
    made = []
    real = Strings.keys

    def keys(items, limit, rows):
        made.append(rows)
        return real(items, limit, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Strings, "keys", keys)
        limited = rapids_slink.fit(values, memory_limit="7MB", **how)
        passes = len(made)  # each with a part of the keys
        assert rapids_slink.count_pairs(values, memory_limit="7MB", **how) == count
    pd.testing.assert_frame_equal(limited.mst_, model.mst_)
    assert passes > 1


def test_progress(capsys, prescribe):
    prescribe(items="projections")
    values = words(400, letters="ABCDEF", longest=12, seed=4)
    rapids_slink.fit(values, metric="levenshtein", max_distance=2, progress=True, device="cpu")
    assert "Searching pairs" in capsys.readouterr().err


def test_parameters_that_are_refused():
    with pytest.raises(ValueError, match="knn_graph is of rows of features, and metric='levenshtein' has none"):
        rapids_slink.knn_graph(["a", "b"], 1, metric="levenshtein", device="cpu")
    with pytest.raises(ValueError, match=r"missing='pairwise' takes the metrics .* got 'levenshtein'"):
        rapids_slink.fit(["a"], metric="levenshtein", missing="pairwise", device="cpu")
    with pytest.raises(ValueError, match="groups must hold one key for each of 2 rows, got 3"):
        rapids_slink.fit(["a", "b"], metric="levenshtein", groups=np.arange(3), device="cpu")
    with pytest.raises(ValueError, match="min_samples must be at most n - 1 = 1, got 5"):
        rapids_slink.fit(["a", "b"], metric="levenshtein", min_samples=5, device="cpu")


def test_characters_of_utf8_words():
    text = "aé€😀\u07ff\u0800\uffff\U0010ffff"
    words_ = np.array([int.from_bytes(c.encode(), "big") for c in text], np.uint32)
    assert _decoded(words_.view("int32"), CPU).tolist() == [ord(c) for c in text]


@pytest.mark.gpu
@EVERY_STRING_METRIC
def test_kernels_have_the_bits_of_the_cpu(metric):
    for values in ([""], ["a"], SPECIAL, words(300, longest=150, seed=12)):
        on_cpu, on_gpu = (Strings.read({"X": values}, ITEM_METRICS[metric], where) for where in (CPU, cuda()))
        n, results = len(values), []
        for items in (on_cpu, on_gpu):
            src, dst = (items.device.asarray(end, "int32") for end in np.indices((n, n)).reshape(2, -1))
            found = [items.distances(src, dst), items.distances(src, dst, 3), items.hashes(), items.equal(src, dst)]
            found += [*items.keys(1, slice(0, n)), *items.keys(2, slice(n // 2, n)), items.projection(2).values]
            results.append([to_host(part) for part in found])
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("longest", [0, 9, 32, 33, 64, 65, 300, 512])
def test_all_edits_on_a_gpu(longest):
    for letters in ("AB", "aé日本語😀"):
        values = ["", "é" * longest, *words(70, letters, longest, seed=24)]
        on_cpu, on_gpu = (Strings.read({"X": values}, ITEM_METRICS["levenshtein"], where) for where in (CPU, cuda()))
        np.testing.assert_array_equal(to_host(search.all_distances(on_gpu)), search.all_distances(on_cpu))


@pytest.mark.gpu
def test_append_of_stored_edits():
    values = words(900, letters="ABCD", longest=20, seed=26)
    grown = SingleLinkage(metric="levenshtein", prediction_data=True, device="cuda").fit(values[:700])
    grown.append(values[700:])
    whole = SingleLinkage(metric="levenshtein", device="cpu").fit(values)
    for name in ("src", "dst", "weight"):
        np.testing.assert_array_equal(*(to_host(model.mst_[name].to_numpy()) for model in (grown, whole)))


@pytest.mark.gpu
def test_strings_of_cudf():
    cudf = pytest.importorskip("cudf")
    values = pd.DataFrame({"name": SPECIAL, "key": np.arange(len(SPECIAL)) % 2})
    for groups in (None, "key"):
        frame = values if groups else values[["name"]]
        models = [
            SingleLinkage(None, metric="levenshtein", max_distance=3).fit(X, groups=groups)
            for X in (frame, cudf.from_pandas(frame))
        ]
        assert isinstance(models[1].labels_, cudf.Series)
        pd.testing.assert_frame_equal(models[0].mst_, models[1].mst_.to_pandas())
    found = rapids_slink.pairs(cudf.from_pandas(values["name"]), metric="levenshtein", max_distance=2)
    pd.testing.assert_frame_equal(found.to_pandas(), pairs_within(table("levenshtein", SPECIAL), 2))
    with pytest.raises(ValueError, match="column 'name' of X has 1 null"):
        rapids_slink.fit(cudf.DataFrame({"name": ["a", None]}), metric="levenshtein")
    with pytest.raises(TypeError, match="metric='levenshtein' takes text, and column 'key' of X has dtype int64"):
        rapids_slink.fit(cudf.from_pandas(values[["key"]]), metric="levenshtein")
