// An image's tiles, of which pass.cuh has the layout.
#pragma once

constexpr int TILE = 128;  // rows
constexpr int ATOM = 8;    // chunks of 16 bytes of a row, which are an atom of its features
// The half norm of rows that fill up the last tile. With it no sum of a row or column passes: the others' slack is at most 2^30,
// and their products stay below 2^29.
constexpr int PADDING_NORM = 3 << 29;
