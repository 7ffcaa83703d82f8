// architectures: sm_90a
// The fused filter on Hopper's tensor cores: the product of two packed fp16 operands is tested tile by tile in registers
// and never written. operand.py derives the test; here error_j is replaced by the largest of its tile of columns, E, and a
// few more features, the tail, have the tensor cores subtract half_norm_j, in units of 2^15, 2^8, 1, 2^-7 and 2^-14:
//     product - half_norm_j >= half_norm_i - (radius_i + E)^2.
//
//     producer warp ──bulk copies──▶ ring of stages ──▶ four warpgroups, 64 rows each: wgmma, test, append
//
// A packed image holds tiles of 128 rows; a tile is `atoms` pieces of 64 features, a piece 128 rows of 128 bytes, the
// eight 16-byte chunks of row r stored at chunk ^ (r & 7): the 128-byte swizzle that wgmma's descriptors expect, so that
// a plain bulk copy brings it into place. A tile's tail is 128 rows of 16 features in the 32-byte swizzle, chunk ^ (r / 4 & 1);
// for the columns it holds the parts of the norm, for the rows their units, which are the same for all and stay in
// registers. A work item is 256 rows and a range of column tiles.
//
// RESIDENT is the number of atoms, if the rows' pieces fit into shared memory and stay there; with RESIDENT 0 a stage
// carries a piece of the rows as well. A warpgroup hands the tensor cores all of a tile's products and tests them while
// the others' are formed. A test is a chain of short dependent steps: it takes four warps a scheduler to hide them.
//
// LAST_STEPS is how many times 32 bytes of the last atom's features are in use.
//
// BYTES: the points are integers from 0 to 255, of which 128 is taken, and so the products exact in int32, at twice the
// rate. An atom then has 128 features and a tail 32. With h the half of a squared norm, rounded down, and S the half of a
// bound on squared distances, rounded down, a pair within the bound of either point passes
//     product - h_j >= h_i - S:
// 2 product = |x_i|^2 + |x_j|^2 - distance^2 >= 2 h_i + 2 h_j - 2 S - 1, and all of these but the 1 are even. `radius` and
// `tile_radius` are S, and there are no errors.
//
// SYMMETRIC: rows and columns are the same points. A block's columns are then counted from itself on, around the end, and
// a pair is formed once and tested for both: for the columns' sake with the largest of the tile's radii first.
//
// COUPLES: a work item is given, 256 rows and a range of tiles of which no pair may be farther apart than its couple's reach.
#include "neighbors/copies.cuh"

#ifndef RESIDENT
#define RESIDENT 2
#endif
#ifndef LAST_STEPS
#define LAST_STEPS 4
#endif
#ifndef SYMMETRIC
#define SYMMETRIC 0
#endif
#ifndef BYTES
#define BYTES 0
#endif
#ifndef COUPLES
#define COUPLES 0
#endif
typedef unsigned int u32;
typedef unsigned long long u64;
#if BYTES
typedef int sum_t;
#define HELD "+r"
#define MULTIPLY "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
#define SUBTRACT "wgmma.mma_async.sync.aligned.m64n128k32.s32.u8.s8 "
#define SCALES ""
#else
typedef float sum_t;
#define HELD "+f"
#define MULTIPLY "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
#define SUBTRACT MULTIPLY
#define SCALES ", 1, 1"
#endif

