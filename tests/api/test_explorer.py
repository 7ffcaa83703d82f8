"""The explorer: its widgets, and a real browser that drives it in JupyterLab."""

import importlib.util
import io
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from notebook_pages import browser, jupyterlab, opened, run_cell, write_notebook
from PIL import Image
from repository import process

import rapids_slink
from rapids_slink.datasets import EARTH_RADIUS
from rapids_slink.hierarchy import plotting
from rapids_slink.hierarchy.plotting import COLORS, NOISE, OTHERS
from rapids_slink.points.output import on_host

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jscatter") is None, reason="jupyter-scatter is not installed")


@pytest.fixture(scope="module")
def df():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [9, 1], [4, 8], [-6, 5]])
    rows = centres[np.repeat(range(4), (400, 300, 200, 100))] + rng.normal(size=(1000, 2))
    return pd.DataFrame(rows, columns=["a", "b"], index=[f"row {i}" for i in range(1000)])


@pytest.fixture
def model(df, device):
    return rapids_slink.fit(df, 4, device=device)


def same(labels, expected):
    return np.array_equal(np.asarray(on_host(labels)), np.asarray(on_host(expected)))


def test_every_control_shows_the_same_cut(df, model):
    explorer = model.explore(df)
    assert (explorer.number.value, explorer.curve.value) == (4, 4)
    assert same(explorer.labels, model.labels_)
    explorer.curve.value = 30
    assert explorer.number.value == 30
    assert same(explorer.labels, model.cut(30))
    assert same(explorer.labels, model.cut(distance_threshold=explorer.distance.value))
    explorer.distance.value = 0.9
    expected = model.cut(distance_threshold=0.9)
    assert same(explorer.labels, expected)
    assert explorer.number.value == np.unique(on_host(expected)).size
    assert explorer.curve.value == explorer.number.value
    explorer.min_size.value = 20
    assert same(explorer.labels, model.cut(distance_threshold=0.9, min_cluster_size=20))
    explorer.min_size.value = 1
    explorer.number.value = 1  # the whole tree
    assert same(explorer.labels, model.cut(1))
    assert same(explorer.labels, model.cut(distance_threshold=explorer.distance.value))
    explorer.number.value = 1000
    assert same(explorer.labels, model.cut(1000))
    explorer.tree.dragged = 0.9  # the line in the tree
    assert same(explorer.labels, expected)


def test_undo_goes_back_by_one_cut(df, model):
    explorer = model.explore(df)
    explorer.number.value = 9
    explorer.curve.dragging = True  # many cuts, which are one step
    explorer.curve.value = 12
    explorer.curve.value = 30
    explorer.curve.dragging = False
    explorer.min_size.value = 7
    explorer.cluster.value = 0  # selects, and cuts nothing
    shown = []
    for _ in range(5):
        shown.append((explorer.number.value, explorer.min_size.value))
        explorer.undo_button.click()
    assert shown == [(30, 7), (30, 1), (9, 1), (4, 1), (4, 1)]
    assert same(explorer.labels, model.labels_)


@pytest.fixture(scope="module")
def outliers(df):
    """The rows with a few far ones, which are the clusters of most cuts."""
    far = pd.DataFrame({"a": [90.0, -80.0, 70.0, 5.0], "b": [0.0, 60.0, -90.0, 120.0]})
    return pd.concat([df, far], ignore_index=True)


def test_outliers_are_not_the_first_cut(outliers, device):
    model = rapids_slink.fit(outliers, 4, device=device)
    explorer = model.explore(outliers)
    assert explorer.number.value > 4
    assert same(explorer.labels, model.cut(explorer.number.value, min_cluster_size=10))
    assert np.unique(np.asarray(on_host(explorer.labels))).tolist() == [-1, 0, 1, 2, 3]
    explorer.undo()
    assert same(explorer.labels, model.labels_)


