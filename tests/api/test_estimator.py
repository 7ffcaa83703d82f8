"""scikit-learn's conventions: its own checks, pipelines, copies and pickles, and the summary in Jupyter."""

import ast
import copy
import pickle
import re
from functools import partial
from html.parser import HTMLParser
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
import sklearn
from models import assert_same
from repository import python
from scipy.cluster.hierarchy import linkage
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import rapids_slink
from rapids_slink import DBSCAN, HDBSCAN, SingleLinkage, fit, fit_graph, load, plan
from rapids_slink.hierarchy.model import Hierarchy
from rapids_slink.points import output
from rapids_slink.runtime.device import to_host

FRAME = pd.DataFrame(
    np.random.default_rng(0).normal(size=(90, 5)) + np.repeat([0, 30, 60], 30)[:, None],
    columns=list("abcde"),
    index=pd.Index([f"row {i}" for i in range(90)], name="name"),
)


class MixedSingleLinkage(SingleLinkage, ClusterMixin, BaseEstimator):
    """For the checks that scikit-learn makes of heirs of its own classes alone."""


class MixedHDBSCAN(HDBSCAN, ClusterMixin, BaseEstimator):
    """The same."""


class MixedDBSCAN(DBSCAN, ClusterMixin, BaseEstimator):
    """The same."""


ESTIMATORS = SingleLinkage, MixedSingleLinkage, HDBSCAN, MixedHDBSCAN


def run(check, estimator):
    if "sample_weight_equivalence" in check.func.__name__ and not isinstance(estimator, DBSCAN):
        pytest.skip("rows of weight zero are refused; tests/stages/test_weights.py has the others")
    check(estimator)


# None is expected to fail. scikit-learn skips check_array_api_input unless SCIPY_ARRAY_API is set, as .ci/run sets it.
@parametrize_with_checks([DBSCAN(), SingleLinkage(prediction_data=True), HDBSCAN(prediction_data=True)])
def test_scikit_learns_checks(estimator, check):
    run(check, estimator)


@pytest.mark.full
@parametrize_with_checks(
    [
        *(MixedDBSCAN(), SingleLinkage(), HDBSCAN()),
        *(kind(prediction_data=keeps) for kind in (MixedSingleLinkage, MixedHDBSCAN) for keeps in (False, True)),
    ]
)
def test_scikit_learns_checks_of_heirs_and_without_data(estimator, check):
    run(check, estimator)


@pytest.mark.gpu
@parametrize_with_checks([kind(device="cuda") for kind in (*ESTIMATORS, DBSCAN, MixedDBSCAN)])
def test_scikit_learns_checks_on_the_gpu(estimator, check):
    run(check, estimator)


@pytest.mark.gpu
def test_a_new_process_fits_on_a_gpu_without_scikit_learn():
    """Nothing has imported cuDF before: importing it sets CuPy's allocator."""
    code = "import sys, numpy, rapids_slink; X = numpy.random.default_rng(0).normal(size=(500, 9)); "
    code += "print(rapids_slink.fit(X, 3, device='cuda').labels_.max(), 'sklearn' in sys.modules)"
    assert python(code) == "2 False\n"


def test_parameters_that_there_are_not():
    model = SingleLinkage(3)
    with pytest.raises(ValueError, match="SingleLinkage has no parameter 'linkage', only \\['n_clusters', "):
        model.set_params(n_clusters=4, linkage="single")
    assert model.n_clusters == 3
    with pytest.raises(ValueError, match=r"no parameter 'metrik'\. Did you mean 'metric'\?$"):
        model.set_params(metrik="cosine")
    for make in (SingleLinkage, HDBSCAN, partial(fit, np.eye(3)), partial(plan, (3, 3))):
        for name, meant in (("metrik", "metric"), ("n_neighbours", "n_neighbors"), ("affinity", "metric")):
            with pytest.raises(TypeError, match=rf"has no parameter '{name}'\. Did you mean '{meant}'\?$"):
                make(**{name: 1})
    for make in (SingleLinkage, partial(fit, np.eye(3)), partial(plan, np.eye(3))):
        for name in ("group", "by", "groupby"):
            with pytest.raises(TypeError, match=rf"has no parameter '{name}'\. Did you mean 'groups'\?$"):
                make(**{name: 1})
    with pytest.raises(TypeError, match=r"'groups'\. It is a parameter of fit\(X, groups=\.\.\.\)$"):
        SingleLinkage(groups="patient")
    whole = type("Whole", (SingleLinkage,), {"__init__": lambda self, **any_names: SingleLinkage.__init__(self, 1)})
    assert whole(foo=3).n_clusters == 1
    with pytest.raises(TypeError, match=r"HDBSCAN has no parameter 'foo', only \['min_cluster_size', .*\]$"):
        HDBSCAN(foo=1)
    assert repr(model.set_params(n_clusters=None, distance_threshold=0.5)) == "SingleLinkage(distance_threshold=0.5)"