constexpr int ROWS = 256, COLUMNS = 128;
constexpr int PIECE = 128 * 128;                      // bytes of 128 rows of one atom
constexpr int TAIL = 128 * 32;                        // of a tile's tail
constexpr int STAGE = RESIDENT ? PIECE : 3 * PIECE;   // one piece of columns; two of rows unless they are resident
constexpr int STAGES = RESIDENT == 0 ? 4 : RESIDENT <= 2 ? 8 : RESIDENT == 3 ? 6 : 5;
// A tail is let go of with its tile's last stage. With RESIDENT 0 a tile has more atoms than there are stages.
constexpr int TAILS = RESIDENT ? (STAGES + RESIDENT - 1) / RESIDENT : 1;
constexpr int SLOTS = RESIDENT ? 1 : 2;               // work items at a time: the ring need not run dry between two
constexpr int CONSUMERS = 4, WARPS = 4 * CONSUMERS;   // warpgroups of 64 rows, and their warps
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int QUEUE = 64;  // survivors: fewer than 32 stay, and no more than 32 come at a time

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
// A K-major operand in the 128-byte swizzle: groups of eight rows lie 1024 bytes apart. Addresses go in units of 16 bytes.
__device__ __forceinline__ u64 descriptor(const void* p) {
    return (u64)(shared_address(p) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// The same in the 32-byte swizzle: 256 bytes.
__device__ __forceinline__ u64 tail_descriptor(const void* p) {
    return (u64)(shared_address(p) >> 4) | (u64)1 << 16 | (u64)(256 >> 4) << 32 | (u64)3 << 62;
}

#define EIGHT(v, i) HELD(v[i]), HELD(v[i + 1]), HELD(v[i + 2]), HELD(v[i + 3]), HELD(v[i + 4]), HELD(v[i + 5]), HELD(v[i + 6]), HELD(v[i + 7])
#if BYTES
#define TRANSPOSED ""
#define TAIL_TRANSPOSED ""
#else
#define TRANSPOSED ", 0, 0"
#define TAIL_TRANSPOSED ", 0"
#endif

// sum (+)= 64 rows x 128 columns over 32 bytes of features.
__device__ __forceinline__ void multiply(sum_t (&sum)[64], u64 a, u64 b, int add) {
    asm volatile(
        "{\n .reg .pred add;\n setp.ne.b32 add, %66, 0;\n" MULTIPLY
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, %64, %65, add" SCALES TRANSPOSED ";\n}"
        : EIGHT(sum, 0), EIGHT(sum, 8), EIGHT(sum, 16), EIGHT(sum, 24), EIGHT(sum, 32), EIGHT(sum, 40), EIGHT(sum, 48),
          EIGHT(sum, 56)
        : "l"(a), "l"(b), "r"(add));
}

// The same for 64 rows that are all alike: `row` is what the fragment of this thread's quarter of a quad holds of them.
__device__ __forceinline__ void subtract(sum_t (&sum)[64], const u32 (&row)[4], u64 b) {
    asm volatile(
        "{\n " SUBTRACT
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1" SCALES TAIL_TRANSPOSED ";\n}"
        : EIGHT(sum, 0), EIGHT(sum, 8), EIGHT(sum, 16), EIGHT(sum, 24), EIGHT(sum, 32), EIGHT(sum, 40), EIGHT(sum, 48),
          EIGHT(sum, 56)
        : "r"(row[0]), "r"(row[1]), "r"(row[2]), "r"(row[3]), "l"(b));
}

// Starts the products of 64 rows and 128 columns over the first `steps` times 32 bytes of a piece's features.
__device__ __forceinline__ void form(sum_t (&sum)[64], u64 rows, u64 columns, int add, int steps) {
#pragma unroll
    for (int k = 0; k < steps; k++) multiply(sum, rows + 2 * k, columns + 2 * k, add | k);
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// How far below its two norms a pair's product may be if one of its points looks that far.
#if BYTES
__device__ __forceinline__ int margin(int radius, int) { return radius; }
#else
__device__ __forceinline__ float margin(float radius, float error) { return (radius + error) * (radius + error); }
#endif

// v[i] of N, which all stand in registers.
template <int N>
__device__ __forceinline__ sum_t one_of(const sum_t* v, u32 i) {
    if constexpr (N == 1) return v[0];
    else {
        sum_t low = one_of<N / 2>(v, i), high = one_of<N / 2>(v + N / 2, i);
        return i & N / 2 ? high : low;
    }
}

struct __align__(8) Two {
    sum_t x, y;
};

// Items are written and read as atomics only for `racecheck`, which does not follow the barriers in PTX that order them.
struct Ring {
    u64 full[STAGES], empty[STAGES], item_full[SLOTS], item_empty[SLOTS];
    int item[SLOTS];
};

// Lets go of the last LATER + 1 stages up to `last`, each once this warp's products of it are formed.
template <int LATER>
__device__ __forceinline__ void release(Ring& ring, u32 last, int lane) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
    if (lane == 0) barrier_arrive(ring.empty + (last - LATER) % STAGES);
    if constexpr (LATER > 0) release<LATER - 1>(ring, last, lane);
}

