"""NetworkX's spanning trees on a CPU or a GPU: the backend behind the entry points ``networkx.backends``.

::

    nx.minimum_spanning_tree(G, backend="rapids_slink")                  # this call
    nx.minimum_spanning_tree(G, backend="rapids_slink", device="cuda")   # on a GPU or not at all
    nx.config.backend_priority.algos = ["rapids_slink"]                  # every call that it supports

Edges of equal weight are taken in the order of ``G.edges``, like in NetworkX's algorithm of Kruskal. The result has the
order of that algorithm, too, whatever `algorithm` is. Weights are compared as Python compares them: integers of any
size and fractions keep every digit. A graph of NetworkX is a dictionary of dictionaries; reading it takes longer than
finding its tree.

NetworkX imports this module during its own import.
"""

from collections.abc import Iterator
from functools import partial
from math import isnan
from typing import Any

ALGORITHMS = ("boruvka", "borůvka", "kruskal", "prim")
DEVICE = {'device : {"auto", "cpu", "cuda"}': "Where to compute; a GPU if there is one by default."}


def get_info() -> dict[str, Any]:
    """The description of this backend for NetworkX's documentation."""
    served = ("minimum_spanning_edges", "maximum_spanning_edges", "minimum_spanning_tree", "maximum_spanning_tree")
    return {
        "backend_name": "rapids_slink",
        "project": "rapids_slink",
        "package": "rapids_slink",
        "short_summary": "Minimum and maximum spanning trees on an NVIDIA GPU, with the same answer on a CPU.",
        "functions": {name: {"additional_parameters": DEVICE} for name in served},
    }


def convert_from_nx(graph: Any, **wanted: Any) -> Any:
    """The graph itself, because its attributes must come back unchanged."""
    return graph


def convert_to_nx(result: Any, **wanted: Any) -> Any:
    """The result itself."""
    return result


def _spanning_edges(
    G: Any,
    algorithm: str = "kruskal",
    weight: Any = "weight",
    keys: bool = True,
    data: bool = True,
    ignore_nan: bool = False,
    *,
    device: str = "auto",
    maximum: bool,
) -> Iterator[tuple[Any, ...]]:
    _check(G, algorithm)
    return _shown(_tree_edges(G, weight, ignore_nan, device, maximum), G.is_multigraph(), keys, data)


def _spanning_tree(
    G: Any,
    weight: Any = "weight",
    algorithm: str = "kruskal",
    ignore_nan: bool = False,
    *,
    device: str = "auto",
    maximum: bool,
) -> Any:
    _check(G, algorithm)
    return _with_edges(G, _tree_edges(G, weight, ignore_nan, device, maximum))


#: NetworkX's functions of these names.
minimum_spanning_edges, maximum_spanning_edges = (partial(_spanning_edges, maximum=which) for which in (False, True))
minimum_spanning_tree, maximum_spanning_tree = (partial(_spanning_tree, maximum=which) for which in (False, True))


def _check(G: Any, algorithm: Any) -> None:
    """Refuse the graphs and algorithms that NetworkX refuses."""
    import networkx

    cached = getattr(G, "__networkx_cache__", None)
    if cached:  # the cached graph is the graph itself and never out of date, so no warning is needed at its next use
        cached.get("backends", {}).pop("rapids_slink", None)
    if G.is_directed():
        raise networkx.NetworkXNotImplemented("not implemented for directed type")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{algorithm} is not a valid choice for an algorithm.")
    if G.is_multigraph() and algorithm in ("boruvka", "borůvka"):
        raise networkx.NetworkXNotImplemented("not implemented for multigraph type")


def _tree_edges(G: Any, weight: Any, ignore_nan: bool, device: str, maximum: bool) -> Iterator[tuple[Any, ...]]:
    """The tree's edges as `G` lists them, with their keys and data."""
    import numpy as np
    import pandas as pd

    from rapids_slink.api import minimum_spanning_tree as spanning_tree

    edges = _edges(G)
    weights = [edge[-1].get(weight, 1) for edge in edges]
    edges, weights = _without_nan(edges, weights, ignore_nan)
    number = {node: i for i, node in enumerate(G)}
    src = np.fromiter((number[edge[0]] for edge in edges), np.int64, len(edges))
    dst = np.fromiter((number[edge[1]] for edge in edges), np.int64, len(edges))
    frame = pd.DataFrame({"src": src, "dst": dst, "weight": _comparable(weights)})
    tree = spanning_tree(frame, maximum=maximum, device=device)  # of equal weights the earlier row
    for i in sorted(tree.index.tolist(), key=weights.__getitem__, reverse=maximum):
        yield edges[i]


def _edges(G: Any) -> list[Any]:
    """The edges with their keys and data, in the order of ``G.edges``, without its views."""
    edges: list[Any] = []
    seen = set()
    for u, neighbours in G.adjacency():
        if G.is_multigraph():
            edges += [(u, v, k, d) for v, keys in neighbours.items() if v not in seen for k, d in keys.items()]
        else:
            edges += [(u, v, d) for v, d in neighbours.items() if v not in seen]
        seen.add(u)
    return edges


def _without_nan(edges: list[Any], weights: list[Any], ignore_nan: bool) -> tuple[list[Any], list[Any]]:
    bad = [isnan(weight) for weight in weights]
    if not any(bad):
        return edges, weights
    if not ignore_nan:
        raise ValueError(f"NaN found as an edge weight. Edge {edges[bad.index(True)]}")
    kept = [i for i, is_bad in enumerate(bad) if not is_bad]
    return [edges[i] for i in kept], [weights[i] for i in kept]


def _comparable(weights: list[Any]) -> Any:
    """An array in the order of `weights`: the numbers themselves, or their ranks if NumPy has no type for them."""
    import numpy as np

    types = set(map(type, weights))
    if types <= {bool, float, int}:
        numbers = np.asarray(weights)
        # Integers among floats become floats, which hold those below 2**53.
        mixed = numbers.dtype.kind == "f" and types != {float}
        if numbers.dtype.kind != "O" and not (mixed and (abs(numbers) >= 2**53).any()):
            return numbers.astype(np.int8) if numbers.dtype == bool else numbers
    cells = np.empty(len(weights), object)
    cells[:] = weights
    return np.unique(cells, return_inverse=True)[1].reshape(-1)


def _shown(edges: Iterator[tuple[Any, ...]], multigraph: bool, keys: bool, data: bool) -> Iterator[tuple[Any, ...]]:
    """Edges, with their keys and data only if these are requested."""
    for edge in edges:
        key = edge[2:-1] if multigraph and keys else ()
        yield (*edge[:2], *key, edge[-1]) if data else (*edge[:2], *key)


def _with_edges(G: Any, edges: Iterator[tuple[Any, ...]]) -> Any:
    """A graph of `G`'s class with its attributes and nodes, and these edges alone."""
    tree = G.__class__()
    tree.graph.update(G.graph)
    tree.add_nodes_from(G.nodes(data=True))
    tree.add_edges_from(edges)
    return tree
