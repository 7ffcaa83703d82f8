"""Rows of codes on a GPU: bit planes, all distances by them, and the search."""
