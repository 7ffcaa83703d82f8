// These kernels turn columns into rows, add up the squares of all values, and test whether a matrix is symmetric.
#ifndef COLUMN
#define COLUMN float
#endif
#ifndef VALUE
#define VALUE float
#endif

constexpr int ROWS = 128, COLUMNS = 32;  // a block takes these, with a thread for each row

// Sets rows[i * d + c] to columns[c][i]. The columns may be anywhere in memory; a block copies its part of them to shared memory.
extern "C" __global__ void interleave(const COLUMN* const* __restrict__ columns, long long n, int d, VALUE* __restrict__ rows) {
    __shared__ COLUMN tile[COLUMNS][ROWS + 1];  // one more, so that the lanes of a warp read from different banks
    long long first_row = (long long)blockIdx.x * ROWS, row = first_row + threadIdx.x;
    int first = blockIdx.y * COLUMNS, width = min(COLUMNS, d - first);
    if (row < n)
        for (int c = 0; c < width; c++) tile[c][threadIdx.x] = columns[first + c][row];
    __syncthreads();
    int values = width * (int)min((long long)ROWS, n - first_row);
    for (int e = threadIdx.x; e < values; e += ROWS) {
        int i = e / width, c = e % width;
        rows[(first_row + i) * d + first + c] = (VALUE)tile[c][i];
    }
}

// Adds the sum of all squares, in float64, to *total, with one atomic per block.
extern "C" __global__ void add_squares(const VALUE* __restrict__ values, long long n, double* total) {
    __shared__ double of_warp[32];
    double sum = 0;
#pragma unroll 8
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        sum += (double)values[i] * values[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < blockDim.x / 32; warp++) sum += of_warp[warp];
    atomicAdd(total, sum);
}

constexpr int TILE = 32;

// These return a number's bits. With CuPy's -ftz=true a comparison of numbers would treat subnormal ones as zeros.
__device__ __forceinline__ long long bits(float x) { return __float_as_int(x); }
__device__ __forceinline__ long long bits(double x) { return __double_as_longlong(x); }
__device__ __forceinline__ long long bits(unsigned char x) { return x; }  // bytes are packed rows, which are never compared

// Sets *differs if an entry is not finite or differs from its mirror image in any bit. A block of TILE x 8 threads compares a
// tile on or above the diagonal with its mirror image.
extern "C" __global__ void compare_mirrored(const VALUE* __restrict__ matrix, long long n, int* differs) {
    __shared__ VALUE tile[TILE][TILE + 1];
    long long row = (long long)blockIdx.y * TILE, column = (long long)blockIdx.x * TILE;
    if (column < row) return;
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    for (int i = y; i < TILE; i += 8)
        if (row + i < n && column + x < n) tile[i][x] = matrix[(row + i) * n + column + x];
    __syncthreads();
    for (int i = y; i < TILE; i += 8) {
        if (column + i >= n || row + x >= n) continue;
        VALUE value = matrix[(column + i) * n + row + x];
        if (bits(value) != bits(tile[x][i]) || value - value != 0) *differs = 1;
    }
}
