// These formulas compute the surrogate distance of two rows as formulas.py does, operation by operation: in float64, feature by
// feature, without fused multiply-add. FORMULA names the struct; `minkowski` also takes HALVES (twice the exponent, an integer) or
// EXPONENT.
//
// A struct sums `summed(d)` of the d columns of two rows, one after the other; `value` turns the sum into the distance. Formulas
// that boxes bound take gaps too: `add_gap(x - y)` does what `add(x, y)` does, and `of_gaps` returns a lower bound.
#pragma once

#ifndef FORMULA
#define FORMULA squared_euclidean
#endif
#ifndef COLUMNS
#define COLUMNS 1
#endif

// The launcher writes this for `periodic` and `scaled`. Each column has the length after which it repeats, the scale of the group of
// columns that ends with it, or 0 where a group goes on, and the float32 below the length.
struct Space {
    double period[COLUMNS], scale[COLUMNS];
    float below[COLUMNS];
};
extern "C" {
__constant__ Space SPACE;
}

// CuPy compiles with -ftz=true, which would make zeros of subnormal float32 values on the way: not so this conversion.
__device__ __forceinline__ double widen(float x) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x));
    return wide;
}
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ double widen(unsigned char x) { return x; }
__device__ __forceinline__ double widen(unsigned short x) { return x; }
// 64 bits, which stay what they are: only `bit_counts` reads them.
typedef unsigned long long word;
__device__ __forceinline__ double widen(word x) { return __longlong_as_double(x); }

__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double minus(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }

constexpr double OVERFLOW_VALUE = 1.7976931348623157e308;  // stands for values beyond float64's range

// Sums the columns' terms, or takes the largest.
struct sum_of_terms {
    double total = 0;
    static __device__ int summed(int d) { return d; }
    template <class X, class Y> __device__ double value(X, Y, int) const { return total; }
    __device__ double of_gaps() const { return total; }
};

struct squared_euclidean : sum_of_terms {
    __device__ void add_gap(double gap) { total = plus(total, times(gap, gap)); }
    __device__ void add(double x, double y) { add_gap(minus(x, y)); }
};

struct manhattan : sum_of_terms {
    __device__ void add_gap(double gap) { total = plus(total, fabs(gap)); }
    __device__ void add(double x, double y) { add_gap(minus(x, y)); }
};

struct chebyshev : sum_of_terms {
    __device__ void add_gap(double gap) { total = fmax(total, fabs(gap)); }
    __device__ void add(double x, double y) { add_gap(minus(x, y)); }
};

// Returns the distance of a group of columns from the sum of its terms.
__device__ __forceinline__ double group_distance(const squared_euclidean& sum) { return __dsqrt_rn(sum.total); }
__device__ __forceinline__ double group_distance(const sum_of_terms& sum) { return sum.total; }

// Takes the largest of the distances of groups of columns, each divided by its scale. A group's columns follow each other.
template <class Sum> struct scaled : sum_of_terms {
    Sum group;
    int column = 0;
    __device__ void add_gap(double gap) {
        group.add_gap(gap);
        double scale = SPACE.scale[column++];
        if (scale > 0) total = fmax(total, __ddiv_rn(group_distance(group), scale)), group = Sum();
    }
};

// Serves columns that repeat: a difference is that of the nearest images.
template <class Sum> struct periodic : Sum {
    int at = 0;
    __device__ void add(double x, double y) {
        double gap = fabs(minus(x, y)), around = minus(SPACE.period[at++], gap);
        this->add_gap(around < gap ? around : gap);
    }
};

// These return what is lost to rounding in a + b and in a * b (Dekker).
__device__ __forceinline__ double lost_by_plus(double a, double b, double total) {
    double other = minus(total, a);
    return plus(minus(a, minus(total, other)), minus(b, other));
}
__device__ __forceinline__ double lost_by_times(double a, double b, double product) {
    double c = times(134217729.0, a), a_high = minus(c, minus(c, a));
    c = times(134217729.0, b);
    double b_high = minus(c, minus(c, b)), a_low = minus(a, a_high), b_low = minus(b, b_high);
    double most = plus(minus(times(a_high, b_high), product), times(a_high, b_low));
    return plus(plus(most, times(a_low, b_high)), times(a_low, b_low));
}

