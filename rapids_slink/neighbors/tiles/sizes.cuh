// How many slots tiles of points and blocks of rows have, and what kernels of either have in common.
#pragma once

constexpr int TILE = 128, BLOCK = 256;
constexpr double INFINITE = 1.0 / 0.0;
