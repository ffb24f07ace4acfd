// Inner loops of ways and placing: what routing/ways.py and routing/placing.py do in arrays, to the
// last bit, in one pass.
//
// Sums run in the order in which numpy adds, and none is contracted or reordered (-std=c++17
// without -ffast-math), so that either way gives the same bytes. Arrays are those of the Python
// side; names too.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace {

constexpr double kBeyond = 1e-6;

// The light paths (arcs) between packet switches, and where each switch stands around each rack.
// Those that lead from one switch to one other at one cost stand side by side, as one *side*.
struct Net {
    int64_t switches, racks;
    const int64_t *first, *ends, *order;  // sides by switch; arcs order[ends[side]] on by side
    const int32_t* leads;                 // of sides, ascending
    const double* step;
    const uint8_t* narrow;  // [rack * switches + row]: the ring; null where there are more rings,
    const uint16_t* wide;   // then here
    const double* cost;     // [ring]
    const uint8_t* kind;    // of sides, by their cost; null where rings must be told apart by costs
    const uint16_t* nearer;  // [ring * kKinds + kind]: where on a cheapest way a side leads to
    static constexpr int64_t kKinds = 256;

    uint16_t ring(int64_t row, int64_t rack) const {
        const int64_t spot = rack * switches + row;
        return narrow ? narrow[spot] : wide[spot];
    }
    // the ring of switches from which no way leads
    uint16_t far() const { return narrow ? 0xFF : 0xFFFF; }

    int64_t width(int64_t side) const { return ends[side + 1] - ends[side]; }

    // Calls use(side) for every side that leaves `row` on a cheapest way to `rack`.
    template <class Use>
    void fitting(int64_t row, int64_t rack, Use use) const {
        const int64_t last = first[row + 1];
        if (kind) {
            const uint8_t *around = narrow + rack * switches, *of = kind;
            const uint16_t* wanted = nearer + kKinds * around[row];
            const int32_t* to = leads;
            for (int64_t side = first[row]; side < last; ++side) {
                if (around[to[side]] == wanted[of[side]]) use(side);
            }
            return;
        }
        const double here = cost[ring(row, rack)];
        if (!std::isfinite(here)) return;
        for (int64_t side = first[row]; side < last; ++side) {
            const double there = cost[ring(leads[side], rack)] + step[side];
            // beside a very slow link a cheap arc the wrong way would be lost in the sum
            if (std::fabs(there - here) <= 1e-6 * step[side] + 1e-15 * here) use(side);
        }
    }
};

// So many bytes at a switch for a rack, `times` times over: side by side light paths lead on to one
// switch.
struct Waiting {
    int32_t row, rack;
    double bytes;
    int64_t times;
};

// Adds up what waits for the same rack at the same switch.
class Sums {
public:
    Sums(int64_t rows, int64_t racks) : first_(rows + 1), held_(racks), there_((racks + 63) / 64) {}

    // Bytes at one spot added up in the order in which they stand; spots by row, then by rack.
    void add_up(std::vector<Waiting>& some) {
        by_row(some);
        some.clear();
        for (size_t row = 0, begin = 0; row + 1 < first_.size(); begin = first_[row++]) {
            if (begin < first_[row]) row_of(static_cast<int32_t>(row), begin, first_[row], some);
        }
    }

private:
    std::vector<size_t> first_;  // where the next of a row goes: in the end, where the row ends
    std::vector<Waiting> room_;
    std::vector<double> held_;     // [rack]
    std::vector<uint64_t> there_;  // of these, a bit for each that counts

    void by_row(const std::vector<Waiting>& some) {
        std::fill(first_.begin(), first_.end(), 0);
        for (const Waiting& one : some) ++first_[one.row + 1];
        for (size_t row = 1; row < first_.size(); ++row) first_[row] += first_[row - 1];
        room_.resize(some.size());
        for (const Waiting& one : some) room_[first_[one.row]++] = one;
    }

    void row_of(int32_t row, size_t begin, size_t end, std::vector<Waiting>& sums) {
        size_t low = there_.size(), high = 0;
        for (size_t i = begin; i < end; ++i) {
            const Waiting& one = room_[i];
            const size_t word = one.rack / 64;
            const uint64_t bit = uint64_t{1} << one.rack % 64;
            if (!(there_[word] & bit)) held_[one.rack] = 0.0;
            there_[word] |= bit;
            for (int64_t k = 0; k < one.times; ++k) held_[one.rack] += one.bytes;
            low = std::min(low, word);
            high = std::max(high, word);
        }
        for (size_t word = low; word <= high; ++word) {
            for (uint64_t bits = there_[word]; bits; bits &= bits - 1) {
                const int32_t rack = static_cast<int32_t>(64 * word) + __builtin_ctzll(bits);
                sums.push_back({row, rack, held_[rack], 1});
            }
            there_[word] = 0;
        }
    }
};

