"""Trees in Newick's format."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import COLUMNS

#: What a name without quotes must not hold.
SPECIAL = re.compile(r"[\s()\[\]{}':;,_]|^$")


def to_newick(linkage: pd.DataFrame, names: Sequence[Any]) -> str:
    """The trees of a linkage over leaves of these names, without recursion: a chain is as deep as it is long."""
    n = len(names)
    left_child, right_child, height = (linkage[column].tolist() for column in COLUMNS[:3])
    is_root = np.ones(n + len(left_child), bool)
    is_root[left_child] = is_root[right_child] = False
    written: list[str] = []
    for root in np.flatnonzero(is_root).tolist():
        stack: list[Any] = [(root, None)]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                written.append(item)
                continue
            node, above = item
            merge = node - n
            own = height[merge] if merge >= 0 else 0.0
            length = "" if above is None else f":{above - own!r}"
            if merge < 0:
                written.append(f"{_quoted(str(names[node]))}{length}")
            else:
                written.append("(")
                stack += [f"){length}", (right_child[merge], own), ",", (left_child[merge], own)]
        written.append(";\n")
    return "".join(written).rstrip("\n")


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'" if SPECIAL.search(name) else name
