// What nearest.cu knows of a query while it looks for its nearest column.
#pragma once

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