// The sum of a row as numpy's add.reduce forms it: pairwise.
double pairwise(const double* a, int64_t n) {
    double sum = 0.0;
    int64_t i = 0;
    if (n > 128) {
        const int64_t half = n / 2 - n / 2 % 8;
        return pairwise(a, half) + pairwise(a + half, n - half);
    }
    if (n >= 8) {
        double r[8];
        std::copy(a, a + 8, r);
        for (i = 8; i + 8 <= n; i += 8) {
            for (int64_t j = 0; j < 8; ++j) r[j] += a[i + j];
        }
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; ++i) sum += a[i];
    return sum;
}

// What pairs send, kind by kind (CSR first, kind, bytes), and what lies on arcs: load[kind * arcs +
// arc].
struct Sent {
    int64_t arcs;
    const int64_t *first, *kind;
    const double *bytes, *seconds_a_byte;
    double* load;

    // Seconds that `way` costs a pair, its bytes on it; those arcs of `own` (m) have them already.
    // Of its n arcs all from `hops` on are nowhere, and need nothing; `need` has room for n and 8.
    // Endless where it is more than `enough` in any case.
    double cost(int64_t pair, const int64_t* way, int64_t hops, int64_t n, const int64_t* own,
                int64_t m, double* need, double enough) const {
        double total = 0.0;
        std::fill(need + hops, need + std::max<int64_t>(n, 8), 0.0);
        for (int64_t e = first[pair]; e < first[pair + 1]; ++e) {
            const double* held = load + kind[e] * arcs;
            double worst = hops && hops == n ? -std::numeric_limits<double>::infinity() : 0.0;
            for (int64_t i = 0; i < hops; ++i) {
                const bool lies = std::find(own, own + m, way[i]) != own + m;
                need[i] = (held[way[i]] + (lies ? 0.0 : bytes[e])) * seconds_a_byte[way[i]];
                worst = std::max(worst, need[i]);
                if (total + worst > enough) return std::numeric_limits<double>::infinity();
            }
            // of equals the shorter, less used one; nothing is added by what needs nothing
            total += worst + 1e-6 * pairwise(need, hops > 8 ? n : std::min<int64_t>(n, 8));
        }
        return total;
    }
};

// Bundles of several arcs: arcs first[bundle] to first[bundle + 1] of each bundle, the bundle of
// each arc (`bundles`: none); the kinds of each signature (CSR whose, kinds).
struct Wide {
    int64_t bundles, signatures;
    const int64_t *first, *bundle_of, *whose, *kinds;

    // One more than the highest kind.
    int64_t kinds_there() const {
        const int64_t* end = kinds + whose[signatures];
        return end == kinds ? 0 : *std::max_element(kinds, end) + 1;
    }
};

// How many of n places are left without those at the end that hold `nowhere`.
int64_t without_end(const int64_t* some, int64_t n, int64_t nowhere) {
    while (n && some[n - 1] == nowhere) --n;
    return n;
}

// Ways as rows of bundles, filled up with `nowhere`.
struct Padded {
    const int64_t* rows;
    int64_t longest, nowhere;

    const int64_t* begin(int64_t row) const { return rows + row * longest; }
    const int64_t* end(int64_t row) const {
        return begin(row) + without_end(begin(row), longest, nowhere);
    }
};

// The same, close together: few are as long as the longest, and caches hold little.
class Packed {
public:
    Packed(const Padded& ways, int64_t n) : first_{0} {
        for (int64_t row = 0; row < n; ++row) {
            bundles_.insert(bundles_.end(), ways.begin(row), ways.end(row));
            first_.push_back(bundles_.size());
        }
    }
    const int32_t* begin(int64_t row) const { return bundles_.data() + first_[row]; }
    const int32_t* end(int64_t row) const { return begin(row + 1); }

private:
    std::vector<int32_t> bundles_;
    std::vector<size_t> first_;
};

