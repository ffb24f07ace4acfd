// Edges of a graph dealt evenly at every vertex: what routing/colouring.py does, in one pass, with
// the same answer.

#include <algorithm>
#include <cstdint>

namespace {

constexpr int64_t kNone = -1;
constexpr uint8_t kUnseen = 2;

}  // namespace

extern "C" {

// Pairs n edges in their order (`rest`) as alike as can be: by part and `depth` columns, from
// rows[edge * depth] on; those left over without the last column, and so on; in the end whatever
// they are. mate[edge]: its own where it is not in `rest`; mate[edges], of `edges` in all: that of
// one left over. `open` has room for depth + 2.
void rf_mates(int64_t n, const int64_t* rest, int64_t edges, int64_t depth, const int64_t* part,
              const int64_t* rows, int64_t* open, int64_t* mate) {
    for (int64_t i = 0; i <= edges; ++i) mate[i] = i;
    std::fill(open, open + depth + 2, kNone);
    const auto meet = [&](int64_t level, int64_t edge) {
        const int64_t other = open[level];
        open[level] = other == kNone ? edge : kNone;
        if (other != kNone) mate[other] = edge, mate[edge] = other;
    };
    // what is open at levels beyond `level` waits one column up
    const auto close = [&](int64_t level) {
        for (int64_t at = depth + 1; at > level; --at) {
            const int64_t edge = open[at];
            open[at] = kNone;
            if (edge != kNone) meet(at - 1, edge);
        }
    };
    for (int64_t i = 0; i < n; ++i) {
        if (i) {
            const int64_t *mine = rows + rest[i] * depth, *before = rows + rest[i - 1] * depth;
            const bool together = part[rest[i]] == part[rest[i - 1]];
            close(together ? 1 + (std::mismatch(mine, mine + depth, before).first - mine) : 0);
        }
        meet(depth + 1, rest[i]);
    }
    close(0);
    if (open[0] != kNone) mate[open[0]] = edges, mate[edges] = open[0];
}

// Every second edge of the rings that mates on either side form (`rf_mates`): half[edge], 0 for the
// lowest of a ring. The last of n is the mate of one left over.
void rf_halves(int64_t n, const int64_t* left, const int64_t* right, uint8_t* half) {
    std::fill(half, half + n, kUnseen);
    for (int64_t edge = 0; edge < n; ++edge) {
        if (half[edge] != kUnseen) continue;
        int64_t at = edge;
        do {
            half[at] = 0;
            half[left[at]] = left[at] != at;
            at = right[left[at]];
        } while (at != edge);
    }
}

}  // extern "C"
