"""HDBSCAN's choice of flat clusters in a condensed dendrogram, and what it says of each point.

The stability of a cluster is the sum of the times, in λ, that its points are in it (Campello, Moulavi and Sander, PAKDD
2013).
"""

from typing import NamedTuple

import numpy as np

from rapids_slink.dendrogram.condense import NOTHING, Condensed, Weighting
from rapids_slink.runtime.compiling import njit


class Rule(NamedTuple):
    """How clusters are selected from a condensed dendrogram.

    Attributes
    ----------
    leaves : bool
        True selects the clusters that do not split further. False selects by excess of mass: a cluster is preferred to
        those within it unless these are more stable together.
    allow_single : bool
        Whether all points may be one cluster.
    max_size : float
        The largest number of points of a cluster at its birth; ignored with `leaves`. The cluster of all points counts
        the points of its child clusters instead, as in the package hdbscan.
    epsilon : float
        Clusters that split off below this height are merged into the one that they split from.
    """

    leaves: bool = False
    allow_single: bool = False
    max_size: float = np.inf
    epsilon: float = 0.0


class Selected(NamedTuple):
    """Selected clusters, numbered in the order in which they first appear among the points.

    Attributes
    ----------
    labels : (n,) int32 array, -1 of noise
    probabilities : (n,) float64 array, how deep in its cluster a point is: its λ over the largest λ of the cluster
    persistence : (clusters,) float64 array, each stability as a share of what it would be if no point ever left
    clusters : (clusters,) int32 array, their numbers in the condensed dendrogram
    """

    labels: np.ndarray
    probabilities: np.ndarray
    persistence: np.ndarray
    clusters: np.ndarray


@njit(nogil=True, cache=True)
def stabilities(tree, weight):
    """The stability of each cluster, of points of these weights, or of 1 if there are none."""
    total = np.zeros(tree.parent.size)
    for p in range(tree.cluster.size):
        c = tree.cluster[p]
        total[c] += (tree.departure[p] - tree.birth[c]) * (weight[p] if weight.size else 1.0)
    for c in range(1, total.size):
        total[tree.parent[c]] += (tree.birth[c] - tree.birth[tree.parent[c]]) * tree.size[c]
    return total


def select(tree: Condensed, rule: Rule, weighting: Weighting | None = None) -> Selected:
    """The clusters that a rule selects, and each point's place in them."""
    stability = stabilities(tree, NOTHING if weighting is None else weighting.weight)
    selected = _leaves(tree) if rule.leaves else _most_stable(tree, stability.copy(), rule)
    if rule.epsilon > 0:
        selected = _above(tree, selected, rule)
    largest = largest_rates(tree)
    labels, probabilities, numbers = _label(tree, selected, largest, rule.epsilon)
    ever = largest.max()
    if 0 < ever < np.inf:  # a stability may overflow
        persistence = np.minimum(stability[numbers] / ever / tree.size[numbers], 1.0)
    else:
        persistence = np.ones(numbers.size)
    return Selected(labels, probabilities, persistence, numbers)


def outlier_scores(tree: Condensed) -> np.ndarray:
    """GLOSH: 1 - λ / λ' for each point, λ' the largest λ in its cluster and those within it; 0 for the densest.

    Campello, Moulavi, Zimek and Sander, "Hierarchical density estimates for data clustering, visualization, and outlier
    detection", TKDD 2015.
    """
    largest = largest_rates(tree)
    raise_to_those_within(tree.parent, largest)
    densest = largest[tree.cluster]
    with np.errstate(invalid="ignore"):
        return np.where(tree.departure >= densest, 0.0, 1 - tree.departure / densest)


@njit(nogil=True, cache=True)
def raise_to_those_within(parent, largest):
    """Replace each cluster's value by the largest of its own and those of the clusters within it."""
    for c in range(largest.size - 1, 0, -1):
        largest[parent[c]] = max(largest[parent[c]], largest[c])


def largest_rates(tree: Condensed) -> np.ndarray:
    """The largest λ at which anything left each cluster."""
    largest = np.zeros(tree.parent.size)
    np.maximum.at(largest, tree.cluster, tree.departure)
    np.maximum.at(largest, tree.parent[1:], tree.birth[1:])
    return largest


def _leaves(tree: Condensed) -> np.ndarray:
    """The clusters that do not split; none if there is only one."""
    selected = np.ones(tree.parent.size, bool)
    selected[0] = False
    selected[tree.parent[1:]] = False
    return selected


@njit(nogil=True, cache=True)
def _most_stable(tree, best, rule):
    """The clusters of the largest excess of mass. `best` holds the stabilities and is overwritten."""
    within = np.zeros(best.size)  # the best of the clusters within each
    selected = np.zeros(best.size, np.bool_)
    handed_on = 0
    for c in range(best.size - 1, -1, -1):
        may = tree.size[c] <= rule.max_size if c > 0 else rule.allow_single and handed_on <= rule.max_size
        selected[c] = may and best[c] >= within[c]
        if not selected[c]:
            best[c] = within[c]
        if c > 0:
            within[tree.parent[c]] += best[c]
            if tree.parent[c] == 0:
                handed_on += tree.size[c]
    return _outermost(tree.parent, selected)


@njit(nogil=True, cache=True)
def _outermost(parent, selected):
    """The selected clusters that are within no other selected one."""
    covered = np.zeros(selected.size, np.bool_)
    for c in range(1, selected.size):
        covered[c] = covered[parent[c]] or selected[parent[c]]
    return selected & ~covered


@njit(nogil=True, cache=True)
def _above(tree, selected, rule):
    """Replace each selected cluster that was born below `epsilon` by the first one around it that was not."""
    raised = np.zeros(selected.size, np.bool_)
    first = 0 if rule.allow_single else 1
    for c in range(selected.size):
        if selected[c]:
            outer = c
            while tree.birth[outer] * rule.epsilon > 1 and tree.parent[outer] >= first:
                outer = tree.parent[outer]
            raised[outer] = True
    return _outermost(tree.parent, raised)


@njit(nogil=True, cache=True)
def enclosing(parent, selected):
    """The selected cluster that equals or contains each cluster, -1 where there is none."""
    around = np.full(selected.size, -1, np.int32)
    for c in range(selected.size):
        around[c] = c if selected[c] else around[parent[c]] if c > 0 else -1
    return around


@njit(nogil=True, cache=True)
def _label(tree, selected, largest, epsilon):
    """Labels, probabilities, and the cluster of each label."""
    n, m = tree.cluster.size, selected.size
    around = enclosing(tree.parent, selected)
    labels, probabilities = np.full(n, -1, np.int32), np.zeros(n)
    number, clusters, count = np.full(m, -1, np.int32), np.empty(m, np.int32), 0
    # If all points are one cluster, it has those that stay as long as it does, or until epsilon.
    stays = 1 / epsilon if epsilon > 0 else largest[0]
    for p in range(n):
        c = around[tree.cluster[p]]
        if c < 0 or (c == 0 and tree.departure[p] < stays):
            continue
        if number[c] < 0:
            number[c], clusters[count] = count, c
            count += 1
        labels[p] = number[c]
        rate = tree.departure[p]
        probabilities[p] = min(rate, largest[c]) / largest[c] if rate < np.inf else 1.0
    return labels, probabilities, clusters[:count]
