// SplitMix64's mixing (Steele, Lea and Flood, 2014): `mixed` of cpu.py.
#pragma once

__device__ unsigned long long mixed(unsigned long long h) {
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ h >> 27) * 0x94d049bb133111ebull;
    return h ^ h >> 31;
}
