// These kernels find the nearest point of each of a few queries in one pass over the points, without preprocessing them.
//
//     quantize_queries ──▶ find_near, of a sample of the points ──▶ find_near, of all ──▶ rerank_near
//
// filter/__init__.py has the test and its proof. All blocks tighten `Query.radius` concurrently, by the converse of the test; a point
// is appended if it passes with the radius read at that time. Centre and scale come from a sample of the points. Values that do
// not fit them (not finite, or far outside the sample's range) make the result unproven: the caller then searches in another way.
//
// Points are rounded to fp16 as they are read. z is computed in the points' type, norms and errors as float32 sums of at most
// d / 8 + 3 terms, for which __init__.py widens the bounds.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/filter/fp16.cuh"
#include "neighbors/filter/radius.cuh"
#include "neighbors/filter/tensor_cores.cuh"
#include "neighbors/filter/upper_bound.cuh"
#include "ordering.cuh"
#include "runtime/include/copies.cuh"
#include "runtime/include/threads.cuh"

// Sizes, which __init__.py reads, and what the kernels hand to each other.

#ifndef VALUE
#define VALUE float
#endif

constexpr int TILE = 128;                      // queries, and points, of a product
constexpr int THREADS = 256;                   // 2 times 4 warps, each with 64 queries and 32 points
constexpr int STEP = 16, STEPS = 4;            // features of an mma, and mmas of a stage
constexpr int PITCH = STEP * STEPS + 8;        // a stage's rows are this far apart: an odd number of 16 bytes, so that no banks collide
constexpr int PIPELINE_STAGES = 2;             // stages of the ring that queries are copied into
constexpr int LANES = 8, BATCH = 4;            // lanes that round rows together, and rows that they do at a time
constexpr int ROWS = THREADS / LANES * BATCH;  // a block rounds this number of rows
constexpr int LOADS = 8 / sizeof(VALUE);       // steps of LANES * 4 features of a row in flight at a time
static_assert(ROWS == TILE, "a block rounds its tile at once");
constexpr int SAMPLE = 32;                     // points
constexpr int MAX_EXPONENT = 8;                // the sample's features end up below 2 to this: fp16 goes to 2^16
constexpr float INFINITE_RADIUS = 1e14f;       // it is beyond all products,
constexpr float PADDING_NORM = 1e30f;          // and this is the half norm of a padding row
constexpr int OVERFLOWED = 1 << 30;            // a count above every capacity
constexpr float MAX_SQUARE = 1e13f;            // it is above the square of any row of 1,024 features that fp16 holds
constexpr int RERANK_WARPS = THREADS / WARP;   // warps of a block, each with a query
constexpr int FEATURES = 16;                   // of two rows these are read at a time

// This is a query's state during the search.
struct Query {
    float half_norm, error;  // see filter/__init__.py
    float radius;            // tightened by all blocks
    int count;               // the number of its candidates, including those beyond the capacity
};
struct Candidate {
    int id;
    float product;  // less the point's half norm
};
struct State {
    int error;     // the largest of all points': a float that is not negative, as an integer
    int unproven;  // whether the filter proves nothing for some row
};

// Neighbouring lanes round rows to fp16 as they read them.

// These are the parameters of the rounding. The centring is the centre, followed by the scale and its inverse.
struct Rounding {
    int d, steps;
    float half_shrink, norm_shrink, round_up, tiny;  // see quantize.cu
    __device__ float error(float moved, float norm) const {
        // The sums' own roundings are covered, and those of z, by 2^-24 of itself.
        return (sqrtf(moved) * (1 + 0x1p-12f) + sqrtf(norm) * 0x1p-22f) * round_up + tiny;
    }
};

