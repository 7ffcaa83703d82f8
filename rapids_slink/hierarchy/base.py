"""A finished single-linkage hierarchy: further cuts, exports, plots, files."""

import copy
from os import PathLike
from typing import Any, Self

import numpy as np
import pandas as pd

from rapids_slink.dendrogram.cutting import CutParameters, check_max_distance, cut_frame
from rapids_slink.hierarchy import html, storage
from rapids_slink.hierarchy.drawn import Drawn
from rapids_slink.points.output import TABLES, OutputKind, as_frame, is_collection, on_host
from rapids_slink.runtime.device import Array, device_of, on_current_gpu, resolve


class Hierarchy(Drawn):
    """The common base of `SingleLinkage`, `HDBSCAN` and the result of `fit_graph`.

    A pickle holds objects of pandas and NumPy whatever the model was fitted on, and opens on any machine. A copy keeps
    the types.

    cuML's global output type, if cuML is loaded and it is "numpy", "cupy", "pandas" or "cudf", decides the type of
    `labels_` at `fit`, and of `children_`, `distances_` and the result of `cut` on access. `linkage_` and `mst_` are
    always DataFrames.

    Attributes
    ----------
    linkage_, mst_, labels_, n_leaves_, n_clusters_, children_, distances_, report_
        See `SingleLinkage`. The leaves are the rows, or the nodes of a graph.
    """

    @property
    def nodes_(self) -> Any:
        """The ids of a graph's nodes, or the index of the input's rows, in the order of `labels_`.

        A column of Polars or Arrow if the input was a table of these, otherwise an Index; row numbers if there is none.
        """
        self._require_fit()
        nodes = range(self.n_leaves_) if self._index is None else self._index
        return self._output.series(np.asarray(nodes)) if self._output.wrapper in TABLES else nodes

    @property
    def children_(self) -> Any:
        """The two clusters that each merge joins, int32 of shape (merges, 2), as scikit-learn has it."""
        self._require_fit()
        return self._array(as_frame(self.linkage_)[["left", "right"]].values)

    @property
    def distances_(self) -> Any:
        """The height of each merge, float64."""
        self._require_fit()
        return self._array(as_frame(self.linkage_)["height"].values)

    def cut(
        self,
        n_clusters: Any = None,
        *,
        distance_threshold: Any = None,
        min_cluster_size: int = 1,
        closed: str = "left",
        names: str = "number",
        sample_weight: Any = None,
    ) -> Any:
        """Labels of another cut of the same tree, or of many.

        Parameters
        ----------
        n_clusters, distance_threshold : int, float, or a sequence of either
            Give one of them. Exactly this many clusters, even with equal heights; or clusters that are not merged at or
            above this distance. A list, tuple, range or 1-d array makes a cut for each value.
        min_cluster_size, closed, names, sample_weight : optional
            See `rapids_slink.cut`.

        Returns
        -------
        Series or array of shape (n,), int32
            The label of each row, 0..k-1 in order of first appearance; a Series with the input's index if the input
            was a frame. For a sequence of cuts a DataFrame with that index and a column for each, named by its value,
            or an array of shape (n, cuts).

        Raises
        ------
        ValueError, TypeError
            Both or neither of the two is given, or a value is not valid.
        """
        self._require_fit()
        size, weights = min_cluster_size, sample_weight
        parameters = CutParameters(n_clusters, distance_threshold, size, "kernel", closed, names, weights)
        if n_clusters is None and distance_threshold is not None:
            check_max_distance(parameters.values[0], getattr(self, "_max_distance_", None))
        if self._layout is not None:
            return self._layout.cut(self.linkage_, self.n_leaves_, parameters)
        linkage, _ = OutputKind.of(self.linkage_, resolve("auto", self.linkage_))
        return cut_frame(linkage, self.n_leaves_, parameters, self._output, on_current_gpu(self._index))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the hierarchy to a file that `rapids_slink.load` reads.

        Parameters
        ----------
        path : path
            The file is written under another name in the same folder and then renamed, so an older file is never half
            overwritten. No suffix is added; ``.slink`` is a good one.

        Raises
        ------
        ImportError
            pyarrow, which writes Parquet, is not installed.
        TypeError
            A parameter, a column's name or the index holds objects that neither Parquet nor JSON can keep, or the model
            has an attribute that its class does not declare.
        ValueError
            A parameter was set to a value that no fit takes.
        OSError
            The file cannot be written.
        """
        self._require_fit()
        storage.save(self, path)

    def _check_parameters(self) -> None:
        """Raise for a parameter that is valid for no data."""

    def _repr_html_(self) -> str:
        """The summary in Jupyter: the clusters' sizes, the cut, the proofs, the stages' times."""
        return html.to_html(self)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: on_host(value) for name, value in self.__dict__.items() if name != "_layout"}
        if self._layout is not None:  # the partitions have become one piece
            state["_index"] = getattr(state["labels_"], "index", None)
        elif self._index is not None and self._output.wrapper in TABLES:  # columns of tables have no index
            series = {name: value for name, value in state.items() if isinstance(value, pd.Series)}
            state |= {name: value.set_axis(self._index) for name, value in series.items()}
        return state

    def __copy__(self) -> Self:
        return self._with(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with(copy.deepcopy(self.__dict__, memo))

    def _with(self, state: dict[str, Any]) -> Self:
        new = type(self).__new__(type(self))
        new.__dict__.update(state)
        return new

    def _array(self, array: Array) -> Any:
        if is_collection(array):
            return array
        output = self._output.from_cuml_setting()
        if output is self._output or not output.is_frame:
            return output.array(array)
        return output.series(array) if array.ndim == 1 else output.frame(device_of(array).frames.DataFrame(array))
