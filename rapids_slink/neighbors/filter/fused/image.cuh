// These write into an image's tiles, whose layout is in pass.cuh.
#pragma once

constexpr int TILE = 128;  // rows
constexpr int ATOM = 8;    // chunks of 16 bytes of a row, which are an atom of its features
// This is the half norm of rows that fill up the last tile. With it no sum of a row or column passes: the others' slack is at most 2^30,
// and their products stay below 2^29.
constexpr int PADDING_NORM = 3 << 29;

// Returns where an image with this number of atoms a row has chunk c of row r.
__device__ __forceinline__ size_t place_in_image(long long r, int c, int atoms) {
    int in_tile = r % TILE;
    return ((r / TILE * atoms + c / ATOM) * TILE + in_tile) * ATOM + (c % ATOM ^ (in_tile & 7));
}
