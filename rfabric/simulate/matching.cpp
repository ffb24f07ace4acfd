// A matching of maximum weight in any graph: Edmonds' algorithm (Paths, trees, and flowers, 1965;
// with weights: J. Res. Nat. Bur. Standards 69B), with prices, as in Galil's survey (Efficient
// algorithms for finding maximum matching in graphs, ACM Comput. Surv. 18, 1986).
//
//     price[a] + price[b] + prices of blossoms that hold both >= weight      of every edge (a, b)
//     ... = weight: the edge is tight                                        of every edge matched
//     price = 0                                                              of racks left alone
//
// Together they say that no matching weighs more. The first two hold at any time; in the end the
// third does, too. From every rack that is alone at a price a tree of tight edges grows, in which
// racks are outer (an even number of edges away) or inner. Prices of outer racks fall and those of
// inner ones rise, at one pace in all trees, until one of these happens:
//
//     an edge is tight from an outer rack to one beyond the trees: that joins the tree, with its
//         mate; where it is alone, the path to it is matched anew, and the tree is gone
//     an edge is tight between outer racks of two trees: the path is matched anew, both are gone
//     one of a single tree: the odd cycle is taken together as a blossom, outer
//     the price of an inner blossom is 0: its parts stand for themselves again
//     the price of an outer rack is 0: it is left alone in place of the root, and the tree is gone
//
// All that may happen waits in one heap, by how far prices will have moved.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace {

constexpr int32_t kNone = -1;
constexpr int kNoMemory = -1;
constexpr int64_t kNever = int64_t{1} << 61;  // twice as much is a number, too

// Prices are whole numbers of quarters of a weight: where trees meet, what is left is halved. It is
// even: prices of racks alone are even in the beginning, and tight edges pass that on.
constexpr int64_t kFine = 4;

// Two ends of an edge stand side by side: end `e` of edge e / 2 is a way from at(e ^ 1) to at(e).
using End = int32_t;

enum class Side : int8_t { beyond, outer, inner };

enum class Kind : int8_t { reaches, meets, opens, free };

// An edge leads from an outer rack beyond the trees, or to another outer one; an inner blossom's
// price is 0, or an outer rack's.
struct Event {
    int64_t moved;  // how far prices have moved when it happens
    int32_t what;   // the way along the edge, the blossom or the rack
    Kind kind;
};

bool later(const Event& one, const Event& other) {
    return one.moved > other.moved;
}

// An edge as its one end sees it.
struct Way {
    int64_t weight;
    int32_t to;
    End end;
};

// Several racks, an odd cycle of parts: racks or blossoms again. way[i] leads from part i to the
// one after it; the first part holds the base, which alone may be matched to what is outside.
struct Blossom {
    std::vector<int32_t> parts;
    std::vector<End> way;
    int64_t price = 0;  // outer or inner: without what prices moved since
};

class Matching {
public:
    Matching(int32_t racks, int64_t edges, const int64_t* rows, const int64_t* columns,
             const int64_t* weight)
        : racks_(racks), at_(2 * edges), weight_(weight), first_(racks + 1), ways_(2 * edges),
          price_(racks), mate_(racks, kNone), top_(racks), blossoms_(racks),
          side_(2 * racks, Side::beyond), within_(2 * racks, kNone), base_(2 * racks),
          entered_(2 * racks, kNone), root_(2 * racks, kNone), seen_(2 * racks, 0), trees_(racks),
          lowest_(racks, kNever), near_(racks, kNever) {
        for (int64_t edge = 0; edge < edges; ++edge) {
            at_[2 * edge] = static_cast<int32_t>(rows[edge]);
            at_[2 * edge + 1] = static_cast<int32_t>(columns[edge]);
            ++first_[rows[edge] + 1];
            ++first_[columns[edge] + 1];
        }
        for (int32_t rack = 0; rack < racks; ++rack) first_[rack + 1] += first_[rack];
        std::vector<int64_t> next(first_.begin(), first_.end() - 1);
        for (End e = 0; e < static_cast<End>(at_.size()); ++e) {
            ways_[next[at_[e ^ 1]]++] = {kFine * weight[e / 2], at_[e], e};
        }
        for (int32_t rack = 0; rack < racks; ++rack) top_[rack] = base_[rack] = rack;
        for (int32_t id = 2 * racks - 1; id >= racks; --id) unused_.push_back(id);
    }

