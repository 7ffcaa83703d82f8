// These load matrices from shared memory, and form products on tensor cores: of fp16 or, with INT8, of bytes or, with BITS, of bits.
#pragma once

typedef unsigned int u32;
#if INT8
typedef int sum_t;
#else
typedef float sum_t;
#endif

// Four 8x16-byte matrices, of each of which eight threads address the rows.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

#if BITS
#define MMA_INTEGERS "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"
#else
#define MMA_INTEGERS "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
#endif
// Sets sum[0..3] to from[0..3] and the products of 16 rows and 8 columns over 32 bytes of features.
__device__ __forceinline__ void mma_tile(sum_t* sum, const u32 (&a)[4], u32 b0, u32 b1, const sum_t (&from)[4]) {
#if INT8 && __CUDA_ARCH__ >= 800
    asm(MMA_INTEGERS " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1),
          "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]));
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1),
          "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
#else
    const u32 b[2] = {b0, b1};
    for (int i = 0; i < 4; i++) sum[i] = from[i];
#pragma unroll
    for (int k = 0; k < 2; k++)
#if INT8
#pragma unroll
        for (int r = 0; r < 2; r++)  // rows 0 to 7, and 8 to 15
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(sum[2 * r]), "+r"(sum[2 * r + 1]) : "r"(a[r + 2 * k]), "r"(b[k]));
#else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(b[k]));
#endif
#endif
}
