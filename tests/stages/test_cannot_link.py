"""Clusters in which some nodes or rows may not be together, against Kruskal's algorithm on sets of Python."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from spanning_trees import NAMES, by_appearance, edges, random_graph

import rapids_slink
from rapids_slink import DeviceMemoryError, Scaled, fit, fit_graph
from rapids_slink.graph import Marks, merge_unless_marked
from rapids_slink.points.output import on_device, on_host


def brute_force(n, ends, source=None, apart=()):
    """The places of the edges that merge, of (m, 2) ends in their order; the labels; and how many edges are refused."""
    cluster = {v: {v} for v in range(n)}
    apart = {frozenset(pair) for pair in apart}
    taken, refused = [], 0
    for i, (u, v) in enumerate(ends):
        if cluster[u] is cluster[v]:
            continue
        both = cluster[u] | cluster[v]
        sources = [source[w] for w in both if source[w] is not None] if source is not None else []
        together = any(frozenset((a, b)) in apart for a in cluster[u] for b in cluster[v])
        if len(set(sources)) < len(sources) or together:
            refused += 1
            continue
        taken.append(i)
        for w in both:
            cluster[w] = both
    return taken, by_appearance([min(cluster[v]) for v in range(n)]).tolist(), refused


def some_constraint(rng, kind, n):
    """The parameter, and that of `brute_force`."""
    if kind == "pairs":
        ends = rng.integers(0, n, (n, 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        return ends, {"apart": ends.tolist()}
    source = rng.integers(0, {"few sources": 3, "many sources": n // 2}[kind], n).astype(float)
    source[rng.random(n) < 0.2] = np.nan
    return source, {"source": [None if np.isnan(one) else one for one in source]}


KINDS = pytest.mark.parametrize("kind", ["few sources", "many sources", "pairs"])


@KINDS
@pytest.mark.parametrize("weights", [None, (0.5, 1.0), (3, -2, 0)])
@pytest.mark.parametrize("seed", range(4))
def test_graphs_are_those_of_brute_force(kind, weights, seed, device):
    """Parallel edges and loops among them, and many ties."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 40)), int(rng.integers(1, 150))
    frame = random_graph(rng, n, m, weights)
    constraint, of_oracle = some_constraint(rng, kind, n)
    frame_in_order = frame.sort_values("weight", kind="stable")
    taken, labels, refused = brute_force(n, frame_in_order[["src", "dst"]].to_numpy().tolist(), **of_oracle)
    model = fit_graph(frame, n_nodes=n, cannot_link=constraint, device=device)
    assert model.labels_.tolist() == model.component_.tolist() == labels
    assert model.report_["spanning_tree"]["refused"] == refused
    expected = frame_in_order.iloc[taken]
    for column in ("src", "dst", "weight"):
        assert model.mst_[column].tolist() == expected[column].tolist()
    assert model.linkage_["height"].tolist() == expected["weight"].tolist()
    assert model.n_clusters_ == model.n_connected_components_ == n - len(taken)


@pytest.mark.full
@KINDS
def test_larger_graphs(kind):
    """The table of marks, filled and emptied many times."""
    rng = np.random.default_rng(0)
    n, m = 500, 3000
    ends = rng.integers(0, n, (m, 2)).astype(np.int32)
    constraint, of_oracle = some_constraint(rng, kind, n)
    if kind == "pairs":
        marks = Marks.of_pairs(*constraint.T)
    else:
        marks = Marks.of_sources(np.nan_to_num(constraint, nan=-1).astype(int))
    found, count = merge_unless_marked(*np.ascontiguousarray(ends.T), n, marks)
    taken, _, refused = brute_force(n, ends.tolist(), **of_oracle)
    assert (found.tolist(), count) == (taken, refused)


