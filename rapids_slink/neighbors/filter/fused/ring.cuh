// Here are the ring of stages in shared memory, and the producer that fills it.
#pragma once

constexpr int THRESHOLD_BYTES = BLOCK_ROWS * sizeof(float);  // bytes of the thresholds of a block's rows for a tile

// Invariant: stage s is written only between empty[s] and full[s], and read only between full[s] and empty[s]; likewise work
// items. Items are written and read as atomics only for `racecheck`, which does not follow barriers in PTX.
struct Ring {
    u64 full[STAGES], empty[STAGES], item_full[SLOTS], item_empty[SLOTS];
    int item[SLOTS];
    u32 begun;  // stages that the producer has begun to fill, of all turns
};

// Waits until the stage of a turn is full. A team that leaves out turns may come two fills early, and a barrier knows only the
// parity of a fill: hence it waits until this one has begun.
__device__ __forceinline__ void wait_for_stage(Ring& ring, u32 turn) {
    if (TEAMS > 1)
        asm volatile(
            "{\n .reg .pred done;\n .reg .u32 begun;\n AGAIN_%=:\n ld.acquire.cta.shared.u32 begun, [%0];\n"
            " setp.gt.u32 done, begun, %1;\n @done bra.uni DONE_%=;\n bra.uni AGAIN_%=;\n DONE_%=:\n }"
            ::"r"(shared_address(&ring.begun)), "r"(turn) : "memory");
    barrier_wait(ring.full + turn % STAGES, turn / STAGES & 1);
}

// Shared memory: the rows' pieces of each slot if they are resident, the ring of stages, their tiles' half norms, the warps'
// queues, and if LOCAL the rows' thresholds for each stage's tile.
struct Memory {
    char *resident, *stages;
    sum_t* norms;
    u64* queues;
    float* thresholds;
    __device__ Memory(char* begin)
        : resident(begin), stages(begin + SLOTS * RESIDENT_BYTES), norms((sum_t*)(stages + STAGES * STAGE_BYTES)),
          queues((u64*)(norms + STAGES * COLUMNS)), thresholds((float*)(queues + WARPS * QUEUE)) {
        // The swizzle depends on the address's lower bits, which the descriptors omit. The address is opaque to the compiler, which
        // would assume the declared alignment and drop the test otherwise.
        u32 address = shared_address(begin);
        asm volatile("" : "+r"(address));
        if (address % 1024) __trap();
    }
};

// Copies the pieces of every work item's tiles into the ring, by one thread. It begins with the item of the block's own
// number; the others go to whichever block is ready, counted by `next_item`.
__device__ __forceinline__ void produce(
    Ring& ring, const Memory& memory, const char* rows, const char* columns, const sum_t* column_norm, int atoms,
    const int4* given, int items, u32 n_columns, int capacity, const u32* count, int* next_item, const LocalTerms& local) {
    u32 turn = 0, begun = 0;  // stages used, items begun
    for (int i = blockIdx.x;; i = gridDim.x + atomicAdd(next_item, 1), begun++) {
        int slot = begun % SLOTS;
        if (begun >= SLOTS) barrier_wait(ring.item_empty + slot, (begun / SLOTS + 1) & 1);
        if (BETWEEN_COMPONENTS && *(volatile u64*)count > capacity) i = items * PARTS;
        atomicExch(ring.item + slot, i);
        bool done = i >= items * PARTS;
        barrier_expect(ring.item_full + slot, done ? 0 : RESIDENT_BYTES);
        if (done) return;
        WorkItem item(given[i / PARTS], n_columns, local);
        const sum_t* norms = LOCAL ? (const sum_t*)local.begin + (u64)local.row_cell[item.row_tile] * local.columns : column_norm;
        int row_tile = item.row_tile + i % PARTS * BLOCK_TILES;
        const char* own = rows + (u64)row_tile * atoms * PIECE_BYTES;
        if (RESIDENT_ATOMS) bulk_copy(memory.resident + slot * RESIDENT_BYTES, own, RESIDENT_BYTES, ring.item_full + slot);
        for (int i = item.first; i < item.last; i++) {
            u64 t = item.tile(i);
            const float* thresholds = LOCAL ? local.thresholds(t, row_tile * COLUMNS) : nullptr;
            for (int a = 0; a < atoms; a++, turn++) {
                int s = turn % STAGES;
                char* stage = memory.stages + s * STAGE_BYTES;
                if (turn >= STAGES) barrier_wait(ring.empty + s, (turn / STAGES + 1) & 1);
                bool last = LOCAL && a == atoms - 1;  // brings the thresholds, and a tile's first the norms
                barrier_expect(ring.full + s, STAGE_BYTES + (a ? 0 : NORM_BYTES) + (last ? THRESHOLD_BYTES : 0));
                if (TEAMS > 1)
                    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(&ring.begun)), "r"(turn + 1) : "memory");
                bulk_copy(stage, columns + (t * atoms + a) * PIECE_BYTES, PIECE_BYTES, ring.full + s);
                if (!a) bulk_copy(memory.norms + s * COLUMNS, norms + t * COLUMNS, NORM_BYTES, ring.full + s);
                if (last) bulk_copy(memory.thresholds + s * BLOCK_ROWS, thresholds, THRESHOLD_BYTES, ring.full + s);
                if (!RESIDENT_ATOMS)
                    for (int g = 0; g < 2; g++) {
                        const char* piece = own + (g * atoms + a) * PIECE_BYTES;
                        bulk_copy(stage + (1 + g) * PIECE_BYTES, piece, PIECE_BYTES, ring.full + s);
                    }
            }
        }
    }
}