    void run() {
        take_tight();
        for (int32_t rack = 0; rack < racks_; ++rack) {
            if (mate_[rack] == kNone && price_[rack] > 0) make_outer(rack, rack);
        }
        for (look_around(); !events_.empty(); look_around()) happen();
    }

    // Whether an edge is in the matching.
    bool holds(int64_t edge) const { return mate_[at_[2 * edge]] == 2 * edge + 1; }

private:
    const int32_t racks_;
    std::vector<int32_t> at_;     // [end]
    const int64_t* weight_;       // [edge]: as told
    std::vector<int64_t> first_;  // ways_[first_[rack]:first_[rack + 1]] lead from a rack
    std::vector<Way> ways_;
    std::vector<int64_t> price_;  // [rack]: outer or inner: without what prices moved since
    std::vector<End> mate_;       // [rack]: the way to the one it is matched to

    // [rack or blossom; blossoms count from racks_ on]
    std::vector<int32_t> top_;     // [rack]: the largest that holds it
    std::vector<Blossom> blossoms_;
    std::vector<int32_t> unused_;
    std::vector<Side> side_;       // of racks, and of blossoms that no other holds
    std::vector<int32_t> within_;  // the blossom it is a part of
    std::vector<int32_t> base_;
    std::vector<End> entered_;     // inner: the way by which the tree came
    std::vector<int32_t> root_;    // of the tree it is in
    std::vector<int64_t> seen_;    // in which search, last
    int64_t seeking_ = 0;

    std::vector<std::vector<int32_t>> trees_;  // [root]: the racks that came to it
    std::vector<int64_t> lowest_;              // [root]: when the price of an outer rack is 0
    std::vector<int64_t> near_;                // [rack]: when the trees reach it from beyond
    std::vector<int32_t> fresh_;               // outer racks still to be looked around
    std::vector<Event> events_;                // a heap
    int64_t moved_ = 0;

    Blossom& blossom(int32_t id) { return blossoms_[id - racks_]; }

    template <class Use>
    void racks_of(int32_t id, Use use) {
        if (id < racks_) return use(id);
        for (const int32_t part : blossom(id).parts) racks_of(part, use);
    }

    template <class Use>
    void ways_from(int32_t rack, Use use) const {
        for (int64_t i = first_[rack]; i < first_[rack + 1]; ++i) use(ways_[i]);
    }

    // What an edge is short of being tight: of an outer rack and one beyond the trees, how far
    // prices will have moved when it is; of two outer ones, twice as far.
    int64_t slack(End e) const {
        return price_[at_[e]] + price_[at_[e ^ 1]] - kFine * weight_[e / 2];
    }

    // The heaviest edges first: of each rack the edge by which it is matched then, or none. Each
    // asks its heaviest partner who has no heavier offer; whoever that one had before asks on.
    std::vector<End> offers() const {
        std::vector<End> offer(racks_, kNone);  // [rack]: the way to it from who asked
        const auto heavier = [&](End one, End other) {
            if (other == kNone) return true;
            const int64_t a = weight_[one / 2], b = weight_[other / 2];
            return a != b ? a > b : one / 2 < other / 2;
        };
        for (int32_t rack = 0; rack < racks_; ++rack) {
            for (int32_t asking = rack; asking != kNone;) {
                End best = kNone;
                ways_from(asking, [&](const Way& way) {
                    if (heavier(way.end, offer[way.to]) && heavier(way.end, best)) best = way.end;
                });
                if (best == kNone) break;
                const End before = std::exchange(offer[at_[best]], best);
                asking = before == kNone ? kNone : at_[before ^ 1];
            }
        }
        return offer;
    }

