"""Methods of a fitted HDBSCAN: its trees, predictions, memberships, exemplars, validity."""

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rapids_slink import density
from rapids_slink.dendrogram import condense
from rapids_slink.hierarchy.model import WithRows
from rapids_slink.hierarchy.trees import CondensedTree, MinimumSpanningTree, SingleLinkageTree
from rapids_slink.points.output import Frame, Rows, Values, as_frame, on_host
from rapids_slink.runtime.device import device_of, on_current_gpu, to_host
from rapids_slink.single_linkage import PointHierarchy

#: By model, its condensed tree and the `Density` made of it: a copy on the host.
_READ: Any = WeakKeyDictionary()


class DensityHierarchy(PointHierarchy):
    """The base of `HDBSCAN`."""

    probabilities_: Rows
    outlier_scores_: Rows
    cluster_persistence_: Values
    centroids_: Values
    medoids_: Values
    _condensed_: Frame  # see condense.columns_of
    _drawn_: Values  # with gen_min_span_tree and without prediction_data: the rows' values
    _core_: Values  # with prediction_data: see prediction.core_distances
    _selected_: Values  # the cluster in the condensed tree of each label
    _labels_are_a_cut = False

    @property
    def condensed_tree_(self) -> CondensedTree:
        """The clusters of at least `min_cluster_size` rows: which split, when, and when each row falls out."""
        self._require_fit()
        return self._condensed(None)

    @property
    def single_linkage_tree_(self) -> SingleLinkageTree:
        """The merges, with the methods of the package hdbscan. `linkage_` is their frame."""
        self._require_fit()
        return SingleLinkageTree(self)

    @property
    def minimum_spanning_tree_(self) -> MinimumSpanningTree:
        """The tree of mutual reachability, with the methods of the package hdbscan. `mst_` is its frame."""
        self._require_fit()
        rows = getattr(self, "_points_", getattr(self, "_drawn_", None))
        return MinimumSpanningTree(self.mst_, self.n_leaves_, rows)

    def dbscan_clustering(self, cut_distance: float, min_cluster_size: int = 5) -> Any:
        """The clusters of DBSCAN* with a radius, under the name in the package hdbscan.

        Parameters
        ----------
        cut_distance, min_cluster_size : float, int
            See `SingleLinkageTree.get_clusters`.

        Returns
        -------
        Series or array of shape (n,), int32
            -1 is noise.
        """
        return self.single_linkage_tree_.get_clusters(cut_distance, min_cluster_size)

    def generate_prediction_data(self) -> None:
        """Check that the model can predict. With ``prediction_data=True`` the fit has made all that this takes.

        Raises
        ------
        ValueError
            The model was fitted without ``prediction_data=True`` and keeps no rows.
        """
        self._fitted_rows()

    @property
    def exemplars_(self) -> list[Any]:
        """The rows that stay in each cluster to its end, one array of shape (rows, d) for each label."""
        rows, label = self._density().exemplars
        points = on_current_gpu(self._points_)
        chosen = points[device_of(points).asarray(rows)]
        return [self._output.array(chosen[label == k]) for k in range(self.n_clusters_)]

    def approximate_predict(self, X: Any) -> tuple[Any, Any]:
        """The clusters that new rows would join, and how deep in them, without fitting again.

        These are the definitions of the package hdbscan. Among the `min_samples` · 2 nearest fitted rows the one of the
        least mutual reachability decides, the nearest of equals. `report_` counts the new rows and the noise.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            New rows. The columns of a frame go by name if the model was fitted on a frame.

        Returns
        -------
        labels : Series or array of shape (m,), int32
            -1 is noise. A Series with the index of `X` if `X` is a frame, like the next.
        probabilities : Series or array of shape (m,), float64
            From 0 to 1; 0 for noise.

        Raises
        ------
        ValueError, TypeError
            The model was fitted without ``prediction_data=True``, or `X` is not valid.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.

        Examples
        --------
        >>> import numpy as np
        >>> from rapids_slink import HDBSCAN
        >>> X = np.r_[np.linspace(0, 1, 9), np.linspace(5, 7, 9), 30.0][:, None]
        >>> model = HDBSCAN(min_cluster_size=4, min_samples=3, prediction_data=True, device="cpu").fit(X)
        >>> labels, probabilities = model.approximate_predict(np.array([[0.5], [6.1], [90.0]]))
        >>> labels.tolist()
        [0, 1, -1]
        """
        labels, probabilities, _ = self._predict_with_rows(X)
        return labels, probabilities

    @WithRows
    def predict(self, X: Any) -> Any:
        """The labels of `approximate_predict`."""
        return self.approximate_predict(X)[0]

    def membership_vector(self, X: Any) -> Any:
        """How far new rows belong to each cluster, as the package hdbscan defines it.

        Parameters
        ----------
        X : dataframe or array, (m, d)
            See `approximate_predict`.

        Returns
        -------
        array of shape (m, clusters), float64
            By label. A row's sum is its probability of belonging to any cluster.

        Raises
        ------
        ValueError, TypeError, DeviceMemoryError
            See `approximate_predict`.
        """
        return self._predict(partial(density.membership_vector, model=self._density()), X)

    def all_points_membership_vectors(self) -> Any:
        """How far the fitted rows belong to each cluster, as the package hdbscan defines it.

        Returns
        -------
        array of shape (n, clusters), float64
            By label. A row's sum is its probability of belonging to any cluster.

        Raises
        ------
        ValueError
            The model was fitted without ``prediction_data=True``.
        DeviceMemoryError
            The work needs more memory than there is or than `memory_limit`.
        """
        answer = partial(density.all_membership_vectors, model=self._density())
        return self._predict(lambda X, **how: answer(self._output, **how), None)

    def _predict_with_rows(self, X: Any) -> tuple[Any, Any, Any]:
        """`approximate_predict`, and the fitted row that each new one joins."""
        labels, probabilities, rows = self._predict(partial(density.approximate_predict, model=self._density()), X)
        return labels, probabilities, rows

    def _density(self) -> density.Density:
        """The model as predictions read it."""
        rows, min_samples = self._fitted_rows(), self.report_.get("min_samples", 1)
        frame, read = _READ.get(self, (None, None))
        if read is None or frame is not self._condensed_:
            tree = condense.from_frame(as_frame(self._condensed_), self.n_leaves_)
            read = density.Density(rows, self._core_, min_samples, tree, to_host(self._selected_))
            _READ[self] = self._condensed_, read
        return read

    @property
    def relative_validity_(self) -> float:
        """The package hdbscan's fast form of DBCV, from -1 to 1: how dense clusters are beside the gaps between them.

        It compares models of one data set. Moulavi et al., "Density-based clustering validation", SDM 2014.
        """
        self._require_fit()
        tree = on_host(self.mst_)
        src, dst, weight = (tree[name].to_numpy() for name in ("src", "dst", "weight"))
        return density.relative_validity(np.asarray(on_host(self.labels_)), src, dst, weight)

    def _condensed(self, min_cluster_size: int | None) -> CondensedTree:
        if min_cluster_size is None:
            return CondensedTree(self._condensed_, self.labels_)
        if hasattr(self, "_weighted_"):
            raise ValueError("hdbscan draws no condensed tree of weighted rows: fit without sample_weight")
        return super()._condensed(min_cluster_size)
