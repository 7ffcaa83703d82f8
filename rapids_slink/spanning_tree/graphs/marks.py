"""What `cannot_link` holds: which nodes or rows may not be in one cluster.

    sources, or pairs ──▶ Marks

A source for each node is a column, an array or a Series. Pairs of nodes are a frame or an array of two columns.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from rapids_slink.points.check import InputTypeError
from rapids_slink.points.keys import GroupBy, keys_of
from rapids_slink.points.output import FRAMES, as_known, column_names, is_collection, library_of, on_host
from rapids_slink.report import counted
from rapids_slink.runtime.device import Device, to_host

NAME = "cannot_link"


@dataclass(frozen=True)
class Marks:
    """Which nodes have which marks."""

    #: `node` and `mark`: (t,) int64 arrays of the host. No node has a mark twice
    node: np.ndarray
    mark: np.ndarray

    @classmethod
    def of_sources(cls, source: np.ndarray) -> Self:
        """Return the marks of nodes with one source each, (n,) integers, negative for none."""
        node = np.flatnonzero(source >= 0)
        return cls(node, source[node].astype(np.int64))

    @classmethod
    def of_pairs(cls, u: np.ndarray, v: np.ndarray) -> Self:
        """Return the marks of pairs of nodes, which differ."""
        pair = np.arange(u.size)
        return cls(np.concatenate((u, v)).astype(np.int64), np.concatenate((pair, pair)))


def marks_of_nodes(cannot_link: Any, ids: Any, n: int) -> Marks:
    """Return the marks of the n nodes of a graph by the parameter of `fit_graph`.

    `ids` are the nodes' ids; None if these are their numbers. Ids that are no node's are ignored.
    """
    cannot_link = _known(cannot_link)
    index = pd.RangeIndex(n) if ids is None else pd.Index(on_host(ids))
    pairs = _pairs_of(cannot_link)
    if pairs is not None:
        u, v = (index.get_indexer(pd.Index(end)) for end in pairs)
        is_known = (u >= 0) & (v >= 0)
        return _marks_of_pairs(u[is_known], v[is_known], index)
    is_by_id = isinstance(cannot_link, dict) or library_of(cannot_link) in FRAMES
    sources = _series_of(cannot_link)
    if is_by_id:
        if not sources.index.is_unique:
            twice = sources.index[sources.index.duplicated()].tolist()[0]
            raise ValueError(f"{NAME} has several sources of node {twice!r}: its index must hold each id once")
        return Marks.of_sources(_codes(sources.reindex(index)))
    if ids is not None:
        raise ValueError(f"{NAME} must tell whose sources it holds: pass a Series whose index holds the nodes' ids")
    if len(sources) != n:
        raise ValueError(
            f"{NAME} must hold one source for each of {counted(n, 'node')}, got {len(sources)}: pass n_nodes, or a "
            f"Series whose index holds the nodes' ids; or pairs of nodes, in two columns"
        )
    return Marks.of_sources(_codes(sources))


def read_rows(X: Any, cannot_link: Any, device: Device) -> tuple[Any, tuple[Any, ...]]:
    """Return `X` without the column that the parameter of `fit` names, and the pairs of rows or the rows' sources."""
    cannot_link = _known(cannot_link)
    pairs = _pairs_of(cannot_link)
    if pairs is not None:
        return X, pairs
    X, keys, _ = keys_of(X, GroupBy(cannot_link, dropna=False, name=NAME), device)
    if keys.shape[1] > 1:
        raise ValueError(f"{NAME} must name one column of sources, got {keys.shape[1]}")
    return X, (_codes(on_host(keys.iloc[:, 0])),)


def marks_of_rows(marked: tuple[Any, ...], n: int) -> Marks:
    """Return the marks of n rows by the second result of `read_rows`."""
    if len(marked) == 1:
        (source,) = marked
        if source.size != n:
            rows = counted(n, "row")
            raise ValueError(
                f"{NAME} must hold one source for each of {rows}, got {source.size}; or pairs of rows, in two columns"
            )
        return Marks.of_sources(source)
    ends = [np.asarray(end) for end in marked]
    for end in ends:
        if end.dtype.kind not in "iu" and end.size:
            raise InputTypeError(f"pairs in {NAME} must be of row numbers, which are integers, got dtype {end.dtype}")
        bad = end[(end < 0) | (end >= n)] if end.size else end
        if bad.size:
            raise ValueError(f"pairs in {NAME} must be of row numbers from 0 to {n - 1}, got {bad[0]}")
    u, v = (end.astype(np.int64) for end in ends)
    return _marks_of_pairs(u, v, pd.RangeIndex(n))


def _known(cannot_link: Any) -> Any:
    if is_collection(cannot_link):
        raise InputTypeError(f"{NAME} is a Dask collection: compute it")
    return as_known(cannot_link)


def _pairs_of(cannot_link: Any) -> tuple[Any, Any] | None:
    """Return the two columns of pairs, on the host; None for what has one dimension."""
    names = column_names(cannot_link)
    if names is None and isinstance(cannot_link, list | tuple):
        is_nested = len(cannot_link) == 0 or all(isinstance(pair, list | tuple | np.ndarray) for pair in cannot_link)
        if not is_nested:
            return None
        frame = pd.DataFrame(cannot_link, columns=None if len(cannot_link) else ["src", "dst"])
    elif names is not None:
        frame = on_host(cannot_link)
    elif getattr(cannot_link, "ndim", 1) == 2:
        frame = pd.DataFrame(to_host(cannot_link))
    else:
        return None
    if names is not None and {"src", "dst"} <= set(names):
        frame = frame[["src", "dst"]]
    if frame.shape[1] == 1:
        return None
    if frame.shape[1] != 2:
        raise ValueError(f"{NAME} must hold pairs in two columns, or sources in one, got {frame.shape[1]} columns")
    if frame.isna().to_numpy().any():
        raise ValueError(f"{NAME} holds pairs with nulls or NaN: drop them")
    return frame.iloc[:, 0], frame.iloc[:, 1]


def _marks_of_pairs(u: np.ndarray, v: np.ndarray, index: pd.Index) -> Marks:
    if (u == v).any():
        raise ValueError(f"{NAME} holds the pair of {index[u[np.argmax(u == v)]]!r} and itself")
    return Marks.of_pairs(u, v)


def _series_of(sources: Any) -> pd.Series:
    """Return one source for each node as a Series of pandas."""
    if isinstance(sources, str) or not hasattr(sources, "__len__"):
        raise InputTypeError(f"{NAME} must hold a source for each node, or pairs of nodes, got {sources!r}")
    values = on_host(sources)
    if column_names(values) is not None:
        values = values.iloc[:, 0]
    if library_of(values):
        return values
    return pd.Series(values if isinstance(values, dict | list | tuple) else np.asarray(values))


def _codes(sources: pd.Series) -> np.ndarray:
    """Return an integer for each source, the same for equal ones, and -1 for what is missing."""
    try:
        return np.asarray(pd.factorize(sources)[0])
    except TypeError as error:
        raise InputTypeError(f"sources in {NAME} must be hashable: {error}") from error