def test_fit_has_the_parameters_of_single_linkage():
    """By name, kind, type and default, and those of its `fit`; there are 2 clusters unless there is another cut."""
    X, *found, unknown = signature(fit).parameters.values()
    own = signature(SingleLinkage.fit).parameters
    of_fit = [own[name].replace(kind=own[name].KEYWORD_ONLY) for name in ("groups", "dropna", "cannot_link")]
    expected = [*signature(SingleLinkage).parameters.values(), *of_fit]
    assert (X.name, unknown.kind) == ("X", unknown.VAR_KEYWORD)
    assert found == expected
    assert fit(FRAME * 1e6, device="cpu").n_clusters_ == 2
    cuts = {"distance_threshold": 1}, {"max_distance": 1}
    for cut in cuts:
        assert fit(FRAME * 1e6, **cut, device="cpu").n_clusters_ == 90
    assert fit(FRAME, min_similarity=1, metric="cosine", device="cpu").n_clusters_ > 2


def test_results_have_types_for_tools():
    """Where a tool evaluates the block for type checkers alone: pandas' frames and NumPy's arrays, not `Any`."""
    block = next(
        node
        for node in ast.parse(Path(output.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    types = {node.target.id: ast.unparse(node.value) for node in block.body if isinstance(node, ast.AnnAssign)}
    assert {name: text.split("[")[0] for name, text in types.items()} == {
        "Frame": "pd.DataFrame", "Rows": "pd.Series", "Values": "np.ndarray", "Index": "pd.Index",
        "Numbers": "int | Sequence", "Distances": "float | Sequence",
    }  # fmt: skip
    for model in (SingleLinkage, HDBSCAN):
        hints = get_type_hints(model, include_extras=True)
        assert (hints["linkage_"], hints["mst_"], hints["labels_"]) == (output.Frame, output.Frame, output.Rows)


@pytest.mark.parametrize("name", sorted({*rapids_slink.__all__} - {"to_csr"}))  # SciPy's matrices have no types
def test_public_results_have_types(name):
    """Of functions, and of the methods and attributes of models except for pictures and other packages' objects."""
    value = getattr(rapids_slink, name)
    if not isinstance(value, type):
        assert get_type_hints(value, include_extras=True).get("return", Any) is not Any
        return
    if not issubclass(value, Hierarchy):
        return
    declared = get_type_hints(value, include_extras=True)
    for part in re.findall(r"^(\w+_(?:, \w+_)*) :", getdoc(value).partition("Attributes\n----")[2], re.MULTILINE):
        for attribute in part.split(", "):
            of_property = getattr(getattr(value, attribute, None), "fget", None)
            own = get_type_hints(of_property, include_extras=True) if of_property else {}
            hint = own.get("return") if of_property else declared[attribute]
            assert hint not in (None, Any), attribute
    for method in ("cut", "catalogue", "fit_predict", "predict", "nodes_"):
        function = getattr(value, method)
        hints = get_type_hints(getattr(function, "fget", function), include_extras=True)
        assert hints["return"] is not Any, method


# ------------------------------------------------------------------------------------------------ pipelines


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_after_scikit_learns_transformers(scaler, device):
    before = make_pipeline(scaler(), PCA(2, random_state=0))
    whole = make_pipeline(scaler(), PCA(2, random_state=0), SingleLinkage(3, device=device))
    labels = whole.fit_predict(FRAME)
    assert isinstance(labels, np.ndarray)
    assert labels.tolist() == np.repeat([0, 1, 2], 30).tolist()
    Z = linkage(before.fit_transform(FRAME), "single")
    np.testing.assert_array_equal(whole[-1].to_scipy()[:, 2], Z[:, 2])
    assert whole.set_params(singlelinkage__n_clusters=5).fit(FRAME)[-1].n_clusters_ == 5


def test_pandas_output_of_transformers_keeps_index_and_names(device):
    whole = make_pipeline(StandardScaler(), PCA(2), SingleLinkage(3, device=device)).set_output(transform="pandas")
    labels = whole.fit_predict(FRAME)
    pd.testing.assert_index_equal(labels.index, FRAME.index)
    assert whole[-1].feature_names_in_.tolist() == ["pca0", "pca1"]
    assert whole[-1].n_features_in_ == 2


@pytest.mark.gpu
def test_after_cumls_transformers():
    import cudf

    cuml = pytest.importorskip("cuml")
    X = cudf.DataFrame(FRAME)
    whole = make_pipeline(
        cuml.preprocessing.StandardScaler(), cuml.decomposition.PCA(n_components=2), SingleLinkage(3, device="cuda")
    )
    labels = whole.fit_predict(X)
    assert to_host(getattr(labels, "values", labels)).tolist() == np.repeat([0, 1, 2], 30).tolist()


# -------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("X", [FRAME, FRAME.to_numpy(), FRAME.to_numpy()[:1]], ids=["frame", "array", "one row"])
def test_copies_are_the_same(X, again, device):
    model = fit(X, 1, device=device)
    other = again(model)
    assert_same(other, model)
    assert other.cut(1).tolist() == model.cut(1).tolist()
    assert other.set_params(n_clusters=len(X)).fit(X).n_clusters_ == len(X)
    assert (model.n_clusters, model.n_clusters_) == (1, 1)
    assert_same(again(SingleLinkage(7)), SingleLinkage(7))


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.cut(2),
        lambda model: model.children_,
        lambda model: model.distances_,
        lambda model: model.to_scipy(),
        lambda model: model.to_networkx(),
        lambda model: model.to_cugraph(),
        lambda model: model.plot(),
        lambda model: model.plot_heights(),
        lambda model: model.plot_clusters(FRAME),
        lambda model: model.save("nowhere"),
        lambda model: model.catalogue(FRAME),
        lambda model: model.reduce_outliers(),
        lambda _: HDBSCAN().select(min_cluster_size=3),
        lambda _: HDBSCAN().layers(),
        lambda _: HDBSCAN().condensed_tree_,
        lambda _: HDBSCAN().single_linkage_tree_,
        lambda _: HDBSCAN().minimum_spanning_tree_,
    ],
)
def test_nothing_can_be_asked_of_a_model_that_is_not_fitted(use):
    message = r"(SingleLinkage|HDBSCAN) is not fitted yet: call fit first"
    with pytest.raises(sklearn.exceptions.NotFittedError, match=message):
        use(SingleLinkage())


def test_copies_of_other_models(device):
    graph = fit_graph(pd.DataFrame({"src": [0, 1], "dst": [1, 2], "weight": [1, 2]}), n_nodes=4, device=device)
    for model in (graph, HDBSCAN(10, device=device).fit(FRAME)):
        labels, edges = model.cut(3).tolist(), len(model.mst_)  # which are made when they are asked for
        getattr(model, "condensed_tree_", None)  # likewise
        for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert_same(other, model)
            assert (other.cut(3).tolist(), len(other.mst_)) == (labels, edges)


def test_a_deep_copy_shares_nothing(device):
    model = fit(FRAME, 3, device=device)
    other = copy.deepcopy(model)
    other.linkage_["height"] = 0.0
    other.report_["seconds"].clear()
    assert (model.distances_ > 0).all()
    assert model.report_["seconds"]


@pytest.mark.gpu
def test_a_pickle_from_a_gpu_opens_without_one(tmp_path):
    import cudf
    import cupy

    code = """
import pickle, sys
for name in ("cudf", "cupy"):
    sys.modules[name] = None
model = pickle.load(open(sys.argv[1], "rb"))
print(type(model.labels_).__module__.split(".")[0], type(model.children_).__module__, model.cut(3).tolist())
"""
    for X, package in ((cudf.DataFrame(FRAME), "pandas"), (cupy.asarray(FRAME.to_numpy()), "numpy")):
        model = fit(X, 3, device="cuda")
        (tmp_path / "model").write_bytes(pickle.dumps(model))
        said = python(code, tmp_path / "model", PYTHONWARNINGS="ignore")
        assert said == f"{package} numpy {np.repeat([0, 1, 2], 30).tolist()}\n"
        for again in (copy.copy, copy.deepcopy):
            other = again(model)
            assert type(other.labels_) is type(model.labels_)
            assert isinstance(other.linkage_, cudf.DataFrame)
            assert isinstance(other.cut(2), type(model.labels_))
            assert_same(other, model)


# --------------------------------------------------------------------------------------------------- summary


class Text(HTMLParser):
    """The words of a page, its tags and their nesting."""

    def __init__(self, page):
        super().__init__()
        self.words, self.tags, self.open = [], set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += [data] if data.strip() else []


def test_summary(device):
    model = fit(FRAME, 3, n_neighbors=2, device=device)
    page = Text(model._repr_html_())
    assert page.open == []
    assert page.tags == {"div", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    assert page.words[0] == "SingleLinkage: 90 rows in 3 clusters"
    heights = model.to_scipy()[:, 2]
    assert page.words[1] == f"3 clusters ({heights[-3]:.6g} < distance ≤ {heights[-2]:.6g})"
    text = " ".join(page.words)
    assert f"device {device}, metric euclidean" in text
    first, folded = text.split("What was proven, and how long it took")
    chosen = f"metric euclidean device '{device}' n_clusters 3 n_neighbors 2"
    assert f"Clusters cluster rows 0 30 1 30 2 30 Parameters {chosen}" in first
    assert "Proven" in folded
    assert "Time" in folded
    assert "Proven" not in first
    for count, value in model.report_["spanning_tree"].items():
        assert f"{count.replace('_', ' ')} {value}" in text
    for stage, seconds in model.report_["seconds"].items():
        assert f"{stage.replace('_', ' ')} {seconds:.4f}" in text
    assert f"total {sum(model.report_['seconds'].values()):.4f}" in text


def test_summary_names_the_largest_clusters(device):
    X = np.repeat(np.arange(15.0), [*range(1, 15), 2000])[:, None]
    html = fit(X, 15, device=device)._repr_html_()
    assert not re.findall(r"<t[dh]>", html)  # each cell has a space of its own, on any page
    words = Text(html).words
    sizes = words[words.index("rows") + 1 : words.index("Parameters")]
    assert sizes[:4] == ["14", "2,000", "13", "14"]
    assert sizes[-2:] == ["5 others", "15"]


@pytest.mark.parametrize(("k", "words"), [(1, "1 cluster (2 < distance)"), (3, "3 clusters (distance ≤ 1)")])
def test_summary_of_the_extreme_cuts(k, words, device):
    assert Text(fit(np.array([[0.0], [1.0], [3.0]]), k, device=device)._repr_html_()).words[1] == words


def test_summary_of_a_forest_and_of_one_row(device):
    pair = pd.DataFrame({"src": [0], "dst": [1], "weight": [1]})
    page = Text(fit_graph(pair, n_nodes=3, device=device)._repr_html_())
    assert page.words[:2] == ["GraphHierarchy: 3 rows in 2 clusters", "2 clusters (1 < distance)"]
    assert Text(fit(np.zeros((1, 1)), 1, device=device)._repr_html_()).words[0] == "SingleLinkage: 1 row in 1 cluster"


def test_summary_escapes():
    model = fit(FRAME, 2, device="cpu")
    model.report_["<script>"] = {"<b onclick='x'>": "&"}
    page = model._repr_html_()
    assert all(text in page for text in ("&lt;script&gt;", "&lt;b onclick='x'&gt;", "&amp;"))
    assert {"<script>", "<b onclick='x'>", "&"} < set(Text(page).words)


def test_jupyter_shows_the_summary_of_what_is_fitted():
    model = SingleLinkage(device="cpu")
    unfitted = model._repr_mimebundle_()
    assert set(unfitted) == {"text/plain", "text/html"}
    assert "sk-container" in unfitted["text/html"]
    assert "sk-container" in model._repr_html_()
    model.fit(FRAME)
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": model._repr_html_()}
    assert "90 rows in 2 clusters" in model._repr_html_()
    with sklearn.config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}


# ------------------------------------------------------------------------------------------- metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("kind", [SingleLinkage, MixedSingleLinkage])
def test_a_pipeline_passes_groups_on(kind, routing):
    keys = np.repeat(["a", "b"], 45)
    expected = SingleLinkage(2, device="cpu").fit(StandardScaler().fit_transform(FRAME), groups=keys).labels_
    given = kind(n_clusters=2, device="cpu")
    for asked, name in ((True, "groups"), ("films", "films")):
        model = make_pipeline(StandardScaler(), clone(given.set_fit_request(groups=asked)))
        assert model.fit(FRAME, **{name: keys})[-1].labels_.tolist() == expected.tolist()
        assert model.fit_predict(FRAME, **{name: keys}).tolist() == expected.tolist()
    with pytest.raises(ValueError, match=r"\[groups\] are passed but are not explicitly set"):
        make_pipeline(StandardScaler(), kind(device="cpu")).fit(FRAME, groups=keys)


def test_a_pipeline_passes_weights_on(routing, tmp_path):
    weights = np.full(90, 3.0)
    model = HDBSCAN(device="cpu").set_fit_request(sample_weight="copies")
    make_pipeline(StandardScaler(), model).fit(FRAME, copies=weights)
    alone = HDBSCAN(device="cpu").fit(StandardScaler().fit_transform(FRAME), sample_weight=weights)
    assert model.labels_.tolist() == alone.labels_.tolist()
    assert pickle.loads(pickle.dumps(model)).get_metadata_routing().fit.requests["sample_weight"] == "copies"
    model.save(tmp_path / "model")  # without the request
    assert load(tmp_path / "model").get_metadata_routing().fit.requests["sample_weight"] is None


def test_what_cannot_be_requested():
    names = r"\['cannot_link', 'dropna', 'groups'\]"
    with pytest.raises(TypeError, match=rf"SingleLinkage.fit has no parameter 'weights', only {names}"):
        SingleLinkage().set_fit_request(weights=True)