@pytest.mark.parametrize("seed", range(6))
def test_clusters_are_those_of_mutually_best_links(seed, device):
    """Splink's rule: clusters whose best allowed link is each other's merge, in turn. No two weights are equal."""
    rng = np.random.default_rng(seed)
    n, m = 40, 120
    frame = random_graph(rng, n, m)
    source = rng.integers(0, 3, n)
    label = np.arange(n)
    while True:
        best = {}
        for src, dst, weight in frame.itertuples(index=False):
            a, b = label[src], label[dst]
            if a == b or set(source[label == a]) & set(source[label == b]):
                continue
            for one, other in ((a, b), (b, a)):
                best[one] = min(best.get(one, (np.inf, -1)), (weight, other))
        mutual = [(a, b) for a, (_, b) in best.items() if best[b][1] == a and a < b]
        if not mutual:
            break
        for a, b in mutual:
            label[label == b] = a
    model = fit_graph(frame, n_nodes=n, cannot_link=source, device=device)
    assert model.labels_.tolist() == by_appearance(label.tolist()).tolist()


def test_an_edge_outside_the_tree_may_take_the_place_of_a_refused_one(device):
    """Rows 0 and 1 may not meet. The tree is 0-1-2, and 0-2, which is not in it, is the next."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0]])
    model = fit(X, max_distance=3.0, cannot_link=[(0, 1)], device=device)
    assert model.mst_[["src", "dst"]].to_numpy().tolist() == [[1, 2]]
    assert model.labels_.tolist() == [0, 1, 1]
    model = fit(X, max_distance=3.0, cannot_link=[(1, 2)], device=device)
    assert model.mst_[["src", "dst"]].to_numpy().tolist() == [[0, 1]]
    model = fit(X, max_distance=3.0, cannot_link=["a", "a", "b"], device=device)
    assert model.labels_.tolist() == [0, 1, 1]
    assert model.report_["pairs"]["pairs"] == 3
    assert model.report_["spanning_tree"]["refused"] == 2
    assert model.report_["way"] == "cannot_link"


@KINDS
@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "cosine"])
@pytest.mark.parametrize("d", [2, 12])
def test_rows_are_those_of_brute_force(kind, metric, d, device):
    """With ties: coordinates are small integers."""
    rng = np.random.default_rng(d)
    n = 60
    X = rng.integers(1, 5, (n, d)).astype(np.float64)
    constraint, of_oracle = some_constraint(rng, kind, n)
    pairs = rapids_slink.pairs(X, max_distance=float(np.quantile(pdist(X, metric), 0.3)), metric=metric, device="cpu")
    pairs = pairs.sort_values("weight", kind="stable")
    taken, labels, refused = brute_force(n, pairs[["src", "dst"]].to_numpy().tolist(), **of_oracle)
    limit = float(pairs["weight"].max())
    model = fit(X, max_distance=limit, metric=metric, cannot_link=constraint, device=device)
    assert model.labels_.tolist() == labels
    assert model.report_["spanning_tree"]["refused"] == refused
    pd.testing.assert_frame_equal(on_host(model.mst_), pairs.iloc[taken].reset_index(drop=True))
    assert model.n_clusters_ == n - len(taken)
    for cut in (model.n_clusters_, model.n_clusters_ + 3, n):  # no cut of the forest breaks it either
        found = np.asarray(on_host(model.cut(cut)))
        assert len(set(found)) == cut
        if kind != "pairs":
            known = ~np.isnan(constraint)
            assert not pd.DataFrame({"label": found, "source": constraint})[known].duplicated().any()
    graph = fit_graph(pairs, n_nodes=n, cannot_link=constraint, device=device)
    assert graph.labels_.tolist() == labels


def test_no_constraint_is_the_fit_without_one(device):
    X = np.random.default_rng(0).normal(size=(200, 3))
    plain = fit(X, max_distance=0.5, device=device)
    for nothing in (np.full(200, np.nan), [None] * 200, np.arange(200), np.empty((0, 2), int), []):
        model = fit(X, max_distance=0.5, cannot_link=nothing, device=device)
        assert model.labels_.tolist() == plain.labels_.tolist()
        pd.testing.assert_frame_equal(on_host(model.mst_), on_host(plain.mst_))
        assert model.report_["spanning_tree"]["refused"] == 0


RECORDS = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0, 9.0], "y": 0.0}, index=list("pqrst"))
RECORDS["source"] = ["a", "b", "a", None, "b"]
#: Of 0-1, 1-2, 2-3 at distance 1 the second has two of source a; 0-2, 1-3 at distance 2 are refused, too.
LABELS = [0, 0, 1, 1, 2]


def test_the_source_is_a_column_of_a_table(device):
    model = fit(RECORDS, max_distance=2.0, cannot_link="source", device=device)
    assert model.labels_.tolist() == LABELS
    assert model.labels_.index.tolist() == list("pqrst")
    assert model.feature_names_in_.tolist() == ["x", "y"]
    of_device = on_device(RECORDS, rapids_slink.runtime.device.resolve(device))
    assert on_host(fit(of_device, max_distance=2.0, cannot_link="source", device=device).labels_).tolist() == LABELS


@pytest.mark.parametrize(
    "source",
    [
        ["a", "b", "a", None, "b"],
        RECORDS["source"],
        RECORDS["source"].astype("category"),
        RECORDS["source"].to_numpy(),
        pd.Series([7, 8, 7, None, 8], index=list("pqrst"), dtype="Int64"),
        np.array([0.5, 1.5, 0.5, np.nan, 1.5]),
        pd.to_datetime(["2020", "2021", "2020", None, "2021"]),
        pd.DataFrame({"source": RECORDS["source"]}),
    ],
    ids=lambda source: type(source).__name__,
)
def test_sources_of_any_kind(source, device):
    X = RECORDS[["x", "y"]]
    assert fit(X, max_distance=2.0, cannot_link=source, device=device).labels_.tolist() == LABELS


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 2), (1, 4)],
        np.array([[0, 2], [4, 1]]),
        np.array([[0, 2], [4, 1], [2, 0], [0, 2]], np.uint8),
        pd.DataFrame({"u": [0, 1], "v": [2, 4]}),
        pd.DataFrame({"weight": [0.1, 0.2], "dst": [0, 1], "src": [2, 4]}),
    ],
    ids=lambda pairs: type(pairs).__name__,
)
def test_pairs_of_any_kind(pairs, device):
    """Row 3 goes to the row 2 that it ties with 1 for only after 0-1 and 1-2 came."""
    expected = fit(RECORDS[["x", "y"]], max_distance=2.0, cannot_link=[[0, 2], [1, 4]], device=device)
    assert expected.labels_.tolist() == [0, 0, 1, 1, 2]
    assert fit(RECORDS[["x", "y"]], max_distance=2.0, cannot_link=pairs, device=device).labels_.tolist() == LABELS


def test_tables_of_polars(device):
    polars, how = pytest.importorskip("polars"), {"max_distance": 2.0, "device": device}
    assert fit(polars.from_pandas(RECORDS), cannot_link="source", **how).labels_.to_list() == LABELS
    for given in (polars.Series(RECORDS["source"]), polars.DataFrame({"u": [0, 1], "v": [2, 4]})):
        assert fit(RECORDS[["x", "y"]], cannot_link=given, **how).labels_.tolist() == LABELS


def test_text_and_other_rows(device):
    names = pd.DataFrame({"name": ["anna", "anne", "ann", "hanna", "otto"], "source": ["a", "a", "b", "b", "a"]})
    model = fit(names, metric="levenshtein", max_distance=2, cannot_link="source", device=device)
    pairs = rapids_slink.pairs(names["name"], max_distance=2, metric="levenshtein", device="cpu")
    pairs = pairs.sort_values("weight", kind="stable")
    _, labels, refused = brute_force(5, pairs[["src", "dst"]].to_numpy().tolist(), names["source"].tolist())
    assert model.labels_.tolist() == labels
    assert model.report_["spanning_tree"]["refused"] == refused > 0
    sets = [{1, 2, 3}, {1, 2, 3, 4}, {1, 2}, {7}]
    model = fit(sets, metric="jaccard", min_similarity=0.5, cannot_link=[[0, 1]], device=device)
    assert model.labels_.tolist() == [0, 1, 0, 2]
    rows = np.array([[0], [10], [20], [30], [90]], np.int8)
    scaled = fit(Scaled(rows, 0.125), max_distance=2.5, cannot_link=RECORDS["source"].tolist(), device=device)
    assert scaled.labels_.tolist() == LABELS
    gaps = np.array([[0, np.nan], [1.0, 0], [1.5, 0]])
    model = fit(gaps, max_distance=9, missing="pairwise", cannot_link=[[1, 2]], device=device)
    assert model.labels_.tolist() == [0, 0, 1]


def test_thresholds_and_numbers_of_clusters(device):
    X = RECORDS[["x", "y"]]
    source = RECORDS["source"]
    model = fit(X, 4, max_distance=2.0, cannot_link=source, device=device)
    assert model.n_clusters_ == 4
    below = fit(X, distance_threshold=1.0, max_distance=2.0, cannot_link=source, device=device)
    assert below.n_clusters_ == 5
    with pytest.raises(ValueError, match="n_clusters must be from 3 to 5"):
        fit(X, 2, max_distance=2.0, cannot_link=source, device=device)
    one = fit(X[:1], max_distance=2.0, cannot_link=[1], device=device)
    assert one.labels_.tolist() == [0]
    far = fit(X * 9, max_distance=2.0, cannot_link=source, device=device)
    assert far.labels_.tolist() == [0, 1, 2, 3, 4]
    assert fit_graph(edges([], [], []), n_nodes=2, cannot_link=[(0, 1)], device=device).labels_.tolist() == [0, 1]


def test_a_model_is_saved(tmp_path, device):
    model = fit(RECORDS, max_distance=2.0, cannot_link="source", device=device)
    model.save(tmp_path / "model")
    assert rapids_slink.load(tmp_path / "model").labels_.tolist() == LABELS


@pytest.mark.parametrize("kind", NAMES)
def test_nodes_by_name(kind, device):
    """Sources by id, pairs of ids; what is no node is ignored."""
    number = [0, 1, 2, 3, 4]
    src, dst = [0, 1, 2, 0, 3], [1, 2, 3, 2, 4]
    frame = pd.DataFrame({"src": NAMES[kind](src), "dst": NAMES[kind](dst), "weight": [1.0, 1.0, 1.0, 2.0, 8.0]})
    ids = NAMES[kind]([*number, 20])
    source = pd.Series(["a", "b", "a", None, "b", "a"], index=pd.Index(ids))
    labels = [0, 0, 1, 1, 1]
    for given in (source, source.to_dict(), source.iloc[[0, 1, 2, 4]]):
        model = fit_graph(frame, cannot_link=given, device=device)
        found = dict(zip(model.labels_.index.tolist(), model.labels_.tolist(), strict=True))
        assert found == dict(zip(pd.Index(ids).tolist(), labels, strict=False))
    apart = pd.DataFrame({"u": NAMES[kind]([0, 3]), "v": NAMES[kind]([2, 20])})
    model = fit_graph(frame, cannot_link=apart, device=device)
    assert model.n_clusters_ == 2
    with pytest.raises(ValueError, match="must tell whose sources it holds: pass a Series whose index"):
        fit_graph(frame, cannot_link=["a", "b", "a", None, "b"], device=device)


def test_sources_of_numbered_nodes(device):
    frame = edges([0, 1, 2, 0, 3], [1, 2, 3, 2, 4], [1.0, 1.0, 1.0, 2.0, 8.0])
    for source in (["a", "b", "a", None, "b"], {0: "a", 1: "b", 2: "a", 4: "b", 9: "c"}, np.array([1, 2, 1, 3, 2])):
        assert fit_graph(frame, cannot_link=source, device=device).labels_.tolist() == [0, 0, 1, 1, 1]
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_weighted_edges_from([("p", "q", 1.0), ("q", "r", 1.0)])
    model = fit_graph(graph, cannot_link={"p": 1, "r": 1}, device=device)
    assert model.labels_.to_dict() == {"p": 0, "q": 0, "r": 1}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "cannot_link takes all pairs within a distance: pass max_distance, or min_similarity"),
        ({"max_distance": 1.0, "groups": [0, 0, 1, 1, 1]}, "cannot_link cannot be combined with groups"),
        ({"max_distance": 1.0, "min_samples": 3}, "cannot_link cannot be combined with min_samples above 1"),
        ({"max_distance": 1.0, "prediction_data": True}, "cannot_link cannot be combined with prediction_data=True"),
        ({"max_distance": 1.0, "metric": "precomputed"}, r"pass their edges to fit_graph\(edges, cannot_link=...\)"),
        ({"max_distance": 1.0, "distance_threshold": 2.0}, "distance_threshold must be at most max_distance=1.0"),
    ],
)
def test_what_makes_no_sense_together(more, message, device):
    with pytest.raises(ValueError, match=message):
        fit(RECORDS[["x", "y"]], cannot_link=[(0, 1)], device=device, **more)


BAD = [
    ("where", ValueError, "cannot_link.*'where'"),
    (["a", "b"], ValueError, "cannot_link must hold one (key|source) for each of 5 rows, got 2"),
    (np.zeros(4), ValueError, "cannot_link must hold one source for each of 5 rows, got 4; or pairs of rows"),
    (np.zeros((5, 3)), ValueError, "cannot_link must hold pairs in two columns, or sources in one, got 3 columns"),
    (np.zeros((5, 2)), TypeError, "pairs in cannot_link must be of row numbers, which are integers, got dtype float64"),
    ([(0, 5)], ValueError, "pairs in cannot_link must be of row numbers from 0 to 4, got 5"),
    ([(-1, 2)], ValueError, "pairs in cannot_link must be of row numbers from 0 to 4, got -1"),
    ([(0, 1), (3, 3)], ValueError, "cannot_link holds the pair of 3 and itself"),
    ([(0, None)], ValueError, "cannot_link holds pairs with nulls or NaN"),
    ([(0, 1, 2)], ValueError, "in two columns, or sources in one, got 3 columns"),
    (["x", "y"], ValueError, "cannot_link must"),
    (3, (ValueError, TypeError), "cannot_link"),
    ([[1], [2], [3], [4], {}], TypeError, "cannot_link"),
    (pd.Series(list("abcde")), ValueError, "cannot_link has another index than X"),
]


@pytest.mark.parametrize(("given", "error", "message"), BAD, ids=range(len(BAD)))
def test_bad_constraints_of_rows(given, error, message, device):
    with pytest.raises(error, match=message):
        fit(RECORDS[["x", "y"]], max_distance=1.0, cannot_link=given, device=device)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("source", TypeError, "cannot_link must hold a source for each node, or pairs of nodes, got 'source'"),
        (7, TypeError, "cannot_link must hold a source for each node, or pairs of nodes, got 7"),
        ([1, 2], ValueError, "one source for each of 3 nodes, got 2: pass n_nodes, or a Series whose index"),
        (pd.Series([1, 2, 3], index=[0, 1, 1]), ValueError, "several sources of node 1: its index must hold each id"),
        ([(1, 1)], ValueError, "cannot_link holds the pair of 1 and itself"),
        ([[1], [2], {}], TypeError, "sources in cannot_link must be hashable"),
    ],
)
def test_bad_constraints_of_graphs(given, error, message, device):
    with pytest.raises(error, match=message):
        fit_graph(edges([0, 1], [1, 2], [1.0, 2.0]), cannot_link=given, device=device)


def test_one_tree_cannot_be_demanded(device):
    with pytest.raises(ValueError, match="complete='error' asks for one tree, and cannot_link keeps trees apart"):
        fit_graph(edges([0], [1], [1.0]), complete="error", cannot_link=[(0, 1)], device=device)


def test_pairs_that_do_not_fit_are_refused(device):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    with pytest.raises(DeviceMemoryError, match=r"pairs of rows within 9.*Pass a smaller max_distance, or collect"):
        fit(X, max_distance=9.0, cannot_link=np.arange(3000) % 7, memory_limit="32MiB", device=device)


def test_all_rows_apart(device):
    X = np.zeros((6, 2))
    model = fit(X, max_distance=1.0, cannot_link=list(combinations(range(6), 2)), device=device)
    assert model.labels_.tolist() == list(range(6))
    assert model.report_["spanning_tree"]["refused"] == 15