def test_the_clusters_that_are_shown_and_all_are_told_apart(df, model):
    explorer = model.explore(df)
    explorer.number.value = 30
    explorer.min_size.value = 20
    text = explorer._count.value
    assert text.startswith("<b>4 of 30 clusters, those of at least 20 rows</b> (")
    assert "rows of noise<br>0 rows selected" in text


def test_counts_colours_and_table_follow(df, model):
    explorer = model.explore(df)
    explorer.number.value = 5
    assert explorer._count.value.startswith("<b>5 clusters</b>")
    sizes = np.sort(np.bincount(on_host(model.cut(5))))[::-1]
    cells = re.findall(r"<td[^>]*padding: [^>]*>([\d,]+)</td><td[^>]*padding: [^>]*>[\d.]+%", explorer._table.value)
    assert cells == [f"{size:,}" for size in sizes]
    points = explorer.scatter.widget.points
    colour = {label: points[np.asarray(on_host(explorer.labels)) == label, 2] for label in range(5)}
    assert all(np.unique(values).size == 1 for values in colour.values())
    assert np.unique(points[:, 2]).size == 5


def test_twenty_clusters_have_colours_of_their_own(df, model):
    assert len({*COLORS, OTHERS, NOISE}) == len(COLORS) + 2 == 22
    explorer = model.explore(df)
    explorer.number.value = 30
    assert np.unique(explorer.scatter.widget.points[:, 2]).size == 21  # the others have one
    explorer.min_size.value = 2
    labels = np.asarray(on_host(explorer.labels))
    of_noise = explorer.scatter.widget.points[labels < 0, 2]
    assert np.unique(of_noise).size == 1
    assert of_noise[0] not in explorer.scatter.widget.points[labels >= 0, 2]


def test_the_curve_begins_at_one_cluster(df, model):
    explorer = model.explore(df)
    assert explorer.curve.range == [1, 1000]
    assert (explorer.curve.x[0], explorer.curve.y[0]) == (2, pytest.approx(model.distances_[-1]))


def test_the_tree_has_the_colours_of_the_clusters(df, model):
    explorer = model.explore(df)
    tree = explorer.tree
    host = np.asarray(on_host(model.labels_))
    assert {fill for fill in tree.fills if fill} == set(COLORS[:4])
    for corners, fill in zip(tree.bars, tree.fills, strict=True):
        shares, heights = np.array(corners).T
        assert (shares >= 0).all()
        assert (shares <= 1).all()
        assert heights.max() <= tree.range[1] * (1 + 1e-12)
        assert fill
    assert model.distances_[-4] < tree.cut < model.distances_[-3]
    leaves = [i for i, corners in enumerate(tree.bars) if min(height for _, height in corners) < tree.cut]
    tree.clicked = [leaves[0], 1]
    chosen = host[np.asarray(explorer.scatter.selection())]
    assert np.unique(chosen).size == 1
    explorer.number.value = 1
    assert set(tree.fills) == {COLORS[0]}


def test_a_row_under_the_pointer_is_described(df, model):
    data = df.assign(x=1.0 / 3, kind="k")
    explorer = model.explore(df, data=data)
    sent = []
    explorer.scatter.widget.send = lambda message, *_: sent.append(message)
    explorer.scatter.widget._handle_custom_msg({"type": "tooltip", "index": 7}, [])
    words = sent[0]["properties"]
    a, b = (f"{value:.6g}" for value in df.iloc[7])
    assert words == {"row": "row 7", "cluster": "0", "a": a, "b": b, "x ": "0.333333", "kind": "k"}
    assert set(explorer.scatter.widget.tooltip_properties) == set(words)