// Returns what `general_power` of formulas.py returns.
__device__ double general_power(double t, double p) {
    constexpr double LN2_HIGH = 0x1.62e42fefa3800p-1, LN2_LOW = 0x1.ef35793c76730p-45;
    if (t == 0 || t == 1 || t > OVERFLOW_VALUE) return t;
    int e;
    double m = frexp(t, &e);
    if (m < 0.7071067811865476) m = times(2.0, m), e -= 1;
    double f = minus(m, 1.0), g = plus(m, 1.0), g_low = minus(m, minus(g, 1.0));
    double s = __ddiv_rn(f, g), h = times(s, g);
    double s_low = __ddiv_rn(minus(minus(minus(f, h), lost_by_times(s, g, h)), times(s, g_low)), g);
    double z = times(s, s), tail = 0;
    for (int k = 12; k >= 0; k--) tail = plus(times(tail, z), __ddiv_rn(2.0, 2 * k + 3));
    tail = times(times(tail, z), s);
    double first = times(e, LN2_HIGH), second = times(2.0, s), sum = plus(first, second);
    double rest = plus(plus(plus(times(2.0, s_low), times(e, LN2_LOW)), lost_by_plus(first, second, sum)), tail);
    double log = plus(sum, rest), log_low = lost_by_plus(sum, rest, log);
    double y = times(p, log);
    if (y > 710) return 1.0 / 0.0;
    if (y < -746) return 0;
    double y_low = plus(lost_by_times(p, log, y), times(p, log_low));
    double k = rint(times(y, 1.4426950408889634));
    double r = plus(minus(y, times(k, LN2_HIGH)), minus(y_low, times(k, LN2_LOW)));
    double series = 0, factorial = 87178291200.0;  // 14!
    for (int j = 14; j >= 2; j--) {
        series = plus(times(series, r), __ddiv_rn(1.0, factorial));
        factorial = __ddiv_rn(factorial, j);  // exact
    }
    double result = plus(1.0, plus(r, times(times(r, r), series)));
    int half = (int)k >> 1;
    return times(times(result, ldexp(1.0, half)), ldexp(1.0, (int)k - half));
}

struct minkowski : sum_of_terms {
#ifdef EXPONENT
    static constexpr double BOX = 1 - 0x1p-44;  // general_power need not be monotone
    static __device__ double power(double t) { return general_power(t, EXPONENT); }
#else
#ifndef HALVES
#define HALVES 6
#endif
    static constexpr double BOX = 1;
    static __device__ double power(double t) {
        double result = HALVES & 1 ? __dsqrt_rn(t) : 1, square = t;
        for (int left = HALVES / 2; left;) {
            if (left & 1) result = times(result, square);
            left /= 2;
            if (left) square = times(square, square);
        }
        return result;
    }
#endif
    __device__ void add_gap(double gap) { total = plus(total, power(fabs(gap))); }
    __device__ void add(double x, double y) { add_gap(minus(x, y)); }
    template <class X, class Y> __device__ double value(X, Y, int) const { return fmin(total, OVERFLOW_VALUE); }
    __device__ double of_gaps() const { return times(fmin(total, OVERFLOW_VALUE), BOX); }
};

struct canberra : sum_of_terms {
    __device__ void add(double x, double y) {
        if (x != y) total = plus(total, __ddiv_rn(fabs(minus(x, y)), plus(fabs(x), fabs(y))));
    }
};

struct braycurtis {
    double difference = 0, sum = 0;
    static __device__ int summed(int d) { return d; }
    __device__ void add(double x, double y) {
        difference = plus(difference, fabs(minus(x, y)));
        sum = plus(sum, fabs(plus(x, y)));
    }
    template <class X, class Y> __device__ double value(X, Y, int) const {
        return sum > 0 ? fmin(__ddiv_rn(difference, sum), OVERFLOW_VALUE) : OVERFLOW_VALUE;
    }
};

struct hamming {
    static constexpr bool ALL_PRESENT = true;
    int differ = 0;
    static __device__ int summed(int d) { return d; }
    __device__ void add(double x, double y) { differ += x != y; }
    __device__ void put(int differing, int) { differ = differing; }
    __device__ double of(double, double, double) const { return differ; }
    template <class X, class Y> __device__ double value(X, Y, int) const { return differ; }
};

// Even and odd features are summed separately: the two sums change places at each step. The last of an odd number comes after.
struct inner_product {
    double mine = 0, other = 0;
    static __device__ int summed(int d) { return d & ~1; }
    __device__ void add(double x, double y) {
        double next = plus(mine, times(x, y));
        mine = other, other = next;
    }
    template <class X, class Y> __device__ double dot(X x, Y y, int d) const {
        double total = plus(mine, other);
        return d & 1 ? plus(total, times(widen(x[d - 1]), widen(y[d - 1]))) : total;
    }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const { return -dot(x, y, d); }
};

