"""A finished single-linkage hierarchy: further cuts, exports, plots, files.

- base.py: the common base of `SingleLinkage`, `HDBSCAN` and the result of `fit_graph`
- exports.py, text.py: exports to SciPy, NetworkX, cuGraph, hdbscan and Newick's format
- drawn.py, plots.py, plotted.py, html.py: plots, and the summary in Jupyter
- explorer.py, dials.py: the explorer in Jupyter
- storage.py, files.py: a hierarchy in a file
"""