// See `rf_cheapest`; `cost` may be null, where nobody asks for it.
template <class Ways>
void cheapest(const Sent& sent, int64_t n, const int64_t* pairs, const int64_t* signature,
              const int64_t* key, const int64_t* first, const Ways& ways, int64_t longest,
              const int64_t* best, int64_t bundles, const int64_t* now, int64_t m, int64_t* way,
              double* need, double* cost, int64_t* arcs) {
    const int64_t nowhere = bundles - 1;
    for (int64_t i = 0; i < n; ++i) {
        // They lie here and there, in more memory than caches hold: ask early for those of the next
        for (int64_t row = i + 1 < n ? first[key[i + 1]] : 0;
             i + 1 < n && row < first[key[i + 1] + 1]; ++row)
            __builtin_prefetch(ways.begin(row));
        const int64_t pair = pairs[i], *own = now ? now + pair * m : nullptr,
                      *mine = best + signature[pair] * bundles;
        const int64_t held = own ? without_end(own, m, mine[nowhere]) : 0;
        int64_t *taken = arcs + i * longest, least = first[key[i]];
        const bool alone = first[key[i]] + 1 == first[key[i] + 1];
        double lowest = std::numeric_limits<double>::infinity();
        for (int64_t row = least; !(alone && !cost) && row < first[key[i] + 1]; ++row) {
            const auto *over = ways.begin(row), *end = ways.end(row);
            const int64_t hops = end - over;
            for (int64_t hop = 0; hop < hops; ++hop) way[hop] = mine[over[hop]];
            // what lies on arcs is off by roundings: a way is given up only well beyond the best
            const double enough = lowest * (1 + kBeyond);
            const double way_cost = sent.cost(pair, way, hops, longest, own, held, need, enough);
            if (row == first[key[i]] || way_cost < lowest) {
                lowest = way_cost;
                least = row;
            }
        }
        if (cost) cost[i] = lowest;
        const auto *over = ways.begin(least), *end = ways.end(least);
        std::fill(std::transform(over, end, taken, [&](auto bundle) { return mine[bundle]; }),
                  taken + longest, mine[nowhere]);
    }
}

// `rows.mixed` of a number: splitmix64's finaliser.
uint64_t mixed(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

// Of places 0 to n - 1 those `most` that come first by their hash, ascending.
std::vector<int64_t> picked(int64_t n, int64_t most) {
    std::vector<std::pair<uint64_t, int64_t>> order(n);
    for (int64_t i = 0; i < n; ++i) order[i] = {mixed(i), i};
    std::nth_element(order.begin(), order.begin() + most, order.end());
    std::vector<int64_t> places(most);
    for (int64_t i = 0; i < most; ++i) places[i] = order[i].second;
    std::sort(places.begin(), places.end());
    return places;
}

// The cheapest ways of pairs of racks, one pair after another.
class Walks {
public:
    Walks(const Net& net, int64_t most, const int64_t* bundle, int64_t nowhere)
        : net_(net), most_(most), bundle_(bundle), nowhere_(nowhere) {}

    // Those from a switch to a rack, which stands at `end`; returns how many.
    int64_t follow(int64_t row, int64_t rack, int64_t end) {
        const int64_t before = count();
        steps_.assign(1, {kStart, nowhere_, row});
        size_t begin = 0;
        for (int64_t hops = 0; begin < steps_.size(); ++hops) {
            wide_ = std::max(wide_, hops + 1);
            const size_t last = steps_.size();
            for (size_t i = begin; i < last; ++i) {
                if (steps_[i].at == end) arrive(i, hops);
                else onward(i, rack);
            }
            begin = last;
            if (static_cast<int64_t>(steps_.size() - begin) > most_) leave_out(begin);
        }
        return count() - before;
    }

    int64_t count() const { return static_cast<int64_t>(first_.size()) - 1; }
    int64_t wide() const { return wide_; }

    void write(int64_t* rows) const {
        std::fill_n(rows, count() * wide_, nowhere_);
        for (int64_t i = 0; i < count(); ++i, rows += wide_)
            std::copy(bundles_.begin() + first_[i], bundles_.begin() + first_[i + 1], rows);
    }

private:
    struct Step {
        size_t before;  // the step that led to this one's switch
        int64_t bundle, at;
    };
    static constexpr size_t kStart = -1;

    const Net& net_;
    const int64_t most_, *bundle_, nowhere_;
    int64_t wide_ = 0;
    std::vector<size_t> first_{0};  // CSR: the bundles of each way
    std::vector<int64_t> bundles_;
    std::vector<Step> steps_;  // of one pair of racks, hop by hop

    void arrive(size_t step, int64_t hops) {
        const size_t begin = bundles_.size();
        for (bundles_.resize(begin + hops); hops; step = steps_[step].before) {
            const int64_t bundle = steps_[step].bundle;
            if (bundle == nowhere_) return bundles_.resize(begin);
            bundles_[begin + --hops] = bundle;
        }
        first_.push_back(bundles_.size());
    }

    // The switches that lie next, each once, ascending.
    void onward(size_t step, int64_t rack) {
        const size_t mine = steps_.size();
        net_.fitting(steps_[step].at, rack, [&](int64_t side) {
            const int64_t next = net_.leads[side];
            if (steps_.size() == mine || steps_.back().at != next)
                steps_.push_back({step, bundle_[side], next});
        });
    }

    // Of the steps from `begin` on those that the hash picks stay.
    void leave_out(size_t begin) {
        size_t into = begin;
        for (const int64_t place : picked(steps_.size() - begin, most_))
            steps_[into++] = steps_[begin + place];
        steps_.resize(into);
    }
};

}  // namespace