    // Half of a rack's heaviest edge. Near what is right where all want each other alike.
    std::vector<int64_t> halves() const {
        std::vector<int64_t> price(racks_, 0);
        for (const Way& way : ways_) price[way.to] = std::max(price[way.to], way.weight / 2);
        return price;
    }

    // Of every edge one end has an offer no lighter: with half of the other end's offer it makes up
    // the edge. So racks that all want dearly cost most of it, and those who want them little.
    std::vector<int64_t> by_offers() const {
        std::vector<int64_t> half(racks_, 0);
        const std::vector<End> offer = offers();
        for (int32_t rack = 0; rack < racks_; ++rack) {
            if (offer[rack] != kNone) half[rack] = kFine / 2 * weight_[offer[rack] / 2];
        }
        std::vector<int64_t> price = half;
        for (int32_t rack = 0; rack < racks_; ++rack) {
            ways_from(rack, [&](const Way& way) {
                if (half[way.to] > half[rack]) return;
                price[rack] = std::max(price[rack], way.weight - half[way.to]);
            });
        }
        return price;
    }

    // What is left of prices when each rack's in turn is as low as its edges allow.
    int64_t lowered(std::vector<int64_t> price) const {
        int64_t sum = 0;
        for (int32_t rack = 0; rack < racks_; ++rack) {
            price[rack] = 0;
            ways_from(rack, [&](const Way& way) {
                price[rack] = std::max(price[rack], way.weight - price[way.to]);
            });
            sum += price[rack];
        }
        return sum;
    }

    // Prices as low as what stands before allows, and edges matched that are tight between two
    // racks still alone. They begin with those of two that come to less: in the end prices add up
    // to the weight of the matching, so there is less to go.
    void take_tight() {
        price_ = halves();
        if (auto other = by_offers(); lowered(other) < lowered(price_)) price_ = std::move(other);
        for (int32_t rack = 0; rack < racks_; ++rack) {
            if (mate_[rack] != kNone) continue;
            int64_t least = 0;
            End best = kNone;
            ways_from(rack, [&](const Way& way) {
                const int64_t needs = way.weight - price_[way.to];
                const bool alone = mate_[way.to] == kNone;
                if (needs > least || (needs == least && best == kNone && alone)) {
                    least = needs;
                    best = alone ? way.end : kNone;
                }
            });
            price_[rack] = least;
            if (best != kNone) match(best);
        }
    }

    void match(End e) {
        mate_[at_[e ^ 1]] = e;
        mate_[at_[e]] = e ^ 1;
    }

    // --- trees -----------------------------------------------------------------------------------

    // Outer from now on: prices in it fall as others move.
    void make_outer(int32_t id, int32_t root) {
        side_[id] = Side::outer;
        root_[id] = root;
        if (id >= racks_) blossom(id).price -= 2 * moved_;
        racks_of(id, [&](int32_t rack) {
            side_[rack] = Side::outer;
            trees_[root].push_back(rack);
            add_outer(rack, moved_, root);
        });
    }

    void add_outer(int32_t rack, int64_t more, int32_t root) {
        price_[rack] += more;
        fresh_.push_back(rack);
        if (price_[rack] < lowest_[root]) {
            lowest_[root] = price_[rack];
            push(price_[rack], rack, Kind::free);
        }
    }

    void make_inner(int32_t id, End entered, int32_t root) {
        side_[id] = Side::inner;
        root_[id] = root;
        entered_[id] = entered;
        if (id >= racks_) {
            blossom(id).price += 2 * moved_;
            push(blossom(id).price / 2, id, Kind::opens);
        }
        racks_of(id, [&](int32_t rack) {
            side_[rack] = Side::inner;
            trees_[root].push_back(rack);
            price_[rack] -= moved_;
        });
    }