def test_colours_of_a_column(df, model):
    data = df.assign(kind=["even", "odd"] * 500, height=np.linspace(3, 9, 1000))
    explorer = model.explore(df, data=data)
    points = explorer.scatter.widget
    clusters = points.points[:, 2].copy()
    explorer.color.value = "kind"
    assert np.unique(points.points[::2, 2]).size == np.unique(points.points[1::2, 2]).size == 1
    assert re.findall(r"●</span> (\w+)", explorer._count.value) == ["even", "odd"]
    explorer.number.value = 9  # and stays
    assert np.unique(points.points[:, 2]).size == 2
    explorer.color.value = "height"
    assert (np.diff(points.points[:, 2]) > 0).all()
    assert "height: 3 <span" in explorer._count.value
    explorer.number.value, explorer.color.value = 4, "clusters"
    assert np.array_equal(points.points[:, 2], clusters)
    given = model.explore(df, color=np.repeat([0, 1], 500))
    assert np.unique(given.scatter.widget.points[:, 2]).tolist() == [0, 1]
    assert given.color.value == "color"


def test_columns_with_the_names_of_the_menu(df, model):
    """A column called "clusters" is one to choose beside the clusters of the cut, and so is "color" beside values."""
    data = df.assign(clusters=["even", "odd"] * 500, color=["left", "right"] * 500)
    given = data["color"].to_numpy()
    for color, menu in (("clusters", "clusters (column)"), ("color", "color"), (given, "color (given)")):
        explorer = model.explore(df, data=data, color=color)
        assert explorer.color.value == menu
        assert np.unique(explorer.scatter.widget.points[::2, 2]).size == 1
        assert f"{menu}: " in explorer._count.value
    explorer.color.value = "clusters"
    assert np.unique(explorer.scatter.widget.points[::2, 2]).size == 4


@pytest.mark.parametrize(
    ("column", "legend"),
    [
        ([[1], [2]] * 500, r"●</span> \[1\]</span>.*●</span> \[2\]</span>"),
        ([None, 1.0] * 500, "●</span> 1.0</span>.*●</span> missing</span>"),
        ([*map(str, range(999)), None], r"●</span> 9\d\d others and missing</span>"),
        ([*range(999), None], r"c: 0 <span.*</span> 998, 1 missing, as the least"),
    ],
)
def test_legends_tell_what_is_missing(df, model, column, legend):
    assert re.search(legend, model.explore(df, data=df.assign(c=column), color="c")._count.value)


def test_names_on_the_map(df, model):
    plain, data = model.explore(df), df.assign(name=[f"n{i}" for i in range(1000)])
    labels, names = np.asarray(on_host(model.labels_)), []
    for cluster in range(4):
        inside = np.flatnonzero(labels == cluster)
        far = ((df.iloc[inside] - df.iloc[inside].median()) ** 2).sum(axis=1)
        names.append(f"{cluster}: n{inside[far.argmin()]}")  # its central row
    assert sorted(plain.scatter.widget.labels["label"]) == ["0", "1", "2", "3"]
    data.iloc[400:500, 2] = "often"  # a third of cluster 1
    explorer = model.explore(df, data=data, names="name")
    assert sorted(explorer.scatter.widget.labels["label"]) == [names[0], "1: often", *names[2:]]
    assert names[0] in explorer._table.value
    x, y = explorer.scatter.widget.labels.set_index("label").loc[names[0], ["x", "y"]]
    centre = df[labels == 0].median()
    assert (x, y) == pytest.approx(tuple(centre), rel=1e-5)
    explorer.scatter.widget.set_trait("label_tiles", ["1,0,0"])  # jupyter-scatter asks again when the map is moved
    assert len(explorer.scatter.widget.labels) == 4


