// Which core OCS carries which pair of pods: what optics/cores.py does in Python, pair for pair.

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace {

constexpr int32_t kNone = -1;
constexpr int kTooMany = 1;
constexpr int kNoMemory = -1;

// A pair of pods, turned: from ends[0] to ends[1].
struct Edge {
    int32_t ends[2];
};

class Dealing {
public:
    Dealing(int64_t pods, int64_t pairs, const int64_t* one, const int64_t* other, int64_t colours)
        : pods_(pods), pairs_(pairs), colours_(colours), colour_(pairs),
          used_(2 * pods * colours, kNone) {
        for (int64_t i = 0; i < pairs; ++i) {
            edges_.push_back({{static_cast<int32_t>(one[i]), static_cast<int32_t>(other[i])}});
        }
        orient();
    }

    // Whether there is a colour for each edge: none twice out of a pod, none twice into one.
    bool colour() {
        for (int32_t i = 0; i < pairs_; ++i) {
            const auto [from, into] = edges_[i].ends;
            const int64_t out = free(0, from), in = free(1, into);
            if (out == colours_ || in == colours_) return false;
            if (edge(1, into, out) != kNone) flip(into, out, in);
            colour_[i] = out;
            edge(0, from, out) = edge(1, into, out) = i;
        }
        return true;
    }

    const std::vector<int64_t>& colours() const { return colour_; }

private:
    int64_t pods_, pairs_, colours_;
    std::vector<Edge> edges_;
    std::vector<int64_t> colour_;  // [pair]
    std::vector<int32_t> used_;    // see `edge`
    std::vector<int32_t> chain_;

    // The edge of a colour out of a pod (side 0), or into it (side 1).
    int32_t& edge(int side, int64_t pod, int64_t colour) {
        return used_[(side * pods_ + pod) * colours_ + colour];
    }

    // The first colour that is free there; `colours_` where none is.
    int64_t free(int side, int64_t pod) {
        const int32_t* first = &edge(side, pod, 0);
        return std::find(first, first + colours_, kNone) - first;
    }

    // Turns the edges so that every pod is left and entered equally often, give or take one.
    void orient() {
        even_out();
        std::vector<int64_t> first(pods_ + 1);
        for (const Edge& edge : edges_) {
            for (const int32_t pod : edge.ends) ++first[pod + 1];
        }
        std::partial_sum(first.begin(), first.end(), first.begin());
        std::vector<int64_t> end(first.begin(), first.end() - 1);
        std::vector<int32_t> at(2 * edges_.size());
        for (size_t i = 0; i < edges_.size(); ++i) {
            for (const int32_t pod : edges_[i].ends) at[end[pod]++] = static_cast<int32_t>(i);
        }
        std::vector<bool> oriented(edges_.size());
        for (int64_t start = 0; start < pods_; ++start) {
            for (int64_t here = start; end[here] > first[here];) {
                const int32_t i = at[--end[here]];
                if (oriented[i]) continue;
                oriented[i] = true;
                auto& ends = edges_[i].ends;
                if (ends[0] != here) std::swap(ends[0], ends[1]);
                here = ends[1];
            }
        }
        edges_.resize(pairs_);
    }

    // Adds pairs of the pods that stand in an odd number of pairs.
    void even_out() {
        std::vector<int64_t> count(pods_);
        for (const Edge& edge : edges_) {
            for (const int32_t pod : edge.ends) ++count[pod];
        }
        int32_t odd = kNone;
        for (int32_t pod = 0; pod < pods_; ++pod) {
            if (count[pod] % 2 == 0) continue;
            if (odd == kNone) {
                odd = pod;
            } else {
                edges_.push_back({{std::exchange(odd, kNone), pod}});
            }
        }
    }

    // Swaps two colours along the chain that begins with the edge of colour `one` into a pod where
    // `other` is free.
    void flip(int64_t pod, int64_t one, int64_t other) {
        chain_.clear();
        int side = 1;
        int64_t want = one;
        for (int32_t next; (next = edge(side, pod, want)) != kNone;) {
            chain_.push_back(next);
            side = 1 - side;
            want = want == one ? other : one;
            pod = edges_[next].ends[side];
        }
        for (const int32_t i : chain_) mark(i, kNone);
        for (const int32_t i : chain_) {
            colour_[i] = colour_[i] == one ? other : one;
            mark(i, i);
        }
    }

    void mark(int32_t i, int32_t as) {
        for (const int side : {0, 1}) edge(side, edges_[i].ends[side], colour_[i]) = as;
    }
};

}  // namespace

extern "C" {

// The colour of each pair of `pods` pods, one[i] and other[i]; 0, kTooMany where a pod stands in
// more than twice as many pairs as there are colours, or kNoMemory.
int rf_deal(int64_t pods, int64_t pairs, const int64_t* one, const int64_t* other, int64_t colours,
            int64_t* colour) {
    try {
        Dealing dealing(pods, pairs, one, other, colours);
        if (!dealing.colour()) return kTooMany;
        std::copy(dealing.colours().begin(), dealing.colours().end(), colour);
        return 0;
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
}

}  // extern "C"
