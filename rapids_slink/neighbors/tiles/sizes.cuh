// Here are the numbers of slots of a tile and of a block of rows, of axes of a place, and what kernels have in common.
#pragma once

constexpr int TILE = 128, BLOCK = 256;
constexpr int MOST_AXES = 16;  // the most axes of a place, which has one more coordinate
constexpr double INFINITE = 1.0 / 0.0;
