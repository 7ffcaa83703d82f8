"""The bases of all models: `Hierarchy`, with cuts, plots and files, and scikit-learn's conventions in `Estimator`.

scikit-learn is not imported for its conventions: that would take more time than the rest of the first `fit` of a
process. Methods that only scikit-learn calls import it when they are called.
"""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from os import PathLike
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

import numpy as np
import pandas as pd

from rapids_slink.dendrogram import condense, cutting, reduce_outliers
from rapids_slink.hierarchy import plotting, storage
from rapids_slink.hierarchy.explorer import Explorer
from rapids_slink.hierarchy.plotting import Plots, draws
from rapids_slink.hierarchy.trees import CondensedTree
from rapids_slink.metrics import METRICS, PRECOMPUTED, Metric
from rapids_slink.points.check import as_integer, check_index, check_labels, column_values
from rapids_slink.points.output import (
    TABLES,
    Distances,
    Frame,
    Numbers,
    OutputKind,
    Rows,
    Values,
    array_of,
    as_frame,
    as_known,
    is_collection,
    library_of,
    on_host,
)
from rapids_slink.prediction import catalogue_of, read_rows
from rapids_slink.report import counted, did_you_mean, with_hints
from rapids_slink.runtime.device import Array, device_of, on_current_gpu, resolve
from rapids_slink.runtime.memory import TREE_BYTES, MemoryEstimate, check_memory, copy_out, run_scope, usual_errors

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
#: Names of parameters in other packages, and the names here.
MEANINGS = {
    "affinity": "metric", "threshold": "distance_threshold", "eps": "distance_threshold", "k": "n_neighbors",
    "min_pts": "min_samples", "na_values": "missing_value", "by": "groups", "groupby": "groups",
}  # fmt: skip