extern "C" {

// Every arc on a cheapest way from row[i] to rack[i], by i, then by port, with its i; returns how
// many.
int64_t rf_fitting(const Net* net, int64_t n, const int64_t* row, const int64_t* rack,
                   int64_t* owner, int64_t* arcs) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t mine = count;
        net->fitting(row[i], rack[i], [&](int64_t side) {
            for (int64_t place = net->ends[side]; place < net->ends[side + 1]; ++place) {
                owner[count] = i;
                arcs[count++] = net->order[place];
            }
        });
        std::sort(arcs + mine, arcs + count);
    }
    return count;
}

// Follows the cheapest ways from row[i] to rack[i], which stands at end[i], switch by switch; of
// those of one i that have as many hops and have not arrived, `most` at most go on. counts[i]: how
// many arrive; a side on them goes by the name bundle[side], and ways on which one is `nowhere`
// are left out. said: how many all are, and how wide rows of them must be. Returns what `rf_walked`
// takes; null without memory.
Walks* rf_walk(const Net* net, int64_t n, const int64_t* row, const int64_t* rack,
               const int64_t* end, int64_t most, const int64_t* bundle, int64_t nowhere,
               int64_t* counts, int64_t* said) try {
    auto walks = std::make_unique<Walks>(*net, most, bundle, nowhere);
    for (int64_t i = 0; i < n; ++i) counts[i] = walks->follow(row[i], rack[i], end[i]);
    said[0] = walks->count();
    said[1] = walks->wide();
    return walks.release();
} catch (const std::bad_alloc&) { return nullptr; }

// Writes the ways of `rf_walk` as rows, filled up with `nowhere`, and lets go of them.
void rf_walked(Walks* walks, int64_t* rows) {
    walks->write(rows);
    delete walks;
}

// Leaves in `front`, sets as rows of so many words, what is not in `seen` yet, and adds it there.
// some[row]: whether a row has any; of a row that has not, `front` is left as
// it is. missing[row]: whether `seen` lacks any of the set `all`; where it does not, none is new.
void rf_fresh(int64_t rows, int64_t words, const uint64_t* all, uint64_t* front, uint64_t* seen,
              bool* some, bool* missing) {
    for (int64_t row = 0; row < rows; ++row, front += words, seen += words) {
        uint64_t any = 0, lacks = 0;
        for (int64_t i = 0; missing[row] && i < words; ++i) {
            front[i] &= ~seen[i];
            seen[i] |= front[i];
            any |= front[i];
            lacks |= all[i] & ~seen[i];
        }
        some[row] = any != 0;
        missing[row] = lacks != 0;
    }
}

// front[rows[i]] |= fresh[l] for every l of leads[first[i]] to leads[first[i + 1]], rows of so many
// words, as far as some[l] and missing[rows[i]] (`rf_fresh`).
void rf_join(int64_t n, const int64_t* rows, const int64_t* first, const int64_t* leads,
             int64_t words, const uint64_t* fresh, const bool* some, const bool* missing,
             uint64_t* front) {
    for (int64_t i = 0; i < n; ++i) {
        if (!missing[rows[i]]) continue;
        uint64_t* into = front + rows[i] * words;
        for (int64_t j = first[i]; j < first[i + 1]; ++j) {
            if (!some[leads[j]]) continue;
            const uint64_t* from = fresh + leads[j] * words;
            for (int64_t word = 0; word < words; ++word) into[word] |= from[word];
        }
    }
}

// Writes `number` to narrow or wide[i * columns + column], the one that is not null, for every
// column in a set, that of row which[i] if it has any: sets[row * words], a bit a column, from the
// lowest of the first byte.
void rf_settle(int64_t n, const int64_t* which, int64_t columns, int64_t words,
               const unsigned char* sets, const bool* some, int64_t number, uint8_t* narrow,
               uint16_t* wide) {
    for (int64_t i = 0; i < n; ++i) {
        if (!some[which[i]]) continue;
        const unsigned char* set = sets + which[i] * words * 8;
        for (int64_t word = 0; word < words; ++word, set += 8) {
            uint64_t whole;  // most are empty or full
            std::memcpy(&whole, set, 8);
            if (!whole) continue;
            const int64_t spot = i * columns + 64 * word;
            if (!~whole && narrow) {
                std::fill(narrow + spot, narrow + spot + 64, static_cast<uint8_t>(number));
                continue;
            }
            for (int64_t byte = 0; byte < 8; ++byte) {
                for (unsigned bits = set[byte]; bits; bits &= bits - 1) {
                    const int64_t place = spot + 8 * byte + __builtin_ctz(bits);
                    if (narrow) narrow[place] = static_cast<uint8_t>(number);
                    else wide[place] = static_cast<uint16_t>(number);
                }
            }
        }
    }
}

