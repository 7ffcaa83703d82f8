"""Minimum spanning trees: of a point set, by one of several ways, and of any weighted graph.

    line       one feature                       a sort
    pairs/     few points, or a distance matrix  the distances of all pairs
    repeats    rows that come many times         join at zero; the distinct rows go on
    boxes/     few features, on a GPU            Borůvka on a tree of boxes; lists.py asks it for low dimension, too
    lists      all else                          k-NN lists ──forest──▶ certain edges ──connect──▶ tree
                                                 forest.py, lists.py, component_pairs/
    groups of points                             a tree each: grouped/
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs.py, edges/

`ways.py` has the list of ways and asks them in this order. The proof that an edge is in the tree is in `forest.py` for
lists, in `boxes/` for boxes, in `component_pairs/` for the last components, and in `line.py` and `repeats.py` for
theirs. An edge frame has the columns ``src``, ``dst``, ``weight``. The total order of `ordering` decides ties among
points; in a graph the earlier row wins.
"""