// Serves rows of d - 1 features that are followed by their norms.
struct cosine : inner_product {
    static __device__ int summed(int d) { return inner_product::summed(d - 1); }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const {
        double part = __ddiv_rn(dot(x, y, d - 1), times(widen(x[d - 1]), widen(y[d - 1])));
        return minus(1.0, fmax(-1.0, fmin(1.0, part)));
    }
};

// Over the features that both rows have: NaN is a missing value, and a difference with it is NaN.
struct present_features {
    double total = 0;
    int absent = 0;
    static __device__ int summed(int d) { return d; }
    __device__ bool has(double gap) {
        bool is_present = gap == gap;
        absent += !is_present;
        return is_present;
    }
    template <class X, class Y> __device__ double value(X, Y, int d) const {
        int common = d - absent;
        return common ? times(__ddiv_rn(total, common), d) : OVERFLOW_VALUE;
    }
};

struct present_squared_euclidean : present_features {
    __device__ void add(double x, double y) {
        double gap = minus(x, y);
        if (has(gap)) total = plus(total, times(gap, gap));
    }
};

struct present_manhattan : present_features {
    __device__ void add(double x, double y) {
        double gap = minus(x, y);
        if (has(gap)) total = plus(total, fabs(gap));
    }
};

struct present_hamming {
    static constexpr bool ALL_PRESENT = false;
    int differ = 0, common = 0;
    static __device__ int summed(int d) { return d; }
    __device__ void add(double x, double y) { common += x == x && y == y, differ += fabs(minus(x, y)) > 0; }
    __device__ void put(int differing, int shared) { differ = differing, common = shared; }
    __device__ double of(double, double, double) const { return common ? __ddiv_rn(differ, common) : OVERFLOW_VALUE; }
    template <class X, class Y> __device__ double value(X, Y, int) const { return of(0, 0, 0); }
};

// Serves rows of d - 1 features that are followed by the number of features that they have.
struct hiercc : present_hamming {
    static __device__ int summed(int d) { return d - 1; }
    // Returns the distance by the numbers of features that are present in either row, and of all features.
    __device__ double of(double own, double others, double features) const {
        double differing = differ, shared = common, enough = minus(fmax(own, others), times(0.05, features));
        if (!common) return features;
        if (enough > shared) differing = plus(differing, minus(enough, shared)), shared = enough;
        return floor(plus(times(__ddiv_rn(differing, shared), features), 0.5));
    }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const {
        return of(widen(x[d - 1]), widen(y[d - 1]), d - 1);
    }
};

// Serves rows of zeros and ones: d - 1 words, and the number of ones. A formula of the features is one of the counts, which are exact.
struct bit_counts {
    int common = 0;
    static __device__ int summed(int d) { return d - 1; }
    __device__ void add(double x, double y) { common += __popcll(__double_as_longlong(x) & __double_as_longlong(y)); }
};

struct bit_hamming : bit_counts {
    __device__ double of(double ones, double others) const { return ones + others - 2.0 * common; }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const { return of(x[d - 1], y[d - 1]); }
};

struct bit_jaccard : bit_counts {
    __device__ double of(double ones, double others) const {
        double either = ones + others - common;
        return either > 0 ? __ddiv_rn(ones + others - 2.0 * common, either) : 0;
    }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const { return of(x[d - 1], y[d - 1]); }
};

struct bit_braycurtis : bit_counts {
    __device__ double of(double ones, double others) const {
        return ones + others > 0 ? __ddiv_rn(ones + others - 2.0 * common, ones + others) : OVERFLOW_VALUE;
    }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const { return of(x[d - 1], y[d - 1]); }
};

struct bit_containment : bit_counts {
    __device__ double of(double ones, double others) const {
        double fewer = ones < others ? ones : others;
        return fewer > 0 ? __ddiv_rn(fewer - common, fewer) : OVERFLOW_VALUE;
    }
    template <class X, class Y> __device__ double value(X x, Y y, int d) const { return of(x[d - 1], y[d - 1]); }
};

// Returns the surrogate distance of two rows of d columns, by one thread. A row is a pointer, or anything else with an operator [].
template <class X, class Y> __device__ __forceinline__ double surrogate_distance(X x, Y y, int d) {
    FORMULA sum;
    int n = FORMULA::summed(d);
    for (int f = 0; f < n; f++) sum.add(widen(x[f]), widen(y[f]));
    return sum.value(x, y, d);
}

// Returns the mutual reachability of two points: the largest of their value and their core distances.
__device__ __forceinline__ double reachability(double value, double core, double other_core) {
    double larger = core < other_core ? other_core : core;
    return value < larger ? larger : value;
}
