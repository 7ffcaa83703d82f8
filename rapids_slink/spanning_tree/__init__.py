"""Minimum spanning trees: of a point set, by one of several ways, and of any weighted graph.

    line       one feature                       a sort
    pairs      few points, or a distance matrix  the distances of all pairs
    repeats    rows that come many times         join at zero; the distinct rows go on
    boxes      few features, or low dimension,   Borůvka on a tree of boxes
               on a GPU
    lists      all else                          k-NN lists ──forest──▶ certain edges ──connect──▶ tree
                                                 lists.py, component_pairs.py
    groups of points                             a tree each
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs/

`ways.py` has the list of ways and asks them in this order. `docs/algorithms.md` proves that an edge is in the tree,
`ways.py` for lines and repeats.
An edge frame has the columns ``src``, ``dst``, ``weight``. The total order of `ordering` decides ties among points; in
a graph the earlier row wins.
"""

from functools import partial

from rapids_slink.runtime.device import half

#: The kernels of a device, in `cpu` or `cuda`.
kernels = partial(half, package=__name__)