// Follows the light that leaves each of n ports, through OCSes that `cross` joins (-1: dark), where
// optical[port]: its cable ends at an OCS. Of those that arrive: the port it leaves from (`out`)
// and ends at (`into`), the slowest rate, and its directed links (CSR offsets, links). Returns how
// many arrive. No two share one of the `most` links, as circuits join ports one to one.
int64_t rf_lights(int64_t n, const int64_t* ports, const bool* optical, const int32_t* cross,
                  const double* rate, int64_t most, int32_t* out, int32_t* into,
                  double* slowest, int64_t* offsets, int32_t* links) {
    int64_t lit = 0, end = 0;
    for (int64_t i = 0; i < n; ++i) {
        int64_t at = end;
        int32_t port = static_cast<int32_t>(ports[i]);
        bool arrived = false;
        slowest[lit] = rate[port];
        while (!arrived && port >= 0 && at < most) {
            slowest[lit] = std::min(slowest[lit], rate[port]);
            links[at++] = port;
            arrived = !optical[port];
            if (!arrived) port = cross[port ^ 1];
        }
        if (!arrived) continue;
        out[lit] = static_cast<int32_t>(ports[i]);
        into[lit] = port ^ 1;
        offsets[lit++] = end;
        end = at;
    }
    offsets[lit] = end;
    return lit;
}

// The ways of one or two bundles from start[i] to end[i]: the straight one first, then those over
// one switch, by bundle; bundles out[row] to out[row + 1] leave a switch, for `leads`, ascending.
// rows: two bundles each, `nowhere` where there is no second; counts[i]: how many. Returns how many
// in all.
int64_t rf_short(int64_t n, const int64_t* start, const int64_t* end, const int64_t* out,
                 const int64_t* leads, int64_t nowhere, int64_t* counts, int64_t* rows) {
    const auto across = [&](int64_t row, int64_t to) {
        const int64_t *last = leads + out[row + 1],
                      *at = std::lower_bound(leads + out[row], last, to);
        return at != last && *at == to ? at - leads : nowhere;
    };
    int64_t all = 0;
    const auto add = [&](int64_t bundle, int64_t on) {
        rows[2 * all] = bundle;
        rows[2 * all++ + 1] = on;
    };
    for (int64_t i = 0; i < n; ++i) {
        const int64_t before = all, straight = across(start[i], end[i]);
        if (straight != nowhere) add(straight, nowhere);
        for (int64_t bundle = out[start[i]]; bundle < out[start[i] + 1]; ++bundle) {
            const int64_t on = bundle == straight ? nowhere : across(leads[bundle], end[i]);
            if (on != nowhere) add(bundle, on);
        }
        counts[i] = all - before;
    }
    return all;
}

// Lists of ways put together: of each key those of rows[list] from first[list][key] to
// first[list][key + 1], rows of longest[list] bundles, list after list; none twice, `most` at most.
// ways: rows of `wide` bundles, filled up with `nowhere`; counts[key]: how many it has. Returns how
// many in all.
int64_t rf_offers(int64_t keys, int64_t lists, const int64_t* const* first,
                  const int64_t* const* rows, const int64_t* longest, int64_t wide,
                  int64_t nowhere, int64_t most, int64_t* counts, int64_t* ways) {
    int64_t all = 0;
    for (int64_t key = 0; key < keys; ++key) {
        const int64_t before = all;
        for (int64_t list = 0; list < lists; ++list) {
            for (int64_t row = first[list][key]; row < first[list][key + 1]; ++row) {
                if (all - before == most) break;
                int64_t* mine = ways + all * wide;
                const int64_t* from = rows[list] + row * longest[list];
                std::fill(std::copy(from, from + longest[list], mine), mine + wide, nowhere);
                int64_t other = before;
                while (!std::equal(mine, mine + wide, ways + other * wide)) ++other;
                if (other == all) ++all;
            }
        }
        counts[key] = all - before;
    }
    return all;
}

