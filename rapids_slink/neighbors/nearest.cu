// The nearest column of each of a few queries, without a look at the points beforehand: one read of the columns.
//
//     pack ──▶ keep, of a sample of the columns ──▶ keep ──▶ choose
//
// All four are one kernel, for a launch takes the host as long as one of them takes the GPU. A block takes the next piece of
// work, and waits until all pieces of the steps before have ended: those have been taken by blocks that run already.
//
// The test and its proof are operand.py's; `Query.reach` is lowered as columns turn out to be near (its converse), by all
// blocks at once, and a column is kept if it passes at the time. The centre and the scale are those of a sample of the
// columns, and whatever does not suit them (numbers that are not finite, or far out of the sample's range) makes a row
// unproven: the caller then searches in another way.
//
// Points are rounded to fp16 as they come. z is computed in the points' own type, and norms and errors are float32 sums
// of at most d / 8 + 3 terms, for which nearest.py widens the bounds.
#include "neighbors/canonical.cuh"
#include "neighbors/ceiling.cuh"
#include "neighbors/copies.cuh"
#include "neighbors/half.cuh"
#include "neighbors/reach.cuh"
#include "ordering.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int TILE = 128;                      // queries, and columns, of a product
constexpr int THREADS = 256;                   // 2 times 4 warps, each with 64 queries and 32 columns
constexpr int STEP = 16, STEPS = 4;            // features of an mma, and mmas of a stage
constexpr int PITCH = STEP * STEPS + 8;        // of a stage's rows: an odd number of 16 bytes, so that no banks collide
constexpr int STAGES = 2;                      // of a ring that queries come through
constexpr int LANES = 8, BATCH = 4;            // lanes that round rows together, and rows that they do at a time
constexpr int ROWS = THREADS / LANES * BATCH;  // that a block rounds
constexpr int AT_ONCE = 8 / sizeof(VALUE);     // steps of LANES * 4 features of a row that are on their way at a time
static_assert(ROWS == TILE, "a block rounds its tile at once");
constexpr int SAMPLE = 32;                     // columns
constexpr int LARGEST = 8;                     // the sample's features end up below 2^LARGEST: fp16 goes to 2^16
constexpr int ROOM = 1 << 20;                  // bytes
constexpr float FAR = 1e14f;                   // a reach beyond all products,
constexpr float NOWHERE = 1e30f;               // and the half norm of a row that there is not
constexpr int UNFIT = 1 << 30;                 // a count that no room is enough for
constexpr float LONGEST = 1e13f;               // above the square of any row of 1,024 features that fp16 holds
constexpr int CHOOSERS = THREADS / WARP;       // warps of a block that chooses
constexpr int AHEAD = 16;                      // features of two rows that are read at a time

// What is known of a query while its nearest column is looked for.
struct Query {
    float half_norm, error;  // as in operand.py
    float reach;             // how far it still looks: lowered by whoever finds a column that is near
    int count;               // of the columns kept for it, with those for which there was no room
};
struct Kept {
    int id;
    float near;  // the product less the column's half norm
};
struct State {
    int error;     // the largest of all columns': a float that is not negative, as an integer
    int unproven;  // whether anything stood in the way of the filter
};

// What a product less the column's half norm is at least, if that column may be within a query's reach.
__device__ __forceinline__ float least_near(const Query& query, float column_error) {
    float both = query.reach + column_error;
    return query.half_norm - both * both;
}

// What is the same for all rows. Behind the centre stand the scale and its inverse.
struct Rounding {
    int d, steps;
    float half_shrink, tail_shrink, grow, tiny;  // as in pack.cu
    __device__ float error(float moved, float norm) const {
        // The sums' own roundings, and those of z, by 2^-24 of itself.
        return (sqrtf(moved) * (1 + 0x1p-12f) + sqrtf(norm) * 0x1p-22f) * grow + tiny;
    }
};

// Blocks that keep: tiles of columns, by shares of the queries.
struct Grid {
    int across, shares;
    __device__ int blocks() const { return across * shares; }
};

// What a search knows beforehand, as nearest.py lays it out: n columns, m queries, the tiles of either, how many columns are
// kept for a query, and whether the root of the value is asked for.
struct Search {
    long long n;
    int m, tiles, column_tiles, capacity;
    Grid sample, all;
    bool root;
    Rounding rounding;
    Ceiling ceiling;  // like the reach, for a scale of 1
    Reach reach;
};

