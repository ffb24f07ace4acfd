// Matchings of racks one after another, each nearly of maximum weight: the heaviest pair first,
// then swaps that weigh more. Python does the same (optics/swapped.py), to the last bit.
//
//     a   x        a - x
//     |   |   ->               a pair weighs what it wants over the circuits it has and one more,
//     b   y        b - y       and 1 on top where it has none and must be met
//
// Heaviest first without a line of all pairs: each rack asks its heaviest partner who has no
// heavier offer; whoever that one had before asks on (the suitors of Manne and Halappanavar, IPDPS
// 2014). A swap is looked for from racks with heavier pairs than their own: one of the pairs that a
// swap brings is heavier than one of those it takes.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

namespace {

constexpr int32_t kNone = -1;
constexpr int kNoMemory = -1;
constexpr int64_t kMostPlaces = 8;  // of a table of all racks for each pair
constexpr double kRounded = 1e-9;  // far more than sums of a few weights are rounded by

// A pair as one of its racks sees it.
struct Partner {
    double weight;
    int32_t rack;
    int32_t pair;
};

bool before(const Partner& one, const Partner& other) {
    return one.weight != other.weight ? one.weight > other.weight : one.pair < other.pair;
}

constexpr Partner kNobody = {0.0, kNone, kNone};

// What rf_swapped is told.
struct Wishes {
    int64_t racks, pairs, planes, rounds;
    const int64_t *rows, *columns, *region;  // region[plane * racks + rack]: -1 for none
    const double* wanted;  // 1 at most
    double* given;         // circuits that each pair has; counted on
    int64_t until_met;     // pairs that have none come first, and it is over when there are no such
};

class Swaps {
public:
    explicit Swaps(const Wishes& wishes)
        : w_(wishes), weight_(w_.pairs), first_(w_.racks + 1), partners_(2 * w_.pairs),
          mate_(w_.racks), rest_(w_.racks), visited_(w_.racks, 0) {
        if (w_.racks * w_.racks <= kMostPlaces * w_.pairs) table_.resize(w_.racks * w_.racks);
        for (int64_t i = 0; i < w_.pairs; ++i) {
            ++first_[w_.rows[i] + 1];
            ++first_[w_.columns[i] + 1];
            weigh(i);
        }
        std::partial_sum(first_.begin(), first_.end(), first_.begin());
        next_.assign(first_.begin(), first_.end() - 1);
        for (int32_t i = 0; i < w_.pairs; ++i) {
            const auto row = static_cast<int32_t>(w_.rows[i]);
            const auto column = static_cast<int32_t>(w_.columns[i]);
            partners_[next_[row]++] = {weight_[i], column, i};
            partners_[next_[column]++] = {weight_[i], row, i};
        }
        for (int64_t rack = 0; rack < w_.racks; ++rack) {
            const auto begin = partners_.begin();
            std::sort(begin + first_[rack], begin + first_[rack + 1], before);
        }
    }

    // How many rounds there are; mates[(round * planes + plane) * racks + rack]: who a rack is
    // joined to, -1 for nobody.
    int64_t run(int64_t* mates) {
        for (int64_t round = 0; round < w_.rounds; ++round) {
            if (w_.until_met && all_met()) return round;
            for (int64_t plane = 0; plane < w_.planes; ++plane) {
                region_ = w_.region + plane * w_.racks;
                whole_ = std::all_of(region_, region_ + w_.racks, [this](int64_t region) {
                    return region >= 0 && region == region_[0];
                });
                take_heaviest();
                for (int32_t rack = 0; rack < w_.racks; ++rack) swap_best(rack);
                for (const Partner& mate : mate_) *mates++ = mate.rack;
                count();
            }
        }
        return w_.rounds;
    }

private:
    const Wishes& w_;
    std::vector<double> weight_;     // [pair]
    std::vector<int64_t> first_;     // partners_[first_[rack]:first_[rack + 1]] are a rack's
    std::vector<Partner> partners_;  // the heaviest first
    std::vector<int64_t> next_;      // [rack]: the next partner to ask
    std::vector<Partner> mate_;      // [rack]: who it is joined to, or has the best offer of
    std::vector<double> table_;      // [rack, rack]: what they weigh; empty for few pairs
    std::vector<double> rest_;       // [rack]: that for one that a swap leaves, without table_
    std::vector<int64_t> visited_;   // [rack]: for which of all racks so looked at
    int64_t visit_ = 0;
    const int64_t* region_ = nullptr;  // [rack], of the present plane
    bool whole_ = false;               // whether that joins every two racks

    void weigh(int64_t i) {
        const double first = w_.until_met && w_.given[i] == 0 ? 1.0 : 0.0;
        weight_[i] = w_.wanted[i] / (w_.given[i] + 1) + first;
        if (table_.empty()) return;
        const int64_t row = w_.rows[i], column = w_.columns[i];
        table_[row * w_.racks + column] = table_[column * w_.racks + row] = weight_[i];
    }

    bool all_met() const {
        return std::none_of(w_.given, w_.given + w_.pairs, [](double n) { return n == 0; });
    }