    void push(int64_t moved, int32_t what, Kind kind) {
        events_.push_back({moved, what, kind});
        std::push_heap(events_.begin(), events_.end(), later);
    }

    void look_around() {
        while (!fresh_.empty()) {
            const int32_t rack = fresh_.back();
            fresh_.pop_back();
            if (side_[rack] != Side::outer) continue;
            ways_from(rack, [&](const Way& way) {
                if (side_[way.to] == Side::beyond) look_beyond(rack, way.to, way.weight, way.end);
            });
            look_among_outer(rack);
        }
    }

    // From an outer rack to one beyond the trees, of which the nearest way alone counts.
    void look_beyond(int32_t outer, int32_t rack, int64_t weight, End e) {
        const int64_t when = price_[outer] + price_[rack] - weight;
        if (when >= near_[rack] || when > lowest_[root_[top_[outer]]]) return;
        near_[rack] = when;
        push(when, e, Kind::reaches);
    }

    // From an outer rack to another: what is tight next; when that happened, it is asked again.
    void look_among_outer(int32_t rack) {
        const int32_t here = top_[rack];
        int64_t least = 2 * lowest_[root_[here]] + 1;
        End next = kNone;
        ways_from(rack, [&](const Way& way) {
            if (side_[way.to] != Side::outer) return;
            const int64_t apart = price_[rack] + price_[way.to] - way.weight;
            if (apart >= least || top_[way.to] == here) return;
            least = apart;
            next = way.end;
        });
        if (next != kNone) push(least / 2, next, Kind::meets);
    }

    // What the trees may reach of a rack that has left them.
    void look_from(int32_t rack) {
        near_[rack] = kNever;
        ways_from(rack, [&](const Way& way) {
            if (side_[way.to] == Side::outer) look_beyond(way.to, rack, way.weight, way.end ^ 1);
        });
    }

    // What waits next, where it is still so.
    void happen() {
        const Event next = events_.front();
        std::pop_heap(events_.begin(), events_.end(), later);
        events_.pop_back();
        switch (next.kind) {
            case Kind::reaches: return reached(next.moved, next.what);
            case Kind::meets: return met(next.moved, next.what);
            case Kind::opens: return opened(next.moved, next.what);
            case Kind::free: return freed(next.moved, next.what);
        }
    }

    void reached(int64_t moved, End e) {
        const int32_t rack = at_[e];
        if (side_[rack] != Side::beyond || near_[rack] != moved) return;
        if (side_[at_[e ^ 1]] != Side::outer || slack(e) != moved) return look_from(rack);
        moved_ = moved;
        grow(e);
    }

    void met(int64_t moved, End e) {
        const int32_t rack = at_[e ^ 1], here = top_[rack], there = top_[at_[e]];
        if (side_[here] != Side::outer) return;
        if (side_[there] == Side::outer && here != there && slack(e) == 2 * moved) {
            moved_ = moved;
            if (root_[here] != root_[there]) return join(e);
            shrink(e);
        }
        look_among_outer(rack);
    }

    void opened(int64_t moved, int32_t id) {
        if (side_[id] != Side::inner || blossom(id).price != 2 * moved) return;
        moved_ = moved;
        open_inner(id);
    }

    void freed(int64_t moved, int32_t rack) {
        if (side_[rack] != Side::outer || price_[rack] != moved) return;
        moved_ = moved;
        augment(rack, kNone);
        dissolve(root_[top_[rack]]);
    }

    void grow(End e) {
        const int32_t there = top_[at_[e]], root = root_[top_[at_[e ^ 1]]];
        const End on = mate_[base_[there]];
        if (on == kNone) {
            rebase(there, at_[e]);
            mate_[at_[e]] = e ^ 1;
            augment(at_[e ^ 1], e);
            dissolve(root);
            racks_of(there, [&](int32_t rack) { look_from(rack); });
            return;
        }
        make_inner(there, e, root);
        make_outer(top_[at_[on]], root);
    }