// The links of n pairs: link up[i], those of light paths hops[i * longest] on (CSR first, lit; -1:
// none), link down[i]; none of a pair that is not joined[i]. Without `links` only offsets[n + 1] is
// told, with it offsets are known.
void rf_laid(int64_t n, const int64_t* up, const int64_t* down, const bool* joined,
             int64_t longest, const int32_t* hops, const int64_t* first, const int32_t* lit,
             int64_t* offsets, int32_t* links) {
    if (!links) offsets[0] = 0;
    for (int64_t i = 0; i < n; ++i, hops += longest) {
        if (!links) {
            int64_t count = joined[i] ? 2 : 0;
            for (int64_t hop = 0; joined[i] && hop < longest; ++hop)
                if (hops[hop] >= 0) count += first[hops[hop] + 1] - first[hops[hop]];
            offsets[i + 1] = offsets[i] + count;
        } else if (joined[i]) {
            int32_t* to = links + offsets[i];
            *to++ = static_cast<int32_t>(up[i]);
            for (int64_t hop = 0; hop < longest; ++hop)
                if (hops[hop] >= 0)
                    to = std::copy(lit + first[hops[hop]], lit + first[hops[hop] + 1], to);
            *to = static_cast<int32_t>(down[i]);
        }
    }
}

// Adds to load[arc] what n switches send to racks, split evenly over equal ways, from the farthest
// ring inwards; sums are formed in parts of `most` candidates. 0; 1 where no way leads from one of
// them; -1 without memory.
int rf_evenly(const Net* net, int64_t n, const int64_t* row, const int64_t* rack,
              const double* bytes, int64_t most, double* load) try {
    std::vector<std::vector<Waiting>> waiting(net->far() + 1);  // by ring
    int64_t farthest = 0;
    const auto queue = [&](int64_t at, int64_t to, double sent, int64_t times) {
        const int64_t ring = net->ring(at, to);
        if (!ring) return;  // arrived
        farthest = std::max(farthest, ring);
        auto& there = waiting[ring];
        const Waiting one{static_cast<int32_t>(at), static_cast<int32_t>(to), sent, times};
        if (!there.empty() && there.back().row == one.row && there.back().rack == one.rack &&
            there.back().bytes == sent) {
            there.back().times += times;
        } else {
            there.push_back(one);
        }
    };
    for (int64_t i = 0; i < n; ++i) queue(row[i], rack[i], bytes[i], 1);
    if (farthest == net->far()) return 1;
    std::vector<Waiting> some;  // kept from ring to ring: fresh memory is slow
    Sums sums(net->switches, net->racks);
    std::vector<double> part(net->first[net->switches], 0.0);  // by side: its arcs bear the same
    std::vector<int64_t> touched, fits;
    const auto add_part = [&] {
        for (const int64_t side : touched) {
            for (int64_t place = net->ends[side]; place < net->ends[side + 1]; ++place)
                load[net->order[place]] += part[side];
            part[side] = 0.0;
        }
        touched.clear();
    };
    while (farthest > 0) {
        some.clear();
        some.swap(waiting[farthest]);
        if (some.empty()) {
            --farthest;
            continue;
        }
        sums.add_up(some);
        int64_t looked = 0, bound = most;
        for (const Waiting& one : some) {
            const int64_t begin = net->first[one.row], end = net->first[one.row + 1];
            looked += net->ends[end] - net->ends[begin];
            if (looked >= bound) {
                add_part();
                bound = (looked / most + 1) * most;
            }
            fits.clear();
            int64_t count = 0;
            net->fitting(one.row, one.rack, [&](int64_t side) {
                fits.push_back(side);
                count += net->width(side);
            });
            const double share = one.bytes / static_cast<double>(count);
            for (const int64_t side : fits) {
                if (part[side] == 0.0) touched.push_back(side);
                part[side] += share;
                queue(net->leads[side], one.rack, share, net->width(side));
            }
        }
        add_part();
    }
    return 0;
} catch (const std::bad_alloc&) { return -1; }

// Adds to seconds[link] what n flows, ordered by kind, ask of each link: the bytes of a kind there
// over the rate (bit/s). Returns the seconds of their kinds one after another, inf where a flow
// crosses a link beyond the last, -1 without memory.
double rf_asked(int64_t n, const int64_t* first, const int64_t* count, const double* size,
                const int64_t* kind, const int32_t* links, int64_t many, const double* rate,
                double* seconds) try {
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = first[i]; j < first[i] + count[i]; ++j) {
            if (links[j] >= many) return std::numeric_limits<double>::infinity();
        }
    }
    std::vector<double> sent(many, 0.0);
    std::vector<int32_t> used;
    double least = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = first[i]; j < first[i] + count[i]; ++j) {
            if (sent[links[j]] == 0.0) used.push_back(links[j]);
            sent[links[j]] += size[i];
        }
        if (i + 1 < n && kind[i + 1] == kind[i]) continue;
        double longest = 0.0;
        for (const int32_t link : used) {
            const double needs = sent[link] * 8.0 / rate[link];
            seconds[link] += needs;  // nothing where a link of no bytes stands twice
            longest = std::max(longest, needs);
            sent[link] = 0.0;
        }
        least += longest;
        used.clear();
    }
    return least;
} catch (const std::bad_alloc&) { return -1.0; }

