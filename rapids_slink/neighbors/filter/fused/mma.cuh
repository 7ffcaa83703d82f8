// A warp forms the products of 32 rows and 128 columns, over the pieces of both, by mma.sync.
#pragma once

// Four matrices of a piece, whose rows this thread's `row` and `chunk` address.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 piece, u32 row, u32 chunk) {
    load_matrices(to, piece + row * 128 + ((chunk ^ row & 7) << 4));
}

// Adds the products of the first `steps` times 32 bytes of a piece's features: the warp's rows begin at `row` of the piece `rows`. FIRST:
// the sums begin with the columns' half norms.
template <bool FIRST>
__device__ __forceinline__ void mma_piece(
    sum_t (&sum)[2][64], const Pair* norms, u32 rows, u32 row, u32 columns, int steps, int lane) {
    u32 own_row = row + (lane & 15), column = (lane >> 4) * 8 + (lane & 7);
#pragma unroll
    for (int k = 0; k < steps; k++) {
        u32 a[2][4], b[2][4];  // b of 16 columns, and of the next
        load_matrices(b[0], columns, column, 2 * k + (lane >> 3 & 1));
#pragma unroll
        for (int s = 0; s < 2; s++) load_matrices(a[s], rows, own_row + 16 * s, 2 * k + (lane >> 4));
#pragma unroll
        for (int q = 0; q < 8; q++) {
            if (q < 7) load_matrices(b[(q + 1) % 2], columns, column + 16 * (q + 1), 2 * k + (lane >> 3 & 1));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                Pair norm = FIRST && !k ? norms[8 * q + 4 * h + lane % 4] : Pair{};
#pragma unroll
                for (int s = 0; s < 2; s++) {
                    sum_t* to = sum[s] + 8 * q + 4 * h;
                    sum_t own[4] = {to[0], to[1], to[2], to[3]}, first[4] = {norm.x, norm.y, norm.x, norm.y};
                    mma_tile(to, a[s], b[q % 2][2 * h], b[q % 2][2 * h + 1], FIRST && !k ? first : own);
                }
            }
        }
    }
}