    void join(End e) {
        const int32_t one = root_[top_[at_[e ^ 1]]], other = root_[top_[at_[e]]];
        augment(at_[e ^ 1], e);
        augment(at_[e], e ^ 1);
        dissolve(one);
        dissolve(other);
    }

    // Prices as they are, and no longer in a tree.
    void dissolve(int32_t root) {
        const std::vector<int32_t> racks = std::exchange(trees_[root], {});
        for (const int32_t rack : racks) {
            const int32_t id = top_[rack];
            if (side_[id] == Side::beyond || root_[id] != root) continue;
            const int64_t up = side_[id] == Side::inner ? moved_ : -moved_;
            racks_of(id, [&](int32_t one) {
                price_[one] += up;
                side_[one] = Side::beyond;
            });
            if (id >= racks_) blossom(id).price -= 2 * up;
            side_[id] = Side::beyond;
        }
        for (const int32_t rack : racks) {
            if (side_[rack] == Side::beyond) look_from(rack);
        }
    }

    // --- paths -----------------------------------------------------------------------------------

    // Matches an outer rack by way of `e` (none: leaves it alone), and all anew on the path from
    // the root of the tree to it.
    void augment(int32_t rack, End e) {
        while (true) {
            const int32_t outer = top_[rack];
            const End on = mate_[base_[outer]];
            rebase(outer, rack);
            mate_[rack] = e;
            if (on == kNone) return;
            const int32_t inner = top_[at_[on]];
            const End entered = entered_[inner];
            rebase(inner, at_[entered]);
            mate_[at_[entered]] = entered ^ 1;
            rack = at_[entered ^ 1];
            e = entered;
        }
    }

    // Matches the parts of a blossom such that `rack` of it is left over.
    void rebase(int32_t id, int32_t rack) {
        if (id < racks_ || base_[id] == rack) return;
        Blossom& b = blossom(id);
        const int32_t n = static_cast<int32_t>(b.parts.size()), i = place(id, rack);
        rebase(b.parts[i], rack);
        // part 0 was left over, 1 and 2, 3 and 4 and so on were matched
        for (int32_t one = i % 2 ? i + 1 : 0; one != (i % 2 ? n + 1 : i); one += 2) {
            const End way = b.way[one % n];
            rebase(b.parts[one % n], at_[way ^ 1]);
            rebase(b.parts[(one + 1) % n], at_[way]);
            match(way);
        }
        std::rotate(b.parts.begin(), b.parts.begin() + i, b.parts.end());
        std::rotate(b.way.begin(), b.way.begin() + i, b.way.end());
        base_[id] = rack;
    }

    // Which part of a blossom holds a rack.
    int32_t place(int32_t id, int32_t rack) {
        int32_t part = rack;
        while (within_[part] != id) part = within_[part];
        const auto& parts = blossom(id).parts;
        return static_cast<int32_t>(std::find(parts.begin(), parts.end(), part) - parts.begin());
    }

    // --- blossoms --------------------------------------------------------------------------------

    // The next outer one from this one to the root of the tree; none at the root.
    int32_t above(int32_t outer) const {
        const End on = mate_[base_[outer]];
        return on == kNone ? kNone : top_[at_[entered_[top_[at_[on]]] ^ 1]];
    }

    int32_t meeting(int32_t one, int32_t other) {
        ++seeking_;
        while (true) {
            if (one != kNone) {
                if (seen_[one] == seeking_) return one;
                seen_[one] = seeking_;
                one = above(one);
            }
            std::swap(one, other);
        }
    }

