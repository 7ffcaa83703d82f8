"""The attributes of a fitted hierarchy, which its plots and exports read."""

from typing import Any

from rapids_slink.points.output import OutputKind
from rapids_slink.report import Report


class FittedTree:
    """The base of `Hierarchy`, which describes the public attributes."""

    linkage_: Any
    mst_: Any
    labels_: Any
    n_leaves_: int
    n_clusters_: int
    report_: Report
    _output: OutputKind
    _index: Any = None  # of the input's rows, if the input was a frame
    _layout: Any = None  # of the input's partitions, if the input was a Dask collection
    _labels_are_a_cut = True  # at one height

    @property
    def _nodes(self) -> Any:
        """All nodes of `mst_`."""
        return range(self.n_leaves_)

    def _require_fit(self) -> None:
        if not hasattr(self, "linkage_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _require_tree(self) -> None:
        self._require_fit()
        trees = self.n_leaves_ - len(self.linkage_)
        if trees != 1:
            raise ValueError(f"SciPy has no linkage of a forest, and this hierarchy is one of {trees} trees")
