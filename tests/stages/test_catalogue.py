"""The catalogue of a model's clusters: sizes, centres, radii and spreads."""

import math

import numpy as np
import pandas as pd
import pytest
from arrow_tables import to_stream

import rapids_slink
from rapids_slink import HDBSCAN, SingleLinkage, fit, fit_graph
from rapids_slink.points.output import on_device, on_host
from rapids_slink.prediction import PART, catalogue_of, members_of, read_rows
from rapids_slink.runtime.device import CPU, to_host
from rapids_slink.runtime.memory import run_scope


def islands(n=2000, d=3, dtype="float64", seed=0):
    """Rows of islands that are far apart, of all sizes."""
    rng = np.random.default_rng(seed)
    size = rng.zipf(1.5, n // 20 + 1).clip(max=n // 3 + 1)
    X = np.repeat(rng.random((size.size, d)) * 1000, size, axis=0)[:n]
    return (X + rng.normal(size=X.shape) * 1e-2)[rng.permutation(len(X))].astype(dtype)


def in_run(X, labels, min_size, device, weight=None, box=None):
    """The columns of a catalogue of arrays on the host, made on a device."""
    with run_scope(device):
        rows = read_rows(device.asarray(X), [], None, weight, len(X), device)
        columns = catalogue_of(rows, device.asarray(labels, "int32"), min_size, device, box).columns
        return {name: to_host(column).copy() for name, column in columns.items()}


def by_definition(X, labels, min_size, weight=None, box=None):
    """The sums of `catalogue`, number by number, in Python."""
    rows, weight = [], np.ones(len(X)) if weight is None else weight
    box = np.full(X.shape[1], np.inf) if box is None else box
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label)
        if members.size < min_size:
            continue
        total, mass = [0.0] * X.shape[1], 0.0
        parts = [members[i : i + PART] for i in range(0, members.size, PART)]
        first = X[members[0]].astype(float)

        def nearest(gap, length):
            return gap - length * np.rint(gap / length) if length < np.inf else gap

        for part in parts:
            sums, of_part = [0.0] * X.shape[1], 0.0
            for row in part:
                of_part += weight[row]
                for f in range(X.shape[1]):
                    sums[f] += weight[row] * nearest(float(X[row, f]) - first[f], box[f])
            mass += of_part
            total = [a + b for a, b in zip(total, sums, strict=True)]
        centre = [first[f] + total[f] / mass for f in range(X.shape[1])]
        for f, length in enumerate(box):
            if length < np.inf:
                centre[f] -= length * np.floor(centre[f] / length)
                centre[f] = centre[f] if centre[f] < length else 0.0
        squares, largest = 0.0, 0.0
        for part in parts:
            of_part = 0.0
            for row in part:
                square = 0.0
                for f in range(X.shape[1]):
                    gap = nearest(float(X[row, f]) - centre[f], box[f])
                    square += gap * gap
                largest, of_part = max(largest, square), of_part + weight[row] * square
            squares += of_part
        rows.append([label, members.size, mass, *centre, np.sqrt(largest), np.sqrt(squares / mass)])
    return np.array(rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "min_size"), [(2000, 3, 20), (3000, 2, 1), (300, 7, 2), (1, 3, 1), (40, 1, 30)])
def test_the_definition(n, d, min_size, dtype, engine):
    """The same bits on either device."""
    rng = np.random.default_rng(n)
    X = islands(n, d, dtype)
    labels = rng.integers(-1, 4, len(X)) if n > 1 else np.zeros(1, int)
    weight, box = rng.random(len(X)) + 0.1, np.where(np.arange(d) % 2, np.inf, 700.0)
    found = in_run(X, labels, min_size, engine, weight, box)
    table = by_definition(X, labels, min_size, weight, box)
    assert list(found) == ["label", "size", "mass", *[f"x{f}" for f in range(d)], "radius", "spread"]
    np.testing.assert_array_equal(np.column_stack(list(found.values())), table.reshape(-1, 5 + d))
    assert found["label"].dtype == np.int32
    assert found["size"].dtype == np.int64


