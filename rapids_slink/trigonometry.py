"""Sines, cosines and arcsines with the same bits on either device.

Libraries differ in the last bit. Here every operation is an IEEE 754 operation on arrays of NumPy or CuPy, rounded
once. Errors stay below one unit in the last place. The series are Taylor's.
"""

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np

from rapids_slink.runtime.device import CPU, Device, to_host
from rapids_slink.runtime.threads import for_each_chunk

#: π/2 in parts of 33 bits and a rest, whose products with whole numbers up to 2^20 are exact; and in two float64
#: numbers.
HALF_PI = tuple(
    map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2ep-69", "0x1.b839a252049c1p-104"))
)
HALF_PI_HIGH, HALF_PI_LOW = np.pi / 2, float.fromhex("0x1.1a62633145c07p-54")
#: The Earth's mean radius in kilometres: an angle in radians times this is a great-circle distance.
EARTH_RADIUS = 6371.0088
#: The largest angle, in radians.
MAX_ANGLE = 2.0**20
#: Coefficients of sin(r)/r - 1 and cos(r) - 1 + r²/2 in powers of r², |r| up to π/4; of arcsin(s)/s - 1, s up to 1/2.
SINE = [(-1) ** k / factorial(2 * k + 1) for k in range(1, 10)]
COSINE = [(-1) ** k / factorial(2 * k) for k in range(2, 11)]
ARCSINE = [factorial(2 * k) / (4**k * factorial(k) ** 2 * (2 * k + 1)) for k in range(1, 28)]
#: The number of values that are computed at a time; a chunk's intermediate results stay in a CPU's cache.
CHUNK = {"cpu": 2**15, "cuda": 2**22}
#: Fewer values than this are computed on the host, with the same bits, in less time than a GPU's launches take.
FEW = 2**15


def sine_and_cosine(x: Any, xp: Any) -> tuple[Any, Any]:
    """Return the sine and the cosine of angles up to `MAX_ANGLE`."""
    quarters = xp.rint(x * (2 / np.pi))
    high, low = _two_sum(x - quarters * HALF_PI[0], -quarters * HALF_PI[1])
    high, lower = _two_sum(high, -quarters * HALF_PI[2])
    low = low + (lower - quarters * HALF_PI[3])
    r = high + low
    rest = (high - r) + low
    z = r * r
    half = 0.5 * z
    sine = r + (r * _series(SINE, z) + rest * (1 - half))
    cosine = (1 - half) + (((1 - (1 - half)) - half) + (z * _series(COSINE, z) - r * rest))
    quadrant = quarters - 4 * xp.floor(quarters / 4)
    odd = (quadrant == 1) | (quadrant == 3)
    sine, cosine = xp.where(odd, cosine, sine), xp.where(odd, sine, cosine)
    return xp.where(quadrant >= 2, -sine, sine), xp.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)


def arcsine(x: Any, xp: Any) -> Any:
    """Return the arcsine of numbers from 0 to 1; above a half it follows from the arcsine of sqrt((1 - x)/2)."""
    is_small = x <= 0.5
    z = xp.where(is_small, x * x, (1 - x) / 2)
    s = xp.where(is_small, x, xp.sqrt(z))
    more = s * _series(ARCSINE, z)
    short = s.astype("float32").astype("float64")  # its square is exact
    both = s + short
    rest = xp.where(both > 0, (z - short * short) / xp.where(both > 0, both, 1), 0)  # what the root has beyond `short`
    large = (HALF_PI_HIGH - 2 * short) - (2 * (rest + more) - HALF_PI_LOW)
    return xp.where(is_small, s + more, large)


def great_circle(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any, xp: Any) -> Any:
    """Return the angles between points by the haversine formula; all angles are in radians."""
    north, _ = sine_and_cosine((other_latitude - latitude) / 2, xp)
    east, _ = sine_and_cosine((other_longitude - longitude) / 2, xp)
    _, level = sine_and_cosine(latitude, xp)
    _, other_level = sine_and_cosine(other_latitude, xp)
    haversine = north * north + level * other_level * east * east
    return 2 * arcsine(xp.sqrt(xp.minimum(haversine, 1.0)), xp)


def in_chunks(function: Callable[..., Any], device: Device, *columns: Any) -> Any:
    """Return ``function(*columns, xp)`` of (m,) arrays of the device, (m,) or (m, k), computed chunk by chunk."""
    n = columns[0].size
    if device.is_gpu and n < FEW:
        return device.asarray(in_chunks(function, CPU, *map(to_host, columns)))
    size = CHUNK[device.name]
    chunks = [slice(start, start + size) for start in range(0, max(n, 1), size)]
    parts = for_each_chunk(device, lambda chunk: function(*(column[chunk] for column in columns), device.xp), chunks)
    return device.xp.concatenate(parts)


def _series(coefficients: list[float], z: Any) -> Any:
    """Return the sum of coefficients[i] z^(i + 1), by Horner's rule."""
    total = coefficients[-1] * z
    for coefficient in reversed(coefficients[:-1]):
        total += coefficient
        total *= z
    return total


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b as its rounded value and the rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)
