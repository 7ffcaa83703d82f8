"""Digests that no change may change: see `digests`."""

import pytest
from digests import CALLS, DASK_CALLS, FORCED, digest_of, digest_of_call, expected
from hard_cases import full

from rapids_slink.forced import force


@pytest.fixture(scope="module")
def client():
    from dask_clusters import workers_within_this_process

    with workers_within_this_process(1) as cluster, cluster.get_client() as made:
        yield made


def test_each_call_has_a_digest():
    assert expected().keys() == (CALLS | DASK_CALLS).keys()


@pytest.mark.parametrize("name", CALLS)
def test_each_call(name, device):
    assert digest_of_call(name, device) == expected()[name]


@pytest.mark.parametrize("name", DASK_CALLS)
def test_dask(name, device, client):
    assert digest_of_call(name, device) == expected()[name]


def calls_of_ways():
    """Parameters ``way, name``: the first call of each way is quick."""
    for way, forced in FORCED.items():
        first, *others = forced.calls
        yield way, first
        yield from (full(way, name) for name in others)


@pytest.mark.parametrize(("way", "name"), list(calls_of_ways()))
def test_each_forced_way(way, name, device, request):
    """It has the digests of the way that is chosen, and it was taken."""
    forced = FORCED[way]
    if forced.on not in (None, device):
        pytest.skip("the other device has this way")
    if name in DASK_CALLS:
        request.getfixturevalue("client")
    with force(**forced.ways):
        result = (CALLS | DASK_CALLS)[name](device)
        assert digest_of(name, result) == expected()[name]
    if hasattr(result, "report_"):
        assert forced.is_taken(result.report_)