// Writes y of BATCH rows (those that are null: zeros), by LANES neighbouring lanes, `apart` numbers from each other, and gives
// each of the lanes the rows' sums of y² and (y - z)². All rows' numbers come at a time.
__device__ __forceinline__ void round_rows(
    const VALUE* const (&x)[BATCH], const Rounding& rounding, bool aligned, const double* centre, VALUE scale, u16* y, int apart,
    float (&norm)[BATCH], float (&moved)[BATCH]) {
#pragma unroll
    for (int b = 0; b < BATCH; b++) norm[b] = moved[b] = 0;
    int d = rounding.d;
#pragma unroll AT_ONCE
    for (int f = threadIdx.x % LANES * 4; f < rounding.steps * STEP; f += LANES * 4) {
        VALUE given[BATCH][4];
#pragma unroll
        for (int b = 0; b < BATCH; b++) bring(x[b], f, x[b] ? d : 0, aligned, given[b]);
        VALUE middle[4];
#pragma unroll
        for (int e = 0; e < 4; e++) middle[e] = f + e < d ? (VALUE)centre[f + e] : 0;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            union { uint2 all; u16 half[4]; } out;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                VALUE z = x[b] && f + e < d ? (given[b][e] - middle[e]) * scale : 0;
                out.half[e] = to_half(z);
                float rounded = from_half<float>(out.half[e]), off = (float)(rounded - z);
                norm[b] += rounded * rounded, moved[b] += off * off;
            }
            *(uint2*)(y + b * apart + f) = out.all;
        }
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++)
        for (int across = 1; across < LANES; across *= 2) {
            norm[b] += __shfl_xor_sync(ALL, norm[b], across);
            moved[b] += __shfl_xor_sync(ALL, moved[b], across);
        }
}

__device__ __forceinline__ bool rows_are_aligned(const VALUE* values, int d) {
    return d % 4 == 0 && (size_t)values % 16 == 0;
}

// The queries' operand, row by row and filled up to tiles, with nothing found yet; the centre and the scale, of a sample of
// the n columns; and an empty `state`. Every block looks at the sample.
__device__ __forceinline__ void pack(
    int block, const VALUE* values, const VALUE* queries, const Search& search, u16* y, Query* rows, double* frame,
    State* state, double* centre) {
    __shared__ int widest, odd;
    const Rounding& rounding = search.rounding;
    int d = rounding.d, sampled = (int)min(search.n, (long long)SAMPLE);
    size_t step = search.n / sampled * d;
    if (threadIdx.x == 0) widest = 0, odd = 0;
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
        if (!(fabs(centre[f]) < BEYOND)) atomicOr(&odd, 1);
        spread = fmaxf(spread, (float)(most - least));
    }
    atomicMax(&widest, __float_as_int(spread));
    __syncthreads();
    spread = __int_as_float(widest);
    // Of other spreads something here overflows or is lost.
    bool suits = !odd && (spread == 0 || (spread >= 0x1p-50f && spread < 0x1p100f));
    int power = suits && spread > 0 ? LARGEST - 1 - ilogbf(spread) : 0;
    VALUE scale = (VALUE)ldexp(1.0, power);
    if (block == 0) {
        for (int f = threadIdx.x; f < d; f += THREADS) frame[f] = centre[f];
        if (threadIdx.x == 0) frame[d] = scale, frame[d + 1] = ldexp(1.0, -power), *state = State{0, !suits};
    }
    int first = block * ROWS + threadIdx.x / LANES * BATCH, width = rounding.steps * STEP;
    const VALUE* x[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) x[b] = first + b < search.m ? queries + (size_t)(first + b) * d : nullptr;
    float norm[BATCH], moved[BATCH];
    round_rows(x, rounding, rows_are_aligned(queries, d), centre, scale, y + (size_t)first * width, width, norm, moved);
    if (threadIdx.x % LANES) return;
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        float half_norm = x[b] ? norm[b] * rounding.half_shrink : NOWHERE;
        rows[first + b] = Query{half_norm, rounding.error(moved[b], norm[b]), FAR, norm[b] < LONGEST ? 0 : UNFIT};
    }
}

