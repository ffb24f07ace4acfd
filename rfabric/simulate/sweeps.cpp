// Passes over the rows of a trace, each row after all that it waits for: what trace/model.py does
// level by level, to the last bit, in one pass.

#include <algorithm>
#include <cstdint>
#include <limits>

namespace {

// What rows wait for: row i for after[offsets[i]] up to after[offsets[i + 1]].
struct Waits {
    int64_t rows;
    const int32_t* line;  // the rows, each behind all that it waits for; null where they stand so
    const int64_t* offsets;
    const int32_t* after;

    // Calls use(row, begin, end) for every row, with what it waits for.
    template <class Use>
    void sweep(Use use) const {
        for (int64_t i = 0; i < rows; ++i) {
            const int64_t row = line ? line[i] : i;
            use(row, after + offsets[row], after + offsets[row + 1]);
        }
    }
};

// The larger of two; as with numpy, what is no number stays.
double larger(double a, double b) {
    return a >= b || a != a ? a : b;
}

constexpr int64_t kNone = -1;
constexpr int64_t kLow = 0xFFFFFFFF;  // of a depth behind the number it belongs to

}  // namespace

extern "C" {

// When each row is ready, and done `spent` after it began; rows of another phase are done
// `elsewhere`, where that is told (and the phases; null where it is not).
void rf_pass_times(const Waits* waits, const double* start, const double* gap, const double* spent,
              const int64_t* phase, const double* elsewhere, double* ready, double* finish) {
    waits->sweep([&](int64_t row, const int32_t* begin, const int32_t* end) {
        double last = begin == end ? start[row] : -std::numeric_limits<double>::infinity();
        for (const int32_t* one = begin; one != end; ++one) {
            const bool away = elsewhere && phase[*one] != phase[row];
            last = larger(last, away ? elsewhere[*one] : finish[*one]);
        }
        ready[row] = last;
        finish[row] = larger(start[row], last + gap[row]) + spent[row];
    });
}

// The largest of the numbers of all rows that each waits for, at any remove.
void rf_pass_latest(const Waits* waits, const int64_t* numbers, int64_t* latest) {
    waits->sweep([&](int64_t row, const int32_t* begin, const int32_t* end) {
        int64_t most = kNone;
        for (const int32_t* one = begin; one != end; ++one) {
            most = std::max({most, latest[*one], numbers[*one]});
        }
        latest[row] = most;
    });
}

// How many of its own number wait one for the other before each row; `carried` is scratch: the
// largest number up to each, and how many of it.
void rf_pass_depths(const Waits* waits, const int64_t* numbers, int64_t* carried, int64_t* depths) {
    waits->sweep([&](int64_t row, const int32_t* begin, const int32_t* end) {
        const int64_t own = numbers[row];
        int64_t depth = 0, most = kNone;
        for (const int32_t* one = begin; one != end; ++one) {
            const int64_t before = carried[*one];
            if (before >> 32 == own) depth = std::max(depth, before & kLow);
            most = std::max(most, before);
        }
        depths[row] = depth;
        carried[row] = own >= 0 ? (own << 32 | (depth + 1)) : most;
    });
}

}  // extern "C"