def test_great_circles_are_in_kilometres(device):
    places = np.radians(pd.DataFrame({"latitude": [10.0, 11.0, 50.0], "longitude": [-170.0, 20.0, 21.0]}))
    model = rapids_slink.fit(places, 2, metric="haversine", device=device)
    explorer = model.explore(places)
    kilometres = np.asarray(on_host(model.distances_)) * EARTH_RADIUS
    assert kilometres[0] < explorer.distance.value <= kilometres[1]
    assert explorer.distance.description == "distance (km)"
    assert explorer.curve.names[1] == "distance of the next merge (km)"
    assert explorer._count.value.startswith(f"<b>2 clusters</b> ({float(f'{kilometres[0]:.3g}'):g} &lt; distance ≤")
    assert " km)" in explorer._count.value
    explorer.distance.value = kilometres[0] - 1
    assert same(explorer.labels, range(3))


def test_distances_below_zero(df, device):
    model = rapids_slink.fit(df, 4, metric="inner_product", device=device)
    explorer = model.explore(df)
    heights = np.asarray(on_host(model.distances_))
    assert explorer.tree.range == pytest.approx([heights[0], heights[-1]])
    assert heights[0] <= explorer.tree.cut <= heights[-1]
    explorer.number.value, explorer.min_size.value = 1000, 1
    assert same(explorer.labels, range(1000))


@pytest.mark.full
def test_nothing_is_deprecated():
    """Also in jupyter-scatter as it is imported."""
    code = """if True:
        import warnings
        warnings.simplefilter("error")
        import numpy as np, pandas as pd, rapids_slink
        df = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["a", "b"])
        explorer = rapids_slink.fit(df, 3, device="cpu").explore(df, names="a")
        explorer.color.value = "b"
        explorer.number.value = 5
        """
    assert "Warning" not in process(code).stderr


@pytest.mark.parametrize("kind", ["frame", "array", "lists"])
def test_selected_rows_are_those_of_the_input(df, device, kind):
    X = {"frame": df, "array": df.to_numpy(), "lists": df.to_numpy().tolist()}[kind]
    explorer = rapids_slink.fit(X, 4, device=device).explore(X)
    assert len(explorer.selected) == 0
    explorer.cluster.value = 3
    rows = np.asarray(on_host(explorer.labels)) == 3
    assert np.array_equal(explorer.selected, df.to_numpy()[rows])
    assert type(explorer.selected) is (pd.DataFrame if kind == "frame" else np.ndarray)
    assert f"{rows.sum()} rows selected" in explorer._count.value
    assert explorer.cluster.value == 3
    explorer.scatter.widget.selection = np.array([7, 3])  # a lasso
    assert explorer.cluster.value == "none"
    assert np.array_equal(explorer.selected, df.to_numpy()[[3, 7]])
    if kind == "frame":
        assert explorer.selected.index.tolist() == ["row 3", "row 7"]


def test_hdbscan(df, device):
    model = rapids_slink.HDBSCAN(min_cluster_size=15, device=device).fit(df)
    explorer = model.explore(df)
    assert same(explorer.labels, model.labels_)
    for size in (40, 97):
        control = explorer.number if size == 40 else explorer.curve
        control.value = size
        expected = rapids_slink.HDBSCAN(min_cluster_size=int(size), min_samples=15, device=device).fit(df).labels_
        assert same(explorer.labels, expected)
        of_bars = [fill for fill in explorer.tree.fills if fill]
        assert len(set(of_bars)) == np.unique(expected[expected >= 0]).size
        assert explorer.tree.cut is None


def test_axes(df, device):
    wide = df.assign(c=1000 * df["a"], d=0.0)
    explorer = rapids_slink.fit(wide, 3, device=device).explore(wide)
    assert explorer._axis_names[0] == "first principal component (100%)"
    explorer = rapids_slink.fit(wide, 3, device=device).explore(wide, x="c", y="b")
    assert explorer._axis_names == ["c", "b"]
    assert np.array_equal(explorer._coordinates, wide[["c", "b"]])
    places = np.radians(pd.DataFrame({"latitude": [10.0, 11.0, 50.0], "longitude": [-170.0, 20.0, 21.0]}))
    explorer = rapids_slink.fit(places, 2, metric="haversine", device=device).explore(places)
    assert explorer._axis_names == ["longitude (°)", "latitude (°)"]
    np.testing.assert_allclose(explorer._coordinates, [[-170, 10], [20, 11], [21, 50]])
    span = [np.ptp(explorer.scatter.widget.__getattribute__(f"{axis}_scale_domain")) for axis in "xy"]
    assert span[0] == pytest.approx(span[1])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n, device):
    X = np.arange(2.0 * n).reshape(n, 2)
    explorer = rapids_slink.fit(X, 1, device=device).explore(X)
    explorer.number.value = n
    assert same(explorer.labels, range(n))