class Hierarchy(Plots):
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
    def children_(self) -> Values:
        """Return the two clusters of each merge, (merges, 2) int32, as scikit-learn does."""
        self._require_fit()
        return self._array(as_frame(self.linkage_)[["left", "right"]].values)

    @property
    def distances_(self) -> Values:
        """Return the height of each merge, (merges,) float64."""
        self._require_fit()
        return self._array(as_frame(self.linkage_)["height"].values)

    @overload
    def cut(
        self,
        n_clusters: int | str | None = None,
        *,
        distance_threshold: float | None = None,
        min_similarity: float | None = None,
        **options: Unpack[cutting.CutOptions],
    ) -> Rows: ...
    @overload
    def cut(
        self,
        n_clusters: Sequence[int] | np.ndarray[Any, Any],
        *,
        distance_threshold: None = None,
        min_similarity: None = None,
        **options: Unpack[cutting.CutOptions],
    ) -> Frame: ...
    @overload
    def cut(
        self,
        n_clusters: None = None,
        *,
        distance_threshold: Sequence[float] | np.ndarray[Any, Any] | None = None,
        min_similarity: Sequence[float] | np.ndarray[Any, Any] | None = None,
        **options: Unpack[cutting.CutOptions],
    ) -> Frame: ...
    @with_hints(cutting.MEANINGS)
    def cut(
        self,
        n_clusters: Numbers | str | None = None,
        *,
        distance_threshold: Distances | None = None,
        min_similarity: Distances | None = None,
        min_cluster_size: int | None = None,
        max_cluster_size: int | None = None,
        count_small: bool = True,
        closed: str = "left",
        names: str = "number",
        sample_weight: Any = None,
    ) -> Rows | Frame:
        """Return the labels of another cut of the same tree, or of many cuts.

        Parameters
        ----------
        n_clusters, distance_threshold : int, float, a sequence of either, or "widest_gap"
            Give one of them. `n_clusters` is the exact number of clusters, even if heights tie. For a model with groups
            it is the number in each group, or that of the group's rows if these are fewer. ``cut("widest_gap")`` cuts
            where successive merges are farthest apart, and labels outliers -1. `distance_threshold` is the distance at
            or above which clusters are not merged. A list, tuple, range or 1-d array makes a cut for each value. With
            `max_cluster_size` neither is needed.
        min_similarity : float, or a sequence of float
            In place of these, for metrics that have a similarity: clusters are merged at this similarity and at greater
            ones. See `SingleLinkage`.
        min_cluster_size, max_cluster_size, count_small, closed, names, sample_weight : optional
            See `rapids_slink.cut`. ``count_small=False`` is for models without groups.

        Returns
        -------
        Series or array of shape (n,), int32
            The label of each row, 0..k-1 in order of first appearance; a Series with the input's index if the input
            was a frame. For a sequence of cuts a DataFrame with that index and a column for each, named by its value,
            or an array of shape (n, cuts).

        Raises
        ------
        ValueError, TypeError
            None or several of the three are given, a value is not valid, or no cut has this number of large clusters.
        """
        self._require_fit()
        check_index(sample_weight, self._index, "sample_weight", "model.labels_")
        limit, similarities = getattr(self, "_max_distance_", None), None
        if min_similarity is not None:
            if n_clusters is not None or distance_threshold is not None:
                raise ValueError("give exactly one of n_clusters, distance_threshold and min_similarity, got several")
            similarities, many = cutting.CutParameters(distance_threshold=min_similarity).values
            limits: list[Any] = [cutting.distance_limit(self._metric, None, similarity) for similarity in similarities]
            distance_threshold, closed = limits if many else limits[0], "right"
        parameters = cutting.CutParameters(
            n_clusters, distance_threshold, min_cluster_size, closed=closed, names=names, sample_weight=sample_weight,
            max_distance=limit, column_values=similarities, max_cluster_size=max_cluster_size, count_small=count_small,
        ).checked()  # fmt: skip
        if n_clusters is None and distance_threshold is not None:
            for value in parameters.values[0]:
                cutting.check_distance(value, "distance_threshold", getattr(self, "metric", None))
            cutting.check_max_distance(parameters.values[0], limit)
        by_group = n_clusters is not None and distance_threshold is None and hasattr(self, "groups_")
        labels = self._cut(parameters, (self._merge_group_, self.groups_) if by_group else None)
        cutting.warn_of_heavy_rows(parameters, self.n_leaves_)
        is_plain = min_cluster_size is None and not by_group and self._layout is None
        if is_plain and isinstance(n_clusters, int | np.integer):
            linkage = as_frame(OutputKind.of(self.linkage_, resolve("auto", self.linkage_))[0])
            cutting.warn_of_outliers(
                {name: array_of(linkage[name]) for name in cutting.COLUMNS}, self.n_leaves_, int(n_clusters)
            )
        return labels

    @property
    def _metric(self) -> Metric:
        """Return the metric of the heights. The heights of a graph's hierarchy are given distances."""
        return PRECOMPUTED

    def _cut(self, parameters: cutting.CutParameters, groups: tuple[Any, Any] | None = None) -> Rows | Frame:
        """Return the labels of cuts of the whole forest, or of each of its groups by `_merge_group_` and `groups_`."""
        if self._layout is not None:
            return self._layout.cut(self.linkage_, self.n_leaves_, parameters, groups)
        linkage, _ = OutputKind.of(self.linkage_, resolve("auto", self.linkage_))
        index = on_current_gpu(self._index)
        return cutting.cut_frame(linkage, self.n_leaves_, parameters, self._output, index, groups=groups)

    def reduce_outliers(self, labels: Any = None, *, max_distance: float | None = None) -> Rows:
        """Give noise to clusters: each row labelled -1 takes the cluster that its branch of the tree meets first.

        Go up the tree from such a row to the first merge with a branch that holds rows of clusters. The edge of `mst_`
        of this merge ends at a row of that branch, and the noise takes the cluster of this row. If this row is noise
        too, both take the same cluster. So a row takes the cluster that it reaches by steps of which the longest is as
        short as possible. Equal steps count in the order of `mst_`. The labels' values do not matter, and all other
        rows keep their labels. It takes linear time.

        Parameters
        ----------
        labels : Series or array of shape (n,), optional
            Integers; those below 0 are noise. By default `labels_`. Other labels must belong to the same rows, such as
            those of a `cut` with `min_cluster_size`.
        max_distance : float, optional
            The largest height of a merge that counts. Rows that meet no cluster up to this height stay -1. The heights
            of `HDBSCAN` are mutual reachability distances. By default all rows of a tree that holds a cluster get one.

        Returns
        -------
        Series or array of shape (n,), int32
            The labels; a Series with the input's index if the input was a frame.

        Raises
        ------
        ValueError, TypeError
            The labels are no integers, or not one for each row. `max_distance` is not valid, or the model was fitted on
            a Dask collection.
        DeviceMemoryError
            The work needs more memory than there is.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import HDBSCAN
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9), 12.0, 30.0][:, None]
        >>> model = HDBSCAN(min_cluster_size=4, min_samples=3, device="cpu").fit(X)
        >>> model.labels_[-2:].tolist(), model.reduce_outliers()[-2:].tolist()
        ([-1, -1], [1, 1])
        >>> model.reduce_outliers(max_distance=9)[-2:].tolist()
        [1, -1]
        """
        self._require_fit()
        if self._layout is not None:
            raise ValueError("reduce_outliers takes a model in one piece, and this has partitions: save it and load it")
        if max_distance is not None:
            cutting.check_distance(max_distance, "max_distance", getattr(self, "metric", None))
        frames = self.linkage_, self.mst_
        linkage, tree = (OutputKind.of(frame, resolve("auto", frame))[0] for frame in frames)
        device = device_of(linkage)
        with run_scope(device):
            needed = MemoryEstimate(TREE_BYTES[device.name] * self.n_leaves_)
            check_memory(device, needed, counted(self.n_leaves_, "row"))
            labels = self.labels_ if labels is None else labels
            labels = check_labels(labels, self.n_leaves_, device, self._index)
            merges = {name: column_values(linkage[name], device) for name in cutting.COLUMNS[:3]}
            edges = {name: device.asarray(self._rows_of(tree[name]), "int32") for name in ("src", "dst")}
            reduced = copy_out(device, reduce_outliers(edges, merges, labels, max_distance, device))
        return self._output.from_cuml_setting().labels(reduced, on_current_gpu(self._index))

    def catalogue(self, X: Any = None, *, min_size: int = 20, columns: Any = None, weights: Any = None) -> Frame:
        """Return the clusters of `labels_` as a table of their sizes, centres and extents. Noise is left out.

        All sums are in float64 and in one order, so the table has the same bits on a GPU and on a CPU, in every run.

        Parameters
        ----------
        X : dataframe or array, (n, d), optional
            The rows that were clustered. A model with ``prediction_data=True`` keeps them, and `X` may be left out. A
            frame must have the columns that the model was fitted on. For a graph's hierarchy and for given distances
            any coordinates of the nodes or rows are valid.
        min_size : int
            Smaller clusters are left out.
        columns : str, list of str, dataframe or array, optional
            More values to average, such as velocities: columns of `X` by their names, or values of the n rows.
        weights : str, Series or array, optional
            The mass of each row, above zero: a column of `X` by its name, or n values. By default all weigh 1.

        Returns
        -------
        DataFrame
            A row for each cluster, in the order of labels. ``label`` (int32); ``size``, the number of rows; with
            `weights` ``mass``, their sum. The weighted means of the features and of `columns`, under their names, or
            ``x0``, ``x1`` and so on for arrays. ``radius``: the largest Euclidean distance of a row from the centre,
            over the features. ``spread``: the root of the mean square of these distances. In a `box` that repeats, the
            nearest images count, and the coordinates of centres are from 0 to below its length.

        Raises
        ------
        ValueError, TypeError
            `X` is missing or not valid, or does not have the numbers of rows and columns of the fit. A name is not a
            column of `X`, a weight is not above zero, or the features are angles or packed bits.
        DeviceMemoryError
            The work needs more memory than there is.

        Examples
        --------
        >>> import pandas as pd, rapids_slink
        >>> df = pd.DataFrame({"x": [0.0, 2.0, 9.0, 1.0], "y": [0.0, 0.0, 9.0, 0.0]})
        >>> rapids_slink.fit(df, max_distance=1, device="cpu").catalogue(df, min_size=2)
           label  size    x    y  radius    spread
        0      0     3  1.0  0.0     1.0  0.816497
        """
        self._require_fit()
        least, metric = as_integer(min_size, "min_size"), getattr(self, "metric", None)
        if least < 1:
            raise ValueError(f"min_size must be at least 1, got {min_size}")
        features = list(getattr(self, "feature_names_in_", getattr(self, "_columns_", ())))
        if metric in ("haversine", "bit_jaccard", "bit_hamming"):
            raise ValueError(f"a catalogue averages coordinates, and rows of metric={metric!r} are none")
        if X is None:
            if not hasattr(self, "_points_"):
                raise ValueError("this model keeps no rows: pass those that were clustered, catalogue(X)")
            X = self._points_
        labels = array_of(self.labels_) if library_of(self.labels_) else self.labels_
        X, columns, weights = self._features(X), as_known(columns), as_known(weights)
        device = resolve(getattr(self, "device", "auto"), labels, X)
        with run_scope(device):
            rows = read_rows(X, features, columns, weights, self.n_leaves_, device, self._index)
            d = rows.points.values.shape[1]
            fitted = getattr(self, "n_features_in_", d)
            if metric in METRICS and metric != PRECOMPUTED.name and d != fitted:
                raise ValueError(f"X must have the {counted(fitted, 'column')} of the fit, got {d}")
            box = getattr(self, "_box_", None)
            lengths = None if box is None else np.broadcast_to(np.asarray(box, np.float64), d)
            frame = catalogue_of(rows, device.asarray(labels, "int32"), least, device, lengths)
        return self._output.frame(frame.frame)

    def _first_rows(self) -> Rows:
        """Return the first row of each row's cluster, (n,) int32, if clusters are trees; the trees are not made."""
        if self._layout is not None:
            return self._cut(cutting.CutParameters(self.n_clusters_, names="first_row"))
        labels = array_of(self.labels_) if library_of(self.labels_) else self.labels_
        device = device_of(labels)
        with run_scope(device):
            first = copy_out(device, device.asarray(labels)) if device.is_gpu else labels.copy()
            cutting.name_by_first_row(first, device.xp)
        return self._output.from_cuml_setting().labels(first, on_current_gpu(self._index))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the hierarchy to a file that `rapids_slink.load` reads.

        Parameters
        ----------
        path : path
            The file is written under another name in the same folder and then renamed, so an older file is never half
            overwritten. No suffix is added; ``.slink`` is the usual one.

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

    @draws
    def plot_condensed(self, *, min_cluster_size: int | None = None, ax: Any = None, **options: Any) -> Any:
        """Draw the condensed tree as an icicle: the clusters of many rows, and the cut.

        From the top down, a merge of two clusters of at least `min_cluster_size` rows splits a bar in two. At every
        other merge rows fall out of a bar, which gets narrower. A chain, whose dendrogram is a comb, is one bar. The
        clusters of `labels_` have the colours of `plot_clusters`, below the line of the cut if there is one. Distances
        on a sphere are in kilometres.

        Parameters
        ----------
        min_cluster_size : int, optional
            At least 2. By default that of the fit for `HDBSCAN`, and for other models a hundredth of the rows, but at
            least 5.
        ax : matplotlib Axes, optional
            Where to draw; the current Axes by default.
        **options
            See `CondensedTree.plot`.

        Raises
        ------
        ValueError, TypeError
            `min_cluster_size` is not valid, a height is negative, or the rows are weighted.
        """
        self._require_fit()
        tree = self._condensed(min_cluster_size)
        if self._labels_are_a_cut and self._cut_clusters > 1:
            heights = np.asarray(on_host(self.linkage_["height"]))[::-1]
            trees = self.n_leaves_ - heights.size
            at = plotting.cut_height(heights, self._cut_clusters, trees, 0.0, plotting.is_logarithmic(heights))
            options.setdefault("cut", (at, np.asarray(on_host(self.labels_))))
        return tree.plot(axis=ax, **options)

    def _condensed(self, min_cluster_size: int | None) -> CondensedTree:
        """Return the condensed tree with the labels of its most stable clusters. Raise for negative heights."""
        n = self.n_leaves_
        least = cutting.least_size(n) if min_cluster_size is None else as_integer(min_cluster_size, "min_cluster_size")
        linkage = on_host(self.linkage_)
        if least < 2:
            raise ValueError(f"min_cluster_size must be at least 2, got {min_cluster_size}")
        merges = condense.Merges.of(linkage)
        if merges.height.size and merges.height[0] < 0:
            raise ValueError(f"a condensed tree needs distances that are not negative, got {merges.height[0]}")
        tree = condense.condense(merges, n, least)
        labels = condense.select(tree, condense.Rule(), condense.summarize(tree)).labels
        return CondensedTree(pd.DataFrame(condense.columns_of(tree)), labels, plotting.unit_of(self))

    @usual_errors()
    def explore(
        self, X: Any, *, x: Any = None, y: Any = None, data: Any = None, color: Any = None, names: Any = None
    ) -> Explorer:
        """Explore the cuts in Jupyter: the rows of `X` in the colours of their clusters, beside the curve of heights.

        Drag the cut along the curve or in the condensed tree, or type a number of clusters, a distance (in kilometres
        for haversine) or a smallest size. Colours, names, counts and the table of the largest clusters follow at once,
        and a button goes back. The lasso, the menu of clusters, or a click on a bar of the tree selects rows. The
        pointer shows a row's columns. For `HDBSCAN` the curve is of ``min_cluster_size``. A few million rows are
        possible.

        The first cut is the model's own, unless its clusters are mostly outliers: at least 100 rows, and at most one
        cluster with a hundredth of them. Then it is at the widest gap that leaves two clusters of that size.

        Parameters
        ----------
        X : dataframe or array, (n, d)
            The rows that were clustered; for a graph's hierarchy, any coordinates of its nodes. More than two columns
            are drawn along their principal axes, which cuML computes on a GPU that has it, and scikit-learn otherwise.
            With ``metric="haversine"`` the axes are longitude and latitude in degrees.
        x, y : column name or number, optional
            Two columns of `X` to draw instead.
        data : dataframe, (n, any), optional
            The rows with all that is known of them, in the order of `X`. The pointer shows their columns, and these can
            colour and name the rows. By default `X`.
        color : column name, or array or Series of shape (n,), optional
            Colours of the rows in place of those of clusters. A menu changes between them and all columns.
        names : column name, or array or Series of shape (n,), optional
            Names of the rows. A cluster has the commonest name of its rows if a tenth of them have it, otherwise the
            name of its central row.

        Returns
        -------
        Explorer
            Jupyter displays it. ``explorer.labels`` are the labels of the cut that is shown, ``explorer.selected`` are
            the selected rows of `data`, ``explorer.undo()`` goes back, and ``explorer.to_html()`` is a page for a
            report.

        Raises
        ------
        ImportError
            jupyter-scatter or ipywidgets is not installed.
        ValueError, TypeError
            `X`, `data` or a column is not valid, or does not have the number of rows that were clustered.
        """
        self._require_fit()
        return Explorer(self, X, x, y, data, color, names)

    def _check_parameters(self) -> None:
        """Raise an error for a parameter that is valid for no data."""

    def _repr_html_(self) -> str:
        """Return the summary for Jupyter: the cut, the clusters' sizes and the parameters; proofs and times folded."""
        return plotting.to_html(self)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: on_host(value) for name, value in self._made().items() if name != "_layout"}
        if self._layout is not None:  # the partitions have become one piece
            state["_index"] = getattr(state["labels_"], "index", None)
        elif self._index is not None and self._output.wrapper in TABLES:  # columns of tables have no index
            series = {name: value for name, value in state.items() if isinstance(value, pd.Series)}
            state |= {name: value.set_axis(self._index) for name, value in series.items()}
        return state

    def __copy__(self) -> Self:
        return self._with(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with(copy.deepcopy(self._made(), memo))

    def _made(self) -> dict[str, Any]:
        """Return all attributes by name, after those that were not made yet are made."""
        return {name: getattr(self, name) for name in vars(self)}

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


# ---------------------------------------------------------------------------------------------------- estimators


class WithRows(Generic[Parameters, Result]):
    """Decorator of a method that only models with ``prediction_data=True`` have, as scikit-learn's checks ask."""

    def __init__(self, method: Callable[Concatenate[Any, Parameters], Result]) -> None:
        self.method: Any = method
        self.__doc__ = method.__doc__

    def __get__(self, model: Any, kind: type) -> Callable[Parameters, Result]:
        if model is None:
            return self.method
        if not model.prediction_data:
            raise AttributeError(
                f"this {kind.__name__} keeps no rows for {self.method.__name__}: set prediction_data=True and fit"
            )
        return MethodType(self.method, model)


class Estimator:
    """A clusterer. Its parameters are the arguments of ``__init__``, in attributes of the same names."""

    fit: Any  # a method of each subclass

    def __new__(cls, *values: Any, **parameters: Any) -> Self:
        """Return a model without attributes; raise TypeError for an unknown name unless a subclass takes any names."""
        own = cls._parameters()
        if parameters.keys() - own.keys() and not any(one.kind is one.VAR_KEYWORD for one in own.values()):
            cls._check_names(parameters, TypeError)
        return super().__new__(cls)

    @classmethod
    @cache
    def _parameters(cls) -> Mapping[str, inspect.Parameter]:
        """Return the parameters of the class. They are cached: a small fit would notice the time to inspect it."""
        return inspect.signature(cls).parameters

    @classmethod
    def _fit_parameters(cls) -> list[str]:
        """Return the names of the parameters of `fit` after the model, X and y."""
        return list(inspect.signature(cls.fit).parameters)[3:]

    def fit_predict(self, X: Any, y: Any = None, *more: Any, **parameters: Any) -> Rows:
        """Call `fit` with these parameters and return `labels_`: one int32 label per row."""
        return self.fit(X, y, *more, **parameters).labels_

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name. `deep` has no effect, because none of them is an estimator."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Raises
        ------
        ValueError
            A name is not a parameter. Then none is set.
        """
        self._check_names(params, ValueError)
        self.__dict__.update(params)
        return self

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Ask scikit-learn's metadata routing, if it is enabled, to pass parameters of `fit` on to this model.

        Copies and pickles keep the requests; the file of `save` does not hold them.

        Parameters
        ----------
        **requests : bool, str or None
            For a parameter of `fit` except `X` and `y`: True passes it on if it is given, False ignores it, None raises
            an error if it is given, and a string is the name under which it is given.

        Returns
        -------
        object
            The model itself.

        Raises
        ------
        TypeError
            A name is no such parameter.
        """
        asked = self.get_metadata_routing()
        for name, value in requests.items():
            if name not in asked.fit.requests:
                raise TypeError(
                    f"{type(self).__name__}.fit has no parameter {name!r}, only {sorted(asked.fit.requests)}"
                )
            asked.fit.add_request(param=name, alias=value)
        self._metadata_request = asked  # the name that scikit-learn's `clone` copies
        return self

    def get_metadata_routing(self) -> Any:
        """Return the parameters that metadata routing passes on to `fit`, as a ``MetadataRequest`` of scikit-learn."""
        from sklearn.utils.metadata_routing import MetadataRequest

        if hasattr(self, "_metadata_request"):
            return copy.deepcopy(self._metadata_request)
        request = MetadataRequest(owner=type(self).__name__)
        for name in self._fit_parameters():
            request.fit.add_request(param=name, alias=None)
        return request

    @classmethod
    def _check_names(cls, parameters: Iterable[str], error: type[Exception]) -> None:
        """Raise for the first name that is not the name of a parameter."""
        own = cls._parameters()
        for name in parameters:
            if name not in own:
                names, fit_names = list(own), cls._fit_parameters()
                meant = did_you_mean(name, [*names, *fit_names], MEANINGS) or f", only {names}"
                meant = f". It is a parameter of fit(X, {name}=...)" if name in fit_names else meant
                raise error(f"{cls.__name__} has no parameter {name!r}{meant}")

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in cls._parameters().items()}

    def __repr__(self) -> str:
        changed = ", ".join(f"{name}={text}" for name, text in self._changed().items())
        return f"{type(self).__name__}({changed})"

    def _changed(self) -> dict[str, str]:
        """Return as text the values of the parameters that are not the defaults, by name."""
        chosen, defaults = {name: repr(value) for name, value in self.get_params().items()}, self._defaults()
        return {name: text for name, text in chosen.items() if text != repr(defaults[name])}

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags("clusterer", TargetTags(required=False), input_tags=InputTags())

    def _repr_html_(self) -> str:
        """Return scikit-learn's diagram of the parameters, as HTML."""
        from sklearn.utils import estimator_html_repr

        return str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        """Return the representations in Jupyter: text, and HTML if scikit-learn's ``display`` is "diagram"."""
        from sklearn import get_config

        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._repr_html_()
        return bundle
