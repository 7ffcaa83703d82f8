"""A finished single-linkage hierarchy: further cuts, exports, plots, files.

- model.py: the common base of `SingleLinkage`, `HDBSCAN` and the result of `fit_graph`
- exports.py: exports to SciPy, NetworkX, cuGraph, hdbscan and Newick's format
- plotting.py: plots, and the summary in Jupyter; palette.py: the colours of clusters
- explorer.py: the explorer in Jupyter, whose panels panels.js draws; explorer_data.py: its settings and what it shows
- trees.py: HDBSCAN's trees as objects, and the bars of a condensed tree
- storage.py: a hierarchy in a file
"""