def test_a_model(engine):
    X = islands()
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(vx=X[:, 0] * 2, m=np.arange(len(X)) % 5 + 1.0)
    model = fit(on_device(frame[["x", "y", "z"]], engine), max_distance=1.0, device=engine.name)
    labels = to_host(model.labels_.values)
    for weights in (None, "m", frame["m"].to_numpy()):
        found = model.catalogue(on_device(frame, engine), min_size=5, columns="vx", weights=weights)
        assert type(found) is type(model.linkage_)
        mass = [] if weights is None else ["mass"]
        assert list(found.columns) == ["label", "size", *mass, "x", "y", "z", "vx", "radius", "spread"]
        table = by_definition(X, labels, 5, None if weights is None else frame["m"].to_numpy())
        table = table if mass else np.delete(table, 2, axis=1)
        assert len(table) > 5
        np.testing.assert_allclose(to_host(found.drop(columns="vx").values), table, rtol=1e-9)
        np.testing.assert_allclose(to_host(found["vx"].values), 2 * to_host(found["x"].values), rtol=1e-9)
    of_values = model.catalogue(X, min_size=5, columns=X[:, 0] * 2, weights=weights)
    assert on_host(of_values).rename(columns={"x3": "vx"}).equals(on_host(found))
    whole = model.catalogue(on_device(frame[["x", "y", "z"]], engine), min_size=1)
    assert len(whole) == model.n_clusters_
    single = on_host(whole)[to_host(whole["size"].values) == 1]
    first = [np.flatnonzero(labels == label)[0] for label in single["label"]]
    np.testing.assert_array_equal(single[["x", "y", "z"]].to_numpy(), X[first])  # the row itself, to the last bit
    assert not single[["radius", "spread"]].to_numpy().any()


def test_columns_go_by_name(engine):
    """In whatever order a frame has them: each with the length of its own column of the fit."""
    X = np.random.default_rng(0).random((500, 3)) * [1.0, 0.5, 9.0]
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(vx=1.0, vy=2.0)
    box = [1.0, 0.5, math.inf]
    model = fit(on_device(frame[["x", "y", "z"]], engine), max_distance=0.2, box=box, device=engine.name)
    columns = ["vy", "vx"]
    found = on_host(model.catalogue(on_device(frame, engine), columns=columns, min_size=1))
    again = model.catalogue(on_device(frame[["z", "vx", "y", "x", "vy"]], engine), columns=columns, min_size=1)
    pd.testing.assert_frame_equal(on_host(again), found)
    assert list(found)[2:-2] == ["x", "y", "z", "vy", "vx"]


def test_columns_of_a_stream_go_by_name(device):
    """What exports Arrow's stream has names as any table."""
    X = islands(300)
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(vx=1.0, m=X[:, 0] + 9, place=np.arange(len(X)) % 2)
    model = fit(frame.drop(columns=["vx", "m"]), max_distance=1.0, groups="place", device=device)
    how = {"columns": "vx", "weights": "m", "min_size": 1}
    found, expected = model.catalogue(to_stream(frame), **how), model.catalogue(frame, **how)
    pd.testing.assert_frame_equal(on_host(found), on_host(expected))


def test_the_box_is_that_of_the_fit(device, tmp_path):
    X = np.concatenate([np.linspace(0.9, 1.1, 30) % 1.0, [0.5]])[:, None].repeat(2, axis=1)
    model = SingleLinkage(None, max_distance=0.02, box=1.0, device=device).fit(X)
    found = on_host(model.catalogue(X))
    assert found["radius"].max() < 0.15
    model.set_params(box=None)
    pd.testing.assert_frame_equal(on_host(model.catalogue(X)), found)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(on_host(rapids_slink.load(tmp_path / "model").catalogue(X)), found)


def test_other_columns_than_those_of_the_fit(device):
    X = islands(100)
    for box in (None, 5000.0):
        model = fit(X, max_distance=1.0, box=box, device=device)
        with pytest.raises(ValueError, match="X must have the 3 columns of the fit, got 2"):
            model.catalogue(X[:, :2])


def test_the_tree_is_not_made(device):
    X = islands(4000)  # of fewer a GPU makes the tree
    model = fit(X, max_distance=1.0, device=device)
    assert len(model.catalogue(X))
    assert "linkage" not in model.report_["seconds"]


def test_kept_rows_and_other_models(device):
    X = islands()
    kept = fit(pd.DataFrame(X, columns=list("abc")), distance_threshold=1.0, prediction_data=True, device=device)
    pd.testing.assert_frame_equal(on_host(kept.catalogue()), on_host(kept.catalogue(X)))
    assert list(kept.catalogue().columns) == ["label", "size", "a", "b", "c", "radius", "spread"]
    dense = HDBSCAN(20, device=device).fit(X)
    labels = to_host(dense.labels_)
    found = on_host(dense.catalogue(X, min_size=1))
    assert (labels == -1).any()
    np.testing.assert_allclose(found.to_numpy(), np.delete(by_definition(X, labels, 1), 2, axis=1), rtol=1e-9)
    edges = pd.DataFrame({"src": [0, 1, 3], "dst": [1, 2, 4], "weight": [1.0, 1, 1]})
    graph = fit_graph(edges, device=device)
    found = on_host(graph.catalogue(np.array([0.0, 3, 6, 9, 9]), min_size=2))
    assert found.to_numpy().tolist() == [[0, 3, 3.0, 3.0, np.sqrt(6.0)], [1, 2, 9.0, 0.0, 0.0]]
    assert len(graph.catalogue(np.zeros(5), min_size=9)) == 0


