// Both bodies of the fused filter share this. The product of two images is tested tile by tile in registers, and never written.
//
//     wgmma.cu   Hopper: wgmma, 64 rows a warpgroup, fed by bulk copies
//     mma.cu     all others: mma.sync, 32 rows a warp, fed by plain asynchronous copies
//
// filter/__init__.py derives the test. Here E, the largest error of a tile of columns, replaces error_j; sums begin at -half_norm_j:
//     product - half_norm_j >= half_norm_i - (radius_i + E)^2.
// The rows of the product are the queries, its columns the points.
//
// An image holds tiles of 128 rows; a tile is `atoms` pieces, a piece 128 rows of 128 bytes, the eight 16-byte chunks of row r
// stored at chunk ^ (r & 7): the 128-byte swizzle that wgmma's descriptors expect, in which ldmatrix has no bank conflicts
// either. A work item is the tile at which 256 rows begin, the first tile of columns, the one after the last, and one number more.
//
// INT8: features are signed bytes and their sums exact. With h the half of a squared norm, rounded down, a pair within the bound
// has 2 product = |y_i|^2 + |y_j|^2 - distance^2 >= 2 h_i + 2 h_j - 2 (radius_i + E)^2, and so passes the test with the square
// rounded down. Otherwise features are fp16 and the sums float32.
//
// LAST_STEPS is how many times 32 bytes of the last atom's features are in use. RESIDENT_ATOMS is the number of atoms, if the
// rows' pieces fit into shared memory and stay there; with 0 a stage carries a piece of the rows as well.
//
// `append_survivors` appends j to row i's candidates for every pair that passes; `count` goes on past `capacity`. Pairs of one
// exclusion id are left out if column_group, which goes by position like the columns, is given. `next_item` is zero at first.
//
// SYMMETRIC: rows and columns are of one image. A work item's range goes on, after the last tile, with the first of as many tiles as its
// last number says: all or, if the pairs within each of two parts are known, those of the second part; the rows are the first then. A
// pair is formed once and tested for both, for the columns' sake with tile_radius, the largest of their tile's radii, first; i is
// appended to j's candidates as well, and only the row itself is left out. `half_sq_dist` gets half_norm_i - (product - half_norm_j).
//
// BITS: features are bits, the sums are INT8's and count those that are set in both rows, and half norms are 0. In place of a
// radius each row has a line, whose value at the other's number of ones is the slack: counts.cu says why. Errors are numbers of
// ones, negated, of which the largest in the other's tile is taken.
//
// BETWEEN_COMPONENTS: a work item's last number is that of its component pair, whose `threshold` is added to the rows' radii, except
// to lines of BITS. Both are points by `column_group`, of which one that is in a block again, right behind itself, only fills it
// up. `out` has three rows of `capacity`: the points of each pair and its component pair. `count` is of 64 bits; once it is above
// `capacity` no more items are started. If `row_group` is given, it has the component at each position, of several in a tile: an
// item's threshold is the largest of their pairs, and what passes is tested again with that of its own pair, by `pairs`, the
// earlier point as the row.
//
// COUNT: the pass does what it does for BETWEEN_COMPONENTS, except that pairs that are surely within a limit are counted, in the number
// after `count`, and not appended. `threshold` has what is added to the rows' radii, `filter.sure_radius` and its slacks, and the
// block of rows that is filled up; tile_radius has each tile's largest half norm. Where points may meet themselves or come again,
// the later position is the column.
//
// LOCAL: rows and columns are of cells, each with a centre and a scale of its own (tiles/__init__.py). A work item has a range of a list
// of tiles of columns. Sums begin at, and are compared with, what `local` has for a row's and a column's cell.
#pragma once
#include "neighbors/filter/fused/image.cuh"
#include "runtime/include/copies.cuh"
#include "runtime/include/threads.cuh"

#ifndef RESIDENT_ATOMS
#define RESIDENT_ATOMS 1
#define LAST_STEPS 4
#define SYMMETRIC 0
#define INT8 0
#define BITS 0
#define BETWEEN_COMPONENTS 0
#define LOCAL 0
#define COUNT 0
#endif
#include "neighbors/filter/tensor_cores.cuh"
typedef unsigned long long u64;
#if BITS
#include "neighbors/filter/fused/line.cuh"
typedef Line radius_t;
#else
typedef float radius_t;
#endif

constexpr int ROWS = 2 * TILE, COLUMNS = TILE;
constexpr int PIECE_BYTES = TILE * 128;              // bytes of a tile's rows of one atom
constexpr int NORM_BYTES = COLUMNS * sizeof(sum_t);  // bytes of a tile's half norms
constexpr int QUEUE = 64;  // survivors: fewer than 32 stay, and no more than 32 come at a time

// Returns v[i] of N values in registers.
template <int N>
__device__ __forceinline__ sum_t select(const sum_t* v, u32 i) {
    if constexpr (N == 1) return v[0];
    else {
        sum_t low = select<N / 2>(v, i), high = select<N / 2>(v + N / 2, i);
        return i & N / 2 ? high : low;
    }
}

struct __align__(8) Pair {
    sum_t x, y;
};

// Lets the sums of 64 rows and 128 columns, of which a thread has 64, begin with the columns' half norms, negated as images have them.
__device__ __forceinline__ void begin_sums(sum_t (&sum)[64], const sum_t* half_norm, int lane) {
#pragma unroll
    for (int j = 0; j < 64; j += 4) {
        Pair norms = ((const Pair*)half_norm)[j + lane % 4];
        sum[j] = sum[j + 2] = norms.x, sum[j + 1] = sum[j + 3] = norms.y;
    }
}

#include "neighbors/filter/fused/survivors.cuh"
#include "neighbors/filter/fused/tile_test.cuh"
