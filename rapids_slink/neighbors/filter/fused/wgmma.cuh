// Barriers, bulk copies and products of a warpgroup, in PTX.
#if INT8
#define IN_OUT "+r"
#if BITS
#define MMA_TILE "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc "
#else
#define MMA_TILE "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
#endif
#define SCALES ""
#else
#define IN_OUT "+f"
#define MMA_TILE "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
#define SCALES ", 1, 1, 0, 0"
#endif

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
// Returns the descriptor of a K-major operand in the 128-byte swizzle: eight rows at a time, at a stride of 1024 bytes. Addresses
// are in units of 16 bytes.
__device__ __forceinline__ u64 descriptor(const void* p) {
    return (u64)(shared_address(p) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define EIGHT(v, i) IN_OUT(v[i]), IN_OUT(v[i + 1]), IN_OUT(v[i + 2]), IN_OUT(v[i + 3]), IN_OUT(v[i + 4]), IN_OUT(v[i + 5]), IN_OUT(v[i + 6]), IN_OUT(v[i + 7])
// Adds to `sum` the products of 64 rows and 128 columns over 32 bytes of features.
__device__ __forceinline__ void mma_tile(sum_t (&sum)[64], u64 a, u64 b) {
    asm volatile(
        MMA_TILE
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, %64, %65, 1" SCALES ";"
        : EIGHT(sum, 0), EIGHT(sum, 8), EIGHT(sum, 16), EIGHT(sum, 24), EIGHT(sum, 32), EIGHT(sum, 40), EIGHT(sum, 48),
          EIGHT(sum, 56)
        : "l"(a), "l"(b));
}

// Starts the products of 64 rows and 128 columns over the first `steps` times 32 bytes of a piece's features.
__device__ __forceinline__ void mma_piece(sum_t (&sum)[64], u64 rows, u64 columns, int steps) {
#pragma unroll
    for (int k = 0; k < steps; k++) mma_tile(sum, rows + 2 * k, columns + 2 * k);
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
