// The flow engine of rfabric: max-min fair sharing of directed links, event by event, exact.
//
// Every link has a level, infinite where all its flows fit, and a flow runs at the lowest level on its path: that link
// holds it, the others let it pass. Rates are max-min fair if and only if, on every link with a level,
//
//     level * (flows held) + (rates of the flows passing) = capacity,    and no passing flow is faster than the level.
//
// One event moves few levels, so the engine keeps them all and repairs what an event disturbed, lowest level first.
// The sum of the passing rates is kept by differences; so a link whose level rises looks only at the flows it holds,
// one whose level falls at the others only if one of them may now be too fast. Where an event moves much (a collective
// starts or ends) all links are filled anew. Times are seconds, rates bit/s; bytes are kept as bits.
//
// How time passes: run() handles all events of one instant (ends, starts, latencies, zero-size flows, whatever these
// release), then repairs the levels, then moves to the next instant. A flow that starts at the very instant at which
// another one ended on the same path takes over its place and rate: rings cost no repair at all.
//
// Plain C interface at the end of the file. Arrays are checked by inputs.py: an index that arrives here is in range.
// Never compile with -ffast-math: infinities are meant.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace {

constexpr double INF = std::numeric_limits<double>::infinity();
constexpr double NOT_YET = std::numeric_limits<double>::quiet_NaN();
constexpr double SAME_INSTANT = 1e-12;  // events closer than this, relative to the time of day, are one event
constexpr double SAME_LEVEL = 1e-12;    // relative; raised by the tolerance knob
constexpr double SLACK = 1e-11;         // a link this close to full is full but not a bottleneck: ties end here
constexpr uint32_t NONE = UINT32_MAX;
constexpr int64_t BREATH = 4000000;     // flow visits between two returns to Python (signals, progress)

enum State : uint8_t { WAITING, FLYING, TAIL, DONE };  // TAIL: the last byte has left, the latency runs
enum Kind : int8_t { READY, FINISHED };
enum Outcome : int { AT_REST, AT_TIME, WATCHED, BREATHES, NO_MEMORY = -1 };

struct Link {
    double capacity;
    double weight;      // of the flows held
    uint32_t* flows;    // hops (slot << shift | hop): the held ones first
    uint32_t count, held, room;
    uint32_t age;       // balances since its sums were last taken anew
};

// What other links' flows must see of a link; kept apart and small.
struct Gauge {
    double level;
    double load;  // sum of the rates passing
    double peak;  // no passing flow is faster
    double full;  // capacity and a slack: a load up to here fits
};

// A flow in flight; `holder` is the link that holds it, x1 the level there.
struct Slot {
    double x1;
    double rate;  // what it has run at since `since`; x1 may already be ahead of it
    double weight;
    int32_t holder;
    uint16_t hops;
    uint8_t fresh;  // held, but no link has been told of it
    uint8_t flags;
};
static_assert(sizeof(Slot) == 32, "half a cache line");

struct Cargo {
    double left;  // bits at `since`
    double since;
    int32_t flow;
};

struct Ending {
    double key;  // never later than the flow's true end
    uint32_t slot;
};

struct Timer {
    double time;
    int32_t flow;
    int32_t landing;  // 0: the flow starts; 1: its latency is over
    bool operator<(const Timer& o) const {
        return time != o.time ? time < o.time : flow != o.flow ? flow < o.flow : landing < o.landing;
    }
    bool operator>(const Timer& o) const { return o < *this; }
};

struct Event {
    double time;
    int32_t flow;
    int32_t kind;
};

struct Key {
    double value;
    int32_t link;
    bool operator>(const Key& o) const { return value != o.value ? value > o.value : link > o.link; }
};

// What may be counted while the engine runs; bench and the tests read it.
struct Counters {
    int64_t instants = 0, evaluations = 0, changes = 0, fills = 0, visits = 0, takeovers = 0, fallbacks = 0;
};