#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
}
__device__ __forceinline__ unsigned warp_or(unsigned x) { return __reduce_or_sync(ALL, x); }
__device__ __forceinline__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else  // nearest.py does not start this there
__device__ void commit() {}
template <int LEFT> __device__ void wait() {}
__device__ void load_matrices(unsigned (&)[4], unsigned) {}
__device__ unsigned warp_or(unsigned x) { return x; }
__device__ void multiply(float (&)[4], const unsigned (&)[4], unsigned, unsigned) {}
#endif

struct Stage {
    u16 y[TILE][PITCH];
    Query query[TILE];  // of the tile that the stage belongs to
};

// A block holds a tile of columns from all over in shared memory: BATCH together, the next of them `apart` times BATCH further,
// and the first ones `next` times BATCH after those of the block before. Of the tiles of queries it takes a share, in turn from
// one on that depends on the block, so that not all look for the same queries at once. Without `kept` it only lowers how far
// these look.
__device__ __forceinline__ void keep(
    int block, const Grid& grid, const VALUE* values, const Search& search, const u16* y, Query* rows, const double* frame,
    State* state, Kept* kept, char* shared) {
    const Rounding& rounding = search.rounding;
    long long n = search.n;
    int column = block % grid.across, share = block / grid.across;
    int tiles = search.tiles, apart = search.column_tiles, next = apart / grid.across, capacity = search.capacity;
    int d = rounding.d, steps = rounding.steps, width = steps * STEP, pitch = width + 8;
    Stage* stage = (Stage*)shared;
    u16* columns = (u16*)(stage + STAGES);
    __shared__ __align__(8) float start[TILE];  // what a column's products start from: less its half norm
    __shared__ int most_norm, most_error, unfit;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

    int begin = (int)((long long)tiles * share / grid.shares), own = (int)((long long)tiles * (share + 1) / grid.shares) - begin;
    int chunks = (steps + STEPS - 1) / STEPS, total = own * chunks;
    int bring_tile = column % own, bring_chunk = 0, brought = 0;
    constexpr int PIECES = STEPS * STEP / 8, APART = THREADS / PIECES;  // of 16 bytes in a row, and rows that a thread is in
    int bring_row = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
    auto bring = [&]() {
        if (brought < total) {
            Stage& to = stage[brought % STAGES];
            int row = (begin + bring_tile) * TILE, chunk = bring_chunk * STEPS;
            const u16* from = y + (size_t)(row + bring_row) * width + chunk * STEP + piece * 8;
            if (piece < (steps - chunk) * STEP / 8)
#pragma unroll
                for (int r = 0; r < TILE; r += APART) copy<16>(&to.y[bring_row + r][piece * 8], from + r * width);
            if (++bring_chunk == chunks) {
                if (threadIdx.x < TILE) copy<16>(&to.query[threadIdx.x], rows + row + threadIdx.x);
                bring_chunk = 0;
                if (++bring_tile == own) bring_tile = 0;
            }
        }
        brought++;
        commit();
    };
    for (int s = 1; s < STAGES; s++) bring();

    if (threadIdx.x == 0) most_norm = most_error = unfit = 0;
    int first = threadIdx.x / LANES * BATCH;
    const VALUE* x[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        long long id = (long long)first * apart + (long long)column * next * BATCH + b;
        x[b] = id < n ? values + (size_t)id * d : nullptr;
    }
    float norm[BATCH], moved[BATCH], longest = 0, error = 0;
    round_rows(x, rounding, rows_are_aligned(values, d), frame, (VALUE)frame[d], columns + first * pitch, pitch, norm, moved);
    __syncthreads();  // there is nothing yet of what follows
    if (threadIdx.x % LANES == 0) {
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float half_norm = norm[b] * rounding.half_shrink;
            start[first + b] = x[b] ? -half_norm * rounding.tail_shrink : -NOWHERE;
            if (!(norm[b] < LONGEST)) atomicOr(&unfit, 1);
            longest = fmaxf(longest, half_norm), error = fmaxf(error, rounding.error(moved[b], norm[b]));
        }
        atomicMax(&most_norm, __float_as_int(longest));
        atomicMax(&most_error, __float_as_int(error));
    }
    __syncthreads();
    if (unfit) {
        if (threadIdx.x == 0) state->unproven = 1;
        return wait<0>();
    }
    float column_norm = __int_as_float(most_norm), column_error = __int_as_float(most_error);
    if (threadIdx.x == 0) atomicMax(&state->error, most_error);
    Ceiling ceiling = search.ceiling;
    Reach reach = search.reach;
    reach.scale = frame[d], ceiling.unscale *= frame[d + 1];

    int group = lane / 4, pair = lane % 4 * 2, first_row = warp / 4 * 64, first_column = warp % 4 * 32;
    unsigned of_columns =
        shared_address(columns + (first_column + lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8);
    float sum[4][4][4];  // of 16 queries each, of 8 columns each: rows `group` and `group` + 8, columns `pair` and the next
    int chunk = 0, tile = column % own;
    for (int t = 0; t < total; t++) {
        wait<STAGES - 2>();
        __syncthreads();
        bring();
        Stage& with = stage[t % STAGES];
        if (chunk == 0) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 from = *(const float2*)&start[first_column + j * 8 + pair];
#pragma unroll
                for (int i = 0; i < 4; i++) sum[i][j][0] = sum[i][j][2] = from.x, sum[i][j][1] = sum[i][j][3] = from.y;
            }
        }
        unsigned of_rows = shared_address(&with.y[first_row + lane % 16][lane / 16 * 8]);
        unsigned of_chunk = of_columns + chunk * STEPS * STEP * 2;
        auto add_step = [&](int s) {
            unsigned a[4][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) load_matrices(a[i], of_rows + (i * 16 * PITCH + s * STEP) * 2);
#pragma unroll
            for (int j = 0; j < 2; j++) load_matrices(b[j], of_chunk + (j * 16 * pitch + s * STEP) * 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) multiply(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        };
        int here = min(STEPS, steps - chunk * STEPS);
        if (here == STEPS) {
#pragma unroll
            for (int s = 0; s < STEPS; s++) add_step(s);
        } else {
#pragma unroll 1
            for (int s = 0; s < here; s++) add_step(s);
        }
        if (++chunk < chunks) continue;
        chunk = 0;
        auto nearest_of = [&](int i, int half) {
            float nearest = -NOWHERE;
#pragma unroll
            for (int j = 0; j < 4; j++) nearest = fmaxf(nearest, fmaxf(sum[i][j][half * 2], sum[i][j][half * 2 + 1]));
            return nearest;
        };
        unsigned hits = 0;  // rows of which there is something near, seldom any
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float least = least_near(with.query[first_row + i * 16 + half * 8 + group], column_error);
                hits |= (nearest_of(i, half) >= least) << (i * 2 + half);
            }
        hits = warp_or(hits);
        if (hits)
