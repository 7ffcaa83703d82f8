"""Benchmarks: seeded cases, optional peers, one clock, dated results.

::

    python -m bench --cases digits gauss-20k-16 --stages fit knn --peers scipy sklearn --device cpu
    python -m bench.report --readme

`cases.py`, `graphs.py` and `trees.py` have the data, `stages.py` what is timed, `checks.py` what it must equal,
`peers.py` the others, `clock.py` the one clock, `results.py` the JSON, `report.py` the tables made from it.
`recipe.py` measures how far from exact the usual recipe is, `choice.py` asks whether the chosen way is about as fast as
each other, and `sanitize.py` launches every CUDA kernel for ``compute-sanitizer``.
"""