// Writes y of BATCH rows (zeros for null), at a stride of `pitch` numbers, by LANES neighbouring lanes, each of which gets the
// rows' sums of y^2 and (y - z)^2. The loads of all rows are issued together.
__device__ __forceinline__ void round_rows(
    const VALUE* const (&x)[BATCH], const Rounding& rounding, bool aligned, const double* centre, VALUE scale, u16* y, int pitch,
    float (&norm)[BATCH], float (&moved)[BATCH]) {
#pragma unroll
    for (int b = 0; b < BATCH; b++) norm[b] = moved[b] = 0;
    int d = rounding.d;
#pragma unroll LOADS
    for (int f = threadIdx.x % LANES * 4; f < rounding.steps * STEP; f += LANES * 4) {
        VALUE value[BATCH][4], middle[4];
#pragma unroll
        for (int b = 0; b < BATCH; b++) load_features(x[b], f, x[b] ? d : 0, aligned, value[b]);
#pragma unroll
        for (int e = 0; e < 4; e++) middle[e] = f + e < d ? (VALUE)centre[f + e] : 0;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            union { uint2 bits; u16 half[4]; } out;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                VALUE z = x[b] && f + e < d ? (value[b][e] - middle[e]) * scale : 0;
                out.half[e] = to_half((float)z);
                float rounded = from_half(out.half[e]), off = (float)(rounded - z);
                norm[b] += rounded * rounded, moved[b] += off * off;
            }
            *(uint2*)(y + b * pitch + f) = out.bits;
        }
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++)
        for (int offset = 1; offset < LANES; offset *= 2) {
            norm[b] += __shfl_xor_sync(ALL_LANES, norm[b], offset);
            moved[b] += __shfl_xor_sync(ALL_LANES, moved[b], offset);
        }
}

__device__ __forceinline__ bool rows_are_aligned(const VALUE* values, int d) {
    return d % 4 == 0 && (size_t)values % 16 == 0;
}

// Tensor cores form the products of queries and points.

struct Stage {
    u16 y[TILE][PITCH];
    Query query[TILE];  // the queries of the stage's tile
};

// A block's share of the queries is copied through this ring of stages, by tiles and by chunks of features.
struct QueryRing {
    Stage* stage;
    const u16* y;
    const Query* rows;
    int first_tile, tiles, steps, chunks;
    int tile, chunk = 0, started = 0;  // what is copied next

    // Starts the copy of the next chunk, if there is one.
    __device__ __forceinline__ void load() {
        constexpr int VECTORS = STEPS * STEP / 8, ROW_STEP = THREADS / VECTORS;  // vectors of 16 bytes of a row; a thread takes every ROW_STEP-th row
        int own_row = threadIdx.x / VECTORS, vector = threadIdx.x % VECTORS, width = steps * STEP;
        if (started < tiles * chunks) {
            Stage& to = stage[started % PIPELINE_STAGES];
            int row = (first_tile + tile) * TILE, step = chunk * STEPS;
            const u16* from = y + (size_t)(row + own_row) * width + step * STEP + vector * 8;
            if (vector < (steps - step) * STEP / 8)
#pragma unroll
                for (int r = 0; r < TILE; r += ROW_STEP) copy<16>(&to.y[own_row + r][vector * 8], from + r * width);
            if (++chunk == chunks) {
                if (threadIdx.x < TILE) copy<16>(&to.query[threadIdx.x], rows + row + threadIdx.x);
                chunk = 0;
                if (++tile == tiles) tile = 0;
            }
        }
        started++;
        commit_copies();
    }
};

// These are a warp's products of 64 queries and 32 points, less the points' half norms: 4 x 4 fragments of 16 queries and 8 points.
// Of a fragment a thread has rows `lane / 4` and `lane / 4 + 8`, points `lane % 4 * 2` and the next.
struct Sums {
    float sum[4][4][4];
    __device__ __forceinline__ void start(const float* from) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 two = *(const float2*)&from[j * 8];
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i][j][0] = sum[i][j][2] = two.x, sum[i][j][1] = sum[i][j][3] = two.y;
        }
    }
    __device__ __forceinline__ void add_step(unsigned queries, unsigned points, int pitch) {
        unsigned a[4][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) load_matrices(a[i], queries + i * 16 * PITCH * 2);
#pragma unroll
        for (int j = 0; j < 2; j++) load_matrices(b[j], points + j * 16 * pitch * 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                mma_tile(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1], sum[i][j]);
    }
    __device__ __forceinline__ float largest(int i, int half) const {
        float most = -PADDING_NORM;
#pragma unroll
        for (int j = 0; j < 4; j++) most = fmaxf(most, fmaxf(sum[i][j][half * 2], sum[i][j][half * 2 + 1]));
        return most;
    }
};

// Returns the least value of a product, less the point's half norm, for a point that may be within a query's radius.
__device__ __forceinline__ float threshold_of(const Query& query, float point_error) {
    float both = query.radius + point_error;
    return query.half_norm - both * both;
}