#pragma unroll
            for (int slot = 0; slot < 8; slot++) {
                if (!(hits >> slot & 1)) continue;
                const int i = slot / 2, half = slot % 2;
                int r = first_row + i * 16 + half * 8 + group;
                float nearest = nearest_of(i, half), least = least_near(with.query[r], column_error);
                Query query = with.query[r];
                Query* at = rows + (size_t)(begin + tile) * TILE + r;
                float of_four = fmaxf(nearest, __shfl_xor_sync(ALL, nearest, 1));
                of_four = fmaxf(of_four, __shfl_xor_sync(ALL, of_four, 2));
                if (of_four >= least) {
                    float key = ceiling.key(query.half_norm - of_four, query.half_norm, column_norm, column_error);
                    float lower = reach.of(ceiling.value(key, query.error), query.error);
                    if (lower < query.reach) {
                        query.reach = lower, least = least_near(query, column_error);
                        if (pair == 0) atomicMin((int*)&at->reach, __float_as_int(lower));
                    }
                }
                if (nearest < least || !kept) continue;
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    float near = sum[i][e / 2][half * 2 + e % 2];
                    if (near < least) continue;
                    int place = atomicAdd(&at->count, 1);
                    if (place >= capacity) continue;
                    int c = first_column + e / 2 * 8 + pair + e % 2;
                    int id = c / BATCH * BATCH * apart + column * next * BATCH + c % BATCH;
                    kept[((size_t)(begin + tile) * TILE + r) * capacity + place] = Kept{id, near};
                }
            }
        if (++tile == own) tile = 0;
    }
}

