"""What every stage runs on.

    compiling.py what is compiled, and the notice that a first call takes longer for it
    device.py    which of the two devices, and the modules that are its own
    estimate.py  how much memory there is, and how much a stage takes
    memory.py    a run's memory: its pool, its limit, what is refused before it starts
    cuda.py      CUDA sources, their compilation and launches; headers for all of them in include/
    frames.py    dataframes over arrays
    threads.py   work in chunks, on the cores of a CPU or one after the other on a GPU
    versions.py  of packages and the GPU's driver, for bug reports

Each file imports only those above it.
"""
