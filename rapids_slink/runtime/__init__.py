"""The foundations of every stage.

    compiling.py Numba's disk cache, and the message when compiling takes long
    device.py    the two devices and their modules
    estimate.py  how much memory there is, and how much a stage takes
    pools.py     pools of a GPU's memory
    memory.py    a run's memory: its pool, its limit, the check before each stage
    cuda.py      CUDA sources, their compilation and launches; include/ has headers for all of them
    frames.py    dataframes over arrays
    threads.py   work in chunks, on the cores of a CPU or one after the other on a GPU
    versions.py  versions of packages and of the GPU's driver, for bug reports

Each file imports only those above it.
"""
