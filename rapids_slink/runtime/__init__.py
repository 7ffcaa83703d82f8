"""The foundations of every stage.

    compiling.py Numba's disk cache, and the message when compiling takes long
    device.py    the two devices and their modules
    memory.py    a run's memory: estimates, pools, its limit, the check before each stage
    cuda.py      CUDA sources, their compilation and launches; include/ has headers for all of them
    threads.py   work in chunks, on the cores of a CPU or one after the other on a GPU

Each file imports only those above it.
"""
