// architectures: sm_90a
// The fused filter on Hopper's tensor cores: the product of two packed fp16 operands is tested tile by tile in registers and
// never written. operand.py derives the test; here error_j is replaced by the largest of its tile of columns, E:
//     product - half_norm_j >= half_norm_i - (radius_i + E)^2.
//
//     producer warp ──bulk copies──▶ ring of stages ──▶ two warpgroups, 128 rows each: wgmma, test, append
//
// A packed image holds tiles of 128 rows; a tile is `atoms` pieces of 64 features, a piece 128 rows of 128 bytes, the
// eight 16-byte chunks of row r stored at chunk ^ (r & 7): the 128-byte swizzle that wgmma's descriptors expect, so that
// a plain bulk copy brings it into place. A block handles 256 rows and a range of column tiles. With up to RESIDENT
// atoms its rows stay in shared memory; with RESIDENT 0 a stage carries a piece of the rows as well.
#ifndef RESIDENT
#define RESIDENT 2
#endif
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROWS = 256, COLUMNS = 128;
constexpr int PIECE = 128 * 128;                      // bytes of 128 rows of one atom
constexpr int STAGE = RESIDENT ? PIECE : 3 * PIECE;   // one piece of columns; two of rows unless they are resident
constexpr int STAGES = RESIDENT ? 8 : 4;
constexpr int CONSUMERS = 2, WARPS = 4 * CONSUMERS;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(u64* b, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
__device__ __forceinline__ void barrier_expect(u64* b, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* b, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n AGAIN_%=:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        " @done bra.uni DONE_%=;\n bra.uni AGAIN_%=;\n DONE_%=:\n }" ::"r"(shared_address(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void bulk_copy(void* to, const void* from, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
// A K-major operand in the 128-byte swizzle: groups of eight rows lie 1024 bytes apart.
__device__ __forceinline__ u64 descriptor(const void* p) {
    return (u64)((shared_address(p) & 0x3ffff) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define EIGHT(v, i) "+f"(v[i]), "+f"(v[i + 1]), "+f"(v[i + 2]), "+f"(v[i + 3]), "+f"(v[i + 4]), "+f"(v[i + 5]), "+f"(v[i + 6]), "+f"(v[i + 7])

// sum (+)= 64 rows x 128 columns over 16 features.
__device__ __forceinline__ void multiply(float (&sum)[64], u64 a, u64 b, int add) {
    asm volatile(
        "{\n .reg .pred add;\n setp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, %64, %65, add, 1, 1, 0, 0;\n}"
        : EIGHT(sum, 0), EIGHT(sum, 8), EIGHT(sum, 16), EIGHT(sum, 24), EIGHT(sum, 32), EIGHT(sum, 40), EIGHT(sum, 48),
          EIGHT(sum, 56)
        : "l"(a), "l"(b), "r"(add));
}

struct Ring {
    u64 full[STAGES], empty[STAGES], rows_full, rows_empty;
};

// Work item -> its block of rows and its range of column tiles.
struct Item {
    int block, first, last, split;
    __device__ Item(int item, int splits, int first_tile, int last_tile) {
        block = item / splits;
        split = item % splits;
        int share = (last_tile - first_tile + splits - 1) / splits;
        first = first_tile + split * share;
        last = min(first + share, last_tile);
    }
};

__device__ __forceinline__ void append(
    u32 row, u32 column, u32 columns, int split, int splits, int capacity, const int* __restrict__ ids,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int* __restrict__ out, u32* filled) {
    if (column >= columns) return;
    int id = ids[column];
    if (column_group[id] == row_group[row]) return;
    u32 slot = atomicAdd(filled + row % ROWS, 1u);
    if (slot < capacity) out[((u64)row * splits + split) * capacity + slot] = id;
}

// Appends ids[j] to row i's part `split` of its candidates for every pair that passes; `count` (rows x splits) goes on
// past `capacity`. A block owns its rows' parts, so they are counted in shared memory.
extern "C" __global__ void __launch_bounds__(384, 1) keep_near(
    const char* __restrict__ rows, const char* __restrict__ columns, int atoms, int blocks, int splits, int first_tile,
    int last_tile, u32 n_columns, const float* __restrict__ half_norm, const float* __restrict__ radius,
    const float* __restrict__ column_half_norm, const float* __restrict__ tile_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, const int* __restrict__ ids, int capacity,
    int* __restrict__ out, u32* __restrict__ count) {
    extern __shared__ char raw[];
    char* resident = (char*)(((u64)raw + 1023) & ~(u64)1023);
    char* stages = resident + RESIDENT * 2 * PIECE;
    __shared__ __align__(8) Ring ring;
    __shared__ u32 filled[ROWS];
    int group = threadIdx.x >> 7, thread = threadIdx.x & 127;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(ring.full + s, 1), barrier_init(ring.empty + s, WARPS);
        barrier_init(&ring.rows_full, 1), barrier_init(&ring.rows_empty, CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    u32 turn = 0, items = 0;  // stages used, items done
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (thread == 0)
            for (int i = blockIdx.x; i < blocks * splits; i += gridDim.x, items++) {
                Item item(i, splits, first_tile, last_tile);
                const char* mine = rows + (u64)item.block * 2 * atoms * PIECE;
                if (RESIDENT) {
                    if (items) barrier_wait(&ring.rows_empty, (items - 1) & 1);
                    barrier_expect(&ring.rows_full, 2 * atoms * PIECE);
                    bulk_copy(resident, mine, 2 * atoms * PIECE, &ring.rows_full);
                }
                for (int t = item.first; t < item.last; t++)
                    for (int a = 0; a < atoms; a++, turn++) {
                        int s = turn % STAGES;
                        char* stage = stages + s * STAGE;
                        if (turn >= STAGES) barrier_wait(ring.empty + s, (turn / STAGES + 1) & 1);
                        barrier_expect(ring.full + s, STAGE);
                        bulk_copy(stage, columns + ((u64)t * atoms + a) * PIECE, PIECE, ring.full + s);
                        if (!RESIDENT)
                            for (int g = 0; g < 2; g++)
                                bulk_copy(stage + (1 + g) * PIECE, mine + (g * atoms + a) * PIECE, PIECE, ring.full + s);
                    }
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        int warp = thread >> 5, lane = thread & 31, g = group - 1;
        for (int i = blockIdx.x; i < blocks * splits; i += gridDim.x, items++) {
            Item item(i, splits, first_tile, last_tile);
            // This thread's accumulators belong to four rows: first, +8 (upper), and +64, +72 (lower).
            u32 first = item.block * ROWS + g * 128 + warp * 16 + (lane >> 2);
            const float far[4] = {radius[first], radius[first + 8], radius[first + 64], radius[first + 72]};
            const float base[4] = {half_norm[first], half_norm[first + 8], half_norm[first + 64], half_norm[first + 72]};
            u32* part = count + (u64)(item.block * ROWS + g * 128 + thread) * splits + item.split;
            filled[g * 128 + thread] = *part;
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            if (RESIDENT) barrier_wait(&ring.rows_full, items & 1);
            for (int t = item.first; t < item.last; t++) {
                float upper[64], lower[64];
#pragma unroll 1
                for (int a = 0; a < atoms; a++, turn++) {
                    int s = turn % STAGES;
                    barrier_wait(ring.full + s, (turn / STAGES) & 1);
                    char* stage = stages + s * STAGE;
                    u64 left = descriptor(RESIDENT ? resident + (g * atoms + a) * PIECE : stage + (1 + g) * PIECE);
                    u64 right = descriptor(stage);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                    for (int k = 0; k < 4; k++) {  // 16 features are 32 bytes; the lower 64 rows begin 8192 bytes on
                        multiply(upper, left + 2 * k, right + 2 * k, a | k);
                        multiply(lower, left + 2 * k + 512, right + 2 * k, a | k);
                    }
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    if (a) {  // the piece before has been read by now: its stage is free
                        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                        if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
                    }
                }
                const float2* norms = (const float2*)(column_half_norm + (u64)t * COLUMNS) + (lane & 3);
                float2 norm[16];
#pragma unroll
                for (int j = 0; j < 16; j++) norm[j] = __ldg(norms + 4 * j);
                float worst = __ldg(tile_error + t), need[4];
#pragma unroll
                for (int r = 0; r < 4; r++) need[r] = base[r] - (far[r] + worst) * (far[r] + worst);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
                for (int j = 0; j < 64; j++) asm volatile("" : "+f"(upper[j]), "+f"(lower[j])::"memory");
                __syncwarp();
                if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
                // A bit for each eight columns in which the warp has a hit: only those are looked at one by one.
                u32 hit = 0;
#pragma unroll
                for (int j = 0; j < 16; j++) {
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        float n = q & 1 ? norm[j].y : norm[j].x;
                        upper[4 * j + q] -= n, lower[4 * j + q] -= n;
                    }
                    bool some = fmaxf(upper[4 * j], upper[4 * j + 1]) >= need[0]
                             || fmaxf(upper[4 * j + 2], upper[4 * j + 3]) >= need[1]
                             || fmaxf(lower[4 * j], lower[4 * j + 1]) >= need[2]
                             || fmaxf(lower[4 * j + 2], lower[4 * j + 3]) >= need[3];
                    if (some) hit |= 1u << j;
                }
                u32 any = __reduce_or_sync(~0u, hit), column = t * COLUMNS + 2 * (lane & 3);
                if (!any) continue;
#pragma unroll
                for (int j = 0; j < 16; j++)
                    if (any >> j & 1) {
#pragma unroll
                        for (int q = 0; q < 4; q++) {
                            int half = q >> 1;
                            u32 row = first + 8 * half, at = column + 8 * j + (q & 1);
                            if (upper[4 * j + q] >= need[half])
                                append(row, at, n_columns, item.split, splits, capacity, ids, row_group, column_group, out, filled);
                            if (lower[4 * j + q] >= need[2 + half])
                                append(row + 64, at, n_columns, item.split, splits, capacity, ids, row_group, column_group, out, filled);
                        }
                    }
            }
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            *part = filled[g * 128 + thread];
            if (RESIDENT && thread == 0) barrier_arrive(&ring.rows_empty);
        }
    }
}

// The packed image of rows at[0..n) of y, `width` fp16 features each; what is missing in the last tiles is zero.
extern "C" __global__ void pack_rows(
    const uint4* __restrict__ y, int chunks, const int* __restrict__ at, long long n, int atoms, long long total,
    uint4* __restrict__ image) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // a 16-byte chunk of the image
    if (i >= total) return;
    int place = i & 7, row = i >> 3 & 127;
    long long piece = i >> 10, tile = piece / atoms;
    int chunk = (int)(piece % atoms) * 8 + (place ^ (row & 7));
    long long r = tile * 128 + row;
    uint4 zero = {0, 0, 0, 0};
    image[i] = r < n && chunk < chunks ? y[(long long)at[r] * chunks + chunk] : zero;
}
