// Sizes, which __init__.py reads, and what the kernels of nearest.cu hand to each other.
#pragma once
#include "runtime/include/threads.cuh"

#ifndef VALUE
#define VALUE float
#endif

constexpr int TILE = 128;                      // queries, and points, of a product
constexpr int THREADS = 256;                   // 2 times 4 warps, each with 64 queries and 32 points
constexpr int STEP = 16, STEPS = 4;            // features of an mma, and mmas of a stage
constexpr int PITCH = STEP * STEPS + 8;        // of a stage's rows: an odd number of 16 bytes, so that no banks collide
constexpr int PIPELINE_STAGES = 2;             // of the ring that queries are copied into
constexpr int LANES = 8, BATCH = 4;            // lanes that round rows together, and rows that they do at a time
constexpr int ROWS = THREADS / LANES * BATCH;  // that a block rounds
constexpr int LOADS = 8 / sizeof(VALUE);       // steps of LANES * 4 features of a row in flight at a time
static_assert(ROWS == TILE, "a block rounds its tile at once");
constexpr int SAMPLE = 32;                     // points
constexpr int MAX_EXPONENT = 8;                // the sample's features end up below 2 to this: fp16 goes to 2^16
constexpr float INFINITE_RADIUS = 1e14f;       // beyond all products,
constexpr float PADDING_NORM = 1e30f;          // and the half norm of a padding row
constexpr int OVERFLOWED = 1 << 30;            // a count above every capacity
constexpr float MAX_SQUARE = 1e13f;            // above the square of any row of 1,024 features that fp16 holds
constexpr int RERANK_WARPS = THREADS / WARP;   // of a block, each with a query
constexpr int FEATURES = 16;                   // of two rows that are read at a time

// A query's state during the search.
struct Query {
    float half_norm, error;  // see filter/__init__.py
    float radius;            // tightened by all blocks
    int count;               // of its candidates, including those beyond the capacity
};
struct Candidate {
    int id;
    float product;  // less the point's half norm
};
struct State {
    int error;     // the largest of all points': a float that is not negative, as an integer
    int unproven;  // whether the filter proves nothing for some row
};