def test_rows_of_another_index_than_the_fit(device):
    X = pd.DataFrame(islands(), columns=list("abc")).rename_axis("id")
    X.index += 7
    mass = pd.Series(np.arange(1.0, len(X) + 1), index=X.index)
    model = fit(X, distance_threshold=1.0, device=device)
    expected = on_host(model.catalogue(X, columns=mass.rename("mass of"), weights=mass))
    found = on_host(model.catalogue(X, columns=mass.rename("mass of"), weights=mass.to_numpy()))
    pd.testing.assert_frame_equal(found, expected)
    calls = {
        "X": lambda: model.catalogue(X[::-1]),
        "columns": lambda: model.catalogue(X, columns=mass[::-1]),
        "weights": lambda: model.catalogue(X.to_numpy(), weights=mass[::-1]),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"^{name} has another index than model\.labels_: pass {name}\.reindex"):
            call()
    of_array = fit(X.to_numpy(), distance_threshold=1.0, device=device)
    with pytest.raises(ValueError, match=r"^weights has another index than X"):
        of_array.catalogue(X, weights=mass[::-1])


def test_boxes(engine):
    """A cluster across a face has its centre there, not in the middle of the box; faces are 0 and not the length."""
    X = np.array([[9.5, 5.0], [0.5, 5.0], [9.75, 5.0], [0.25, 5.0], [4.0, 1.0], [-6.0, 1.0], [14.0, 1.0]])
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    found = in_run(X, labels, 1, engine, box=np.array([10.0, np.inf]))
    assert found["x0"].tolist() == [0.0, 4.0]
    assert found["x1"].tolist() == [5.0, 1.0]
    assert found["radius"].tolist() == [0.5, 0.0]
    flat = in_run(X, labels, 1, engine)
    assert flat["x0"].tolist() == [5.0, 4.0]
    assert flat["radius"].tolist() == [4.75, 10.0]


def test_members():
    labels = np.array([2, -1, 0, 2, 2, 1, 0])
    label, size, members = members_of(labels, 2, None, CPU)
    assert label.tolist() == [0, 2]
    assert size.tolist() == [2, 3]
    assert members.rows.tolist() == [2, 6, 0, 3, 4]
    assert members.start.tolist() == [0, 2, 5]


@pytest.mark.parametrize(
    ("X", "how", "error", "message"),
    [
        (None, {}, ValueError, "this model keeps no rows: pass those that were clustered"),
        (np.ones((2, 3)), {}, ValueError, "X must have the 3 rows that were clustered, got 2"),
        (np.full((3, 2), np.nan), {}, ValueError, "NaN"),
        (np.ones((3, 2)), {"min_size": 1.5}, TypeError, "min_size must be an integer, got 1.5"),
        (np.ones((3, 2)), {"min_size": 0}, ValueError, "min_size must be at least 1, got 0"),
        (np.ones((3, 2)), {"columns": "v"}, ValueError, "X has no column 'v': it is an array"),
        (pd.DataFrame({"a": [1.0] * 3}), {"columns": ["v"]}, ValueError, r"X has no column 'v', only \['a'\]"),
        (pd.DataFrame({"a": [1.0] * 3}), {"weights": "v"}, ValueError, r"X has no column 'v', only \['a'\]"),
        (pd.DataFrame({"size": [1.0] * 3}), {}, ValueError, "the catalogue would have two columns 'size'"),
        (np.ones((3, 2)), {"columns": np.ones((2, 1))}, ValueError, "columns must have the 3 rows"),
        (np.ones((3, 2)), {"weights": np.zeros(3)}, ValueError, "weights must be above zero and finite: that of row 0"),
        (np.ones((3, 2)), {"weights": np.ones(2)}, ValueError, "weights must hold one number for each of 3 rows"),
    ],
)
def test_what_is_refused(X, how, error, message):
    model = fit(np.arange(6.0).reshape(3, 2), device="cpu")
    with pytest.raises(error, match=message):
        model.catalogue(X, **how)


def test_angles_and_bits_are_refused():
    places = fit(np.zeros((3, 2)), metric="haversine", device="cpu")
    with pytest.raises(ValueError, match="a catalogue averages coordinates, and rows of metric='haversine' are none"):
        places.catalogue(np.zeros((3, 2)))
