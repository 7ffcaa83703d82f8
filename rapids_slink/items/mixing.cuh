// Mixes the bits of a number as SplitMix64 does (Steele, Lea and Flood, 2014), and as `mixed` of cpu.py does.
#pragma once

__device__ unsigned long long mixed(unsigned long long h) {
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ h >> 27) * 0x94d049bb133111ebull;
    return h ^ h >> 31;
}