// The canonical value of two rows: the zeros that come behind their features add nothing.
__device__ __forceinline__ double value_of_rows(const VALUE* x, const VALUE* y, int d, bool x_aligned, bool y_aligned) {
    squares sum;
    for (int f = 0; f < d; f += AHEAD) {
        VALUE a[AHEAD], b[AHEAD];
        bring(x, f, d, x_aligned, a), bring(y, f, d, y_aligned, b);
#pragma unroll
        for (int e = 0; e < AHEAD; e++) sum.add(widen(a[e]), widen(b[e]));
    }
    return sum.total;
}

// By a warp: of the columns kept for query i that are still within its reach, the nearest, and the distance.
__device__ __forceinline__ void choose(
    int i, const VALUE* values, const VALUE* queries, const Search& search, const Query* rows, const State* state,
    const Kept* kept, int* src, int* dst, double* distance, int* unproven) {
    int d = search.rounding.d, lane = threadIdx.x % WARP;
    Query query = rows[i];
    if (state->unproven || query.count > search.capacity) {
        if (lane == 0) *unproven = 1;
        return;
    }
    float least = least_near(query, __int_as_float(state->error));
    bool x_aligned = rows_are_aligned(queries, d), y_aligned = rows_are_aligned(values, d);
    int id = NOBODY;
    double weight = 1.0 / 0.0;
    for (int c = lane; c < query.count; c += WARP) {
        Kept one = kept[(size_t)i * search.capacity + c];
        if (one.near < least) continue;
        double value = value_of_rows(queries + (size_t)i * d, values + (size_t)one.id * d, d, x_aligned, y_aligned);
        if (before(value, one.id, weight, id)) weight = value, id = one.id;
    }
    for (int apart = WARP / 2; apart; apart /= 2) exchange(weight, id, apart, true);
    if (lane) return;
    src[i] = i, dst[i] = id, distance[i] = search.root ? __dsqrt_rn(weight) : weight;
    if (!(weight < 1.0 / 0.0)) *unproven = 1;
}

extern "C" {
// For a search that fits, so that nothing has to be allocated. One search at a time: see nearest.py.
__device__ __align__(256) char room[ROOM];
// Blocks that have taken a piece of work, and that are done with it; none before and after a search.
__device__ int begun, ended;
}

// Waits for the blocks that took the first `pieces` of work.
__device__ __forceinline__ void wait_for(int pieces) {
    if (threadIdx.x == 0)
        while (true) {
            int done;
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(done) : "l"(&ended) : "memory");
            if (done >= pieces) break;
            __nanosleep(32);
        }
    __syncthreads();
}

// The edges from the m queries to the nearest of the n columns. `unproven`, in the host's memory, is set if of any query
// nothing is proven. What lies between `search` and `src` is written by some blocks and read by others: not __restrict__.
extern "C" __global__ void __launch_bounds__(THREADS, 2) find_nearest(
    const VALUE* __restrict__ values, const VALUE* __restrict__ queries, const Search search, u16* y, Query* rows, Kept* kept,
    double* frame, State* state, int* src, int* dst, double* distance, int* unproven) {
    extern __shared__ __align__(16) char shared[];
    __shared__ int taken;
    if (threadIdx.x == 0) taken = atomicAdd(&begun, 1);
    __syncthreads();
    int piece = taken, sampling = search.tiles, keeping = sampling + search.sample.blocks();
    int choosing = keeping + search.all.blocks(), choosers = ((int)gridDim.x - choosing) * CHOOSERS;
    if (piece < sampling) {
        pack(piece, values, queries, search, y, rows, frame, state, (double*)shared);
    } else if (piece < choosing) {
        bool sample = piece < keeping;
        int first = sample ? sampling : keeping;
        wait_for(first);
        keep(piece - first, sample ? search.sample : search.all, values, search, y, rows, frame, state,
             sample ? nullptr : kept, shared);
    } else {
        wait_for(choosing);
        for (int i = (piece - choosing) * CHOOSERS + threadIdx.x / WARP; i < search.m; i += choosers)
            choose(i, values, queries, search, rows, state, kept, src, dst, distance, unproven);
    }
    __syncthreads();
    if (threadIdx.x) return;
    __threadfence();
    if (atomicAdd(&ended, 1) == gridDim.x - 1) begun = ended = 0;
}