    // The odd cycle that an edge between two outer ones closes becomes a blossom.
    void shrink(End e) {
        const int32_t one = top_[at_[e ^ 1]], other = top_[at_[e]], shared = meeting(one, other);
        const int32_t id = unused_.back();
        unused_.pop_back();
        Blossom& b = blossom(id);
        b.parts.assign(1, shared);
        b.way.clear();
        up(one, shared, b);  // turned round: from what both paths share
        std::reverse(b.parts.begin() + 1, b.parts.end());
        std::reverse(b.way.begin(), b.way.end());
        for (End& way : b.way) way ^= 1;
        b.way.push_back(e);
        up(other, shared, b);
        b.price = -2 * moved_;
        base_[id] = base_[shared];
        within_[id] = kNone;
        side_[id] = Side::outer;
        root_[id] = root_[shared];
        for (const int32_t part : b.parts) {
            take_in(part, id);
        }
    }

    // Adds to a blossom what lies on the path from an outer one to `shared`, without that.
    void up(int32_t outer, int32_t shared, Blossom& b) {
        while (outer != shared) {
            const End on = mate_[base_[outer]];
            const int32_t inner = top_[at_[on]];
            const End entered = entered_[inner] ^ 1;
            b.parts.push_back(outer);
            b.way.push_back(on);
            b.parts.push_back(inner);
            b.way.push_back(entered);
            outer = top_[at_[entered]];
        }
    }

    // A part of a new blossom: its own price no longer moves, its racks are outer.
    void take_in(int32_t part, int32_t id) {
        const bool inner = side_[part] == Side::inner;
        racks_of(part, [&](int32_t rack) {
            top_[rack] = id;
            side_[rack] = Side::outer;
            if (inner) add_outer(rack, 2 * moved_, root_[id]);
        });
        within_[part] = id;
        if (part < racks_) return;
        blossom(part).price += inner ? -2 * moved_ : 2 * moved_;
        side_[part] = Side::beyond;
    }

    // The parts of an inner blossom stand for themselves: those on the even way from where the
    // tree came in to the base in the tree, the others beyond it.
    void open_inner(int32_t id) {
        const End entered = entered_[id];
        const int32_t i = place(id, at_[entered]), root = root_[id];
        std::vector<int32_t> parts = std::move(blossom(id).parts);
        std::vector<End> way = std::move(blossom(id).way);
        const int32_t n = static_cast<int32_t>(parts.size());
        for (const int32_t part : parts) {
            within_[part] = kNone;
            racks_of(part, [&](int32_t rack) {
                top_[rack] = part;
                side_[rack] = Side::beyond;
                price_[rack] += moved_;
            });
        }
        side_[id] = Side::beyond;
        unused_.push_back(id);
        // ways from part to part in the direction of the even way
        const int32_t step = i % 2 ? 1 : -1;
        const auto after = [&](int32_t k) { return (k + step + n) % n; };
        const auto leads = [&](int32_t k) { return step > 0 ? way[k] : way[after(k)] ^ 1; };
        std::vector<bool> on_way(n, false);
        on_way[i] = true;
        make_inner(parts[i], entered, root);
        for (int32_t k = i; k != 0;) {
            const int32_t outer = after(k), inner = after(outer);
            on_way[outer] = on_way[inner] = true;
            make_inner(parts[inner], leads(outer), root);
            make_outer(parts[outer], root);
            k = inner;
        }
        for (int32_t k = 0; k < n; ++k) {
            if (!on_way[k]) racks_of(parts[k], [&](int32_t rack) { look_from(rack); });
        }
    }
};

}  // namespace

extern "C" {

// Which edges, of weight[i] from 0 to 2^56 between racks rows[i] and columns[i], are in a matching
// of maximum weight. 0, or kNoMemory.
int rf_matching(int64_t racks, int64_t edges, const int64_t* rows, const int64_t* columns,
                const int64_t* weight, uint8_t* chosen) {
    try {
        Matching m(static_cast<int32_t>(racks), edges, rows, columns, weight);
        m.run();
        for (int64_t edge = 0; edge < edges; ++edge) chosen[edge] = m.holds(edge);
        return 0;
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
}

}  // extern "C"
