// Bounds of rows by what the distances of some candidates are at most: in float32, which takes a fraction of exact distances' time.
#include "neighbors/exact/formulas.cuh"
#include "neighbors/exact/top_k.cuh"
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int MEASURING = 8, AT_ONCE = WARP / MEASURING;  // lanes that measure a distance, and distances that a warp does at a time
constexpr int ROWS_A_WARP = 4;
constexpr int BOUND_WARPS = 2, BOUND_BLOCKS = 16;         // warps of a block at most, and resident blocks

// What a surrogate distance is at most by the squared distance times `unit`, a power of two: `Metric.surrogate_bound_terms`.
struct SquareBound {
    double unit, inverse, more, factor, error;
    __device__ double of(double square) const {
        double longer = __dsqrt_rn(square) * inverse + more;
        return longer * longer * factor + error;
    }
};

// The squares of the distances times `unit` of a row and the candidates of all lanes: each lane's own, all of which
// take part; of none for an id below 0. MEASURING lanes have some features of ROUNDS candidates, whose values are on their way at a time:
// PIECE of each, of which a row is a multiple and by which it is aligned. A sum falls short of the true one by d / MEASURING + 6 + PIECE
// roundings at most, of 2^-24 of itself: of a difference, which counts twice, of its square, of a lane's sum and the lanes'. Underflow
// loses less than 2^-125 of each square.
template <int PIECE>
__device__ __forceinline__ float squares_in_float32(const VALUE* x, const VALUE* points, int d, VALUE unit, int id) {
    constexpr int ROUNDS = WARP / AT_ONCE;
    struct __align__(PIECE * sizeof(VALUE)) Piece { VALUE of[PIECE]; };
    int lane = threadIdx.x % WARP;
    float sum[ROUNDS] = {};
    int other[ROUNDS];
#pragma unroll
    for (int s = 0; s < ROUNDS; s++) other[s] = __shfl_sync(ALL_LANES, id, s * AT_ONCE + lane / MEASURING);
#pragma unroll 1
    for (int f = lane % MEASURING * PIECE; f < d; f += MEASURING * PIECE) {
        Piece mine = *(const Piece*)(x + f), theirs[ROUNDS];
#pragma unroll
        for (int s = 0; s < ROUNDS; s++) theirs[s] = other[s] >= 0 ? *(const Piece*)(points + (size_t)other[s] * d + f) : mine;
#pragma unroll
        for (int s = 0; s < ROUNDS; s++)
#pragma unroll
            for (int p = 0; p < PIECE; p++) {
                float difference = (mine.of[p] - theirs[s].of[p]) * unit;
                sum[s] += difference * difference;
            }
    }
#pragma unroll
    for (int half = ROUNDS / 2; half; half /= 2) {  // what a lane has of half of the rounds is added to its partner's
        bool upper = lane & half;
#pragma unroll
        for (int s = 0; s < half; s++) {
            float given = __shfl_xor_sync(ALL_LANES, upper ? sum[s] : sum[s + half], half);
            sum[s] = (upper ? sum[s + half] : sum[s]) + given;
        }
    }
    return __shfl_sync(ALL_LANES, sum[0], lane % AT_ONCE * MEASURING + lane / AT_ONCE);
}
static_assert(MEASURING * AT_ONCE == WARP && MEASURING == WARP / AT_ONCE, "a lane has the sum of a round");

// Merges what the candidates of row i weigh at most into its list, (top_ids, top_weights), as `rerank` merges what they weigh, and
// tightens upper[i] to the last entry of a full list; count[i] is zero then. `points` are as products have them, and their rows start at
// multiples of `alignment` bytes. A warp has ROWS_A_WARP rows, one after the other.
extern "C" __global__ void __launch_bounds__(BOUND_WARPS * WARP, BOUND_BLOCKS) bound_rows(
    const VALUE* __restrict__ points, int d, const SquareBound known, const int* __restrict__ rows, int n_rows,
    const int* __restrict__ candidates, int* __restrict__ count, int capacity, const int* __restrict__ order,
    const int* __restrict__ row_group, const int* __restrict__ point_group, const double* __restrict__ core,
    double* __restrict__ upper, int k, int size, int alignment, int* __restrict__ top_ids, double* __restrict__ top_weights) {
    extern __shared__ __align__(16) char shared[];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = (blockIdx.x * (blockDim.x / WARP) + warp) * ROWS_A_WARP;
    int entries = size + waiting_room(size);
    char* list = shared + (size_t)warp * entries * 12;
    for (int i = first; i < min(first + ROWS_A_WARP, n_rows); i++) {
        int m = min(count[i], capacity);
        if (!m) continue;
        TopK top{(double*)list, (int*)(list + (size_t)entries * 8), k, size, 0};
        top.load(top_ids + (size_t)i * k, top_weights + (size_t)i * k);
        const VALUE* x = points + (size_t)rows[i] * d;
        double within = upper[i];
        for (int c = 0; c < m; c += WARP) {
            int id = c + lane < m ? candidates[(size_t)i * capacity + c + lane] : -1;
            if (order && id >= 0) id = order[id];
            if (id >= 0 && point_group && point_group[id] == row_group[i]) id = -1;
            if (id >= 0 && core && core[id] > within) id = -1;
            float own;
            if (alignment >= 2 * sizeof(VALUE)) own = squares_in_float32<2>(x, points, d, known.unit, id);
            else own = squares_in_float32<1>(x, points, d, known.unit, id);
            double weight = known.of((own + d * 0x1p-125) * (1 + (d / MEASURING + 9) * 0x1p-23));
            if (id >= 0 && core) weight = reachability(weight, core[rows[i]], core[id]);
            top.offer(weight, id, id >= 0 && weight <= within);
        }
        top.finish();
        top.store(top_ids + (size_t)i * k, top_weights + (size_t)i * k);
        double last = top.last_weight();
        __syncwarp();  // all lanes have read what changes now
        if (lane == 0) upper[i] = fmin(within, last), count[i] = 0;
    }
}