// Work item -> the tile at which its rows begin and its range of column tiles, which `tile` makes tiles of the image.
struct Item {
    int row_tile, first, last, couple;
    __device__ Item(int item, int splits, int first_tile, int last_tile, const int4* given) {
        if (COUPLES) {
            int4 of = given[item];
            row_tile = of.x, first = of.y, last = of.z, couple = of.w;
            return;
        }
        int share = (last_tile - first_tile + splits - 1) / splits;
        row_tile = item / splits * (ROWS / COLUMNS);
        first = first_tile + item % splits * share;
        last = min(first + share, last_tile);
    }
    __device__ int tile(int t, int blocks) const {
        if (!SYMMETRIC) return t;
        t += row_tile;
        return t < 2 * blocks ? t : t - 2 * blocks;
    }
};

// Whether the point at a place stands there for the first time in its block.
__device__ __forceinline__ bool is_first(const int* point, u32 place) {
    return place % ROWS == 0 || point[place - 1] != point[place];
}

// Where survivors go. A place among a row's candidates is an atomic addition away, and a warp that waited for it at every
// hit would hold up the other three of its group: 32 are collected first.
//
// Until then a survivor takes 64 bits. The lower half tells for whose sake it passed, the row's or the column's, its row among
// the warp's 16 and its column among the work item's; the upper is half of its squared distance, as the product has it.
constexpr u32 FOR_ROW = 1u << 31, FOR_COLUMN = 1u << 30;
constexpr int COLUMN_BITS = 26;
struct Survivors {
    u64* queue;  // of this warp: up to QUEUE
    int* out;
    u32 *apart, *count;
    const int *row_group, *column_group;
    int capacity, blocks, lane;
    u32 queued;

    __device__ __forceinline__ void put(u32 mine, u32 other, u32 half) {
        u32 slot = atomicAdd(count + mine, 1u);
        if (slot >= capacity) return;
        out[(u64)mine * capacity + slot] = other;
        if (SYMMETRIC) apart[(u64)mine * capacity + slot] = half;
    }
    // Takes the last `n`, at most 32, from the queue.
    __device__ __forceinline__ void append(u32 n, const Item& item, u32 first_row) {
        __syncwarp();
        u64 survivor = lane < n ? queue[queued - n + lane] : 0;
        queued -= n;
        __syncwarp();
        u32 place = survivor, half = survivor >> 32, at = place & (1u << COLUMN_BITS) - 1;
        u32 row = first_row + (place >> COLUMN_BITS & 15);
        u32 column = item.tile(item.first + at / COLUMNS, blocks) * COLUMNS + at % COLUMNS;
        if (COUPLES) {
            int a = lane < n ? column_group[row] : 0, b = lane < n ? column_group[column] : 0;
            bool real = lane < n && is_first(column_group, row) && is_first(column_group, column);
            u32 votes = __ballot_sync(~0u, real);
            if (!votes) return;
            u64 slot = lane ? 0 : atomicAdd((u64*)count, (u64)__popc(votes));
            slot = __shfl_sync(~0u, slot, 0) + __popc(votes & ((1u << lane) - 1));
            if (real && slot < capacity)
                out[slot] = a, out[(u64)capacity + slot] = b, out[2 * (u64)capacity + slot] = item.couple;
            return;
        }
        if (!SYMMETRIC && lane < n && column_group && column_group[column] == row_group[row]) return;
        if (place & FOR_ROW) put(row, column, half);
        if (SYMMETRIC && place & FOR_COLUMN) put(column, row, half);
    }
    // All lanes take part; those that are `wanted` have a survivor.
    __device__ __forceinline__ void push(bool wanted, u32 place, sum_t half, const Item& item, u32 first_row) {
        u32 votes = __ballot_sync(~0u, wanted);
        if (wanted) queue[queued + __popc(votes & ((1u << lane) - 1))] = (u64)(u32&)half << 32 | place;
        queued += __popc(votes);
        if (queued >= 32) append(32, item, first_row);
    }
};

