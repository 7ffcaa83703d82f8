"""HDBSCAN's choice of flat clusters in a condensed dendrogram, and the depth of each point in its cluster.

The stability of a cluster is the sum of the times, in λ, that its points are in it (Campello, Moulavi and Sander, PAKDD
2013).
"""

from typing import NamedTuple

import numpy as np

from rapids_slink.dendrogram.condense import NOTHING, Condensed, Weighting
from rapids_slink.runtime.compiling import njit
from rapids_slink.runtime.device import CPU, Array, Device, half


class Rule(NamedTuple):
    """How clusters are selected from a condensed dendrogram."""

    #: whether to select the clusters that do not split further; else by excess of mass: a cluster is preferred to those
    #: within it unless these are more stable together
    leaves: bool = False
    allow_single: bool = False  # whether all points may be one cluster
    #: the largest number of points of a cluster at its birth; ignored with `leaves`. The cluster of all points counts
    #: the points of its child clusters instead, as in the package hdbscan
    max_size: float = np.inf
    epsilon: float = 0.0  # clusters that split off below this height are merged into the one that they split from
    max_epsilon: float = np.inf  # clusters that split off above this height are not selected; ignored with `leaves`


class Selected(NamedTuple):
    """Selected clusters, numbered in the order in which they first appear among the points.

    Values of points are on the points' device.
    """

    labels: np.ndarray  # (n,) int32, -1 of noise
    #: (n,) float64, how deep in its cluster a point is: its λ over the largest λ of the cluster
    probabilities: np.ndarray
    persistence: np.ndarray  # (clusters,) float64, each stability as a share of what it would be if no point ever left
    clusters: np.ndarray  # (clusters,) int32, their numbers in the condensed dendrogram


class Summary(NamedTuple):
    """Values of each cluster of a condensed dendrogram, on the host."""

    stability: np.ndarray  # (c,) float64
    largest: np.ndarray  # (c,) float64, the largest λ at which anything left it
    first: np.ndarray  # (c,) int32, the first of the points that fall out of it, n if none does


def summarize(tree: Condensed, device: Device = CPU, weighting: Weighting | None = None) -> Summary:
    """The summary of a dendrogram whose points are on this device, a GPU only without weights."""
    weight = NOTHING if weighting is None else weighting.weight
    summary = Summary(*half(device, __package__).sum_up_clusters(tree.cluster, tree.departure, tree.birth, weight))
    outer, birth = tree.parent[1:], tree.birth[1:]
    with np.errstate(over="ignore"):
        np.add.at(summary.stability, outer, (birth - tree.birth[outer]) * tree.size[1:])
    np.maximum.at(summary.largest, outer, birth)
    return summary


def select(tree: Condensed, rule: Rule, summary: Summary, device: Device = CPU) -> Selected:
    """The clusters that a rule selects, and each point's place in them."""
    stability, largest, _ = summary
    selected = _leaves(tree) if rule.leaves else _most_stable(tree.parent, stability.copy(), _allowed(tree, rule))
    if rule.epsilon > 0:
        selected = _above(tree.parent, _heights(tree.birth), selected, rule.epsilon, rule.allow_single)
    labels, probabilities, numbers = _label(tree, selected, summary, rule.epsilon, device)
    ever = largest.max()
    if 0 < ever < np.inf:  # a stability may overflow
        persistence = np.minimum(stability[numbers] / ever / tree.size[numbers], 1.0)
    else:
        persistence = np.ones(numbers.size)
    return Selected(labels, probabilities, persistence, numbers)


def outlier_scores(tree: Condensed, summary: Summary, device: Device = CPU) -> Array:
    """GLOSH: 1 - λ / λ' for each point, λ' the largest λ in its cluster and those within it; 0 for the densest.

    Campello, Moulavi, Zimek and Sander, "Hierarchical density estimates for data clustering, visualization, and outlier
    detection", TKDD 2015.
    """
    largest = summary.largest.copy()
    raise_to_those_within(tree.parent, largest)
    densest = device.asarray(largest)[tree.cluster]
    with np.errstate(invalid="ignore"):
        return device.xp.where(tree.departure >= densest, 0.0, 1 - tree.departure / densest)


@njit(nogil=True, cache=True)
def raise_to_those_within(parent, largest):
    """Replace each cluster's value by the largest of its own and those of the clusters within it."""
    for c in range(largest.size - 1, 0, -1):
        largest[parent[c]] = max(largest[parent[c]], largest[c])


