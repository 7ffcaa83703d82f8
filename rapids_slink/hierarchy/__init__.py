"""A finished single-linkage hierarchy: further cuts, exports, plots, files.

- base.py: the common base of `SingleLinkage`, `HDBSCAN` and the result of `fit_graph`
- interop.py: exports to SciPy, NetworkX, cuGraph and hdbscan
- plots.py, html.py: plots, and the summary in Jupyter
- storage.py, files.py: a hierarchy in a file
"""