// These are a search's parameters, as __init__.py packs them: n points, m queries, the tiles of either, the capacity for candidates of a
// query, and whether to write the root of the surrogate distance.
struct Search {
    long long n;
    int m, tiles, point_tiles, capacity;
    bool root;
    Rounding rounding;
    UpperBound upper_bound;  // like the radius, for a scale of 1
    FilterRadius radius;
};

// Writes the queries' y, padded to whole tiles, their initial `Query`, the centring (computed by every block from a sample of the
// n points), and the initial `state`.
extern "C" __global__ void __launch_bounds__(THREADS) quantize_queries(
    const VALUE* __restrict__ values, const VALUE* __restrict__ queries, const Search search, u16* __restrict__ y,
    Query* __restrict__ rows, double* __restrict__ centring, State* __restrict__ state) {
    extern __shared__ double centre[];
    __shared__ int widest, not_finite;
    const Rounding& rounding = search.rounding;
    int d = rounding.d, sampled = (int)min(search.n, (long long)SAMPLE);
    size_t step = search.n / sampled * d;
    if (threadIdx.x == 0) widest = 0, not_finite = 0;
    __syncthreads();
    float spread = 0;
    for (int f = threadIdx.x; f < d; f += THREADS) {
        VALUE least = values[f], most = least;
        double sum = 0;
#pragma unroll 16
        for (int s = 0; s < sampled; s++) {
            VALUE x = values[s * step + f];
            least = min(least, x), most = max(most, x), sum += x;
        }
        centre[f] = (VALUE)(sum / sampled);
        if (!(fabs(centre[f]) < OVERFLOW_VALUE)) atomicOr(&not_finite, 1);
        spread = fmaxf(spread, (float)(most - least));
    }
    atomicMax(&widest, __float_as_int(spread));
    __syncthreads();
    spread = __int_as_float(widest);
    // A computation below would overflow or underflow with any other spread.
    bool suits = !not_finite && (spread == 0 || (spread >= 0x1p-50f && spread < 0x1p100f));
    int power = suits && spread > 0 ? MAX_EXPONENT - 1 - ilogbf(spread) : 0;
    VALUE scale = (VALUE)ldexp(1.0, power);
    if (blockIdx.x == 0) {
        for (int f = threadIdx.x; f < d; f += THREADS) centring[f] = centre[f];
        if (threadIdx.x == 0) centring[d] = scale, centring[d + 1] = ldexp(1.0, -power), *state = State{0, !suits};
    }
    int first = blockIdx.x * ROWS + threadIdx.x / LANES * BATCH, width = rounding.steps * STEP;
    const VALUE* x[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) x[b] = first + b < search.m ? queries + (size_t)(first + b) * d : nullptr;
    float norm[BATCH], moved[BATCH];
    round_rows(x, rounding, rows_are_aligned(queries, d), centre, scale, y + (size_t)first * width, width, norm, moved);
    if (threadIdx.x % LANES) return;
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        float half_norm = x[b] ? norm[b] * rounding.half_shrink : PADDING_NORM;
        int count = norm[b] < MAX_SQUARE ? 0 : OVERFLOWED;
        rows[first + b] = Query{half_norm, rounding.error(moved[b], norm[b]), INFINITE_RADIUS, count};
    }
}

// A block's points are in shared memory: BATCH consecutive ids at a time, at a stride of `point_tiles` times BATCH.
struct PointTile {
    u16* y;
    int pitch;
    long long first, stride;  // their first id, and the stride
    float largest_norm, largest_error;
    __device__ int id(int c) const { return (int)(c / BATCH * stride + first + c % BATCH); }
};

// Rounds the block's points, and writes the initial values of their sums: the half norms, negated. False if fp16 cannot hold one.
__device__ __forceinline__ bool round_points(
    const VALUE* values, const Search& search, const double* centring, PointTile& tile, float* start) {
    __shared__ int most_norm, most_error, unsuitable;
    const Rounding& rounding = search.rounding;
    int d = rounding.d, first = threadIdx.x / LANES * BATCH;
    if (threadIdx.x == 0) most_norm = most_error = unsuitable = 0;
    const VALUE* x[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        long long id = first / BATCH * tile.stride + tile.first + b;
        x[b] = id < search.n ? values + (size_t)id * d : nullptr;
    }
    float norm[BATCH], moved[BATCH], longest = 0, error = 0;
    u16* y = tile.y + first * tile.pitch;
    round_rows(x, rounding, rows_are_aligned(values, d), centring, (VALUE)centring[d], y, tile.pitch, norm, moved);
    __syncthreads();  // the largest are still zero
    if (threadIdx.x % LANES == 0) {
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float half_norm = norm[b] * rounding.half_shrink;
            start[first + b] = x[b] ? -half_norm * rounding.norm_shrink : -PADDING_NORM;
            if (!(norm[b] < MAX_SQUARE)) atomicOr(&unsuitable, 1);
            longest = fmaxf(longest, half_norm), error = fmaxf(error, rounding.error(moved[b], norm[b]));
        }
        atomicMax(&most_norm, __float_as_int(longest));
        atomicMax(&most_error, __float_as_int(error));
    }
    __syncthreads();
    tile.largest_norm = __int_as_float(most_norm), tile.largest_error = __int_as_float(most_error);
    return !unsuitable;
}