def _leaves(tree: Condensed) -> np.ndarray:
    """The clusters that do not split; none if there is only one."""
    selected = np.ones(tree.parent.size, bool)
    selected[0] = False
    selected[tree.parent[1:]] = False
    return selected


def _allowed(tree: Condensed, rule: Rule) -> np.ndarray:
    """The clusters that excess of mass may select."""
    size, birth = tree.size.astype(np.float64), tree.birth.copy()
    size[0] = size[1:][tree.parent[1:] == 0].sum()
    allowed = size <= rule.max_size
    allowed[0] &= rule.allow_single
    if rule.max_epsilon < np.inf:
        birth[0] = min(float(tree.departure.min()), birth[1:].min(initial=np.inf))  # where all points part first
        allowed &= _heights(birth) <= rule.max_epsilon
    return allowed


def _heights(rate: np.ndarray) -> np.ndarray:
    """The heights of some λ. Two roundings away from the merges, and compared so in the package hdbscan, too."""
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / rate


@njit(nogil=True, cache=True)
def _most_stable(parent, best, allowed):
    """The clusters of the largest excess of mass. `best` holds the stabilities and is overwritten."""
    within = np.zeros(best.size)  # the best of the clusters within each
    selected = np.zeros(best.size, np.bool_)
    for c in range(best.size - 1, -1, -1):
        selected[c] = allowed[c] and best[c] >= within[c]
        if not selected[c]:
            best[c] = within[c]
        if c > 0:
            within[parent[c]] += best[c]
    return _outermost(parent, selected)


@njit(nogil=True, cache=True)
def _outermost(parent, selected):
    """The selected clusters that are within no other selected one."""
    covered = np.zeros(selected.size, np.bool_)
    for c in range(1, selected.size):
        covered[c] = covered[parent[c]] or selected[parent[c]]
    return selected & ~covered


@njit(nogil=True, cache=True)
def _above(parent, split_at, selected, epsilon, allow_single):
    """Replace each selected cluster that split off below `epsilon` by the first one around it that did so above.

    At exactly `epsilon` a cluster stays if it is selected, and is passed over if it is around a selected one, as in the
    package hdbscan. So one that stays may be within one that replaces others, except within all points: there the
    package has a cluster without points.
    """
    raised = np.zeros(selected.size, np.bool_)
    outermost = 0 if allow_single else 1
    for c in range(selected.size):
        if selected[c]:
            outer = c
            if split_at[c] < epsilon:
                while parent[outer] >= outermost:
                    outer = parent[outer]
                    if split_at[outer] > epsilon:
                        break
            raised[outer] = True
    if raised[0]:
        raised[1:] = False
    return raised


@njit(nogil=True, cache=True)
def enclosing(parent, selected):
    """The selected cluster that equals or contains each cluster, -1 where there is none."""
    around = np.full(selected.size, -1, np.int32)
    for c in range(selected.size):
        around[c] = c if selected[c] else around[parent[c]] if c > 0 else -1
    return around


def _label(
    tree: Condensed, selected: np.ndarray, summary: Summary, epsilon: float, device: Device
) -> tuple[Array, Array, np.ndarray]:
    """Labels, probabilities, and the cluster of each label."""
    xp, around, rate = device.xp, enclosing(tree.parent, selected), tree.departure
    first = np.full(selected.size, tree.cluster.size)
    np.minimum.at(first, around[around >= 0], summary.first[around >= 0])
    clusters = np.flatnonzero(selected).astype(np.int32)
    clusters = clusters[np.argsort(first[clusters])]
    number = np.full(selected.size + 1, -1, np.int32)  # and of no cluster, at the end
    number[clusters] = np.arange(clusters.size)
    labels = device.asarray(number[around])[tree.cluster]
    if selected[0]:  # all points are one cluster, of those that stay as long as it does, or until epsilon
        stays = rate >= (1 / epsilon if epsilon > 0 else summary.largest[0])
        labels = xp.where(stays, labels, np.int32(-1))
        clusters = clusters[: int(stays.any())]
    largest = device.asarray(summary.largest[around])[tree.cluster]
    with np.errstate(divide="ignore", invalid="ignore"):
        depth = xp.where(rate < largest, rate / largest, 1.0)
    return labels, xp.where(labels < 0, 0.0, depth), clusters