// Of each pair the cheapest of the ways offered to it (rows of bundles first[key] to first[key +
// 1]), its arcs the least loaded ones, best[signature * bundles + bundle]; where its bytes lie
// already (`now`, rows of m; or null) they count once. `way` has room for one of the longest ways,
// `need` for 8 more. The last bundle is nowhere.
void rf_cheapest(const Sent* sent, int64_t n, const int64_t* pairs, const int64_t* signature,
                 const int64_t* key, const int64_t* first, const int64_t* rows, int64_t longest,
                 const int64_t* best, int64_t bundles, const int64_t* now, int64_t m, int64_t* way,
                 double* need, double* cost, int64_t* arcs) {
    cheapest(*sent, n, pairs, signature, key, first, Padded{rows, longest, bundles - 1}, longest,
             best, bundles, now, m, way, need, cost, arcs);
}

// Seconds that arcs[i] (rows of `longest`) cost pairs[i], its bytes on them; those arcs of own[i]
// (rows of m) have them already. `need` has room for 8 more than a row.
void rf_cost(const Sent* sent, int64_t n, const int64_t* pairs, const int64_t* arcs,
             int64_t longest, const int64_t* own, int64_t m, double* need, double* cost) {
    const int64_t nowhere = sent->arcs - 1;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t *way = arcs + i * longest, *held = own + i * m;
        cost[i] = sent->cost(pairs[i], way, without_end(way, longest, nowhere), longest, held,
                             without_end(held, m, nowhere), need,
                             std::numeric_limits<double>::infinity());
    }
}

// Adds (or takes away) the bytes of pairs on arcs[i], rows of `longest`.
void rf_lay(const Sent* sent, int64_t n, const int64_t* pairs, const int64_t* arcs, int64_t longest,
            double sign) {
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t e = sent->first[pairs[i]]; e < sent->first[pairs[i] + 1]; ++e) {
            double* held = sent->load + sent->kind[e] * sent->arcs;
            for (int64_t hop = 0; hop < longest; ++hop)
                held[arcs[i * longest + hop]] += sign * sent->bytes[e];
        }
    }
}

// Which rows of arcs hold none that an earlier row holds: free[i]. `taken` has a place for every
// arc, all 0 before and after.
void rf_claims(int64_t n, int64_t longest, const int64_t* arcs, int64_t nowhere, int64_t* taken,
               bool* free) {
    for (int64_t i = 0; i < n * longest; ++i) {
        if (!taken[arcs[i]]) taken[arcs[i]] = i / longest + 1;
    }
    for (int64_t i = 0; i < n; ++i) {
        free[i] = std::all_of(arcs + i * longest, arcs + (i + 1) * longest, [&](int64_t arc) {
            return arc == nowhere || taken[arc] == i + 1;
        });
    }
    for (int64_t i = 0; i < n * longest; ++i) taken[arcs[i]] = 0;
}

// Finds anew the least loaded arc, best[signature * (bundles + 1) + bundle], of those of `wide`
// that stand in `arcs`, rows of n pairs, for the signatures that have a kind these pairs send in.
// 0; -1 without memory.
int rf_least(const Sent* sent, int64_t n, const int64_t* pairs, const int64_t* arcs,
             int64_t longest, const Wide* wide, int64_t* best) try {
    const int64_t bundles = wide->bundles, *first = wide->first;
    std::vector<bool> met(bundles, false), sends(wide->kinds_there(), false);
    std::vector<int64_t> some;
    for (int64_t i = 0; i < n * longest; ++i) {
        const int64_t bundle = wide->bundle_of[arcs[i]];
        if (bundle == bundles || met[bundle] || first[bundle + 1] - first[bundle] == 1) continue;
        met[bundle] = true;
        some.push_back(bundle);
    }
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t e = sent->first[pairs[i]]; e < sent->first[pairs[i] + 1]; ++e)
            sends[sent->kind[e]] = true;
    }
    std::vector<double> held;
    for (int64_t s = 0; s < wide->signatures; ++s) {
        const int64_t *own = wide->kinds + wide->whose[s], *end = wide->kinds + wide->whose[s + 1];
        if (std::none_of(own, end, [&](int64_t kind) { return sends[kind]; })) continue;
        held.resize(end - own);
        for (const int64_t bundle : some) {
            double least = std::numeric_limits<double>::infinity();
            for (int64_t arc = first[bundle]; arc < first[bundle + 1]; ++arc) {
                std::transform(own, end, held.begin(), [&](int64_t kind) {
                    return sent->load[kind * sent->arcs + arc];
                });
                const double needs = pairwise(held.data(), end - own) * sent->seconds_a_byte[arc];
                if (needs < least) least = needs, best[s * (bundles + 1) + bundle] = arc;
            }
        }
    }
    return 0;
} catch (const std::bad_alloc&) { return -1; }

