"""A cluster of two processes, for the tests of a module."""

import pytest


@pytest.fixture(scope="module")
def cluster():
    from dask_clusters import start

    with start(2) as made:
        yield made


@pytest.fixture
def blocks(prescribe):
    """Sets how many blocks there are, as far as there are rows."""

    def choose(count):
        prescribe(blocks=count)

    choose(3)
    return choose


@pytest.fixture
def client(cluster):
    with cluster.get_client() as made:
        yield made