class Engine {
  public:
    Engine(const double* capacity, int64_t n, double tolerance)
        : same_level(std::max(SAME_LEVEL, tolerance)), links(n), level(n, INF), used_place(n, NONE), queued(n, 0), forced(n, 0),
          carried(n, 0.0), busy(n, 0.0), busy_since(n, 0.0) {
        for (int64_t l = 0; l < n; ++l) links[l] = {capacity[l], 0.0, nullptr, 0, 0};
    }
    ~Engine() {
        for (Link& l : links) std::free(l.flows);
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    double now = 0.0;
    int64_t finished = 0;
    Counters counters;
    std::vector<Event> events;
    std::vector<double> start_time, finish_time;

    int64_t flows() const { return static_cast<int64_t>(state.size()); }

    // ---- what the user may do between two runs ---------------------------------------------------------------------

    void add(int64_t n, const int64_t* path_offsets, const int32_t* path_links, const double* bytes,
             const double* start, const int64_t* after_offsets, const int32_t* after, const double* gaps,
             const double* latencies, const double* weights) {
        const int64_t first = flows(), total = first + n;
        int64_t longest = 1;
        for (int64_t i = 0; i < n; ++i) longest = std::max(longest, path_offsets[i + 1] - path_offsets[i]);
        widen(longest);
        const int64_t base = static_cast<int64_t>(path.size());
        path.insert(path.end(), path_links, path_links + path_offsets[n]);
        for (int64_t i = 0; i < n; ++i) {
            path_at.push_back(base + path_offsets[i]);
            path_length.push_back(static_cast<uint16_t>(path_offsets[i + 1] - path_offsets[i]));
        }
        size.insert(size.end(), bytes, bytes + n);
        earliest.insert(earliest.end(), start, start + n);
        start_time.resize(total, NOT_YET);
        finish_time.resize(total, INF);
        state.resize(total, WAITING);
        watched.resize(total, 0);
        waits.resize(total, 0);
        slot_of.resize(total, NONE);
        column(gap, gaps, first, n, 0.0);
        column(latency, latencies, first, n, 0.0);
        column(weight, weights, first, n, 1.0);
        if (after && after_offsets[n] > 0) depend(first, n, after_offsets, after);
        put_on_agenda(first);
    }

    void watch(int64_t n, const int32_t* flows) {
        for (int64_t i = 0; i < n; ++i) {
            const int32_t f = flows[i];
            if (state[f] < DONE) watched[f] |= 1 << FINISHED;
            if (state[f] > WAITING || watched[f] & 1 << READY) continue;
            watched[f] |= 1 << READY;
            if (!waits[f]) ready_before.push_back(f);
        }
    }

    void set_capacity(int64_t n, const int32_t* which, const double* bps) {
        for (int64_t i = 0; i < n; ++i) {
            const int32_t l = which[i];
            if (links[l].capacity == bps[i]) continue;
            links[l].capacity = bps[i];
            if (links[l].count) mark(l, level[l]), ++disturbed;
        }
    }

    void reroute(int64_t n, const int32_t* flows, const int64_t* offsets, const int32_t* path_links) {
        int64_t longest = 1;
        for (int64_t i = 0; i < n; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
        widen(longest);
        for (int64_t i = 0; i < n; ++i) {
            const int32_t f = flows[i], *to = path_links + offsets[i];
            const uint32_t hops = static_cast<uint32_t>(offsets[i + 1] - offsets[i]);
            if (state[f] >= TAIL || same_path(f, to, hops)) continue;
            if (slot_of[f] != NONE) {
                Slot& s = slots[slot_of[f]];
                settle(s);
                const double bytes = s.left / 8;
                passed_on[slot_of[f]] += (size[f] - bytes) * s.weight;
                take_off_heap(slot_of[f]);
                detach(slot_of[f]);
                size[f] = bytes;
                slot_of[f] = NONE;
                arrivals.push_back(f);
                ++disturbed;
            }
            set_path(f, to, hops);
        }
    }

    // Until `until`, or the end of an instant at which something watched happened, or a breath.
    Outcome run(double until) {
        const int64_t stop = counters.visits + BREATH;
        for (;;) {
            start_due();
            report_ready_before();
            if (!events.empty()) return WATCHED;
            solve();
            const double time = next_time();
            if (time > until || time == INF) {
                if (until < INF) now = std::max(now, until);
                return time == INF ? AT_REST : AT_TIME;
            }
            if (counters.visits > stop) return BREATHES;
            now = std::max(now, time);
            ++counters.instants;
            end_due();
        }
    }

    // ---- what the user may ask -------------------------------------------------------------------------------------

    std::vector<int32_t> active() const {
        std::vector<int32_t> flying(arrivals);
        for (const Slot& s : slots)
            if (s.flow >= 0 && state[s.flow] == FLYING) flying.push_back(s.flow);
        std::sort(flying.begin(), flying.end());
        return flying;
    }

    double remaining(int32_t f) const {
        if (state[f] >= TAIL) return 0.0;
        if (slot_of[f] == NONE) return size[f];
        const Slot& s = slots[slot_of[f]];
        return std::max(0.0, s.left - moved(s)) / 8;
    }

    void link_bytes(double* out) const {
        std::copy(carried.begin(), carried.end(), out);
        for (uint32_t i = 0; i < slots.size(); ++i) {
            const Slot& s = slots[i];
            if (s.flow < 0) continue;
            const bool flying = state[s.flow] == FLYING;
            const double bytes = passed_on[i] + (flying ? s.weight * (size[s.flow] - remaining(s.flow)) : 0.0);
            for (uint32_t h = 0; h < s.hops; ++h) out[hops[(i << shift) + h].link] += bytes;
        }
    }

    void busy_time(double* out) const {
        for (size_t l = 0; l < links.size(); ++l) out[l] = busy[l] + (links[l].count ? now - busy_since[l] : 0.0);
    }

  private:
    double same_level;

    // Per flow, for ever. Optional columns stay empty until a flow needs them.
    std::vector<double> size, earliest, gap, latency, weight;
    std::vector<int32_t> path;  // all paths, one after the other
    std::vector<int64_t> path_at;
    std::vector<uint16_t> path_length;
    std::vector<uint8_t> state, watched;
    std::vector<uint32_t> slot_of;
    std::vector<int32_t> waits;  // how many flows of `after` are not done
    std::vector<uint32_t> follower_at;
    struct Follower {
        int32_t flow;
        uint32_t next;
    };
    std::vector<Follower> followers;

    // Per link.
    std::vector<Link> links;
    std::vector<double> level;
    std::vector<uint32_t> used_place;
    std::vector<int32_t> used;  // links with flows
    std::vector<uint8_t> queued, forced;
    std::vector<double> carried, busy, busy_since;  // bytes, s, s

    // Per flow in flight.
    uint32_t shift = 0, initial_shift = 0;
    std::vector<Slot> slots;
    std::vector<Hop> hops;
    std::vector<double> passed_on;  // bytes of earlier flows that held the slot
    std::vector<uint32_t> free_slots;
    std::vector<Ending> endings;  // 4-ary heap
    std::vector<uint32_t> heap_at;

    // Time.
    std::vector<Timer> agenda;  // sorted; consumed from agenda_at
    size_t agenda_at = 0;
    std::vector<Timer> timers;  // heap

    // One instant.
    std::vector<int32_t> beginning, arrivals, ready_before;
    std::vector<uint32_t> departures, touched;
    std::vector<Key> dirty;
    int64_t disturbed = 0;

    // Scratch.
    struct Share {
        double limit, weight;
    };
    std::vector<Share> asked;
    std::vector<uint32_t> table;
    struct Filling {
        double spare, weight;
        uint32_t rising;
    };
    std::vector<Filling> filling;
    std::vector<Key> shares;

    // ---- flows -----------------------------------------------------------------------------------------------------

    static void column(std::vector<double>& to, const double* from, int64_t first, int64_t n, double otherwise) {
        if (!from && to.empty()) return;
        to.resize(first, otherwise);
        if (from) to.insert(to.end(), from, from + n);
        else to.resize(first + n, otherwise);
    }

    double gap_of(int32_t f) const { return gap.empty() ? 0.0 : gap[f]; }
    double latency_of(int32_t f) const { return latency.empty() ? 0.0 : latency[f]; }
    double weight_of(int32_t f) const { return weight.empty() ? 1.0 : weight[f]; }
    const int32_t* path_of(int32_t f) const { return path.data() + path_at[f]; }
    uint32_t hops_of(int32_t f) const { return path_length[f]; }
    bool same_path(int32_t f, const int32_t* to, uint32_t n) const {
        return hops_of(f) == n && std::equal(to, to + n, path_of(f));
    }

    void set_path(int32_t f, const int32_t* to, uint32_t n) {
        if (n > path_length[f]) {
            path_at[f] = static_cast<int64_t>(path.size());
            path.insert(path.end(), to, to + n);
        } else {
            std::copy(to, to + n, path.begin() + path_at[f]);
        }
        path_length[f] = static_cast<uint16_t>(n);
    }

    void depend(int64_t first, int64_t n, const int64_t* offsets, const int32_t* after) {
        follower_at.resize(first + n, NONE);
        if (followers.size() + offsets[n] >= NONE) throw std::bad_alloc();
        followers.reserve(followers.size() + offsets[n]);
        for (int64_t i = n - 1; i >= 0; --i) {
            const int32_t f = static_cast<int32_t>(first + i);
            for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
                const int32_t before = after[k];
                if (state[before] == DONE) {
                    earliest[f] = std::max(earliest[f], finish_time[before] + gap_of(f));
                    continue;
                }
                ++waits[f];
                followers.push_back({f, follower_at[before]});
                follower_at[before] = static_cast<uint32_t>(followers.size() - 1);
            }
        }
    }

    void put_on_agenda(int64_t first) {
        agenda.erase(agenda.begin(), agenda.begin() + agenda_at);
        agenda_at = 0;
        const auto old = static_cast<int64_t>(agenda.size());
        for (int64_t f = first; f < flows(); ++f)
            if (waits[f] == 0) agenda.push_back({earliest[f], static_cast<int32_t>(f), 0});
        if (!std::is_sorted(agenda.begin() + old, agenda.end())) std::sort(agenda.begin() + old, agenda.end());
        std::inplace_merge(agenda.begin(), agenda.begin() + old, agenda.end());
    }

    // ---- one instant -----------------------------------------------------------------------------------------------

    void start_due() {
        const double due = now + now * SAME_INSTANT;
        for (;;) {
            for (; agenda_at < agenda.size() && agenda[agenda_at].time <= due; ++agenda_at)
                beginning.push_back(agenda[agenda_at].flow);
            while (!timers.empty() && timers.front().time <= due) {
                const Timer t = timers.front();
                std::pop_heap(timers.begin(), timers.end(), std::greater<>());
                timers.pop_back();
                if (t.landing) finish(t.flow);
                else beginning.push_back(t.flow);
            }
            if (beginning.empty()) return;
            for (size_t i = 0; i < beginning.size(); ++i) begin(beginning[i]);
            beginning.clear();
        }
    }

    void begin(int32_t f) {
        start_time[f] = now;
        state[f] = FLYING;
        ++counters.visits;
        if (size[f] > 0) arrivals.push_back(f);
        else land(f);
    }

    void land(int32_t f) {
        const double late = latency_of(f);
        finish_time[f] = now + late;
        if (late > 0) {
            state[f] = TAIL;
            push_timer({finish_time[f], f, 1});
        } else {
            finish(f);
        }
    }

    void finish(int32_t f) {
        state[f] = DONE;
        ++finished;
        if (watched[f] & 1 << FINISHED) events.push_back({now, f, FINISHED});
        if (static_cast<size_t>(f) >= follower_at.size()) return;
        for (uint32_t k = follower_at[f]; k != NONE; k = followers[k].next) {
            const int32_t g = followers[k].flow;
            earliest[g] = std::max(earliest[g], finish_time[f] + gap_of(g));
            if (--waits[g] == 0) release(g);
        }
    }

    void release(int32_t f) {
        if (watched[f] & 1 << READY) events.push_back({now, f, READY});
        watched[f] &= ~(1 << READY);
        if (earliest[f] <= now + now * SAME_INSTANT) beginning.push_back(f);
        else push_timer({earliest[f], f, 0});
    }

    void push_timer(const Timer& t) {
        timers.push_back(t);
        std::push_heap(timers.begin(), timers.end(), std::greater<>());
    }

    void report_ready_before() {
        for (int32_t f : ready_before) {
            events.push_back({now, f, READY});
            watched[f] &= ~(1 << READY);
        }
        ready_before.clear();
    }

    void end_due() {
        const double due = now + now * SAME_INSTANT;
        const size_t patience = 64 + endings.size() / 16;
        for (size_t ended = 0; !endings.empty() && endings[0].key <= due; ++ended) {
            if (ended > patience) return end_many(due);
            const uint32_t i = endings[0].slot;
            const double end = ending(slots[i]);
            if (end > due) {
                endings[0].key = end;
                sift_down(0);
                continue;
            }
            take_off_heap(i);
            end_flow(i);
        }
    }

    void end_many(double due) {
        size_t kept = 0;
        for (size_t k = 0; k < endings.size(); ++k) {
            Ending e = endings[k];
            if (e.key <= due) {
                e.key = ending(slots[e.slot]);
                if (e.key <= due) {
                    heap_at[e.slot] = NONE;
                    end_flow(e.slot);
                    continue;
                }
            }
            endings[kept++] = e;
        }
        endings.resize(kept);
        build_heap();
    }

    void end_flow(uint32_t i) {
        const int32_t f = slots[i].flow;
        passed_on[i] += slots[i].weight * size[f];
        slot_of[f] = NONE;
        departures.push_back(i);
        land(f);
    }

    double next_time() {
        double time = INF;
        while (!endings.empty()) {
            const double end = ending(slots[endings[0].slot]);
            if (end <= endings[0].key) {
                time = endings[0].key;
                break;
            }
            endings[0].key = end;
            sift_down(0);
        }
        if (agenda_at < agenda.size()) time = std::min(time, agenda[agenda_at].time);
        if (!timers.empty()) time = std::min(time, timers.front().time);
        return time;
    }

    // ---- who is in flight ------------------------------------------------------------------------------------------

    double moved(const Slot& s) const { return s.rate > 0 ? s.rate * (now - s.since) : 0.0; }
    static double ending(const Slot& s) { return s.rate > 0 ? s.since + s.left / s.rate : INF; }

    void settle(Slot& s) {
        s.left = std::max(0.0, s.left - moved(s));
        s.since = now;
    }

    void touch(uint32_t i) {
        if (slots[i].touched) return;
        slots[i].touched = 1;
        touched.push_back(i);
    }

    // A flow that starts where one on the same path has just ended runs on in its place, at its rate.
    void take_over() {
        if (departures.empty() || arrivals.empty()) return;
        size_t room = 4;
        while (room < 2 * departures.size()) room *= 2;
        table.assign(room, NONE);
        for (uint32_t i : departures) {
            const Hop* h = &hops[static_cast<size_t>(i) << shift];
            uint64_t key = 0;
            for (uint32_t k = 0; k < slots[i].hops; ++k) key = mix(key, h[k].link);
            size_t at = key >> 20 & (room - 1);
            while (table[at] != NONE) at = (at + 1) & (room - 1);
            table[at] = i;
        }
        size_t kept = 0;
        for (int32_t f : arrivals) {
            const uint32_t i = find_place(f, room);
            if (i == NONE) arrivals[kept++] = f;
            else take_place(i, f);
        }
        arrivals.resize(kept);
        departures.erase(std::remove_if(departures.begin(), departures.end(),
                                        [&](uint32_t i) { return state[slots[i].flow] == FLYING; }),
                         departures.end());
    }

    static uint64_t mix(uint64_t key, int32_t link) {
        return (key ^ static_cast<uint64_t>(link)) * 0x9E3779B97F4A7C15u + (key >> 29);
    }

    uint32_t find_place(int32_t f, size_t room) const {
        const int32_t* p = path_of(f);
        const uint32_t n = hops_of(f);
        uint64_t key = 0;
        for (uint32_t k = 0; k < n; ++k) key = mix(key, p[k]);
        for (size_t at = key >> 20 & (room - 1); table[at] != NONE; at = (at + 1) & (room - 1)) {
            const Slot& s = slots[table[at]];
            const Hop* h = &hops[static_cast<size_t>(table[at]) << shift];
            bool same = s.hops == n && state[s.flow] != FLYING && s.weight == weight_of(f);
            for (uint32_t k = 0; same && k < n; ++k) same = h[k].link == p[k];
            if (same) return table[at];
        }
        return NONE;
    }

    void take_place(uint32_t i, int32_t f) {
        Slot& s = slots[i];
        s.flow = f;
        s.left = size[f] * 8;
        s.since = now;
        slot_of[f] = i;
        touch(i);
        ++counters.takeovers;
    }

    uint32_t attach(int32_t f) {
        uint32_t i;
        if (free_slots.empty()) {
            i = static_cast<uint32_t>(slots.size());
            if (static_cast<uint64_t>(i + 1) << shift >= NONE) throw std::bad_alloc();
            slots.emplace_back();
            hops.resize(hops.size() + (size_t{1} << shift));
            passed_on.push_back(0.0);
            heap_at.push_back(NONE);
        } else {
            i = free_slots.back();
            free_slots.pop_back();
        }
        const uint32_t n = hops_of(f);
        slots[i] = {INF, INF, 0.0, size[f] * 8, now, weight_of(f), -1, f, static_cast<uint16_t>(n), 1, 0};
        slot_of[f] = i;
        const int32_t* p = path_of(f);
        for (uint32_t k = 0; k < n; ++k) enter(p[k], (i << shift) + k);
        touch(i);
        return i;
    }

    void enter(int32_t l, uint32_t hop) {
        Link& link = links[l];
        if (link.count == link.room) grow(link);
        if (link.count == 0) {
            used_place[l] = static_cast<uint32_t>(used.size());
            used.push_back(l);
            busy_since[l] = now;
        }
        hops[hop] = {l, link.count};
        link.flows[link.count++] = hop;
    }

    static void grow(Link& link) {
        const uint32_t room = link.room ? 2 * link.room : 4;
        void* more = std::realloc(link.flows, room * sizeof(uint32_t));
        if (!more) throw std::bad_alloc();
        link.flows = static_cast<uint32_t*>(more);
        link.room = room;
    }

    void detach(uint32_t i) {
        Slot& s = slots[i];
        const double rate = s.weight * s.x1;
        for (uint32_t k = 0; k < s.hops; ++k) {
            const Hop hop = hops[(static_cast<size_t>(i) << shift) + k];
            const int32_t l = hop.link;
            Link& link = links[l];
            const uint32_t last = link.flows[--link.count];
            link.flows[hop.place] = last;
            hops[last].place = hop.place;
            carried[l] += passed_on[i];
            if (link.count == 0) leave(l);
            else if (level[l] < INF) mark(l, level[l]);
            else link.load -= rate;
        }
        passed_on[i] = 0.0;
        s.flow = -1;
        s.touched = 0;
        free_slots.push_back(i);
    }

    void leave(int32_t l) {
        links[l].load = 0.0;
        level[l] = INF;
        busy[l] += now - busy_since[l];
        used[used_place[l]] = used.back();
        used_place[used.back()] = used_place[l];
        used.pop_back();
    }

    // Room for paths of n links: places are numbered slot << shift | hop.
    void widen(int64_t n) {
        uint32_t wider = slots.empty() ? 0 : shift;
        while (int64_t{1} << wider < n) ++wider;
        if (slots.empty()) shift = std::max(wider, initial_shift);
        if (slots.empty()) initial_shift = shift;
        if (wider <= shift) return;
        if (slots.size() << wider >= NONE) throw std::bad_alloc();
        std::vector<Hop> roomier(slots.size() << wider);
        for (size_t i = 0; i < slots.size(); ++i) {
            for (uint32_t k = 0; slots[i].flow >= 0 && k < slots[i].hops; ++k) {
                const Hop hop = hops[(i << shift) + k];
                roomier[(i << wider) + k] = hop;
                links[hop.link].flows[hop.place] = static_cast<uint32_t>((i << wider) + k);
            }
        }
        hops.swap(roomier);
        shift = wider;
    }

    // ---- levels ----------------------------------------------------------------------------------------------------

    void solve() {
        take_over();
        disturbed += static_cast<int64_t>(departures.size() + arrivals.size());
        for (uint32_t i : departures) detach(i);
        departures.clear();
        const size_t newcomers = touched.size();
        for (int32_t f : arrivals) attach(f);
        arrivals.clear();
        const int64_t flying = static_cast<int64_t>(endings.size() + touched.size());
        if (8 * disturbed > flying) {
            fill();
        } else {
            for (size_t k = newcomers; k < touched.size(); ++k) introduce(touched[k]);
            repair();
        }
        disturbed = 0;
        commit();
    }

    void mark(int32_t l, double key) {
        if (queued[l]) return;
        queued[l] = 1;
        dirty.push_back({key, l});
        std::push_heap(dirty.begin(), dirty.end(), std::greater<>());
    }

    // A new flow is shown to one link alone, the one that will most likely hold it back; the others hear of it then.
    void introduce(uint32_t i) {
        find_limits(slots[i], i);
        int32_t anchor = slots[i].bottleneck;
        double key = slots[i].x1;
        if (key == INF) {
            for (uint32_t k = 0; k < slots[i].hops; ++k) {
                const int32_t l = hops[(static_cast<size_t>(i) << shift) + k].link;
                const double room = std::max(0.0, links[l].capacity - links[l].load);
                if (room < key) key = room, anchor = l;
            }
        }
        forced[anchor] = 1;
        mark(anchor, key);
    }

    void find_limits(Slot& s, uint32_t i) {
        const Hop* h = &hops[static_cast<size_t>(i) << shift];
        double x1 = INF, x2 = INF;
        int32_t bottleneck = h[0].link;
        for (uint32_t k = 0; k < s.hops; ++k) {
            const double v = level[h[k].link];
            if (v < x1) {
                x2 = x1;
                x1 = v;
                bottleneck = h[k].link;
            } else if (v < x2) {
                x2 = v;
            }
        }
        s.x1 = x1;
        s.x2 = x2;
        s.bottleneck = bottleneck;
    }

    bool same(double a, double b) const { return a == b || std::fabs(a - b) <= same_level * std::min(a, b); }

    void repair() {
        int64_t budget = 1000 + 50 * static_cast<int64_t>(used.size());
        while (!dirty.empty()) {
            const int32_t l = dirty.front().link;
            std::pop_heap(dirty.begin(), dirty.end(), std::greater<>());
            dirty.pop_back();
            queued[l] = 0;
            const bool force = forced[l];
            forced[l] = 0;
            if (links[l].count == 0) continue;
            if (--budget < 0) {
                ++counters.fallbacks;
                return fill();
            }
            const double found = evaluate(l);
            if (!same(found, level[l])) change(l, found);
            else if (force) change(l, level[l]);
        }
    }

    // The level at which the flows of a link, each at most at what its other links give it, fill it; INF if they do not.
    double evaluate(int32_t l) {
        Link& link = links[l];
        const uint32_t n = link.count;
        ++counters.evaluations;
        counters.visits += n;
        if (asked.size() < n) asked.resize(2 * n);
        const double start = level[l];
        double total = 0, fresh = 0, below = 0, weight = 0, weight_above = 0, highest_below = 0, lowest_above = INF;
        for (uint32_t k = 0; k < n; ++k) {
            const Slot& s = slots[link.flows[k] >> shift];
            const double limit = s.bottleneck == l ? s.x2 : s.x1, w = s.weight;
            asked[k] = {limit, w};
            weight += w;
            total += w * limit;
            if (s.fresh) fresh += w * limit;
            if (limit <= start) {
                below += w * limit;
                highest_below = std::max(highest_below, limit);
            } else {
                weight_above += w;
                lowest_above = std::min(lowest_above, limit);
            }
        }
        if (total <= link.capacity * (1 + SLACK)) {
            link.load = total - fresh;
            return INF;
        }
        const double least = link.capacity / weight;
        double s = weight_above > 0 ? (link.capacity - below) / weight_above : 0.0;
        if (weight_above > 0 && highest_below <= s && s <= lowest_above) return s;
        // From below the answer, each round admits the flows that ask for less than the level, until none is left.
        s = std::max(s, least);
        uint32_t left = n;
        double spare = link.capacity;
        for (;;) {
            const uint32_t before = left;
            uint32_t kept = 0;
            for (uint32_t k = 0; k < left; ++k) {
                if (asked[k].limit <= s) {
                    spare -= asked[k].weight * asked[k].limit;
                    weight -= asked[k].weight;
                } else {
                    asked[kept++] = asked[k];
                }
            }
            left = kept;
            if (left == before || left == 0) return s;
            s = std::max(s, spare / weight);
        }
    }

    // Give a link a new level and tell the flows on it; they tell the other links whom that concerns.
    void change(int32_t l, double now_level) {
        const double old = level[l];
        level[l] = now_level;
        Link& link = links[l];
        ++counters.changes;
        counters.visits += link.count;
        for (uint32_t k = 0; k < link.count; ++k) {
            const uint32_t i = link.flows[k] >> shift;
            Slot& s = slots[i];
            if (s.fresh) {
                welcome(s, i, l);
                continue;
            }
            if (now_level == old) continue;
            const double x1 = s.x1, x2 = s.x2;
            const int32_t bottleneck = s.bottleneck;
            if (bottleneck != l) {
                if (now_level >= x1) {  // still not the one that holds it back
                    if (now_level <= x2) s.x2 = now_level;
                    else if (old <= x2) find_second(s, i);
                    continue;
                }
                s.x2 = x1;
                s.x1 = now_level;
                s.bottleneck = l;
            } else if (now_level <= x2) {
                s.x1 = now_level;
            } else {
                find_limits(s, i);
                if (s.x1 == x1 && s.bottleneck == l) continue;
            }
            touch(i);
            tell(s, i, l, x1, x2, bottleneck);
        }
    }

    void find_second(Slot& s, uint32_t i) {
        const Hop* h = &hops[static_cast<size_t>(i) << shift];
        double x2 = INF;
        for (uint32_t k = 0; k < s.hops; ++k)
            if (h[k].link != s.bottleneck) x2 = std::min(x2, level[h[k].link]);
        s.x2 = x2;
    }

    void tell(const Slot& s, uint32_t i, int32_t l, double x1, double x2, int32_t bottleneck) {
        const Hop* h = &hops[static_cast<size_t>(i) << shift];
        const double more = s.weight * (s.x1 - x1);
        for (uint32_t k = 0; k < s.hops; ++k) {
            const int32_t other = h[k].link;
            if (other == l) continue;
            const double cap = level[other];
            if (cap == INF) {
                links[other].load += more;
                if (links[other].load > links[other].capacity * (1 + SLACK)) mark(other, s.x1);
                continue;
            }
            const double was = std::min(cap, other == bottleneck ? x2 : x1);
            const double is = std::min(cap, other == s.bottleneck ? s.x2 : s.x1);
            if (!same(was, is)) mark(other, cap);
        }
    }

    void welcome(Slot& s, uint32_t i, int32_t l) {
        s.fresh = 0;
        find_limits(s, i);
        const Hop* h = &hops[static_cast<size_t>(i) << shift];
        for (uint32_t k = 0; k < s.hops; ++k) {
            const int32_t other = h[k].link;
            if (level[other] == INF) {
                links[other].load += s.weight * s.x1;
                if (other != l && links[other].load > links[other].capacity * (1 + SLACK)) mark(other, s.x1);
            } else if (other != l) {
                mark(other, level[other]);
            }
        }
    }

    template <typename Do>
    void each_flying(Do&& act) {
        const size_t known = touched.size();
        for (size_t k = 0; k < endings.size(); ++k) act(endings[k].slot);
        for (size_t k = 0; k < known; ++k)
            if (heap_at[touched[k]] == NONE) act(touched[k]);
    }

    // All levels anew: raise all rates together until a link is full; its flows keep that rate; go on with the others.
    void fill() {
        ++counters.fills;
        for (const Key& d : dirty) queued[d.link] = 0;
        for (const Key& d : dirty) forced[d.link] = 0;
        dirty.clear();
        if (filling.empty()) filling.resize(links.size());
        shares.clear();
        for (int32_t l : used) {
            filling[l] = {links[l].capacity, static_cast<double>(links[l].count), links[l].count};
            links[l].load = 0.0;
            level[l] = INF;
        }
        if (!weight.empty()) weigh();
        for (int32_t l : used) shares.push_back({filling[l].spare / filling[l].weight, l});
        std::make_heap(shares.begin(), shares.end(), std::greater<>());
        each_flying([&](uint32_t i) { slots[i].x1 = INF; });
        double rate = 0.0;
        while (!shares.empty()) {
            const Key top = shares.front();
            std::pop_heap(shares.begin(), shares.end(), std::greater<>());
            shares.pop_back();
            Filling& f = filling[top.link];
            if (f.rising == 0) continue;
            const double share = std::max(rate, std::max(0.0, f.spare) / f.weight);
            if (share > top.value && !same(share, top.value)) {
                shares.push_back({share, top.link});
                std::push_heap(shares.begin(), shares.end(), std::greater<>());
                continue;
            }
            rate = share;
            level[top.link] = share;
            freeze(top.link, share);
        }
        each_flying([&](uint32_t i) { resume(slots[i], i); });
    }

    void weigh() {
        for (int32_t l : used) {
            filling[l].weight = 0.0;
            for (uint32_t k = 0; k < links[l].count; ++k)
                filling[l].weight += slots[links[l].flows[k] >> shift].weight;
        }
    }

    void freeze(int32_t l, double rate) {
        const Link& link = links[l];
        counters.visits += link.count;
        for (uint32_t k = 0; k < link.count; ++k) {
            const uint32_t i = link.flows[k] >> shift;
            Slot& s = slots[i];
            if (s.x1 < INF) continue;
            s.x1 = rate;
            const Hop* h = &hops[static_cast<size_t>(i) << shift];
            for (uint32_t j = 0; j < s.hops; ++j) {
                Filling& f = filling[h[j].link];
                f.spare -= s.weight * rate;
                f.weight -= s.weight;
                --f.rising;
            }
        }
    }

    void resume(Slot& s, uint32_t i) {
        s.fresh = 0;
        find_limits(s, i);
        const Hop* h = &hops[static_cast<size_t>(i) << shift];
        for (uint32_t k = 0; k < s.hops; ++k) links[h[k].link].load += s.weight * s.x1;
        if (!same(s.x1, s.rate)) touch(i);
    }

    // Flows whose rate moved settle what they sent so far; then the order of their ends is put right.
    void commit() {
        const bool many = 2 * touched.size() > endings.size();
        for (uint32_t i : touched) {
            Slot& s = slots[i];
            if (!s.touched) continue;  // left again at this instant
            s.touched = 0;
            if (s.x1 != s.rate) {
                settle(s);
                s.rate = s.x1;
            }
            const double end = ending(s);
            if (heap_at[i] == NONE) {
                heap_at[i] = static_cast<uint32_t>(endings.size());
                endings.push_back({end, i});
                if (!many) sift_up(heap_at[i]);
            } else if (many) {
                endings[heap_at[i]].key = end;
            } else if (end < endings[heap_at[i]].key) {
                endings[heap_at[i]].key = end;
                sift_up(heap_at[i]);
            }
        }
        touched.clear();
        if (many) build_heap();
    }

    // ---- the heap of endings ---------------------------------------------------------------------------------------

    void place(uint32_t at, const Ending& e) {
        endings[at] = e;
        heap_at[e.slot] = at;
    }

    void sift_up(uint32_t at) {
        const Ending e = endings[at];
        while (at > 0) {
            const uint32_t parent = (at - 1) / 4;
            if (endings[parent].key <= e.key) break;
            place(at, endings[parent]);
            at = parent;
        }
        place(at, e);
    }

    void sift_down(uint32_t at) {
        const Ending e = endings[at];
        const uint32_t n = static_cast<uint32_t>(endings.size());
        for (;;) {
            const uint32_t first = 4 * at + 1;
            if (first >= n) break;
            uint32_t least = first;
            for (uint32_t child = first + 1; child < std::min(first + 4, n); ++child)
                if (endings[child].key < endings[least].key) least = child;
            if (endings[least].key >= e.key) break;
            place(at, endings[least]);
            at = least;
        }
        place(at, e);
    }

    void build_heap() {
        for (uint32_t k = 0; k < endings.size(); ++k) heap_at[endings[k].slot] = k;
        if (endings.size() < 2) return;
        for (int64_t k = (static_cast<int64_t>(endings.size()) - 2) / 4; k >= 0; --k)
            sift_down(static_cast<uint32_t>(k));
    }

    void take_off_heap(uint32_t i) {
        const uint32_t at = heap_at[i];
        heap_at[i] = NONE;
        const Ending last = endings.back();
        endings.pop_back();
        if (at == endings.size()) return;
        place(at, last);
        sift_up(at);
        sift_down(heap_at[last.slot]);
    }
};

template <typename Do>
int guarded(Do&& act) {
    try {
        return act();
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

}  // namespace

extern "C" {

int rf_interface() { return 1; }  // raised with every change below; compiled.py refuses another number

void* rf_new(const double* capacity, int64_t links, double tolerance) {
    try {
        return new Engine(capacity, links, tolerance);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void rf_free(void* engine) { delete static_cast<Engine*>(engine); }

int rf_add(void* engine, int64_t n, const int64_t* path_offsets, const int32_t* path_links, const double* size,
           const double* start, const int64_t* after_offsets, const int32_t* after, const double* gap,
           const double* latency, const double* weight) {
    return guarded([&] {
        static_cast<Engine*>(engine)->add(n, path_offsets, path_links, size, start, after_offsets, after, gap, latency,
                                          weight);
        return 0;
    });
}

int rf_watch(void* engine, int64_t n, const int32_t* flows) {
    return guarded([&] { return static_cast<Engine*>(engine)->watch(n, flows), 0; });
}

int rf_run(void* engine, double until) {
    return guarded([&] { return static_cast<int>(static_cast<Engine*>(engine)->run(until)); });
}

// Events of the instant just over, by flow; the caller offers room for rf_event_count of them.
int64_t rf_event_count(const void* engine) {
    return static_cast<int64_t>(static_cast<const Engine*>(engine)->events.size());
}

void rf_take_events(void* engine, double* time, int64_t* flow, int8_t* kind) {
    auto& events = static_cast<Engine*>(engine)->events;
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
        return a.flow != b.flow ? a.flow < b.flow : a.kind < b.kind;
    });
    for (const Event& e : events) *time++ = e.time, *flow++ = e.flow, *kind++ = static_cast<int8_t>(e.kind);
    events.clear();
}

int rf_set_capacity(void* engine, int64_t n, const int32_t* links, const double* bps) {
    return guarded([&] { return static_cast<Engine*>(engine)->set_capacity(n, links, bps), 0; });
}

int rf_reroute(void* engine, int64_t n, const int32_t* flows, const int64_t* path_offsets, const int32_t* path_links) {
    return guarded([&] { return static_cast<Engine*>(engine)->reroute(n, flows, path_offsets, path_links), 0; });
}

// How many flows are in flight; with `out`, which.
int64_t rf_active(const void* engine, int32_t* out) {
    try {
        const std::vector<int32_t> flying = static_cast<const Engine*>(engine)->active();
        if (out) std::copy(flying.begin(), flying.end(), out);
        return static_cast<int64_t>(flying.size());
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

void rf_remaining(const void* engine, int64_t n, const int32_t* flows, double* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<const Engine*>(engine)->remaining(flows[i]);
}

double rf_now(const void* engine) { return static_cast<const Engine*>(engine)->now; }
int64_t rf_finished(const void* engine) { return static_cast<const Engine*>(engine)->finished; }
int64_t rf_flows(const void* engine) { return static_cast<const Engine*>(engine)->flows(); }

void rf_times(const void* engine, double* start, double* finish) {
    const auto* e = static_cast<const Engine*>(engine);
    if (start) std::copy(e->start_time.begin(), e->start_time.end(), start);
    if (finish) std::copy(e->finish_time.begin(), e->finish_time.end(), finish);
}

void rf_link_bytes(const void* engine, double* out) { static_cast<const Engine*>(engine)->link_bytes(out); }
void rf_busy_time(const void* engine, double* out) { static_cast<const Engine*>(engine)->busy_time(out); }

// instants, evaluations, level changes, fills, flow visits, takeovers, fallbacks
void rf_counters(const void* engine, int64_t* out) {
    const Counters& c = static_cast<const Engine*>(engine)->counters;
    const int64_t all[] = {c.instants, c.evaluations, c.changes, c.fills, c.visits, c.takeovers, c.fallbacks};
    std::copy(std::begin(all), std::end(all), out);
}

}  // extern "C"
