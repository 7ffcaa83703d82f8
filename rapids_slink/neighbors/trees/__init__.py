"""Trees of boxes over points: `kdtree.py` on a CPU, `bvh.py` on a GPU."""