// Appends j to row i's candidates for every pair that passes; `count` goes on past `capacity`. Pairs of one group are
// left out if column_group, which goes by position like the columns, is given. There are `splits` work items a block of
// rows, each with its share of the columns. A thread block begins with the item of its own number; the others go to whichever
// is ready, counted by `next_item`, which is zero at first.
//
// SYMMETRIC: tiles are counted from the block's own on, i is appended to j's candidates as well, and only the row itself
// is left out. tile_radius is the largest radius of each tile. `apart` gets half_norm_i - (product - half_norm_j) of each.
//
// COUPLES: the items are `given`, so many blocks, as the tile at which the rows begin, the first tile of columns and the one
// after the last, and its couple; a pair passes that may be within the couple's `reach`, which is added to the row's radius. By
// `column_group` both are points, of which one that stands in a block again, right behind itself, only fills it up. `out` has three
// rows of `capacity`: the points of each pair and its couple. `count` is of 64 bits; once it is above `capacity` no more
// items are begun.
extern "C" __global__ void __launch_bounds__(THREADS, 1) keep_near(
    const char* __restrict__ rows, const char* __restrict__ columns, const char* __restrict__ tails, int atoms, int blocks,
    int splits, int first_tile, int last_tile, u32 n_columns, const sum_t* __restrict__ half_norm,
    const sum_t* __restrict__ radius, const sum_t* __restrict__ tile_radius, const float* __restrict__ tile_error,
    const int* __restrict__ row_group, const int* __restrict__ column_group, int capacity,
    int* __restrict__ out, u32* __restrict__ apart, u32* count, int* next_item, const int4* __restrict__ given,
    const sum_t* __restrict__ reach) {
    extern __shared__ __align__(1024) char resident[];
    char* stages = resident + RESIDENT * 2 * PIECE;
    char* tail_ring = stages + STAGES * STAGE;
    __shared__ __align__(8) Ring ring;
    int group = __shfl_sync(~0u, threadIdx.x >> 7, 0);  // by which the compiler sees that it is the whole warp's
    int thread = threadIdx.x & 127;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(ring.full + s, 1), barrier_init(ring.empty + s, WARPS);
        for (int s = 0; s < SLOTS; s++) barrier_init(ring.item_full + s, 1), barrier_init(ring.item_empty + s, CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    u32 turn = 0, items = 0, tiles = 0;  // stages used, items and tiles done
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (thread == 0)
            for (int i = blockIdx.x;; i = gridDim.x + atomicAdd(next_item, 1), items++) {
                int slot = items % SLOTS;
                if (items >= SLOTS) barrier_wait(ring.item_empty + slot, (items / SLOTS + 1) & 1);
                if (COUPLES && *(volatile u64*)count > capacity) i = blocks * splits;
                atomicExch(ring.item + slot, i);
                bool done = i >= blocks * splits;
                barrier_expect(ring.item_full + slot, RESIDENT && !done ? 2 * atoms * PIECE : 0);
                if (done) break;
                Item item(i, splits, first_tile, last_tile, given);
                const char* mine = rows + (u64)item.row_tile * atoms * PIECE;
                if (RESIDENT) bulk_copy(resident, mine, 2 * atoms * PIECE, ring.item_full + slot);
                for (int i = item.first; i < item.last; i++, tiles++) {
                    u64 t = item.tile(i, blocks);
                    for (int a = 0; a < atoms; a++, turn++) {
                        int s = turn % STAGES;
                        char* stage = stages + s * STAGE;
                        bool last = a == atoms - 1;  // a tile's last stage brings the tail
                        if (turn >= STAGES) barrier_wait(ring.empty + s, (turn / STAGES + 1) & 1);
                        barrier_expect(ring.full + s, STAGE + (last ? TAIL : 0));
                        bulk_copy(stage, columns + (t * atoms + a) * PIECE, PIECE, ring.full + s);
                        if (last) bulk_copy(tail_ring + tiles % TAILS * TAIL, tails + t * TAIL, TAIL, ring.full + s);
                        if (!RESIDENT)
                            for (int g = 0; g < 2; g++)
                                bulk_copy(stage + (1 + g) * PIECE, mine + (g * atoms + a) * PIECE, PIECE, ring.full + s);
                    }
                }
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
        int warp = thread >> 5, lane = thread & 31, g = group - 1;
        // Of the rows' tail: the units, two in a register, and zeros in fp16. Four registers that the compiler knows nothing
        // of: what it put together right before a wgmma would have to wait for the one before.
        u32 pair = lane & 3, more = BYTES ? ~0u : 0;
        u32 unit = BYTES ? (pair ? ~0u : 0xffff0101) : pair == 0 ? 0x5c007800 : pair == 1 ? 0x20003c00 : pair == 2 ? 0x0400 : 0;
        u32 row_tail[4] = {unit, unit, more, more};
        asm volatile("" : "+r"(row_tail[0]), "+r"(row_tail[1]), "+r"(row_tail[2]), "+r"(row_tail[3]));
        const char* rows_of_group = RESIDENT ? resident + g / 2 * RESIDENT * PIECE : stages + (1 + g / 2) * PIECE;
        const u64 own = descriptor(rows_of_group + g % 2 * (PIECE / 2));  // the next atom, or stage, is so much further on
        const u64 first_stage = descriptor(stages), first_tail = tail_descriptor(tail_ring);
        u64* queue = (u64*)(tail_ring + TAILS * TAIL) + (4 * g + warp) * QUEUE;
        Survivors survivors{queue, out, apart, count, row_group, column_group, capacity, blocks, lane, 0};
        for (;; items++) {
            int slot = items % SLOTS;
            barrier_wait(ring.item_full + slot, items / SLOTS & 1);
            int taken = __shfl_sync(~0u, lane ? 0 : atomicOr(ring.item + slot, 0), 0);
            if (taken >= blocks * splits) break;
            Item item(taken, splits, first_tile, last_tile, given);
            // This thread's sums belong to two rows of the warp's 16, eight apart.
            u32 first_row = item.row_tile * COLUMNS + g * 64 + warp * 16, first = first_row + (lane >> 2);
            const sum_t own_reach = COUPLES ? reach[item.couple] : 0;
            const sum_t far[2] = {radius[first] + own_reach, radius[first + 8] + own_reach};
            const sum_t base[2] = {half_norm[first], half_norm[first + 8]};
            const float own_error = SYMMETRIC && !BYTES ? tile_error[item.row_tile + g / 2] : 0;
            for (int i = item.first; i < item.last; i++, tiles++) {
                int t = item.tile(i, blocks);
                u64 tail = first_tail + tiles % TAILS * (TAIL >> 4);
                sum_t sum[64];
                if (RESIDENT) {
#pragma unroll
                    for (int a = 0; a < RESIDENT; a++) {
                        int s = (turn + a) % STAGES;
                        barrier_wait(ring.full + s, (turn + a) / STAGES & 1);
                        fence();
                        form(sum, own + a * (PIECE >> 4), first_stage + s * (STAGE >> 4), a, a < RESIDENT - 1 ? 4 : LAST_STEPS);
                        if (a == RESIDENT - 1) subtract(sum, row_tail, tail);
                        commit();
                    }
                    turn += RESIDENT;
                } else {
#pragma unroll 1
                    for (int a = 0; a < atoms - 1; a++, turn++) {
                        int s = turn % STAGES;
                        barrier_wait(ring.full + s, turn / STAGES & 1);
                        fence();
                        form(sum, own + s * (STAGE >> 4), first_stage + s * (STAGE >> 4), a, 4);
                        commit();
                        if (a) {  // the piece before has been read by now: its stage is free
                            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                            if (lane == 0) barrier_arrive(ring.empty + (turn - 1) % STAGES);
                        }
                    }
                    // The last on its own: ptxas makes wgmmas wait for each other if there are branches between them.
                    int s = turn % STAGES;
                    barrier_wait(ring.full + s, turn / STAGES & 1);
                    fence();
                    form(sum, own + s * (STAGE >> 4), first_stage + s * (STAGE >> 4), 1, LAST_STEPS);
                    subtract(sum, row_tail, tail);
                    commit();
                    turn++;
                }
                // Of offset 0 and half way around, if it exists, both blocks see all pairs.
                bool both = SYMMETRIC && i >= 2 && i / 2 * 2 != blocks;
                float worst = BYTES ? 0 : tile_error[t];
                sum_t theirs = both ? margin(tile_radius[t], own_error) : 0, need[2];
                // How far the columns look: lane 4u + q has those of columns 16u + 2q, + 1, + 8 and + 9.
                sum_t column_margin[4];
                if (SYMMETRIC)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        Two two = ((const Two*)(radius + (u64)t * COLUMNS))[lane / 4 * 8 + lane % 4 + 4 * c];
                        column_margin[2 * c] = margin(two.x, own_error), column_margin[2 * c + 1] = margin(two.y, own_error);
                    }
#pragma unroll
                for (int r = 0; r < 2; r++) need[r] = base[r] - max(margin(far[r], worst), theirs);
                release<(RESIDENT ? RESIDENT : 2) - 1>(ring, turn - 1, lane);
                __syncwarp();
#pragma unroll
                for (int j = 0; j < 64; j++) asm volatile("" : HELD(sum[j])::"memory");
                // A bit for each 16 columns in which the warp has a hit: only those are looked at one by one.
                u32 hit = 0;
#pragma unroll
                for (int j = 0; j < 64; j += 8) {
                    bool passes = max(max(sum[j], sum[j + 1]), max(sum[j + 4], sum[j + 5])) >= need[0];
                    passes |= max(max(sum[j + 2], sum[j + 3]), max(sum[j + 6], sum[j + 7])) >= need[1];
                    if (passes) hit |= 1u << j / 8;
                }
                u32 any = __reduce_or_sync(~0u, hit);
                if (!any) continue;
                // Bit j of the two words: sum j passes for the row's sake or, in `reverse`, for the column's. It belongs to
                // the row `first` or, if j has the bit 2, to the other, and to column 8 (j / 4) + (j & 1) of this thread's.
                u32 passed[2] = {0, 0}, reverse[2] = {0, 0};
#pragma unroll
                for (int j = 0; j < 64; j += 8)
                    if (any >> j / 8 & 1) {
                        sum_t back[4];
                        if (SYMMETRIC)
#pragma unroll
                            for (int c = 0; c < 4; c++) back[c] = __shfl_sync(~0u, column_margin[c], j / 2 + lane % 4);
#pragma unroll
                        for (int q = 0; q < 8; q++) {
                            int r = q / 2 % 2;
                            u32 bit = 1u << (j + q) % 32;
                            sum_t near = SYMMETRIC ? base[r] - margin(far[r], worst) : need[r];
                            if (sum[j + q] >= near) passed[j / 32] |= bit;
                            if (both && sum[j + q] >= base[r] - back[q / 4 * 2 + q % 2]) reverse[j / 32] |= bit;
                        }
                    }
#pragma unroll
                for (int w = 0; w < 2; w++)
                    if (any >> 4 * w & 15)
                        for (u32 rest = passed[w] | reverse[w]; __any_sync(~0u, rest); rest &= rest - 1) {
                            u32 lowest = rest & -rest, bit = __ffs(rest) - 1, row = (lane >> 2) + (bit & 2) * 4;
                            u32 in_tile = 2 * (lane & 3) + 64 * w + (bit & 28) * 2 + (bit & 1);
                            u32 column = t * COLUMNS + in_tile;
                            u32 place = row << COLUMN_BITS | (i - item.first) * COLUMNS + in_tile;
                            if (passed[w] & lowest) place |= FOR_ROW;
                            if (reverse[w] & lowest) place |= FOR_COLUMN;
                            bool real = rest && column < n_columns && !(SYMMETRIC && column == first_row + row);
                            sum_t half = SYMMETRIC ? (bit & 2 ? base[1] : base[0]) - one_of<32>(sum + 32 * w, bit) : 0;
                            survivors.push(real, place, half, item, first_row);
                        }
            }
            survivors.append(survivors.queued, item, first_row);
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            if (thread == 0) barrier_arrive(ring.item_empty + slot);
        }
    }
}
