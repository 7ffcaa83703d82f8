"""Clusters of Dask within the process of the tests."""


def workers_within_this_process(n_workers):
    """A cluster of threads. Its workers have no limit of memory.

    Dask pauses a worker while its process has more than 80 % of the worker's limit, and counts all that the process
    has. This one keeps what the tests before have compiled: the workers might never go on.
    """
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=False,
        memory_limit=0,
        dashboard_address=":0",
        silence_logs=50,
    )
