"""The minimum spanning forest of an edge frame by groupby and merge alone: Borůvka's algorithm on dataframes.

Each round every component takes the lightest of the edges that cross its border, a groupby, and points at the other
component; following these pointers, a merge of their table with itself, finds the root of each tree of components; a
merge of the edges with that table renames their ends, and those within one component go. Where rows are spread over
partitions only this form is possible; `spanning_tree/edges` does the same by gathers.
"""

from __future__ import annotations

from typing import Any

#: The total order's columns: no two edges are equal in them.
ORDER = ["weight", "src", "dst"]


def spanning_forest(edges: Any, frames: Any) -> Any:
    """The edges of the minimum spanning forest.

    Parameters
    ----------
    edges : DataFrame
        ``src`` < ``dst`` and ``weight``, and other columns that stay with their edge. An edge may come several times.
    frames : module
        pandas or cuDF: whose frame `edges` is.

    Returns
    -------
    DataFrame
        Rows of `edges` in the total order.
    """
    edges = edges.sort_values(ORDER, ignore_index=True)
    crossing = edges[["src", "dst"]].rename(columns={"src": "a", "dst": "b"})
    crossing["edge"] = crossing.index
    taken = []
    while len(crossing):
        sides = [crossing[[side, "edge"]].rename(columns={side: "component"}) for side in ("a", "b")]
        lightest = frames.concat(sides, ignore_index=True).groupby("component", as_index=False).agg({"edge": "min"})
        taken.append(lightest[["edge"]].drop_duplicates())
        pointers = lightest.merge(crossing, on="edge")
        pointers["root"] = pointers["a"] + pointers["b"] - pointers["component"]  # the other end
        roots = _follow(pointers[["component", "root"]])
        for side in ("a", "b"):
            ends = roots.rename(columns={"component": side})
            crossing = crossing.merge(ends, on=side).drop(columns=side).rename(columns={"root": side})
        crossing = crossing[crossing["a"] != crossing["b"]]
    if not taken:
        return edges.head(0)
    chosen = frames.concat(taken, ignore_index=True)["edge"].sort_values()
    return edges.iloc[chosen].reset_index(drop=True)


def _follow(pointers: Any) -> Any:
    """The root that each component leads to. Two that point at each other took one edge: the lesser is the root."""
    back = pointers.rename(columns={"component": "root", "root": "back"})
    pointers = pointers.merge(back, on="root")
    mutual = (pointers["back"] == pointers["component"]) & (pointers["component"] < pointers["root"])
    pointers["root"] = pointers["root"].where(~mutual, pointers["component"])
    pointers = pointers[["component", "root"]]
    while True:
        further = pointers.merge(pointers.rename(columns={"component": "root", "root": "further"}), on="root")
        if (further["further"] == further["root"]).all():
            return pointers
        pointers = further[["component", "further"]].rename(columns={"further": "root"})
