// Rows of unequal length: what routing/rows.py does in arrays, in one pass.

#include <cstdint>
#include <numeric>

extern "C" {

// The numbers from first[i] on, counts[i] of them, row by row.
void rf_spread(int64_t n, const int64_t* first, const int64_t* counts, int64_t* entries) {
    for (int64_t i = 0; i < n; ++i) {
        std::iota(entries, entries + counts[i], first[i]);
        entries += counts[i];
    }
}

}  // extern "C"
