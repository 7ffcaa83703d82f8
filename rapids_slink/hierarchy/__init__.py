"""A finished single-linkage hierarchy: further cuts, exports, plots, files.

- model.py: the common base of `SingleLinkage`, `HDBSCAN` and the result of `fit_graph`
- exports.py: exports to SciPy, NetworkX, cuGraph, hdbscan and Newick's format
- plotting.py: plots, and the summary in Jupyter
- explorer.py: the explorer in Jupyter, whose panels panels.js draws
- trees.py: HDBSCAN's trees as objects, and the bars of a condensed tree
- storage.py: a hierarchy in a file
"""