// Tightens the radii of a tile's queries by the products, and appends the points that pass, if there are `candidates`.
__device__ __forceinline__ void test_products(
    const Sums& sums, const Query* in_stage, Query* rows, Candidate* candidates, const PointTile& points, int capacity,
    const FilterRadius& radius, const UpperBound& upper_bound, int first_row, int first_point) {
    int lane = threadIdx.x % WARP, group = lane / 4, pair = lane % 4 * 2;
    unsigned hits = 0;  // rows with something near, seldom any
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float threshold = threshold_of(in_stage[first_row + i * 16 + half * 8 + group], points.largest_error);
            hits |= (sums.largest(i, half) >= threshold) << (i * 2 + half);
        }
    hits = warp_or(hits);
    if (!hits) return;
#pragma unroll
    for (int slot = 0; slot < 8; slot++) {
        if (!(hits >> slot & 1)) continue;
        const int i = slot / 2, half = slot % 2;
        int r = first_row + i * 16 + half * 8 + group;
        Query query = in_stage[r];
        float largest = sums.largest(i, half), threshold = threshold_of(query, points.largest_error);
        float of_four = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        of_four = fmaxf(of_four, __shfl_xor_sync(ALL_LANES, of_four, 2));
        if (of_four >= threshold) {
            float half_sq_dist = query.half_norm - of_four;
            float key = upper_bound.key(half_sq_dist, query.half_norm, points.largest_norm, points.largest_error);
            float tightened = radius.of(upper_bound.surrogate(key, query.error), query.error);
            if (tightened < query.radius) {
                query.radius = tightened, threshold = threshold_of(query, points.largest_error);
                if (pair == 0) atomicMin((int*)&rows[r].radius, __float_as_int(tightened));
            }
        }
        if (largest < threshold || !candidates) continue;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float product = sums.sum[i][e / 2][half * 2 + e % 2];
            if (product < threshold) continue;
            int found = atomicAdd(&rows[r].count, 1);
            int id = points.id(first_point + e / 2 * 8 + pair + e % 2);
            if (found < capacity) candidates[(size_t)r * capacity + found] = Candidate{id, product};
        }
    }
}

