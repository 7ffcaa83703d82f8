"""Minimum spanning trees: of a point set, by one of several ways, and of any weighted graph.

    line       one feature                       a sort
    few/       few points, or given distances    all distances, in hand
    repeats    rows that come many times         join at zero; the distinct rows go on
    boxes/     few features, on a GPU            Borůvka on a tree of boxes
    lists      all else                          k-NN lists ──forest──▶ certain edges ──connect──▶ tree
                                                 forest.py, connect.py, component_pairs/
    graph ──read──▶ edges over numbered nodes ──Borůvka──▶ forest           graphs.py, edges/

`ways.py` has the list of ways, which are asked in this order. Why an edge is in the tree: `forest.py` says it of lists,
`boxes/` of boxes, `component_pairs/` of the last components, `line.py` and `repeats.py` of what they take. An edge
frame has the columns ``src``, ``dst``, ``weight``. Among points, ties go by the total order of `ordering`; in a graph
to the earlier row.
"""
