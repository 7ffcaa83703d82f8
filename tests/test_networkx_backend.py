"""NetworkX's spanning trees: its own tests in its own runner, then the same edges as its Kruskal on random graphs."""

import os
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapids_slink import networkx_backend as backend

nx = pytest.importorskip("networkx", reason="NetworkX is not installed")

ROOT = Path(__file__).parent.parent
#: What NetworkX's tests call besides the four functions, and this backend does not serve.
NOT_SERVED = ("TestSpanningTreeIterator", "TestSpanningTreeMultiGraphIterator", "TestNumberSpanningTrees")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables under which the package in this tree is installed with its entry points, and a folder to work in."""
    folder = tmp_path_factory.mktemp("installed")
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "rapids_slink-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rapids_slink\nVersion: 0\n")
    sections = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in entries.items())
    (info / "entry_points.txt").write_text("".join(sections))
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}, folder


def run(environment, *arguments, **more):
    variables, folder = environment
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, env={**variables, **more}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full
def test_networkxs_own_tests(environment):
    """Those of the four functions pass; the others, of functions that are not served, are marked so by NetworkX."""
    report = environment[1] / "report.xml"
    module = "networkx.algorithms.tree.tests.test_mst"
    options = ("-p", "no:cacheprovider", f"--junitxml={report}", "--pyargs", module)
    run(environment, "-m", "pytest", *options, NETWORKX_TEST_BACKEND="rapids_slink")
    passed = set()
    for case in ElementTree.parse(report).iter("testcase"):
        of = case.get("classname").rsplit(".", 1)[-1]
        skipped = case.find("skipped")
        if skipped is None:
            passed.add((of, case.get("name")))
        elif of in ("TestBoruvka", "TestKruskal", "TestPrim"):
            pytest.fail(f"{of}.{case.get('name')}: {skipped.get('message')}")
        else:
            assert of in NOT_SERVED or "random_spanning_tree" in case.get("name"), case.get("name")
    assert {of for of, _ in passed} >= {"TestBoruvka", "TestKruskal", "TestPrim"}
    assert len(passed) >= 50


def test_dispatch_through_the_entry_points(environment):
    code = """
import sys, warnings
import networkx as nx
assert not {"pandas", "numba", "cupy", "cudf"} & set(sys.modules)
warnings.simplefilter("error")
assert nx.utils.backends.backend_info["rapids_slink"]["short_summary"].startswith("Minimum")
G = nx.Graph()
G.add_weighted_edges_from([(0, 1, 3.0), (1, 2, 1.0), (0, 2, 2.0)])
for _ in range(2):  # the second time NetworkX has the converted graph in its cache, and warns of it unless told not to
    T = nx.minimum_spanning_tree(G, backend="rapids_slink")
    print(sorted(T.edges(data="weight")))
    print(list(nx.maximum_spanning_edges(G, backend="rapids_slink", device="cpu", data=False)))
G[1][2]["weight"] = 9.0
print(sorted(nx.minimum_spanning_tree(G, backend="rapids_slink").edges))
assert type(T) is nx.Graph
nx.config.backend_priority.algos = ["rapids_slink"]
print("rapids_slink.spanning_tree" in sys.modules, len(list(nx.minimum_spanning_edges(G))))
"""
    expected = ["[(0, 2, 2.0), (1, 2, 1.0)]", "[(0, 1), (0, 2)]"] * 2 + ["[(0, 1), (0, 2)]", "True 2"]
    assert run(environment, "-c", code).splitlines() == expected


WEIGHTS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 0.5, 1e300, float("inf"), float("-inf"), 2**53, 2**53 + 1, 2.0**53, 2**70, -(2**63)]),
    st.fractions(-1, 1, max_denominator=3),
    st.booleans(),
)


@st.composite
def graphs(draw, weights):
    G = draw(st.sampled_from([nx.Graph, nx.MultiGraph]))(name="G")
    nodes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, "a", (1, 2), 7.5]), unique_by=str, max_size=7))
    G.add_nodes_from((node, {"color": str(node)}) for node in nodes)
    for i in range(draw(st.integers(0, 14)) if len(G) else 0):
        u, v = (draw(st.sampled_from(list(G))) for _ in range(2))
        G.add_edge(u, v, number=i, **({"w": draw(weights)} if draw(st.integers(0, 4)) else {}))
    return G


def kruskal(G, maximum, **how):
    """NetworkX's own answer."""
    find = nx.maximum_spanning_edges if maximum else nx.minimum_spanning_edges
    return list(find(G, weight="w", backend="networkx", **how))