    bool open(int64_t one, int64_t other) const {
        return whole_ || (region_[one] >= 0 && region_[one] == region_[other]);
    }

    void take_heaviest() {
        std::fill(mate_.begin(), mate_.end(), kNobody);
        next_.assign(first_.begin(), first_.end() - 1);
        for (int32_t rack = 0; rack < w_.racks; ++rack) {
            for (int32_t asking = rack; asking != kNone;) asking = ask(asking);
        }
    }

    // A rack asks the next partner who likes that better than all before; who is to ask on.
    int32_t ask(int32_t rack) {
        while (next_[rack] < first_[rack + 1]) {
            const Partner& other = partners_[next_[rack]++];
            Partner& offer = mate_[other.rack];
            if (!open(rack, other.rack)) continue;
            if (offer.rack != kNone && !before(other, offer)) continue;
            const int32_t put_off = offer.rack;
            offer = {other.weight, rack, other.pair};
            return put_off;
        }
        return kNone;
    }

    void swap_best(int32_t rack) {
        const Partner mine = mate_[rack];
        const auto begin = partners_.begin() + first_[rack];
        const auto end = partners_.begin() + first_[rack + 1];
        if (begin == end || begin->weight <= mine.weight) return;
        if (table_.empty()) set_rest(rack);
        double most = 0.0;
        Partner best = kNobody;
        for (auto other = begin; other != end && other->weight > mine.weight; ++other) {
            if (!open(rack, other->rack)) continue;
            const Partner& theirs = mate_[other->rack];
            const double left = between(mine.rack, theirs.rack);
            const double gain = other->weight + left - (mine.weight + theirs.weight);
            if (gain <= most) continue;
            most = gain;
            best = *other;
        }
        if (best.rack == kNone) return;
        const int32_t one = mine.rack, other = mate_[best.rack].rack;
        const bool rest = between(one, other) > 0.0;
        if (one != kNone) mate_[one] = kNobody;
        if (other != kNone) mate_[other] = kNobody;
        join(rack, best);
        if (rest) join(one, seen_from(one, other));
    }

    // What two racks weigh that a swap leaves, 0 where they cannot be joined.
    double between(int32_t one, int32_t other) const {
        if (one == kNone || other == kNone) return 0.0;
        if (table_.empty()) return visited_[other] == visit_ ? rest_[other] : 0.0;
        return open(one, other) ? table_[one * w_.racks + other] : 0.0;
    }

    const Partner& seen_from(int32_t one, int32_t other) const {
        return *std::find_if(partners_.begin() + first_[one], partners_.begin() + first_[one + 1],
                             [&](const Partner& partner) { return partner.rack == other; });
    }

    void join(int32_t rack, const Partner& other) {
        mate_[rack] = other;
        mate_[other.rack] = {other.weight, rack, other.pair};
    }

    // Looks up what a rack's partner weighs with others, as far as a swap could gain by it: what is
    // lighter makes up for no pair; a little less is asked for than what was rounded.
    void set_rest(int32_t rack) {
        ++visit_;
        const Partner& mine = mate_[rack];
        if (mine.rack == kNone) return;
        double nearest = std::numeric_limits<double>::lowest();  // a pair to what it takes there
        auto other = partners_.begin() + first_[rack];
        const double rounded = kRounded * other->weight;
        for (const auto end = partners_.begin() + first_[rack + 1];
             other != end && other->weight > mine.weight; ++other) {
            if (!open(rack, other->rack)) continue;
            nearest = std::max(nearest, other->weight - mate_[other->rack].weight);
        }
        const double least = mine.weight - nearest - rounded;
        const int64_t end = first_[mine.rack + 1];
        for (int64_t i = first_[mine.rack]; i < end && partners_[i].weight > least; ++i) {
            if (!open(mine.rack, partners_[i].rack)) continue;
            rest_[partners_[i].rack] = partners_[i].weight;
            visited_[partners_[i].rack] = visit_;
        }
    }

    // Counts the pairs that are joined; each rack's partner goes back to where it stands now.
    void count() {
        for (int32_t rack = 0; rack < w_.racks; ++rack) {
            const auto [_, other, pair] = mate_[rack];
            if (other < rack) continue;
            const double was = weight_[pair];
            w_.given[pair] += 1;
            weigh(pair);
            move_back(rack, {was, other, pair});
            move_back(other, {was, rack, pair});
        }
    }

    void move_back(int32_t rack, const Partner& was) {
        const auto end = partners_.begin() + first_[rack + 1];
        const auto at = std::lower_bound(partners_.begin() + first_[rack], end, was, before);
        Partner moved = was;
        moved.weight = weight_[was.pair];
        const auto to = std::lower_bound(at + 1, end, moved, before);
        std::copy(at + 1, to, at);
        *(to - 1) = moved;
    }
};

}  // namespace

extern "C" {

// How many rounds of matchings there are, a matching for each plane; see `Swaps::run`. Or
// kNoMemory.
int64_t rf_swapped(const Wishes* wishes, int64_t* mates) {
    try {
        return Swaps(*wishes).run(mates);
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
}

}  // extern "C"