// A block keeps a tile of points, spread over all points, in shared memory, and loops over its share (blockIdx.y) of the tiles of
// queries. Blocks start at different tiles, so that they do not update the same queries at once. Without `candidates` only the
// radii are tightened.
extern "C" __global__ void __launch_bounds__(THREADS, 2) find_near(
    const VALUE* __restrict__ values, const Search search, const u16* __restrict__ y, Query* rows,
    const double* __restrict__ centring, State* state, Candidate* __restrict__ candidates) {
    extern __shared__ __align__(16) char shared[];
    __shared__ __align__(8) float start[TILE];
    const Rounding& rounding = search.rounding;
    int steps = rounding.steps, d = rounding.d, chunks = (steps + STEPS - 1) / STEPS;
    int first_tile = (int)((long long)search.tiles * blockIdx.y / gridDim.y);
    int tiles = (int)((long long)search.tiles * (blockIdx.y + 1) / gridDim.y) - first_tile;
    Stage* stage = (Stage*)shared;
    QueryRing ring{stage, y, rows, first_tile, tiles, steps, chunks, (int)(blockIdx.x % tiles)};
    for (int s = 1; s < PIPELINE_STAGES; s++) ring.load();
    long long first = (long long)blockIdx.x * (search.point_tiles / gridDim.x) * BATCH;
    PointTile points{(u16*)(stage + PIPELINE_STAGES), steps * STEP + 8, first, (long long)search.point_tiles * BATCH};
    if (!round_points(values, search, centring, points, start)) {
        if (threadIdx.x == 0) state->unproven = 1;
        return wait_for_copies<0>();
    }
    if (threadIdx.x == 0) atomicMax(&state->error, __float_as_int(points.largest_error));
    UpperBound upper_bound = search.upper_bound;
    FilterRadius radius = search.radius;
    radius.scale = centring[d], upper_bound.inverse_scale *= centring[d + 1];

    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first_row = warp / 4 * 64, first_point = warp % 4 * 32;
    unsigned of_points =
        shared_address(points.y + (first_point + lane % 8 + lane / 16 * 8) * points.pitch + lane / 8 % 2 * 8);
    Sums sums;
    int chunk = 0, tile = blockIdx.x % tiles;
    for (int t = 0; t < tiles * chunks; t++) {
        wait_for_copies<PIPELINE_STAGES - 2>();
        __syncthreads();
        ring.load();
        Stage& current = stage[t % PIPELINE_STAGES];
        if (chunk == 0) sums.start(start + first_point + lane % 4 * 2);
        unsigned of_queries = shared_address(&current.y[first_row + lane % 16][lane / 16 * 8]);
        unsigned of_chunk = of_points + chunk * STEPS * STEP * 2;
        int here = min(STEPS, steps - chunk * STEPS);
        if (here == STEPS) {
#pragma unroll
            for (int s = 0; s < STEPS; s++) sums.add_step(of_queries + s * STEP * 2, of_chunk + s * STEP * 2, points.pitch);
        } else {
#pragma unroll 1
            for (int s = 0; s < here; s++) sums.add_step(of_queries + s * STEP * 2, of_chunk + s * STEP * 2, points.pitch);
        }
        if (++chunk < chunks) continue;
        chunk = 0;
        size_t row = (size_t)(first_tile + tile) * TILE;
        test_products(sums, current.query, rows + row, candidates ? candidates + row * search.capacity : nullptr, points,
                      search.capacity, radius, upper_bound, first_row, first_point);
        if (++tile == tiles) tile = 0;
    }
}

// Returns the surrogate distance of two rows: the zeros after their features add nothing.
__device__ __forceinline__ double distance_of_rows(const VALUE* x, const VALUE* y, int d, bool x_aligned, bool y_aligned) {
    squared_euclidean sum;
    for (int f = 0; f < d; f += FEATURES) {
        VALUE a[FEATURES], b[FEATURES];
        load_features(x, f, d, x_aligned, a), load_features(y, f, d, y_aligned, b);
#pragma unroll
        for (int e = 0; e < FEATURES; e++) sum.add(widen(a[e]), widen(b[e]));
    }
    return sum.total;
}

// Writes the edge from query i to the nearest of its candidates that are within its final radius, by one warp per query. Sets
// state->unproven if a query has too many candidates or none.
extern "C" __global__ void __launch_bounds__(THREADS) rerank_near(
    const VALUE* __restrict__ values, const VALUE* __restrict__ queries, const Search search, const Query* __restrict__ rows,
    State* state, const Candidate* __restrict__ candidates, int* __restrict__ src, int* __restrict__ dst,
    double* __restrict__ distance) {
    int i = blockIdx.x * RERANK_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, d = search.rounding.d;
    if (i >= search.m) return;
    Query query = rows[i];
    if (query.count > search.capacity) {
        if (lane == 0) state->unproven = 1;
        return;
    }
    float threshold = threshold_of(query, __int_as_float(state->error));
    bool x_aligned = rows_are_aligned(queries, d), y_aligned = rows_are_aligned(values, d);
    int id = EMPTY_ID;
    double weight = 1.0 / 0.0;
    for (int c = lane; c < query.count; c += WARP) {
        Candidate one = candidates[(size_t)i * search.capacity + c];
        if (one.product < threshold) continue;
        const VALUE *x = queries + (size_t)i * d, *y = values + (size_t)one.id * d;
        double value = distance_of_rows(x, y, d, x_aligned, y_aligned);
        if (before(value, one.id, weight, id)) weight = value, id = one.id;
    }
    for (int offset = WARP / 2; offset; offset /= 2) exchange(weight, id, offset, true);
    if (lane) return;
    src[i] = i, dst[i] = id, distance[i] = search.root ? __dsqrt_rn(weight) : weight;
    if (!(weight < 1.0 / 0.0)) state->unproven = 1;
}