// Places pairs one after another, part by part: those of places order[ends[part]] to
// order[ends[part + 1]] at once, each on the cheapest way of its key (`rf_cheapest`). Of pairs that
// claim an arc (`rf_claims`) the first has it, others wait for the next part, `patience` times at
// most and only where they have another way. arcs[place * longest] on: where each lies. `wide` is
// null where no bundle has several arcs. 0; -1 without memory.
int rf_greedy(const Sent* sent, const Wide* wide, int64_t parts, const int64_t* ends,
              const int64_t* order, int64_t n, const int64_t* pairs, const int64_t* signature,
              const int64_t* key, const int64_t* first, const int64_t* rows, int64_t longest,
              int64_t* best, int64_t bundles, int64_t patience, int64_t* taken,
              int64_t* arcs) try {
    std::vector<int64_t> some, waiting, tried(n, 0), who, asks, way(longest), laid;
    std::vector<double> need(longest + 8);
    const std::unique_ptr<bool[]> free(new bool[n]);
    int64_t keys = 0;
    for (int64_t i = 0; i < n; ++i) keys = std::max(keys, key[i] + 1);
    const Packed ways(Padded{rows, longest, bundles - 1}, first[keys]);
    for (int64_t part = 0; part < parts || !waiting.empty(); ++part) {
        some.swap(waiting);
        waiting.clear();
        if (part < parts) some.insert(some.end(), order + ends[part], order + ends[part + 1]);
        const int64_t all = static_cast<int64_t>(some.size());
        who.resize(all);
        asks.resize(all);
        laid.resize(all * longest);
        for (int64_t i = 0; i < all; ++i) who[i] = pairs[some[i]], asks[i] = key[some[i]];
        cheapest(*sent, all, who.data(), signature, asks.data(), first, ways, longest, best,
                 bundles, nullptr, 0, way.data(), need.data(), nullptr, laid.data());
        rf_claims(all, longest, laid.data(), sent->arcs - 1, taken, free.get());
        int64_t placed = 0;
        for (int64_t i = 0; i < all; ++i) {
            const bool alone = first[asks[i] + 1] - first[asks[i]] == 1;
            if (!free[i] && !alone && tried[some[i]] < patience) {
                ++tried[some[i]];
                waiting.push_back(some[i]);
                continue;
            }
            const int64_t* mine = laid.data() + i * longest;  // at `placed` or after it
            std::copy(mine, mine + longest, arcs + some[i] * longest);
            std::copy(mine, mine + longest, laid.data() + placed * longest);
            who[placed++] = who[i];
        }
        rf_lay(sent, placed, who.data(), laid.data(), longest, 1.0);
        if (wide && rf_least(sent, placed, who.data(), laid.data(), longest, wide, best)) return -1;
    }
    return 0;
} catch (const std::bad_alloc&) { return -1; }

// By what share the busiest arc of each pair (of[pair], rows of `longest`) needs longer than
// limit[kind], in its worst kind.
void rf_lateness(const Sent* sent, int64_t n, const int64_t* pairs, const int64_t* of,
                 int64_t longest, const double* limit, double* late, int64_t* arc) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t pair = pairs[i], *way = of + pair * longest;
        late[i] = -1.0;
        arc[i] = sent->arcs - 1;
        for (int64_t e = sent->first[pair]; longest && e < sent->first[pair + 1]; ++e) {
            const double* held = sent->load + sent->kind[e] * sent->arcs;
            double most = -1.0;
            int64_t at = 0;
            for (int64_t hop = 0; hop < longest; ++hop) {
                const double need =
                    held[way[hop]] * sent->seconds_a_byte[way[hop]] / limit[sent->kind[e]];
                if (need > most) most = need, at = way[hop];
            }
            if (most - 1 >= late[i]) late[i] = most - 1, arc[i] = at;
        }
    }
}

}  // extern "C"
