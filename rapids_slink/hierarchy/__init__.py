"""A finished single-linkage hierarchy: cut it again, hand it on, look at it, keep it.

- base.py: what `SingleLinkage` and `fit_graph` return
- interop.py: the same for SciPy, NetworkX, cuGraph and hdbscan
- plots.py, html.py: pictures, and the summary in Jupyter
- storage.py, files.py: a hierarchy in a file
"""
