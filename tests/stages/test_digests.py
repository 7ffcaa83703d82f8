"""Digests that no change may change: see `digests`."""

import pytest
from digests import CALLS, DASK_CALLS, dask_client, digest_of_call, expected


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed", reason="distributed is not installed")
    with dask_client() as made:
        yield made


def test_each_call_has_a_digest():
    assert expected().keys() == (CALLS | DASK_CALLS).keys()


@pytest.mark.parametrize("name", CALLS)
def test_each_call(name, device):
    assert digest_of_call(name, device) == expected()[name]


@pytest.mark.parametrize("name", DASK_CALLS)
def test_dask(name, device, client):
    assert digest_of_call(name, device) == expected()[name]