def test_a_forest(device):
    edges = pd.DataFrame({"src": [0, 1, 3], "dst": [1, 2, 4], "weight": [1.0, 2.0, 1.0]})
    model = rapids_slink.fit_graph(edges, device=device)
    explorer = model.explore(np.arange(10.0).reshape(5, 2))
    explorer.number.value = 4
    assert same(explorer.labels, model.cut(4))
    assert explorer.number.min == 2


def test_what_is_refused(df, model):
    wide = {"data": np.zeros((1000, 2000)), "color": "c"}
    for X, how, message in (
        (df[1:], {}, r"X must have the 1,000 rows that were clustered, got 999"),
        (df, {"x": "a"}, "x and y name two columns: give both or neither"),
        (df, {"data": df[1:]}, r"data must have the 1,000 rows that were clustered, got 999"),
        (df, {"names": "c"}, "names='c' is no column: there are 'a', 'b'"),
        (df, {"x": "a", "y": "c"}, "y='c' is no column: there are 'a', 'b'"),
        (df, {"data": pd.concat([df, df], axis=1), "names": "a"}, "names='a' is there 2 times"),
        (df, wide, r"color='c' is no column: there are 0, 1, 2, 3, 4, 5, \.\.\., 1999$"),
        (df, {"color": [1, 2, 3]}, "color must have a value for each of 1,000 rows, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            model.explore(X, **how)
    weighted = rapids_slink.HDBSCAN(device="cpu").fit(df, sample_weight=np.ones(1000))
    with pytest.raises(ValueError, match="the explorer counts rows, and these have weights: fit without"):
        weighted.explore(df)
    with pytest.raises(Exception, match="not fitted yet"):
        rapids_slink.SingleLinkage(device="cpu").explore(df)


@pytest.mark.full
def test_collections_of_dask(df):
    dask = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=1, threads_per_worker=1, dashboard_address=None):
        ddf = dask.from_pandas(df.reset_index(drop=True), npartitions=3)
        model = rapids_slink.fit(ddf, 4, device="cpu")
        explorer = model.explore(ddf)
        explorer.number.value = 9
        assert same(explorer.labels, model.cut(9))
        explorer.cluster.value = 0
        assert len(explorer.selected) == (np.asarray(on_host(model.cut(9))) == 0).sum()


def test_a_page_for_a_report(df, model):
    explorer = model.explore(df)
    explorer.number.value = 6
    page = explorer.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert "<b>6 clusters</b>" in page
    assert "data:image/png;base64," in page
    assert not re.findall(r"<script|<link|(?:src|href)=\"(?!data:)|url\(", page)


def test_a_script_that_reads_the_explorer(device):
    """What it shows is in few digits, agrees with the page that it keeps, and names clusters by their central rows."""
    rng = np.random.default_rng(1)
    centres = rng.uniform(0, 1000, (60, 2))
    rows = np.concatenate([centre + rng.normal(size=(60 - i, 2)) for i, centre in enumerate(centres)])
    df = pd.DataFrame(rows, columns=["a", "b"])
    model = rapids_slink.fit(df, 60, device=device)
    names = np.array([f"name {i:04}" for i in range(len(df))])
    explorer = model.explore(df, names=names)
    assert len(f"{explorer.distance.value:g}") <= 4
    assert same(explorer.labels, model.cut(distance_threshold=explorer.distance.value))
    distances = re.search(r"\((\S+) &lt; distance ≤ (\S+)\)", explorer._count.value).groups()
    assert all(len(text.replace(".", "")) <= 4 for text in distances)
    labels, points = np.asarray(on_host(explorer.labels)), df.to_numpy()
    for name, *_ in explorer._placed:
        cluster, _, row = name.partition(": ")
        inside = np.flatnonzero(labels == int(cluster))
        far = np.linalg.norm(points[inside] - np.median(points[inside], axis=0), axis=1)
        assert row == names[inside[far.argmin()]]
    drawn = []
    with pytest.MonkeyPatch.context() as patch:
        real = plotting.plot_clusters
        patch.setattr(plotting, "plot_clusters", lambda *rows, **how: drawn.append(real(*rows, **how)) or drawn[0])
        page = explorer.to_html()
    shown = {row.get_text() for row in drawn[0].get_legend().get_texts()}
    assert len(shown) == 21
    assert any(text.startswith("40 others") for text in shown)
    assert "40 others" in page
    assert "40 others" in explorer._table.value


def test_the_poles_are_the_ends_of_a_map(device):
    rng = np.random.default_rng(0)
    world = np.column_stack([np.arcsin(rng.uniform(-1, 1, 500)), rng.uniform(-np.pi, np.pi, 500)])
    for places in (world, np.radians([[89.0, 0.0], [89.9, 90.0], [80.0, 10.0]])):
        explorer = rapids_slink.fit(places, 2, metric="haversine", device=device).explore(places)
        assert np.abs(explorer.scatter.widget.y_scale_domain).max() <= 90
        span = [np.ptp(getattr(explorer.scatter.widget, f"{axis}_scale_domain")) for axis in "xy"]
        assert span[0] == pytest.approx(span[1])


# ------------------------------------------------------------------------------------------------- in a browser

CELL = """
import numpy as np, pandas as pd, rapids_slink
df = pd.read_csv("points.csv")
model = rapids_slink.fit(df, 4, device="cpu")
explorer = model.explore(df)
explorer
"""
RESULT = """
import json
result = explorer.labels.tolist(), explorer.selected.index.tolist(), explorer.curve.ink
json.dump(result, open("result.json", "w"))
"""


def clusters(page, number):
    return page.locator("b", has_text=re.compile(f"^{number} clusters$")).first


def colours(picture):
    """Those of at least 60 pixels, as text."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).reshape(-1, 3)
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    return {"#" + bytes(colour).hex().upper() for colour in found[counts >= 60].astype(np.uint8)}


def is_dark(color):
    return sum(bytes.fromhex(color.removeprefix("#"))) < 3 * 128


def in_kernel(page, folder):
    """The labels, the selection and the colour of text that the kernel has, read by the notebook's second cell."""
    (folder / "result.json").unlink(missing_ok=True)
    run_cell(page, 1)
    for _ in range(300):
        if (folder / "result.json").exists() and (text := (folder / "result.json").read_text()):
            return json.loads(text)
        page.wait_for_timeout(100)
    raise AssertionError("the cell has not run")


@pytest.mark.full
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_a_browser_drives_it(df, tmp_path, theme):
    """The cut is dragged, a cluster is chosen and a region is drawn around points; the kernel has the same."""
    if browser() is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("there is no Chromium, or playwright or JupyterLab is not installed")
    df.to_csv(tmp_path / "points.csv", index=False)
    df = pd.read_csv(tmp_path / "points.csv")
    write_notebook(tmp_path, CELL, RESULT)
    pictures = os.environ.get("RAPIDS_SLINK_SCREENSHOTS", str(tmp_path))

    def screenshot(page, moment):
        page.locator("canvas").first.scroll_into_view_if_needed()
        page.wait_for_timeout(1500)
        page.screenshot(path=f"{pictures}/explorer-{theme.split()[1].lower()}-{moment}.png")

    model = rapids_slink.fit(df, 4, device="cpu")
    with jupyterlab(tmp_path, theme) as address, opened(tmp_path, address) as page:
        run_cell(page, 0)
        clusters(page, 4).wait_for()
        page.locator(".slink-handle").wait_for()
        screenshot(page, "1-opened")

        ticks = page.locator("svg text").all_text_contents()
        assert {"1", "10", "100", "1,000"} <= set(ticks)
        assert not [text for text in ticks if re.fullmatch(r"[\d.]+[a-zµ]", text)]  # as 200m would be
        cells = page.locator("table td").all_text_contents()
        assert not [text for text in cells if re.search(r"\d[\d,]*\.\d+%.", text)]
        handle = page.locator(".slink-handle").first
        box = handle.bounding_box()
        knob = box["x"] + box["width"] / 2, box["y"] + box["height"] - 7
        page.mouse.move(*knob)
        page.mouse.down()
        page.mouse.move(knob[0] + 60, knob[1], steps=8)
        page.mouse.up()
        clusters(page, 4).wait_for(state="detached")
        page.wait_for_timeout(1000)
        dragged = int(page.get_by_label("clusters", exact=True).input_value())
        assert dragged > 4
        box = handle.bounding_box()
        assert abs(box["x"] + box["width"] / 2 - knob[0] - 60) < 3  # the cut is where it was let go
        labels, *_ = in_kernel(page, tmp_path)
        assert labels == model.cut(dragged).tolist()
        screenshot(page, "2-dragged")
        shown = colours(page.locator("canvas").first.screenshot())
        assert {colour for colour in shown if colour in COLORS} >= set(COLORS[:4])  # of the four large clusters

        page.locator("canvas").first.scroll_into_view_if_needed()
        number = page.get_by_label("clusters", exact=True)
        number.fill("4")
        number.press("Enter")
        clusters(page, 4).wait_for()
        page.get_by_label("select", exact=True).select_option(index=2)
        page.get_by_text(re.compile(r"[1-9]\d* rows selected")).wait_for()
        labels, selected, _ = in_kernel(page, tmp_path)
        assert labels == model.cut(4).tolist()
        sizes = np.bincount(labels)
        assert selected == np.flatnonzero(np.array(labels) == np.argsort(-sizes, kind="stable")[1]).tolist()

        page.locator("canvas").first.scroll_into_view_if_needed()
        scatter = page.locator("canvas").first.bounding_box()
        x, y = scatter["x"] + scatter["width"] / 2, scatter["y"] + scatter["height"] / 2
        corners = [(-150, -150), (150, -150), (150, 150), (-150, 150), (-150, -150)]
        page.get_by_title("Activate lasso selection").click()
        page.mouse.move(x - 150, y - 150)
        page.mouse.down()
        for dx, dy in corners:
            page.mouse.move(x + dx, y + dy, steps=20)
            page.wait_for_timeout(50)
        page.mouse.up()
        page.wait_for_timeout(1500)
        _, region, _ = in_kernel(page, tmp_path)
        assert region != selected
        assert 0 < len(region) < len(df)
        screenshot(page, "3-selected")
        page.get_by_role("button", name="undo").click()
        clusters(page, dragged).wait_for()
        other = {"JupyterLab Light": "JupyterLab Dark", "JupyterLab Dark": "JupyterLab Light"}[theme]
        page.locator(".lm-MenuBar-itemLabel", has_text="Settings").click()
        page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).hover()
        page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{other}$")).click()
        page.wait_for_timeout(3000)
        *_, ink = in_kernel(page, tmp_path)
        assert is_dark(ink) == (other == "JupyterLab Light")  # dark names of clusters on the light page
        screenshot(page, "4-other-theme")
        assert not [text for text in page.said if "draw call" in text or text.startswith("error: ")]