@given(graphs(WEIGHTS), st.booleans(), st.booleans(), st.booleans())
def test_the_edges_of_networkxs_kruskal(device, G, maximum, keys, data):
    ours = backend.maximum_spanning_edges if maximum else backend.minimum_spanning_edges
    found = list(ours(G, weight="w", keys=keys, data=data, device=device))
    expected = kruskal(G, maximum, keys=keys, data=data)
    assert found == expected
    if data:
        assert all(a[-1] is b[-1] for a, b in zip(found, expected, strict=True))


@given(graphs(st.one_of(st.integers(-3, 3), st.just(float("nan")), st.floats(-1, 1))), st.booleans())
def test_trees_keep_all_attributes(device, G, maximum):
    ours, theirs = (
        (backend.maximum_spanning_tree, nx.maximum_spanning_tree)
        if maximum
        else (backend.minimum_spanning_tree, nx.minimum_spanning_tree)
    )
    found = ours(G, weight="w", ignore_nan=True, device=device)
    expected = theirs(G, weight="w", ignore_nan=True, backend="networkx")
    assert type(found) is type(G)
    assert found.graph == expected.graph
    assert list(found.nodes(data=True)) == list(expected.nodes(data=True))
    assert list(found.edges(data=True)) == list(expected.edges(data=True))
    if any(weight != weight for *_, weight in G.edges(data="w")):
        with pytest.raises(ValueError, match="NaN found as an edge weight"):
            ours(G, weight="w", device=device)


def test_integers_that_floats_cannot_tell_apart(device):
    G = nx.Graph()
    G.add_weighted_edges_from([(0, 1, 2**53 + 1), (1, 2, 0.5), (0, 2, 2**53)])
    assert {frozenset(e) for e in backend.minimum_spanning_tree(G, device=device).edges} == {
        frozenset((1, 2)),
        frozenset((0, 2)),
    }
    for exact in (Fraction, Decimal):
        G.add_weighted_edges_from([(0, 1, exact(10) ** 20 + 1), (1, 2, exact(1)), (0, 2, exact(10) ** 20)])
        assert backend.maximum_spanning_tree(G, device=device).has_edge(0, 1)
        assert not backend.minimum_spanning_tree(G, device=device).has_edge(0, 1)


def test_what_networkx_refuses():
    directed, many = nx.DiGraph([(0, 1)]), nx.MultiGraph([(0, 1)])
    for call in (
        backend.minimum_spanning_edges,
        backend.maximum_spanning_edges,
        backend.minimum_spanning_tree,
        backend.maximum_spanning_tree,
    ):
        with pytest.raises(nx.NetworkXNotImplemented, match="not implemented for directed type"):
            call(directed)
        with pytest.raises(nx.NetworkXNotImplemented, match="not implemented for multigraph type"):
            call(many, algorithm="boruvka")
        with pytest.raises(ValueError, match=r"random is not a valid choice for an algorithm\."):
            call(many, algorithm="random")
    G = nx.Graph([(0, 1, {"weight": "heavy"})])
    with pytest.raises(TypeError, match="must be real number, not str"):
        backend.minimum_spanning_tree(G)
    lazy = backend.minimum_spanning_edges(nx.Graph([(0, 1, {"weight": float("nan")})]))
    with pytest.raises(ValueError, match=r"NaN found as an edge weight\. Edge \(0, 1, \{'weight': nan\}\)"):
        next(lazy)


def test_unknown_device_is_refused():
    with pytest.raises(ValueError, match="device must be one of"):
        backend.minimum_spanning_tree(nx.path_graph(3), device="tpu")
