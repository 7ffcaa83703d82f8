"""Powers from operations that give the same bits on every machine; `formulas.cuh` has the same for the GPU."""

import math

import numpy as np

from rapids_slink.metrics import OVERFLOW
from rapids_slink.runtime.compiling import njit


@njit(cache=True, inline="always")
def is_half_integer(p):
    """`Metric.has_half_integer_power`."""
    return 2 * p == math.floor(2 * p) and p < 1073741824.0


@njit(cache=True)
def power(t, p):
    """t to the p, t not negative: by products and a root for multiples of a half, else by `general_power`."""
    if not is_half_integer(p):
        return general_power(t, p)
    halves = np.int64(2 * p)
    result, square, exponent = math.sqrt(t) if halves & 1 else 1.0, t, halves >> 1
    while exponent:
        if exponent & 1:
            result *= square
        exponent >>= 1
        if exponent:
            square *= square
    return result


LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")  # times an exponent, exact
LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")
LOG_SERIES = tuple(2 / (2 * k + 3) for k in reversed(range(13)))  # of 2 artanh(s) after its first term
EXP_SERIES = tuple(1 / math.factorial(k + 2) for k in reversed(range(13)))
SMALLEST_NORMAL = 2.0**-1022


@njit(cache=True, error_model="numpy", forceinline=True)
def general_power(t, p):
    """exp(p log t), right to a few 2⁻⁵³ of itself, from operations that are the same on every machine.

    With t = 2ᵉm, m next to 1, and s = (m - 1) / (m + 1), log t = e log 2 + 2 artanh s is summed with what is lost to
    rounding kept in a second number (Dekker, "A floating-point technique for extending the available precision",
    1971). Its error, at most 2⁻⁵⁸ in all, is p times as large in p log t, and 1/p of that in the p-th root.

    There is no branch, so that loops over it become vector instructions.
    """
    is_subnormal = t < SMALLEST_NORMAL
    bits = np.float64(t * 2.0**54 if is_subnormal else t).view(np.int64)
    m = np.int64((bits & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    is_low = m < 0.7071067811865476
    m = 2 * m if is_low else m
    e = (bits >> 52) - (1076 if is_subnormal else 1022) - is_low
    f, g = m - 1.0, m + 1.0
    g_low = m - (g - 1.0)
    s = f / g
    h, h_low = times(s, g)
    s_low = ((f - h) - h_low - s * g_low) / g
    z = s * s
    tail = 0.0
    for coefficient in LOG_SERIES:
        tail = tail * z + coefficient
    tail = tail * z * s
    log, lost = plus(e * LN2_HIGH, 2.0 * s)
    log, log_low = plus(log, ((2.0 * s_low + e * LN2_LOW) + lost) + tail)
    y, y_low = times(p, log)
    y_low += p * log_low
    k = np.rint(max(-1100.0, min(1100.0, y * 1.4426950408889634)))
    r = (y - k * LN2_HIGH) + (y_low - k * LN2_LOW)
    series = 0.0
    for coefficient in EXP_SERIES:
        series = series * r + coefficient
    half = np.int64(k) >> 1
    result = (1.0 + (r + r * r * series)) * two_to_the(half) * two_to_the(np.int64(k) - half)
    result = math.inf if y > 710.0 else result
    result = 0.0 if y < -746.0 else result
    return t if (t == 0.0) | (t == 1.0) | (t > OVERFLOW) else result


@njit(cache=True, forceinline=True)
def two_to_the(exponent):
    """A power of two in the normal range."""
    return np.int64((exponent + 1023) << 52).view(np.float64)


@njit(cache=True)
def plus(a, b):
    """a + b rounded, and what was lost."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


@njit(cache=True)
def times(a, b):
    """a·b rounded, and what was lost."""
    product = a * b
    c = 134217729.0 * a
    a_high = c - (c - a)
    c = 134217729.0 * b
    b_high = c - (c - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
