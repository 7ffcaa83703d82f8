// How many slots tiles of points and blocks of rows have, and axes a place, and what kernels have in common.
#pragma once

constexpr int TILE = 128, BLOCK = 256;
constexpr int MOST_AXES = 16;  // of a place, which has a coordinate more
constexpr double INFINITE = 1.0 / 0.0;
