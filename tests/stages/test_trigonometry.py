"""Sines, cosines and arcsines: against NumPy's, which are within one unit in the last place themselves."""

import numpy as np
import pytest
from hard_cases import full

from rapids_slink.metrics import FEW, MAX_ANGLE, arcsine, in_chunks, sine_and_cosine
from rapids_slink.runtime.device import CPU, cuda, to_host

HALF = np.pi / 2


def both(x, xp):
    return xp.stack(sine_and_cosine(x, xp), axis=1)


def off(found, expected):
    """By how many units in the last place."""
    return np.abs(found.view(np.int64) - expected.view(np.int64)).max()


@pytest.mark.parametrize("size", [100_000, full(3_000_000)])
@pytest.mark.parametrize("limit", [1e-5, HALF, 2 * np.pi, 400.0, MAX_ANGLE])
def test_sine_and_cosine(limit, size, engine):
    x = np.random.default_rng(0).uniform(-limit, limit, size)
    found = to_host(in_chunks(both, engine, engine.asarray(x)))
    assert off(found, np.stack([np.sin(x), np.cos(x)], axis=1)) <= 1


def test_next_to_quarters_of_a_turn():
    x = np.arange(1, 2000) * HALF
    x = np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf), -x])
    assert off(both(x, np), np.stack([np.sin(x), np.cos(x)], axis=1)) <= 1
    assert both(np.array([0.0]), np).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("size", [100_000, full(3_000_000)])
@pytest.mark.parametrize(
    "points",
    [
        lambda rng, n: rng.uniform(0, 1, n),
        lambda rng, n: 10 ** rng.uniform(-300, 0, n),
        lambda rng, n: 1 - 10 ** rng.uniform(-16, 0, n),
        lambda rng, n: rng.uniform(0.499, 0.501, n),
    ],
    ids=["all", "small", "next to one", "around a half"],
)
def test_arcsine(points, size, engine):
    x = points(np.random.default_rng(0), size)
    assert off(to_host(in_chunks(arcsine, engine, engine.asarray(x))), np.arcsin(x)) <= 1


def test_ends_of_the_arcsine():
    assert arcsine(np.array([0.0, 0.5, 1.0]), np).tolist() == np.arcsin([0.0, 0.5, 1.0]).tolist()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, FEW - 1, FEW, 5_000_000])
def test_the_bits_of_the_cpu(size):
    x = np.random.default_rng(0).uniform(-7, 7, size)
    for function, values in ((both, x), (arcsine, np.abs(x) / 7)):
        found = in_chunks(function, cuda(), cuda().asarray(values))
        np.testing.assert_array_equal(to_host(found), in_chunks(function, CPU, values))
