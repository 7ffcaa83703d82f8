"""Columns of every type in frames of edges and of merges: taken as they are, or refused by an error that names them."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from calls import fingerprint
from spanning_trees import edges, kruskal

from rapids_slink import cut, fit_graph, linkage, minimum_spanning_tree

INTEGERS, NUMBERS = "must hold integers, got", "must hold numbers, got"
GAPS, SWAPPED, FALLS = "holds nulls", "its bytes are swapped", "must not fall from one row to the next"
#: What is no number, and so is fine as an id of a graph only.
NO_NUMBER = {"tree id": INTEGERS, "weight": NUMBERS, "tree weight": NUMBERS, "left": INTEGERS, "height": NUMBERS}
NO_INTEGER = {"tree id": INTEGERS, "left": INTEGERS}
ROLES = ("id", *NO_NUMBER)
#: Four values, their type, and the role in which a column of them is refused with which words. Elsewhere it is valid.
COLUMNS = {
    "ids": ([0, 1, 2, 3], "int64", {}),
    "int8": ([0, 1, 2, 3], "int8", {}),
    "swapped": ([0, 1, 2, 3], ">i4", {"id": SWAPPED, "weight": SWAPPED}),
    "negative": ([-1, 5, 2, 2], "int64", {"tree id": "found -1", "left": "cluster ids from 0", "height": FALLS}),
    "huge": ([2**63, 1, 2, 3], "uint64", {"tree id": f"found {2**63}", "left": "cluster ids from 0", "height": FALLS}),
    "uint64": ([2, 3, 2**63, 2**64 - 1], "uint64", {"tree id": f"found {2**64 - 1}", "left": "cluster ids from 0"}),
    "float": ([0.5, 1.0, 2.0, 2.0], "float64", NO_INTEGER),
    "float16": ([0, 1, 2, 3], "float16", NO_INTEGER),
    "longdouble": ([0, 1, 2, 3], "longdouble", {**NO_INTEGER, "weight": NUMBERS}),
    "infinite": ([np.inf, 1.0, -np.inf, 3.0], "float64", {**NO_INTEGER, "height": FALLS}),
    "NaN": ([np.nan, 1.0, 2.0, 3.0], "float64", {**dict.fromkeys(ROLES, GAPS), **NO_INTEGER}),
    "nullable": ([1, None, 3, 4], "Int64", dict.fromkeys(ROLES, GAPS)),
    "bool": ([True, False, True, True], "bool", NO_NUMBER),
    "complex": ([1j, 2, 3, 4], "complex128", NO_NUMBER),
    "names": (list("abca"), "object", NO_NUMBER),
    "strings": (list("abca"), "string", NO_NUMBER),
    "categories": (list("xyxy"), "category", NO_NUMBER),
    "dates": (list(pd.date_range("2020-01-01", periods=4)), "datetime64[ns]", NO_NUMBER),
    "beyond": ([10**30, 1, 2, 3], "object", NO_NUMBER),
    "decimals": ([Decimal(1), Decimal(2), Decimal(3), Decimal(4)], "object", NO_NUMBER),
    "lists": ([[1], [2], [3], [4]], "object", {**NO_NUMBER, "id": "must be hashable"}),
    "mixed": ([1, "a", 2.5, None], "object", {**NO_NUMBER, "id": GAPS}),
}
PATH = edges([0, 1, 2, 3], [1, 2, 3, 0], [3, 1, 4, 2])  # closed to a cycle by its last edge
MERGES = pd.DataFrame({"left": [0, 1, 2, 3], "right": [4, 5, 6, 7], "height": [0.0, 1.0, 2.0, 3.0], "size": 2})


def column(name, shift=0):
    """A column of the table, its values turned round by so many places."""
    values, dtype, _ = COLUMNS[name]
    values = values[shift:] + values[:shift]
    return pd.Series(np.array(values, dtype)) if dtype == ">i4" else pd.Series(values, dtype=dtype)


def frame_in(role, name):
    """A frame that holds the column in some role."""
    if role in NO_INTEGER or role == "id":
        given = {"left": column(name)} if role == "left" else {"src": column(name), "dst": column(name, 1)}
    else:
        given = {"height" if role == "height" else "weight": column(name)}
    return (MERGES if role in ("left", "height") else PATH).assign(**given)


CALLS = {
    "minimum_spanning_tree": lambda frame, device: minimum_spanning_tree(frame, device=device),
    "fit_graph": lambda frame, device: fit_graph(frame, device=device),
    "linkage": lambda frame, device: linkage(frame[:3], n_nodes=9, device=device),
    "cut": lambda frame, _: cut(frame, n_clusters=2),
}
OF_ROLE = {"id": ["minimum_spanning_tree", "fit_graph"], "weight": ["minimum_spanning_tree", "fit_graph"]}
OF_ROLE |= {"tree id": ["linkage"], "tree weight": ["linkage"], "left": ["cut"], "height": ["cut"]}
GIVEN = [(role, call, name) for role in ROLES for call in OF_ROLE[role] for name in COLUMNS]


@pytest.mark.parametrize(("role", "call", "name"), [given for given in GIVEN if given[0] in COLUMNS[given[2]][2]])
def test_columns_that_are_refused(role, call, name, device):
    frame = frame_in(role, name)
    before = fingerprint(frame)
    with pytest.raises((ValueError, TypeError), match=COLUMNS[name][2][role]):
        CALLS[call](frame, device)
    assert fingerprint(frame) == before


@pytest.mark.parametrize(("role", "call", "name"), [given for given in GIVEN if given[0] not in COLUMNS[given[2]][2]])
def test_columns_that_are_taken(role, call, name, device):
    """Against Kruskal's algorithm on Python's values, or the linkage and the labels of what the values say."""
    frame = frame_in(role, name)
    before = fingerprint(frame)
    found = CALLS[call](frame, device)
    assert fingerprint(frame) == before
    if call == "minimum_spanning_tree":
        pd.testing.assert_frame_equal(found, frame.iloc[sorted(kruskal(frame))])
    elif call == "fit_graph":
        assert found.mst_["weight"].tolist() == frame["weight"].astype("float64").iloc[kruskal(frame)].tolist()
    elif call == "linkage":
        assert found["height"].tolist() == sorted(frame["weight"][:3].astype("float64"))
    else:
        assert found.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("index", [[5, 5, 5, 5], list("abcd")])
@pytest.mark.parametrize("call", ["minimum_spanning_tree", "fit_graph", "linkage", "cut"])
def test_any_index_of_the_rows(call, index, device):
    frame = MERGES if call == "cut" else PATH
    found, expected = (CALLS[call](given, device) for given in (frame.set_axis(index), frame))
    if call == "minimum_spanning_tree":
        assert found.index.tolist() == [index[i] for i in expected.index]
        pd.testing.assert_frame_equal(found.set_axis(expected.index), expected)
    elif call == "fit_graph":
        pd.testing.assert_frame_equal(found.linkage_, expected.linkage_)
    else:
        assert found.equals(expected)


@pytest.mark.parametrize("names", [["src", "dst"], ["src", "weight"], []])
def test_columns_that_are_missing(names, device):
    frame = PATH[names]
    for call in ("minimum_spanning_tree", "fit_graph", "linkage"):
        with pytest.raises(ValueError, match=r"must be a DataFrame with columns src, dst, weight; .* not found"):
            CALLS[call](frame, device)


@pytest.mark.parametrize("frame", [None, 3, "edges", [[0, 1, 2.0]], {"src": [0]}, np.zeros((3, 3)), pd.Series([1])])
def test_what_is_no_frame_of_edges_is_refused(frame, device):
    for call, name in ((minimum_spanning_tree, "edges"), (fit_graph, "edges"), (linkage, "tree")):
        kind = "None" if frame is None else type(frame).__name__
        with pytest.raises(TypeError, match=f"{name} must be a DataFrame with columns src, dst, weight, got {kind}"):
            call(frame, device=device)
