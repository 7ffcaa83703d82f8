"""The minimum spanning forest of an edge frame by groupby and merge: Borůvka's algorithm on dataframes.

Each round every component takes the lightest of the edges that cross its border, a groupby, and points at the component
across it, a merge of these edges with all. Pointers are followed to the root of each tree of components, by which the
ends of edges are renamed, and edges within one component go. `spanning_tree/edges` does the same in kernels.
"""

from __future__ import annotations

from typing import Any

from rapids_slink.runtime.device import Device, all_true

#: The total order's columns: no two edges are equal in them.
ORDER = ["weight", "src", "dst"]


def spanning_forest(edges: Any, device: Device) -> Any:
    """The edges of the minimum spanning forest.

    Parameters
    ----------
    edges : DataFrame
        ``src`` < ``dst`` and ``weight``, and other columns that stay with their edge. An edge may come several times.
    device : Device
        That of the frame.

    Returns
    -------
    DataFrame
        Rows of `edges` in the total order.
    """
    if not len(edges):
        return edges
    xp, frames = device.xp, device.frames
    edges = edges.sort_values(ORDER, ignore_index=True)
    parent = xp.arange(int(edges["dst"].max()) + 1, dtype="int32")
    crossing = edges[["src", "dst"]].rename(columns={"src": "a", "dst": "b"})
    crossing["edge"] = crossing.index
    taken = []
    while len(crossing):
        sides = [crossing[[side, "edge"]].rename(columns={side: "component"}) for side in ("a", "b")]
        lightest = frames.concat(sides, ignore_index=True).groupby("component", as_index=False).agg({"edge": "min"})
        taken.append(lightest["edge"])
        pointers = lightest.merge(crossing, on="edge")
        component, a, b = (pointers[name].values for name in ("component", "a", "b"))
        across = a + b - component
        parent[component] = across
        # Two that point at each other took one edge: the lesser is the root.
        parent[component] = xp.where((parent[across] == component) & (component < across), component, across)
        _follow(parent, component)
        crossing = crossing.assign(**{side: parent[crossing[side].values] for side in ("a", "b")})
        crossing = crossing[crossing["a"] != crossing["b"]]
    chosen = frames.concat(taken, ignore_index=True).drop_duplicates().sort_values()
    return edges.iloc[chosen].reset_index(drop=True)


def _follow(parent: Any, component: Any) -> None:
    """Have components point at their roots, by pointer doubling."""
    root = parent[component]
    while not all_true((further := parent[root]) == root):
        parent[component] = root = further
