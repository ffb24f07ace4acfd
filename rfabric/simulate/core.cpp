// The flow engine of rfabric: max-min fair sharing of directed links, event by event, exact.
//
// Every link has a level, infinite where all its flows fit, and a flow runs at the lowest level on
// its path: that link holds it, the others let it pass. Rates are max-min fair if and only if, on
// every link with a level,
//
//     level * (flows held) + (rates of the flows passing) = capacity,
//     and no passing flow is faster than the level.
//
// One event moves few levels, so the engine keeps them all and repairs what an event disturbed,
// lowest level first. The sum of the passing rates is kept by differences; so a link whose level
// rises looks only at the flows it holds, one whose level falls at the others only if one of them
// may now be too fast. Where an event moves much (a collective starts or ends) all links are filled
// anew. Times are seconds, rates bit/s; bytes are kept as bits.
//
// A link that holds many flows would tell each of them of each event. Flows that share one rate
// share one clock instead: a crowd, of held flows that no other link of their paths is about to
// hold back. The clock counts the bits that a member has sent since the crowd began; a member ends
// when it shows a number known from its start, so one event of a crowd costs O(log n) whatever its
// size (virtual time: Parekh and Gallager, IEEE/ACM Trans. Networking 1(3), 1993). See "crowds"
// below.
//
// How time passes: run() handles all events of one instant (ends, starts, latencies, zero-size
// flows, whatever these release), then repairs the levels, then moves to the next instant. A flow
// that starts at the very instant at which another one ended on the same path takes over its place
// and rate: rings cost no repair at all. run() may return in the middle of this for a breath, and
// goes on from there when it is called again.
//
// Groups of flows that share no link, and of which none waits for another, are played side by side
// where a large run is to go on to its end: each group in an engine of its own. See "groups" below.
//
// At scale an event costs what it must fetch from memory: all that it needs of a link is one cache
// line, of a flow in flight two. What a link carried is added up only when somebody asks.
//
// Plain C interface at the end of the file. Arrays are checked by inputs.py: an index that arrives
// here is in range. Never compile with -ffast-math: infinities are meant.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#ifndef RFABRIC_BREATH
#define RFABRIC_BREATH 200000  // a test sets 1
#endif
#ifndef RFABRIC_PATIENCE
#define RFABRIC_PATIENCE 50  // it has never been needed; a test sets 0
#endif
#ifndef RFABRIC_CROWD
#define RFABRIC_CROWD 64  // a test sets 2
#endif
#ifndef RFABRIC_APART
#define RFABRIC_APART 16384  // a test sets 2
#endif

extern "C" int rf_run(void* engine, double until);

namespace {

constexpr double INF = std::numeric_limits<double>::infinity();
constexpr double NOT_YET = std::numeric_limits<double>::quiet_NaN();
// Events closer than this, relative to the time of day, are one event.
constexpr double SAME_INSTANT = 1e-12;
constexpr double SAME_LEVEL = 1e-12;  // relative; raised by the tolerance knob
constexpr double SLACK = 1e-11;  // a link this close to full is full but no bottleneck: ties end
constexpr uint32_t REFRESH = 64;  // balances of a link after which its sums are taken anew
// Balances per link in use after which a repair gives way to a full solve.
constexpr int64_t PATIENCE = RFABRIC_PATIENCE;
// What only crowds need stays out of the way of what every event does.
#define SELDOM __attribute__((noinline, cold))
constexpr uint32_t NONE = UINT32_MAX;
// Fewer flows are told one by one, where paths have up to 2^USUAL links.
constexpr uint32_t CROWD = RFABRIC_CROWD, USUAL = 3;
// A link that has told so many flows so often asks who may share a clock; who found few asks later.
constexpr uint32_t EAGER = 4, RELUCTANT = 256;
constexpr double HEADROOM = 2.0;  // the rate that is kept free for a member, over its own: at most
constexpr double LEAST_HEADROOM = 1.0 / 16;  // where others share the link
constexpr size_t FEW = 4;             // flows that are looked through rather than looked up
constexpr uint32_t LONG_LIST = 4096;  // flows beyond which sums are taken anew less often
constexpr uint32_t LONE = uint32_t{1} << 31;
// Steps between two returns to Python, which hears signals and shows progress: some 0.1 s where
// every step must wait for memory. A step is a flow looked at, started or ended, or a link filled
// anew.
constexpr int64_t BREATH = RFABRIC_BREATH;
// Fewer flows are not looked at for groups.
constexpr int64_t APART = RFABRIC_APART;
// Engines that the groups are dealt to: whatever the machine, so that results do not depend on it,
// and many, so that what one of them touches stays in the cache.
constexpr uint32_t SHARES = 256;
constexpr std::chrono::milliseconds WAIT{50};  // for the other threads, between two breaths

// Large tables lie on huge pages where the system has them: at scale an event looks into dozens of
// far-off places.
constexpr size_t HUGE_PAGE = size_t{1} << 21;

template <typename T>
struct Huge {
    using value_type = T;
    Huge() = default;
    template <typename U>
    Huge(const Huge<U>&) {}
    T* allocate(size_t n) {
        const size_t bytes = n * sizeof(T),
                     align = bytes >= HUGE_PAGE ? HUGE_PAGE : std::max<size_t>(64, alignof(T));
        void* at = std::aligned_alloc(align, (bytes + align - 1) / align * align);
        if (!at) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (bytes >= HUGE_PAGE) madvise(at, bytes, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(at);
    }
    void deallocate(T* at, size_t) { std::free(at); }
    bool operator==(const Huge&) const { return true; }
    bool operator!=(const Huge&) const { return false; }
};
template <typename T>
using Table = std::vector<T, Huge<T>>;

// Ask for a record that is wanted a little later.
template <typename T>
void fetch(const T* record) {
    __builtin_prefetch(record, 1);
}

enum State : uint8_t {
    WAITING,
    FLYING,
    TAIL,
    DONE
};  // TAIL: the last byte has left, the latency runs
enum Kind : int8_t { READY, FINISHED };
enum Outcome : int { AT_REST, AT_TIME, WATCHED, BREATHES, NO_MEMORY = -1 };

// Records are cache lines: at scale an event costs what it must fetch from memory.
struct alignas(64) Flow {
    double size;      // bytes; after a change of path, what was left
    double earliest;  // no start before
    double start, finish;
    double weight;
    int64_t path_at;
    int32_t waits;      // how many flows of `after` are not done
    uint32_t slot;      // while it is in flight
    uint32_t follower;  // the flow that waits for it, marked LONE, or where the list of several
                        // begins in `followers`
    uint16_t hops;
    uint8_t state, watched;
};
static_assert(sizeof(Flow) == 64, "one cache line");

// All that an event must see of a link. The first four are what other links' flows look at.
struct alignas(64) Link {
    double level;
    double load;  // sum of the rates passing
    double peak;  // no passing flow is faster
    double trip;  // a new load above this calls for a balance: see arm()
    double capacity;
    double weight;  // of the flows held
    uint32_t list;  // where its hops (slot << shift | hop) begin in `lists`: the held ones first
    uint32_t count, held;
    uint8_t room;    // log2 of the room for hops, plus 1; 0: none
    uint8_t age;     // balances since its sums were last taken anew
    uint8_t forced;  // tell its flows even if its level stays
    uint8_t listed;  // in `used`
};
static_assert(sizeof(Link) == 64, "one cache line");

// A flow in flight; `holder` is the link that holds it, x1 the level there. Of a member of a crowd
// x1, rate and since are those of its leader: a slot of no flow (`flow` < -1), which ends when the
// first member does.
struct alignas(64) Slot {
    double x1;
    double rate;  // what it has run at since `since`; x1 may already be ahead of it
    double weight;
    int32_t holder;
    uint16_t hops;
    uint8_t fresh;    // held, but no link has been told of it
    uint8_t touched;  // x1 may differ from rate
    double left;      // bits at `since`; of a member: what the crowd's clock shows when it ends
    double since;
    int32_t flow;
    uint32_t crowd;  // NONE, or whose member it is
    double limit;    // of a member: the level that its other links have room for
};
static_assert(sizeof(Slot) == 64, "one cache line");

struct Hop {
    int32_t link;
    uint32_t place;  // where it stands in the link's list
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
        return time != o.time   ? time < o.time
               : flow != o.flow ? flow < o.flow
                                : landing < o.landing;
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
    bool operator>(const Key& o) const {
        return value != o.value ? value > o.value : link > o.link;
    }
};

struct Mark {
    double key;
    uint32_t slot;
    bool operator>(const Mark& o) const { return key != o.key ? key > o.key : slot > o.slot; }
};
using Marks = std::vector<Mark>;  // heap; those that no longer hold are dropped at the top

struct Crowd {
    int32_t link;
    uint32_t leader;
    double clock;   // bits that a member has sent, at the leader's `since`
    double weight;  // of all members
    Marks ends, limits;
};

// What a link is to crowds.
struct Side {
    uint32_t crowd = NONE;   // that it holds
    uint32_t members = 0;    // of it: they stand first in the link's list
    uint32_t guests = 0;     // members of others' crowds that pass
    int32_t behind = -1;     // guests' holder, where all flows here cross it and it is no wider
    uint32_t rounds = 0;     // in which many flows were told one by one
    uint32_t patience = EAGER;
    uint32_t asking = 0;     // flows that would become guests
    double wanted = 0.0;     // their weight
    double headroom = -1.0;  // how far their rate may grow, as a factor; -1: not known
};

// What may be counted while the engine runs; bench and the tests read it.
struct Counters {
    int64_t instants = 0, evaluations = 0, changes = 0, fills = 0, visits = 0, takeovers = 0,
            fallbacks = 0, joined = 0;
    void operator+=(const Counters& o) {
        instants += o.instants, evaluations += o.evaluations, changes += o.changes;
        fills += o.fills, visits += o.visits, takeovers += o.takeovers;
        fallbacks += o.fallbacks, joined += o.joined;
    }
};

class Apart;

class Engine {
  public:
    Engine(const double* capacity, int64_t n, double tolerance)
        : same_level(std::max(SAME_LEVEL, tolerance)), links(n), busy(n), carried(n) {
        for (int64_t l = 0; l < n; ++l) {
            links[l].capacity = capacity[l];
            links[l].level = INF;
            arm(static_cast<int32_t>(l));
        }
    }
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    double now = 0.0;
    int64_t finished = 0;
    Counters counters;
    std::vector<Event> events;

    int64_t known() const { return static_cast<int64_t>(flows.size()); }
    int64_t done() const;
    double start(int64_t f) const { return flows[f].start; }
    double finish_time(int64_t f) const { return flows[f].finish; }

    // ---- what the user may do between two runs
    // ---------------------------------------------------------------------

    void add(int64_t n, const int64_t* path_offsets, const int32_t* path_links, const double* bytes,
             const double* start, const int64_t* after_offsets, const int32_t* after,
             const double* gaps, const double* latencies, const double* weights) {
        stay_together();
        const int64_t first = known();
        const int64_t base = static_cast<int64_t>(path.size());
        path.insert(path.end(), path_links, path_links + path_offsets[n]);
        if (flows.capacity() < static_cast<size_t>(first + n))
            flows.reserve(std::max(first + n, first + first / 2));
        for (int64_t i = 0; i < n; ++i) {
            const auto hops = static_cast<uint16_t>(path_offsets[i + 1] - path_offsets[i]);
            flows.push_back({bytes[i], start[i], NOT_YET, INF, weights ? weights[i] : 1.0,
                             base + path_offsets[i], 0, NONE, NONE, hops, WAITING, 0});
        }
        weighted |= weights != nullptr;
        column(gap, gaps, first, n, 0.0);
        column(latency, latencies, first, n, 0.0);
        if (after && after_offsets[n] > 0) depend(first, n, after_offsets, after);
        put_on_agenda(first);
    }

    void watch(int64_t n, const int32_t* which) {
        stay_together();
        watching |= n > 0;
        for (int64_t i = 0; i < n; ++i) {
            const int32_t f = which[i];
            if (flows[f].state < DONE) flows[f].watched |= 1 << FINISHED;
            if (flows[f].state > WAITING || flows[f].watched & 1 << READY) continue;
            flows[f].watched |= 1 << READY;
            if (!flows[f].waits) ready_before.push_back(f);
        }
    }

    void set_capacity(int64_t n, const int32_t* which, const double* bps) {
        come_to_peace();
        for (int64_t i = 0; i < n; ++i) {
            const int32_t l = which[i];
            if (links[l].capacity == bps[i]) continue;
            if (!sides.empty()) disperse(l);
            links[l].capacity = bps[i];
            if (links[l].count)
                mark(l, links[l].level), ++disturbed;
            else
                arm(l);
        }
    }

    void reroute(int64_t n, const int32_t* which, const int64_t* offsets,
                 const int32_t* path_links) {
        come_to_peace();
        for (int64_t i = 0; i < n; ++i) {
            const int32_t f = which[i], *to = path_links + offsets[i];
            const uint32_t hops = static_cast<uint32_t>(offsets[i + 1] - offsets[i]);
            if (flows[f].state >= TAIL || same_path(f, to, hops)) continue;
            if (flows[f].slot != NONE) {
                const uint32_t i = flows[f].slot;
                if (slots[i].crowd != NONE) step_out(i);
                settle(i);
                const double bytes = slots[i].left / 8;
                for (uint32_t k = 0; k < slots[i].hops; ++k)
                    carried[way_of(i)[k].link] += (flows[f].size - bytes) * slots[i].weight;
                if (heap_at[i] != NONE) take_off_heap(i);
                detach(i);
                flows[f].size = bytes;
                flows[f].slot = NONE;
                arrivals.push_back(f);
                ++disturbed;
            }
            set_path(f, to, hops);
        }
    }

    // Until `until`, or the end of an instant at which something watched happened, or a breath.
    Outcome run(double until) {
        if (until < INF)
            stay_together();
        else if (apart || fresh())
            switch (run_apart()) {
                case APART_UNDER_WAY: return BREATHES;
                case APART_DONE: return AT_REST;
                case NOT_APART: break;
            }
        stop = counters.visits + others + BREATH;
        for (;;) {
            if (stage == AT_PEACE) {
                start_due();
                report_ready_before();
                if (!events.empty()) return WATCHED;
            }
            if (!solve()) return BREATHES;
            const double time = next_time();
            if (time > until || time == INF) {
                if (until < INF) now = std::max(now, until);
                return time == INF ? AT_REST : AT_TIME;
            }
            if (breathless()) return BREATHES;
            now = std::max(now, time);
            ++counters.instants;
            end_due();
        }
    }

    // ---- what the user may ask
    // ---------------------------------------------------------------------------------------------

    std::vector<int32_t> active() const {
        std::vector<int32_t> flying(arrivals.begin() + attached, arrivals.end());
        for (const Slot& c : slots)
            if (c.flow >= 0 && flows[c.flow].state == FLYING) flying.push_back(c.flow);
        std::sort(flying.begin(), flying.end());
        return flying;
    }

    double remaining(int32_t f) const {
        if (flows[f].state >= TAIL) return 0.0;
        if (flows[f].slot == NONE) return flows[f].size;
        const uint32_t i = flows[f].slot;
        const double sent = slots[i].crowd == NONE ? moved(i) : clock(crowds[slots[i].crowd]);
        return std::max(0.0, slots[i].left - sent) / 8;
    }

    void link_bytes(double* out) {
        tally();
        std::copy(carried.begin(), carried.end(), out);
        for (uint32_t i = 0; i < slots.size(); ++i) {
            const int32_t f = slots[i].flow;
            if (f < 0 || flows[f].state != FLYING) continue;
            const double bytes = slots[i].weight * (flows[f].size - remaining(f));
            for (uint32_t k = 0; k < slots[i].hops; ++k) out[way_of(i)[k].link] += bytes;
        }
    }

    void busy_time(double* out) const {
        for (size_t l = 0; l < links.size(); ++l) out[l] = busy[l] + (links[l].count ? now : 0.0);
    }

  private:
    friend class Apart;
    std::unique_ptr<Apart> apart;  // the groups, while they are played
    bool watching = false, tied = false;  // tied: no groups were found, or they did not end
    double same_level;

    // Per flow, for ever. Optional columns stay empty until a flow needs them.
    Table<Flow> flows;
    Table<double> gap, latency;
    Table<int32_t> path;  // all paths, one after the other
    bool weighted = false;
    struct Follower {
        int32_t flow;
        uint32_t next;
    };
    Table<Follower> followers;

    // Per link.
    Table<Link> links;
    Table<double> busy;          // seconds; less the time of day at which the present use began
    Table<double> carried;       // bytes, of flows that ended before the last `tally`
    std::vector<int32_t> ended;  // flows that ended since
    Table<uint32_t> lists;       // hops of all links, in blocks of powers of two
    std::vector<uint32_t> spare[33];  // blocks free again, by their `room`
    std::vector<int32_t> used;        // every link with flows, and some that had them

    // Per flow in flight.
    uint32_t shift = 0;
    Table<Slot> slots;
    Table<Hop> ways;  // of slot i from i << shift
    std::vector<uint32_t> free_slots;
    Table<Ending> endings;  // heap: below `at` stand 4 * at to 4 * at + 3, in one cache line
    Table<uint32_t> heap_at;

    // Time.
    Table<Timer> agenda;  // sorted; consumed from agenda_at
    size_t agenda_at = 0;
    std::vector<Timer> timers;  // heap

    // One instant.
    std::vector<int32_t> beginning, arrivals, ready_before;
    std::vector<uint32_t> departures, touched;
    std::vector<Key> dirty;
    int64_t disturbed = 0;

    // How far the levels of this instant are: the work may be left for a breath and taken up again.
    enum Stage { AT_PEACE, ATTACHING, REPAIRING, FILLING } stage = AT_PEACE;
    size_t attached = 0;   // of `arrivals`
    size_t newcomers = 0;  // where they begin in `touched`
    int64_t budget = 0;    // balances before a repair gives way
    double water = 0.0;    // of a full solve: the level so far
    int64_t others = 0;    // steps beside counters.visits
    int64_t stop = 0;      // steps at which run() breathes
    bool breathless() const { return counters.visits + others > stop; }

    // Crowds.
    std::vector<Crowd> crowds;
    std::vector<uint32_t> free_crowds;
    Table<Side> sides;             // by link; empty until a link holds many
    std::vector<int32_t> wanting;  // links to look for members at, when all levels are right
    int64_t crowded = 0;           // members of all crowds

    // Scratch.
    Table<uint32_t> table;
    std::vector<double> second;     // of each held flow, the lowest level elsewhere
    std::vector<int32_t> crosses;   // by slot: the link that asks for members, if it is crossed
    std::vector<uint32_t> joining;  // hops of passing flows that a falling level will hold
    struct Filling {
        double weight;
        uint32_t rising;
    };
    Table<Filling> filling;
    Table<Key> shares;  // of links, ascending, those from `lowest` on still to come
    size_t lowest = 0;
    Table<Key> later;  // heap: links that have grown more since

    // ---- flows
    // ---------------------------------------------------------------------------------------------

    static void column(Table<double>& to, const double* from, int64_t first, int64_t n,
                       double otherwise) {
        if (!from && to.empty()) return;
        to.resize(first, otherwise);
        if (from)
            to.insert(to.end(), from, from + n);
        else
            to.resize(first + n, otherwise);
    }

    double gap_of(int32_t f) const { return gap.empty() ? 0.0 : gap[f]; }
    double latency_of(int32_t f) const { return latency.empty() ? 0.0 : latency[f]; }
    const int32_t* path_of(int32_t f) const { return path.data() + flows[f].path_at; }
    bool same_path(int32_t f, const int32_t* to, uint32_t n) const {
        return flows[f].hops == n && std::equal(to, to + n, path_of(f));
    }

    void set_path(int32_t f, const int32_t* to, uint32_t n) {
        if (n > flows[f].hops) {
            flows[f].path_at = static_cast<int64_t>(path.size());
            path.insert(path.end(), to, to + n);
        } else {
            std::copy(to, to + n, path.begin() + flows[f].path_at);
        }
        flows[f].hops = static_cast<uint16_t>(n);
    }

    void depend(int64_t first, int64_t n, const int64_t* offsets, const int32_t* after) {
        if (followers.size() + 2 * offsets[n] >= LONE) throw std::bad_alloc();
        for (int64_t i = n - 1; i >= 0; --i) {
            const int32_t f = static_cast<int32_t>(first + i);
            for (int64_t k = offsets[i]; k < offsets[i + 1]; ++k) {
                const int32_t before = after[k];
                if (flows[before].state == DONE) {
                    flows[f].earliest =
                        std::max(flows[f].earliest, flows[before].finish + gap_of(f));
                    continue;
                }
                ++flows[f].waits;
                follow(flows[before].follower, f);
            }
        }
    }

    void fetch_follower(int32_t f) const {
        const uint32_t first = flows[f].follower;
        if (first != NONE && first & LONE) fetch(&flows[first & ~LONE]);
    }

    void follow(uint32_t& follower, int32_t f) {
        if (follower == NONE) {
            follower = LONE | static_cast<uint32_t>(f);
            return;
        }
        if (follower & LONE) {
            followers.push_back({static_cast<int32_t>(follower & ~LONE), NONE});
            follower = static_cast<uint32_t>(followers.size() - 1);
        }
        followers.push_back({f, follower});
        follower = static_cast<uint32_t>(followers.size() - 1);
    }

    void put_on_agenda(int64_t first) {
        agenda.erase(agenda.begin(), agenda.begin() + agenda_at);
        agenda_at = 0;
        const auto old = static_cast<int64_t>(agenda.size());
        for (int64_t f = first; f < known(); ++f)
            if (flows[f].waits == 0)
                agenda.push_back({flows[f].earliest, static_cast<int32_t>(f), 0});
        if (!std::is_sorted(agenda.begin() + old, agenda.end()))
            std::sort(agenda.begin() + old, agenda.end());
        std::inplace_merge(agenda.begin(), agenda.begin() + old, agenda.end());
    }

    void clear_agenda() {
        Table<Timer>().swap(agenda);
        agenda_at = 0;
    }

    // ---- one instant
    // ---------------------------------------------------------------------------------------------

    void start_due() {
        const double due = now + now * SAME_INSTANT;
        for (;;) {
            for (; agenda_at < agenda.size() && agenda[agenda_at].time <= due; ++agenda_at)
                beginning.push_back(agenda[agenda_at].flow);
            while (!timers.empty() && timers.front().time <= due) {
                const Timer t = timers.front();
                std::pop_heap(timers.begin(), timers.end(), std::greater<>());
                timers.pop_back();
                if (t.landing)
                    finish(t.flow);
                else
                    beginning.push_back(t.flow);
            }
            if (beginning.empty()) return;
            if (agenda_at && agenda_at == agenda.size())
                clear_agenda();  // its memory is wanted by the flows in flight
            for (size_t i = 0; i < beginning.size(); ++i) begin(beginning[i]);
            beginning.clear();
        }
    }

    void begin(int32_t f) {
        fetch(path_of(f));
        flows[f].start = now;
        flows[f].state = FLYING;
        ++counters.visits;
        if (flows[f].size > 0)
            arrivals.push_back(f);
        else
            land(f);
    }

    void land(int32_t f) {
        const double late = latency_of(f);
        flows[f].finish = now + late;
        if (late > 0) {
            flows[f].state = TAIL;
            push_timer({flows[f].finish, f, 1});
        } else {
            finish(f);
        }
    }

    void finish(int32_t f) {
        flows[f].state = DONE;
        ++finished;
        if (flows[f].watched & 1 << FINISHED) events.push_back({now, f, FINISHED});
        const uint32_t first = flows[f].follower;
        if (first == NONE) return;
        if (first & LONE) return done_before(static_cast<int32_t>(first & ~LONE), flows[f].finish);
        for (uint32_t k = first; k != NONE; k = followers[k].next)
            done_before(followers[k].flow, flows[f].finish);
    }

    void done_before(int32_t f, double time) {
        flows[f].earliest = std::max(flows[f].earliest, time + gap_of(f));
        if (--flows[f].waits == 0) release(f);
    }

    void release(int32_t f) {
        if (flows[f].watched & 1 << READY) events.push_back({now, f, READY});
        flows[f].watched &= ~(1 << READY);
        if (flows[f].earliest <= now + now * SAME_INSTANT)
            beginning.push_back(f);
        else
            push_timer({flows[f].earliest, f, 0});
    }

    void push_timer(const Timer& t) {
        timers.push_back(t);
        std::push_heap(timers.begin(), timers.end(), std::greater<>());
    }

    void report_ready_before() {
        for (int32_t f : ready_before) {
            events.push_back({now, f, READY});
            flows[f].watched &= ~(1 << READY);
        }
        ready_before.clear();
    }

    void end_due() {
        const double due = now + now * SAME_INSTANT;
        const size_t patience = 64 + endings.size() / 16;
        for (size_t ended = 0; !endings.empty() && endings[0].key <= due; ++ended) {
            if (ended > patience) return end_many(due);
            const uint32_t i = endings[0].slot;
            const double end = ending(i);
            if (end > due) {
                endings[0].key = end;
                sift_down(0);
                continue;
            }
            if (slots[i].flow < -1) {
                endings[0].key = end_members(i, due);
                sift_down(0);
                continue;
            }
            fetch_follower(slots[i].flow);
            take_off_heap(i);
            end_flow(i);
        }
    }

    void end_many(double due) {
        size_t kept = 0;
        for (size_t k = 0; k < endings.size(); ++k) {
            Ending e = endings[k];
            if (e.key <= due) {
                e.key = ending(e.slot);
                if (e.key <= due && slots[e.slot].flow < -1) {
                    e.key = end_members(e.slot, due);
                } else if (e.key <= due) {
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
        ended.push_back(f);
        flows[f].slot = NONE;
        departures.push_back(i);
        land(f);
    }

    double next_time() {
        double time = INF;
        while (!endings.empty()) {
            const double end = ending(endings[0].slot);
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

    // ---- who is in flight
    // ---------------------------------------------------------------------------------------------

    double moved(uint32_t i) const {
        return slots[i].rate > 0 ? slots[i].rate * (now - slots[i].since) : 0.0;
    }
    double ending(uint32_t i) const {
        return slots[i].rate > 0 ? slots[i].since + slots[i].left / slots[i].rate : INF;
    }

    void settle(uint32_t i) {
        if (slots[i].flow < 0) return tick(crowd_of(i));
        slots[i].left = std::max(0.0, slots[i].left - moved(i));
        slots[i].since = now;
    }

    const Hop* way_of(uint32_t i) const { return &ways[static_cast<size_t>(i) << shift]; }

    // What ended flows carried is written to their links when somebody asks.
    void tally() {
        for (int32_t f : ended) {
            const double bytes = flows[f].weight * flows[f].size;
            for (const int32_t *p = path_of(f), *end = p + flows[f].hops; p != end; ++p)
                carried[*p] += bytes;
        }
        ended.clear();
    }

    void touch(uint32_t i) {
        if (slots[i].touched) return;
        slots[i].touched = 1;
        touched.push_back(i);
    }

    // A flow that starts where one on the same path has just ended runs on in its place, at its
    // rate.
    void take_over() {
        if (departures.empty() || arrivals.empty()) return;
        const size_t room = departures.size() > FEW ? lay_table() : 0;
        size_t kept = 0;
        for (int32_t f : arrivals) {
            const uint32_t i = find_place(f, room);
            if (i == NONE)
                arrivals[kept++] = f;
            else
                take_place(i, f);
        }
        if (kept == arrivals.size()) return;
        arrivals.resize(kept);
        departures.erase(
            std::remove_if(departures.begin(), departures.end(),
                           [&](uint32_t i) { return flows[slots[i].flow].state == FLYING; }),
            departures.end());
    }

    // What ended by its path, in as many places as are returned.
    size_t lay_table() {
        size_t room = 4;
        while (room < 2 * departures.size()) room *= 2;
        table.assign(room, NONE);
        for (uint32_t i : departures) {
            size_t at = path_key(way_of(i), slots[i].hops) & (room - 1);
            while (table[at] != NONE) at = (at + 1) & (room - 1);
            table[at] = i;
        }
        return room;
    }

    static int32_t link_of(int32_t link) { return link; }
    static int32_t link_of(const Hop& hop) { return hop.link; }

    template <typename Step>
    static uint64_t path_key(const Step* p, uint32_t n) {
        uint64_t key = 0;
        for (uint32_t k = 0; k < n; ++k)
            key = (key ^ static_cast<uint64_t>(link_of(p[k]))) * 0x9E3779B97F4A7C15u + (key >> 29);
        return key >> 20;
    }

    uint32_t find_place(int32_t f, size_t room) const {
        if (room == 0) {
            for (uint32_t i : departures)
                if (fits(f, i)) return i;
            return NONE;
        }
        for (size_t at = path_key(path_of(f), flows[f].hops) & (room - 1); table[at] != NONE;
             at = (at + 1) & (room - 1))
            if (fits(f, table[at])) return table[at];
        return NONE;
    }

    // Whether a flow may run on in the place of one that has just ended.
    bool fits(int32_t f, uint32_t i) const {
        const int32_t* p = path_of(f);
        return slots[i].hops == flows[f].hops && slots[i].weight == flows[f].weight &&
               flows[slots[i].flow].state != FLYING &&
               std::equal(p, p + flows[f].hops, way_of(i),
                          [](int32_t l, const Hop& hop) { return l == hop.link; });
    }

    void take_place(uint32_t i, int32_t f) {
        slots[i].left = flows[f].size * 8;
        slots[i].since = now;
        slots[i].flow = f;
        flows[f].slot = i;
        ++counters.takeovers;
        if (slots[i].crowd == NONE) return touch(i);
        Crowd& c = crowds[slots[i].crowd];
        slots[i].left += clock(c);
        push(c.ends, {slots[i].left, i});
        touch(c.leader);
    }

    // A collective starts many flows at once: room for just these, where doubling would waste half.
    void make_room(size_t n) {
        fit_ways();
        if (n > 4 * links.size()) make_lists();
        const size_t all = slots.size() + n - std::min(n, free_slots.size());
        if (all <= 2 * slots.size()) return;
        slots.reserve(all);
        ways.reserve(all << shift);
        heap_at.reserve(all);
        endings.reserve(all);
    }

    void make_lists() {
        std::vector<uint32_t> coming(links.size());
        for (int32_t f : arrivals)
            for (const int32_t *p = path_of(f), *end = p + flows[f].hops; p != end; ++p)
                ++coming[*p];
        size_t all = lists.size();
        for (size_t l = 0; l < links.size(); ++l) {
            const uint64_t most = uint64_t{links[l].count} + coming[l];
            uint8_t room = 0;
            if (most > room_of(links[l])) room = std::max<uint8_t>(LEAST_ROOM, links[l].room);
            while (room && most > uint64_t{1} << (room - 1)) ++room;
            coming[l] = room;
            all += room ? size_t{1} << (room - 1) : 0;
        }
        lists.reserve(all);
        for (size_t l = 0; l < links.size(); ++l)
            if (coming[l]) grow(links[l], static_cast<uint8_t>(coming[l]));
    }

    uint32_t take_slot() {
        if (free_slots.empty()) {
            const uint32_t i = static_cast<uint32_t>(slots.size());
            if (static_cast<uint64_t>(i + 1) << shift >= NONE) throw std::bad_alloc();
            slots.emplace_back();
            ways.resize(ways.size() + (size_t{1} << shift));
            heap_at.push_back(NONE);
            return i;
        }
        const uint32_t i = free_slots.back();
        free_slots.pop_back();
        return i;
    }

    void attach(int32_t f) {
        const uint32_t i = take_slot(), n = flows[f].hops;
        slots[i] = {INF, 0.0, flows[f].weight,   -1,  static_cast<uint16_t>(n),
                    1,   0,   flows[f].size * 8, now, f,
                    NONE, 0.0};
        flows[f].slot = i;
        fetch_follower(f);
        const int32_t* p = path_of(f);
        for (uint32_t k = 0; k < n; ++k) enter(p[k], (i << shift) + k);
        touch(i);
        if (crowded) pass_by(p, n);
    }

    void enter(int32_t l, uint32_t hop) {
        Link& link = links[l];
        if (link.count == room_of(link)) grow(link, link.room ? link.room + 1 : LEAST_ROOM);
        if (link.count == 0) busy[l] -= now;
        if (!link.listed) {
            link.listed = 1;
            used.push_back(l);
        }
        ways[hop].link = l;
        put(list_of(link), link.count++, hop);
    }

    uint32_t* list_of(const Link& link) { return lists.data() + link.list; }
    const uint32_t* list_of(const Link& link) const { return lists.data() + link.list; }
    static constexpr uint8_t LEAST_ROOM = 3;  // four hops
    static uint32_t room_of(const Link& link) {
        return link.room ? uint32_t{1} << (link.room - 1) : 0;
    }

    void put(uint32_t* list, uint32_t at, uint32_t hop) {
        list[at] = hop;
        ways[hop].place = at;
    }

    void exchange(uint32_t* list, uint32_t a, uint32_t b) {
        const uint32_t hop = list[a];
        put(list, a, list[b]);
        put(list, b, hop);
    }

    // A link begins or ceases to hold a flow: held ones stand first in its list.
    void hold(int32_t l, uint32_t at, Slot& s) {
        Link& link = links[l];
        exchange(list_of(link), at, link.held++);
        link.weight += s.weight;
        s.holder = l;
    }

    void let_go(int32_t l, uint32_t at, const Slot& s) {
        Link& link = links[l];
        exchange(list_of(link), at, --link.held);
        link.weight = link.held ? link.weight - s.weight : 0.0;
    }

    uint32_t place_on(uint32_t i, int32_t l) const {
        const Hop* w = way_of(i);
        while (w->link != l) ++w;
        return w->place;
    }

    void grow(Link& link, uint8_t room) {
        if (room > 32) throw std::bad_alloc();
        uint32_t list;
        if (spare[room].empty()) {
            if (lists.size() + (size_t{1} << (room - 1)) > NONE) throw std::bad_alloc();
            list = static_cast<uint32_t>(lists.size());
            lists.resize(list + (size_t{1} << (room - 1)));
        } else {
            list = spare[room].back();
            spare[room].pop_back();
        }
        std::copy_n(list_of(link), link.count, lists.data() + list);
        if (link.room) spare[link.room].push_back(link.list);
        link.list = list;
        link.room = room;
    }

    void detach(uint32_t i) {
        Slot& s = slots[i];
        if (s.crowd != NONE) step_out(i);
        const double rate = s.weight * s.x1;
        const Hop* w = way_of(i);
        for (uint32_t k = 0; k < s.hops; ++k) {
            const int32_t l = w[k].link;
            Link& link = links[l];
            uint32_t* list = list_of(link);
            if (l == s.holder)
                let_go(l, w[k].place, s);
            else
                link.load -= rate;
            put(list, w[k].place, list[link.count - 1]);
            --link.count;
            if (link.count == 0)
                empty(l);
            else if (link.level < INF)
                mark(l, link.level);
        }
        slots[i].flow = -1;
        s.touched = 0;
        free_slots.push_back(i);
    }

    void empty(int32_t l) {
        links[l].level = INF;
        links[l].load = links[l].peak = 0.0;
        busy[l] += now;
        if (links[l].trip < INF) arm(l);
    }

    // Room for the paths of what arrives: places are numbered slot << shift | hop. A few paths may
    // be far longer than all others: their room is given up when many arrive and none is in flight.
    void fit_ways() {
        uint32_t longest = 1, wider = shift;
        for (int32_t f : arrivals) longest = std::max<uint32_t>(longest, flows[f].hops);
        if (slots.size() == free_slots.size() && 4 * arrivals.size() > slots.size()) wider = 0;
        while (uint32_t{1} << wider < longest) ++wider;
        if (wider != shift) lay_ways(wider);
    }

    void lay_ways(uint32_t wider) {
        if (slots.size() << wider >= NONE) throw std::bad_alloc();
        Table<Hop> wide(slots.size() << wider);
        for (uint32_t i = 0; i < slots.size(); ++i) {
            for (uint32_t k = 0; slots[i].flow >= 0 && k < slots[i].hops; ++k) {
                const uint32_t to = (i << wider) + k;
                wide[to] = way_of(i)[k];
                list_of(links[wide[to].link])[wide[to].place] = to;
            }
        }
        ways.swap(wide);
        shift = wider;
    }

    // ---- groups, side by side
    // ---------------------------------------------------------------------------------------------

    enum Parting { NOT_APART, APART_UNDER_WAY, APART_DONE };

    // Whether nothing has happened yet, and nobody wants to know when it does.
    bool fresh() const {
        return known() >= APART && !watching && !tied && now == 0.0 && counters.instants == 0 &&
               finished == 0 && arrivals.empty() && slots.empty() && timers.empty();
    }

    Parting run_apart();
    // Before anything changes: this engine has seen none of what the groups have done so far.
    void stay_together();

    // ---- levels
    // ---------------------------------------------------------------------------------------------

    // False: out of breath; call again.
    bool solve() {
        if (stage == AT_PEACE) take_leave();
        if (stage == ATTACHING && !attach_all()) return false;
        if (stage == REPAIRING && !repair()) return false;
        if (stage == FILLING && !fill()) return false;
        stage = AT_PEACE;
        disturbed = 0;
        commit();
        if (!wanting.empty()) gather();
        return true;
    }

    // The network and the flows may be changed only when all levels are right.
    void come_to_peace() {
        stay_together();
        stop = std::numeric_limits<int64_t>::max();
        if (stage != AT_PEACE) solve();
    }

    void take_leave() {
        take_over();
        disturbed += static_cast<int64_t>(departures.size() + arrivals.size());
        others += static_cast<int64_t>(departures.size());
        for (uint32_t i : departures) detach(i);
        departures.clear();
        newcomers = touched.size();
        make_room(arrivals.size());
        stage = ATTACHING;
    }

    bool attach_all() {
        for (; attached < arrivals.size(); ++attached) {
            if (breathless()) return false;
            ++others;
            attach(arrivals[attached]);
        }
        arrivals.clear();
        attached = 0;
        const int64_t flying = static_cast<int64_t>(endings.size() + touched.size()) + crowded;
        if (8 * disturbed > flying) {
            begin_fill();
            return true;
        }
        for (size_t k = newcomers; k < touched.size(); ++k)
            if (slots[touched[k]].holder < 0) introduce(touched[k]);
        budget = PATIENCE * (20 + static_cast<int64_t>(used.size()));
        stage = REPAIRING;
        return true;
    }

    // What fits on a link without a level; the slack ends ties.
    static double full(const Link& link) { return link.capacity * (1 + SLACK); }

    // What a flow passing must do to a link to have it balanced: change its rate at all where the
    // link has a level, overflow it where it has none, nothing where it waits for its balance
    // already. One comparison tells.
    void arm(int32_t l) { links[l].trip = links[l].level < INF ? -INF : full(links[l]); }

    void mark(int32_t l, double key) {
        if (links[l].trip == INF) return;
        links[l].trip = INF;
        size_t at = dirty.size();
        dirty.push_back({key, l});
        while (at > 0) {
            const size_t parent = (at - 1) / 4;
            if (dirty[parent].value <= key) break;
            dirty[at] = dirty[parent];
            at = parent;
        }
        dirty[at] = {key, l};
    }

    void pop_dirty() {
        const Key e = dirty.back();
        dirty.pop_back();
        const size_t n = dirty.size();
        if (n == 0) return;
        size_t at = 0;
        for (;;) {
            const size_t first = 4 * at + 1;
            if (first >= n) break;
            size_t least = first;
            double value = dirty[first].value;
            for (size_t child = first + 1; child < std::min(first + 4, n); ++child) {
                const bool lower = dirty[child].value < value;
                least = lower ? child : least;
                value = lower ? dirty[child].value : value;
            }
            if (value >= e.value) break;
            dirty[at] = dirty[least];
            at = least;
        }
        dirty[at] = e;
    }

    // A new flow is held at once by the link that will most likely hold it back: the lowest level
    // on its path or, where there is none, the link with least room. When that link has found its
    // level, the others are told of the flow.
    void introduce(uint32_t i) {
        if (alone(i)) return hold_alone(i);
        Slot& s = slots[i];
        const Hop* w = way_of(i);
        int32_t anchor = w[0].link;
        double room = INF;
        s.x1 = INF;
        for (uint32_t k = 0; k < s.hops; ++k) {
            const Link& g = links[w[k].link];
            if (g.level < s.x1) {
                s.x1 = g.level;
                anchor = w[k].link;
            } else if (s.x1 == INF && links[w[k].link].capacity - g.load < room) {
                room = links[w[k].link].capacity - g.load;
                anchor = w[k].link;
            }
        }
        for (uint32_t k = 0; k < s.hops; ++k) {
            Link& g = links[w[k].link];
            if (w[k].link == anchor)
                hold(anchor, w[k].place, s);
            else
                g.peak = std::max(g.peak, s.x1);
        }
        links[anchor].forced = 1;
        mark(anchor, s.x1 < INF ? s.x1 : room);
    }

    // Whether a new flow meets no other, and none of its links waits for a balance of before.
    bool alone(uint32_t i) const {
        const Hop* w = way_of(i);
        return std::all_of(w, w + slots[i].hops, [&](const Hop& hop) {
            return links[hop.link].count == 1 && links[hop.link].trip < INF;
        });
    }

    // Where nobody else is, the narrowest link holds the flow and nobody need be told.
    void hold_alone(uint32_t i) {
        Slot& s = slots[i];
        const Hop* w = way_of(i);
        const Hop* anchor = w;
        for (const Hop* hop = w + 1; hop < w + s.hops; ++hop)
            if (links[hop->link].capacity < links[anchor->link].capacity) anchor = hop;
        hold(anchor->link, anchor->place, s);
        Link& narrowest = links[anchor->link];
        narrowest.level = s.x1 = share(narrowest, 0.0, s.weight);
        narrowest.trip = -INF;
        s.fresh = 0;
        for (const Hop* hop = w; hop < w + s.hops; ++hop) {
            if (hop == anchor) continue;
            links[hop->link].load = s.weight * s.x1;
            links[hop->link].peak = s.x1;
        }
    }

    bool same(double a, double b) const {
        return a == b || std::fabs(a - b) <= same_level * std::min(a, b);
    }

    bool repair() {
        while (!dirty.empty()) {
            if (breathless()) return false;
            const int32_t l = dirty.front().link;
            pop_dirty();
            const bool force = links[l].forced;
            links[l].forced = 0;
            if (--budget < 0) {
                ++counters.fallbacks;
                arm(l);
                begin_fill();
                return true;
            }
            if (links[l].count) balance(l, force);
            arm(l);
        }
        return true;
    }

    // Find the level of one link, given the levels of all others, and tell the flows that this
    // moves.
    void balance(int32_t l, bool force) {
        ++counters.evaluations;
        Link& link = links[l];
        if (guests_of(l)) {
            if (link.held == 0 && link.load <= full(link)) return;  // room is kept for them
            show_out(l);
            sum_up(l);
        } else if (++link.age > REFRESH) {
            refresh(l);
        }
        if (link.held == 0 && link.load <= full(link)) {
            link.level = INF;
            return;
        }
        const double level = link.held ? share(link, link.load, link.weight) : 0.0;
        if (!same(level, link.level))
            level > link.level ? rise(l, level) : fall(l, level);
        else if (force)
            fall(l, link.level);
    }

    static double share(const Link& link, double load, double weight) {
        return link.capacity > 0 ? std::max(0.0, (link.capacity - load) / weight) : 0.0;
    }

    // A long list is summed up as seldom as keeps the cost of a balance what it is for others.
    SELDOM void refresh(int32_t l) {
        const uint32_t told = links[l].count - members_of(l);
        const auto drawn = static_cast<uint64_t>(counters.evaluations) * 0x9E3779B97F4A7C15u >> 40;
        if (told > LONG_LIST && drawn % (told / LONG_LIST + 1))
            links[l].age = 0;
        else
            sum_up(l);
    }

    // The sums of a link anew, without the rounding errors of their differences.
    void sum_up(int32_t l) {
        Link& link = links[l];
        const uint32_t members = members_of(l);
        link.age = 0;
        counters.visits += link.count - members;
        link.load = link.peak = 0.0;
        link.weight = members ? crowds[sides[l].crowd].weight : 0.0;
        for (uint32_t k = members; k < link.held; ++k)
            link.weight += slots[list_of(link)[k] >> shift].weight;
        for (uint32_t k = link.held; k < link.count; ++k) {
            const Slot& s = slots[list_of(link)[k] >> shift];
            if (!s.fresh) link.load += s.weight * s.x1;
            link.peak = std::max(link.peak, s.x1);
        }
    }

    // Up: held flows that another link now holds back go to that one, the rest rises.
    void rise(int32_t l, double level) {
        ++counters.changes;
        Link& link = links[l];
        uint32_t members;
        for (double asked = level;; level = asked) {
            members = members_of(l);
            counters.visits += link.held - members;
            if (second.size() < link.held) second.resize(2 * link.held);
            double lowest = INF;
            for (uint32_t k = members; k < link.held; ++k) {
                second[k] = level_elsewhere(list_of(link)[k] >> shift, l);
                lowest = std::min(lowest, second[k]);
            }
            if (lowest < level) level = share_of_the_rest(link, members, link.load, level);
            if (!members || !outgrow(l, level)) break;
        }
        set_level(l, members, level);
        double load = link.load, peak = link.peak;  // telling spoils them
        for (uint32_t k = link.held; k-- > members;) {  // backwards: letting go moves the last
            const uint32_t i = list_of(link)[k] >> shift;
            Slot& s = slots[i];
            if (second[k] < level) {
                let_go(l, k, s);
                hand_over(s, i);
                load += s.weight * s.x1;
                peak = std::max(peak, s.x1);
            } else {
                tell(s, i, level);
            }
        }
        link.load = load;
        link.peak = peak;
    }

    double level_elsewhere(uint32_t i, int32_t l) const {
        const Hop* w = way_of(i);
        double lowest = INF;
        for (uint32_t k = 0; k < slots[i].hops; ++k)
            if (w[k].link != l) lowest = std::min(lowest, links[w[k].link].level);
        return lowest;
    }

    // The level of a link for those of its held flows that nobody else keeps below it; `second`
    // holds what others allow.
    double share_of_the_rest(const Link& link, uint32_t members, double load,
                             double level) const {
        double weight = link.weight;
        for (double low = -1.0;;) {  // flows up to `low` have left
            uint32_t left = members;
            double leaving = 0.0, going = 0.0;
            for (uint32_t k = members; k < link.held; ++k) {
                if (second[k] >= level) {
                    ++left;
                } else if (second[k] > low) {
                    const double w = slots[list_of(link)[k] >> shift].weight;
                    going += w;
                    leaving += w * second[k];
                }
            }
            if (left == 0) return INF;
            if (going == 0.0) return level;
            load += leaving;
            weight -= going;
            low = std::nextafter(level, 0.0);
            level = std::max(level, share(link, load, weight));
        }
    }

    void hand_over(Slot& s, uint32_t i) {
        const Hop* w = way_of(i);
        double level = INF;
        uint32_t to = 0;
        for (uint32_t k = 0; k < s.hops; ++k) {
            if (links[w[k].link].level < level) {
                level = links[w[k].link].level;
                to = k;
            }
        }
        hold(w[to].link, w[to].place, s);
        mark(w[to].link, level);
        links[w[to].link].load -= s.weight * level;  // telling adds what is more than this
        tell(s, i, level);
    }

    // Down: held flows fall, and passing flows that are now too fast are held as well.
    void fall(int32_t l, double level) {
        ++counters.changes;
        Link& link = links[l];
        const uint32_t members = members_of(l);
        counters.visits += link.held - members;
        joining.clear();
        if (level < link.peak) level = share_with_more(l, level);
        set_level(l, members, level);
        double load = link.load;  // telling spoils it
        const double peak = link.peak;
        for (uint32_t k = members; k < link.held; ++k) {
            const uint32_t i = list_of(link)[k] >> shift;
            tell(slots[i], i, level);
        }
        for (uint32_t hop : joining) {
            const uint32_t i = hop >> shift;
            Slot& s = slots[i];
            const double was = s.fresh ? 0.0 : s.x1;
            const int32_t from = s.holder;
            let_go(from, place_on(i, from), s);
            links[from].load += s.weight * was;
            links[from].peak = std::max(links[from].peak, level);
            mark(from, links[from].level);
            load -= s.weight * was;
            hold(l, ways[hop].place, s);
            tell(s, i, level);
        }
        link.load = load;
        link.peak = peak;
    }

    // The level of a link that must also hold the passing flows faster than it: from below, until
    // none is too slow.
    double share_with_more(int32_t l, double level) {
        Link& link = links[l];
        counters.visits += link.count - link.held;
        double load = 0.0, weight = link.weight, peak = 0.0;
        bool fresh = false;
        link.load = 0.0;
        for (uint32_t k = link.held; k < link.count; ++k) {
            const Slot& s = slots[list_of(link)[k] >> shift];
            const double rate = s.fresh ? 0.0 : s.weight * s.x1;
            link.load += rate;
            if (s.x1 > level) {
                joining.push_back(list_of(link)[k]);
                weight += s.weight;
                fresh |= s.fresh;
            } else {
                load += rate;
                peak = std::max(peak, s.x1);
            }
        }
        link.peak = peak;
        if (fresh && level > 0) {  // what joins was not counted before: the level may be lower than
                                   // the one asked for
            joining.clear();
            return share_with_more(l, 0.0);
        }
        for (bool all = false; !all && !joining.empty();) {
            all = true;
            level = std::max(level, share(link, load, weight));
            size_t kept = 0;
            for (uint32_t hop : joining) {
                const Slot& s = slots[hop >> shift];
                if (s.x1 > level) {
                    joining[kept++] = hop;
                    continue;
                }
                all = false;
                load += s.fresh ? 0.0 : s.weight * s.x1;
                weight -= s.weight;
                link.peak = std::max(link.peak, s.x1);
            }
            joining.resize(kept);
        }
        if (!joining.empty()) return level;
        return link.held ? share(link, link.load, link.weight) : INF;
    }

    // All links on a flow's path learn its new rate; its holder and the link that moves it put
    // their own load right.
    void tell(Slot& s, uint32_t i, double rate) {
        const double was = s.fresh ? 0.0 : s.x1;
        if (rate == was && !s.fresh) return;
        s.fresh = 0;
        s.x1 = rate;
        touch(i);
        const Hop* w = way_of(i);
        const double more = s.weight * (rate - was);
        for (const Hop* end = w + s.hops; w != end; ++w) {
            Link& g = links[w->link];
            g.load += more;
            g.peak = std::max(g.peak, rate);
            if (g.load > g.trip) mark(w->link, g.level < INF ? g.level : rate);
        }
    }

    // All levels anew: raise all rates together until a link is full; its flows keep that rate; go
    // on with the others.
    void begin_fill() {
        for (Crowd& c : crowds)
            while (c.link >= 0) step_out(first_of(c.link));
        ++counters.fills;
        stage = FILLING;
        for (const Key& d : dirty) {
            links[d.link].forced = 0;
            arm(d.link);
        }
        dirty.clear();
        if (filling.empty()) filling.resize(links.size());
        shares.clear();
        later.clear();
        lowest = 0;
        drop_unused();
        for (int32_t l : used) {
            Link& link = links[l];
            filling[l] = {static_cast<double>(link.count), link.count};
            links[l].level = INF;
            links[l].load = links[l].peak = link.weight = 0.0;
            link.held = link.age = 0;
        }
        if (weighted) weigh();
        for (int32_t l : used) shares.push_back({links[l].capacity / filling[l].weight, l});
        std::sort(shares.begin(), shares.end(), [](const Key& a, const Key& b) { return b > a; });
        for (const Ending& e : endings) slots[e.slot].x1 = INF;
        for (uint32_t i : touched) slots[i].x1 = INF;
        others += static_cast<int64_t>(used.size());
        water = 0.0;
    }

    bool fill() {
        while (lowest < shares.size() || !later.empty()) {
            if (breathless()) return false;
            const Key top = least_share();
            Filling& f = filling[top.link];
            if (f.rising == 0) continue;
            const double level =
                std::max(water, share(links[top.link], links[top.link].load, f.weight));
            if (level > top.value && !same(level, top.value)) {
                later.push_back({level, top.link});
                std::push_heap(later.begin(), later.end(), std::greater<>());
                continue;
            }
            water = level;
            freeze(top.link, water);
        }
        for (int32_t l : used) arm(l);
        return true;
    }

    // The link that is full next; what is sorted once is read sooner than a heap.
    Key least_share() {
        if (later.empty() || (lowest < shares.size() && later.front() > shares[lowest]))
            return shares[lowest++];
        const Key top = later.front();
        std::pop_heap(later.begin(), later.end(), std::greater<>());
        later.pop_back();
        return top;
    }

    void drop_unused() {
        size_t kept = 0;
        for (int32_t l : used) {
            if (links[l].count)
                used[kept++] = l;
            else
                links[l].listed = 0;
        }
        used.resize(kept);
    }

    void weigh() {
        for (int32_t l : used) {
            filling[l].weight = 0.0;
            for (uint32_t k = 0; k < links[l].count; ++k)
                filling[l].weight += slots[list_of(links[l])[k] >> shift].weight;
        }
    }

    void freeze(int32_t l, double rate) {
        Link& link = links[l];
        counters.visits += link.count;
        links[l].level = rate;
        for (uint32_t at = 0; at < link.count; ++at) {
            const uint32_t i = list_of(link)[at] >> shift;
            Slot& s = slots[i];
            if (s.x1 < INF) continue;
            s.x1 = rate;
            s.fresh = 0;
            if (!same(rate, s.rate)) touch(i);
            hold(l, at, s);
            const Hop* w = way_of(i);
            for (uint32_t k = 0; k < s.hops; ++k) {
                if (w[k].link == l) continue;
                links[w[k].link].load += s.weight * rate;
                links[w[k].link].peak = rate;
                filling[w[k].link].weight -= s.weight;
                --filling[w[k].link].rising;
            }
        }
    }

    // ---- crowds
    // ---------------------------------------------------------------------------------------------
    //
    // A member's other links have no level and keep room for it to run at its limit, which is above
    // its rate: their `load` counts the limit. So no other link needs to hear of what happens to a
    // crowd until its level reaches a limit; then that member steps out and is a held flow like any
    // other. A link that all flows cross only together with the one that holds the crowd, and that
    // is no narrower, can never be the first to be full: it keeps no room for guests ("behind").
    //
    // A link with guests that may get a level, or that a flow enters which spares the crowd's link,
    // shows them out first: whatever finds levels sees rates as they are. Members are looked for
    // when all levels are right, after flows have been told one by one some times over, and each
    // limit leaves room to grow: so who joins and steps out costs a few visits a flow and doubling.

    uint32_t members_of(int32_t l) const { return crowded ? sides[l].members : 0; }
    uint32_t guests_of(int32_t l) const { return crowded ? sides[l].guests : 0; }
    uint32_t first_of(int32_t l) const { return list_of(links[l])[0] >> shift; }
    Crowd& crowd_of(uint32_t leader) {
        return crowds[static_cast<uint32_t>(-2 - slots[leader].flow)];
    }
    double clock(const Crowd& c) const { return c.clock + moved(c.leader); }

    static void push(Marks& to, const Mark& mark) {
        to.push_back(mark);
        std::push_heap(to.begin(), to.end(), std::greater<>());
    }
    static void pop(Marks& from) {
        std::pop_heap(from.begin(), from.end(), std::greater<>());
        from.pop_back();
    }

    SELDOM void tick(Crowd& c) {
        c.clock = clock(c);
        slots[c.leader].since = now;
        lead(c);
    }

    // The leader has as much left as the first member.
    void lead(Crowd& c) {
        while (!c.ends.empty() && !is_next(c, c.ends[0])) pop(c.ends);
        slots[c.leader].left = c.ends.empty() ? INF : std::max(0.0, c.ends[0].key - c.clock);
    }

    bool is_next(const Crowd& c, const Mark& end) const {
        const Slot& s = slots[end.slot];
        return s.crowd != NONE && &crowds[s.crowd] == &c && s.left == end.key &&
               flows[s.flow].state == FLYING;
    }

    // Those that are due; returns when the next one is.
    SELDOM double end_members(uint32_t leader, double due) {
        Crowd& c = crowd_of(leader);
        for (lead(c); ending(leader) <= due; lead(c)) {
            const uint32_t i = c.ends[0].slot;
            pop(c.ends);
            end_flow(i);
        }
        return ending(leader);
    }

    // Flows from which on a clock of their own pays: the fewer, the more links each has to tell.
    uint32_t least_crowd() const {
        return shift > USUAL ? std::max(CROWD >> (shift - USUAL), 2u) : CROWD;
    }

    void set_level(int32_t l, uint32_t members, double level) {
        links[l].level = level;
        if (members) lead_to(l, level);
        if (links[l].held - members >= (members ? least_crowd() / 4 + 1 : least_crowd())) tire(l);
    }

    SELDOM void lead_to(int32_t l, double level) {
        const uint32_t leader = crowds[sides[l].crowd].leader;
        slots[leader].x1 = level;
        touch(leader);
    }

    SELDOM void tire(int32_t l) {
        if (sides.empty()) sides.resize(links.size());
        if (++sides[l].rounds == sides[l].patience) wanting.push_back(l);
    }

    // What the load of a link counts for one of its guests, for each unit of weight.
    double kept_for(int32_t l, const Slot& s) const {
        return sides[l].behind == s.holder ? 0.0 : s.limit;
    }

    SELDOM void step_out(uint32_t i) {
        Slot& s = slots[i];
        Crowd& c = crowds[s.crowd];
        s.left = std::max(0.0, s.left - clock(c));
        s.since = now;
        s.rate = slots[c.leader].rate;
        s.x1 = slots[c.leader].x1;
        const Hop* w = way_of(i);
        for (uint32_t k = 0; k < s.hops; ++k)
            w[k].link == s.holder ? leave(w[k]) : stop_passing(w[k].link, s);
        c.weight = sides[c.link].members ? c.weight - s.weight : 0.0;
        s.crowd = NONE;
        touch(i);
        touch(c.leader);
        --crowded;
        if (!sides[c.link].members) disband(c);
    }

    void leave(const Hop& hop) {
        exchange(list_of(links[hop.link]), hop.place, --sides[hop.link].members);
    }

    void stop_passing(int32_t l, const Slot& s) {
        Link& g = links[l];
        g.load += s.weight * (s.x1 - kept_for(l, s));
        g.peak = std::max(g.peak, s.x1);
        if (--sides[l].guests == 0) sides[l].behind = -1;
        if (g.load > g.trip) mark(l, s.x1);
    }

    void disband(Crowd& c) {
        const uint32_t leader = c.leader;
        free_crowds.push_back(sides[c.link].crowd);
        sides[c.link].crowd = NONE;
        c.link = -1;
        Marks().swap(c.ends);
        Marks().swap(c.limits);
        if (heap_at[leader] != NONE) take_off_heap(leader);
        slots[leader].flow = -1;
        slots[leader].touched = 0;
        free_slots.push_back(leader);
    }

    SELDOM void show_out(int32_t l) {
        const Link& link = links[l];
        counters.visits += link.count;
        for (uint32_t k = link.held; k < link.count && sides[l].guests; ++k) {
            const uint32_t i = list_of(link)[k] >> shift;
            if (slots[i].crowd != NONE) step_out(i);
        }
    }

    // Before the capacity of a link changes.
    SELDOM void disperse(int32_t l) {
        while (sides[l].members) step_out(first_of(l));
        show_out(l);
    }

    // A flow begins: what is behind a crowd's link must not let others by.
    SELDOM void pass_by(const int32_t* p, uint32_t n) {
        for (uint32_t k = 0; k < n; ++k) {
            const int32_t behind = sides[p[k]].behind;
            if (behind >= 0 && std::find(p, p + n, behind) == p + n) show_out(p[k]);
        }
    }

    // True where members step out, as their links have no room for this level.
    SELDOM bool outgrow(int32_t l, double level) {
        Crowd& c = crowds[sides[l].crowd];
        uint32_t out = 0;
        while (c.link >= 0 && !c.limits.empty() && c.limits[0].key < level) {
            const Mark top = c.limits[0];
            pop(c.limits);
            const Slot& s = slots[top.slot];
            if (s.crowd == NONE || &crowds[s.crowd] != &c || s.limit != top.key) continue;
            step_out(top.slot);
            ++out;
        }
        counters.visits += out;
        Side& side = sides[l];
        if (out >= least_crowd() / 4 + 1 && side.rounds < side.patience) {
            side.rounds = side.patience;
            wanting.push_back(l);
        }
        return out;
    }

    SELDOM void gather() {
        for (int32_t l : wanting) {
            Side& side = sides[l];
            const uint32_t told = links[l].held - side.members;
            side.rounds = 0;
            if (!told || !(links[l].level > 0 && links[l].level < INF)) continue;
            const bool worth = 2 * recruit(l) >= told;
            side.patience = worth ? EAGER : std::min(2 * side.patience, RELUCTANT);
        }
        wanting.clear();
        commit();
    }

    // How many of the flows that a link holds have become members.
    uint32_t recruit(int32_t l) {
        const Link& link = links[l];
        const uint32_t first = sides[l].members;
        counters.visits += link.held - first;
        crosses.assign(slots.size(), -1);
        for (uint32_t k = 0; k < link.count; ++k) crosses[list_of(link)[k] >> shift] = l;
        if (second.size() < link.held) second.resize(2 * link.held);
        for (uint32_t k = first; k < link.held; ++k) second[k] = ask(l, list_of(link)[k] >> shift);
        uint32_t able = 0;
        for (uint32_t k = first; k < link.held; ++k) {
            if (second[k] > 0) second[k] = headroom(l, list_of(link)[k] >> shift);
            able += second[k] > 0;
        }
        if (able && 2 * able >= (first ? 0 : least_crowd())) enlist(l, first);
        for (uint32_t k = first; k < link.held; ++k) answer(list_of(link)[k] >> shift);
        return sides[l].members - first;
    }

    // Whether the other links of a flow have no level; these learn of the question.
    bool ask(int32_t l, uint32_t i) {
        const Hop* w = way_of(i);
        for (uint32_t k = 0; k < slots[i].hops; ++k)
            if (w[k].link != l && links[w[k].link].level < INF) return false;
        for (uint32_t k = 0; k < slots[i].hops; ++k) {
            ++sides[w[k].link].asking;
            sides[w[k].link].wanted += slots[i].weight;
        }
        return true;
    }

    void answer(uint32_t i) {
        const Hop* w = way_of(i);
        for (uint32_t k = 0; k < slots[i].hops; ++k) {
            sides[w[k].link].asking = 0;
            sides[w[k].link].wanted = 0.0;
            sides[w[k].link].headroom = -1.0;
        }
    }

    // How far the level may grow until another link of the flow is full, as a factor; 0: no room.
    double headroom(int32_t l, uint32_t i) {
        const Hop* w = way_of(i);
        double least = HEADROOM;
        for (uint32_t k = 0; k < slots[i].hops; ++k) {
            if (w[k].link == l) continue;
            Side& side = sides[w[k].link];
            if (side.headroom < 0) side.headroom = headroom_on(l, w[k].link);
            least = std::min(least, side.headroom);
        }
        return least;
    }

    double headroom_on(int32_t l, int32_t other) const {
        const Side& side = sides[other];
        const Link& link = links[other];
        if (side.behind == l || is_behind(l, other)) return INF;
        const double more = (full(link) - link.load) / (side.wanted * links[l].level);
        return more > (side.asking == link.count ? SLACK : LEAST_HEADROOM) ? 1 + more : 0.0;
    }

    bool is_behind(int32_t l, int32_t other) const {
        const Side& side = sides[other];
        const Link& link = links[other];
        if (side.guests || link.capacity < links[l].capacity) return false;
        if (side.asking == link.count) return true;
        if (link.count > 4 * side.asking) return false;
        const uint32_t* list = list_of(link);
        return std::all_of(list, list + link.count,
                           [&](uint32_t hop) { return crosses[hop >> shift] == l; });
    }

    // Flows from `first` on in the list become members where `second` says how far they may grow.
    void enlist(int32_t l, uint32_t first) {
        if (sides[l].crowd == NONE) open_crowd(l);
        Crowd& c = crowds[sides[l].crowd];
        tick(c);
        for (uint32_t k = first; k < links[l].held; ++k) {
            if (!(second[k] > 0)) continue;
            const uint32_t i = list_of(links[l])[k] >> shift;
            exchange(list_of(links[l]), k, sides[l].members++);
            join(c, i, second[k]);
        }
        touch(c.leader);
    }

    void open_crowd(int32_t l) {
        const uint32_t leader = take_slot();
        if (free_crowds.empty()) {
            free_crowds.push_back(static_cast<uint32_t>(crowds.size()));
            crowds.emplace_back();
        }
        const uint32_t at = free_crowds.back();
        free_crowds.pop_back();
        slots[leader] = {links[l].level, links[l].level, 1.0, l,
                         0, 0, 0, INF, now, -2 - static_cast<int32_t>(at), NONE, 0.0};
        crowds[at] = {l, leader, 0.0, 0.0, {}, {}};
        sides[l].crowd = at;
    }

    void join(Crowd& c, uint32_t i, double headroom) {
        Slot& s = slots[i];
        if (heap_at[i] != NONE) take_off_heap(i);
        settle(i);
        s.left += c.clock;
        s.limit = s.x1 * headroom;
        s.crowd = sides[c.link].crowd;
        push(c.ends, {s.left, i});
        push(c.limits, {s.limit, i});
        c.weight += s.weight;
        ++crowded;
        ++counters.joined;
        const Hop* w = way_of(i);
        for (uint32_t k = 0; k < s.hops; ++k)
            if (w[k].link != c.link) pass(w[k].link, s);
    }

    void pass(int32_t l, const Slot& s) {
        if (sides[l].headroom == INF) sides[l].behind = s.holder;
        ++sides[l].guests;
        links[l].load += s.weight * (kept_for(l, s) - s.x1);
    }

    // Flows whose rate moved settle what they sent so far; then the order of their ends is put
    // right.
    void commit() {
        const bool many = 2 * touched.size() > endings.size();
        for (uint32_t i : touched) {
            Slot& s = slots[i];
            if (!s.touched) continue;  // left again at this instant
            s.touched = 0;
            const bool slower = s.x1 <= s.rate && s.flow >= 0;
            if (s.x1 != s.rate) {
                settle(i);
                s.rate = s.x1;
            }
            if (s.flow < 0) tick(crowd_of(i));  // its first member may be another
            if (slower && !many && heap_at[i] != NONE)
                continue;  // its end moved back: the key may lag
            const double end = ending(i);
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

    // ---- the heap of endings
    // ---------------------------------------------------------------------------------------------

    void set(uint32_t at, const Ending& e) {
        endings[at] = e;
        heap_at[e.slot] = at;
    }

    void sift_up(uint32_t at) {
        const Ending e = endings[at];
        for (; at > 0 && endings[at / 4].key > e.key; at /= 4) set(at, endings[at / 4]);
        set(at, e);
    }

    void sift_down(uint32_t at) {
        const Ending e = endings[at];
        for (;;) {
            const uint32_t least = least_below(at);
            if (least == NONE || endings[least].key >= e.key) break;
            set(at, endings[least]);
            at = least;
        }
        set(at, e);
    }

    // The child that ends first; NONE of a leaf. No branch depends on keys, which nobody foresees.
    uint32_t least_below(uint32_t at) const {
        const uint32_t first = std::max(4 * at, 1u), n = static_cast<uint32_t>(endings.size());
        const Ending* e = endings.data();
        if (at > 0 && first + 4 <= n) {
            const uint32_t a = first + (e[first + 1].key < e[first].key);
            const uint32_t b = first + 2 + (e[first + 3].key < e[first + 2].key);
            return a + (b - a) * (e[b].key < e[a].key);
        }
        uint32_t least = first < n ? first : NONE;
        for (uint32_t child = first + 1; child < std::min(4 * at + 4, n); ++child)
            if (e[child].key < e[least].key) least = child;
        return least;
    }

    void build_heap() {
        for (uint32_t k = 0; k < endings.size(); ++k) heap_at[endings[k].slot] = k;
        if (endings.size() < 2) return;
        for (int64_t k = (static_cast<int64_t>(endings.size()) - 1) / 4; k >= 0; --k)
            sift_down(static_cast<uint32_t>(k));
    }

    void take_off_heap(uint32_t i) {
        const uint32_t at = heap_at[i];
        heap_at[i] = NONE;
        const Ending last = endings.back();
        endings.pop_back();
        if (at == endings.size()) return;
        set(at, last);
        sift_up(at);
        sift_down(heap_at[last.slot]);
    }
};

// ---- groups
//
// What shares no link with others, and waits for none of them, directly or through further flows,
// is a group. Groups are dealt to SHARES engines, which the threads of this machine take one after
// the other: so it does not depend on the number of threads who is played with whom, nor any last
// bit. The engine of the whole is told at the end. If a flow can never finish, or memory is short,
// it is told nothing and plays all by itself: it can be asked what stands still, and given other
// capacities.

class Apart {
  public:
    // None where one group has nearly all flows: to be played apart must be worth its memory.
    static std::unique_ptr<Apart> of(const Engine& whole) {
        std::unique_ptr<Apart> apart(new Apart(whole));
        return apart->deal() && apart->set_out() ? std::move(apart) : nullptr;
    }

    ~Apart() {
        halt = true;
        for (std::thread& t : threads) t.join();
    }

    int64_t done() const { return finished; }

    // Whether all shares have ended, one way or the other; waits a little for it.
    bool over() {
        std::unique_lock<std::mutex> lock(mutex);
        return news.wait_for(lock, WAIT, [&] { return halt || ended == SHARES; });
    }

    bool failed() const { return halt; }

    // Tells the engine of all flows what happened.
    void tell(Engine& whole) {
        for (int64_t f = 0; f < whole.known(); ++f) {
            Flow& flow = whole.flows[f];
            flow.start = start[f];
            flow.finish = finish[f];
            flow.state = DONE;
            flow.waits = 0;
        }
        whole.busy.swap(busy);
        whole.carried.swap(carried);
        whole.finished = finished;
        whole.now = now;
        whole.counters = counters;
        whole.clear_agenda();
    }

  private:
    const Engine& whole;
    Table<uint32_t> parent;  // of links, then of flows without links: towards the first of a group
    Table<uint32_t> order;   // flows, share by share
    size_t begins[SHARES + 1] = {};
    Table<uint32_t> number, link_number;  // of flows and of links, within their share
    Table<double> start, finish, busy, carried;
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable news;
    std::atomic<uint32_t> next{0};
    std::atomic<bool> halt{false};
    std::atomic<int64_t> finished{0};
    uint32_t ended = 0;
    double now = 0.0;
    Counters counters;

    explicit Apart(const Engine& e) : whole(e) {}

    size_t links() const { return whole.links.size(); }

    uint32_t first_of(uint32_t a) {
        while (parent[a] != a) a = parent[a] = parent[parent[a]];
        return a;
    }

    void unite(uint32_t a, uint32_t b) {
        a = first_of(a);
        b = first_of(b);
        parent[std::max(a, b)] = std::min(a, b);
    }

    uint32_t place_of(int64_t f) const {
        return static_cast<uint32_t>(whole.flows[f].hops ? *whole.path_of(static_cast<int32_t>(f))
                                                         : links() + f);
    }

    template <typename Do>
    void each_follower(int64_t f, Do&& act) const {
        const uint32_t first = whole.flows[f].follower;
        if (first == NONE) return;
        if (first & LONE) return act(first & ~LONE);
        for (uint32_t k = first; k != NONE; k = whole.followers[k].next)
            act(static_cast<uint32_t>(whole.followers[k].flow));
    }

    // Groups, and who plays them: the largest first, each to the share that has least.
    bool deal() {
        const int64_t n = whole.known();
        if (links() + static_cast<size_t>(n) >= NONE) return false;
        parent.resize(links() + n);
        std::iota(parent.begin(), parent.end(), 0u);
        for (int64_t f = 0; f < n; ++f) {
            const int32_t* p = whole.path_of(static_cast<int32_t>(f));
            for (uint32_t k = 1; k < whole.flows[f].hops; ++k) unite(p[0], p[k]);
            each_follower(f, [&](uint32_t g) { unite(place_of(f), place_of(g)); });
        }
        Table<uint32_t> size(parent.size());
        for (int64_t f = 0; f < n; ++f) ++size[first_of(place_of(f))];
        std::vector<uint32_t> groups;
        for (uint32_t a = 0; a < size.size(); ++a)
            if (size[a]) groups.push_back(a);
        std::stable_sort(groups.begin(), groups.end(),
                         [&](uint32_t a, uint32_t b) { return size[a] > size[b]; });
        if (8 * static_cast<int64_t>(size[groups[0]]) > 7 * n) return false;
        std::vector<std::pair<size_t, uint32_t>> has;  // heap: flows of each share
        for (uint32_t k = 0; k < SHARES; ++k) has.push_back({0, k});
        Table<uint32_t>& share = size;  // of a group, in the place of its size
        for (uint32_t a : groups) {
            std::pop_heap(has.begin(), has.end(), std::greater<>());
            has.back().first += size[a];
            share[a] = has.back().second;
            std::push_heap(has.begin(), has.end(), std::greater<>());
        }
        for (const auto& [flows, k] : has) begins[k + 1] = flows;
        std::partial_sum(begins, begins + SHARES + 1, begins);
        order.resize(n);
        size_t at[SHARES];
        std::copy(begins, begins + SHARES, at);
        for (int64_t f = 0; f < n; ++f)
            order[at[share[first_of(place_of(f))]]++] = static_cast<uint32_t>(f);
        return true;
    }

    bool set_out() {
        Table<uint32_t>().swap(parent);
        number.resize(whole.known());
        link_number.assign(links(), NONE);
        start.assign(whole.known(), NOT_YET);
        finish.assign(whole.known(), INF);
        busy.resize(links());
        carried.resize(links());
        const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
        try {
            while (threads.size() < std::min(cores, SHARES))
                threads.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            // no more threads may be had here: those that are there do it
        }
        return !threads.empty();
    }

    void work() {
        try {
            for (uint32_t k; !halt && (k = next++) < SHARES;) play(k);
        } catch (const std::bad_alloc&) {
            give_up();
        }
    }

    void give_up() {
        const std::lock_guard<std::mutex> lock(mutex);
        halt = true;
        news.notify_all();
    }

    void play(uint32_t share) {
        const uint32_t *from = order.data() + begins[share], *to = order.data() + begins[share + 1];
        const std::vector<int32_t> mine = number_links(from, to);
        std::vector<double> capacity;
        for (int32_t l : mine) capacity.push_back(whole.links[l].capacity);
        Engine part(capacity.data(), static_cast<int64_t>(mine.size()), whole.same_level);
        hand_over(part, from, to);
        part.tied = true;  // what it plays is not divided again
        for (int64_t told = 0;; told = part.finished) {
            // by the way that all take: a second one would keep the compiler from inlining it
            const int outcome = rf_run(&part, INF);
            finished += part.finished - told;
            if (outcome == NO_MEMORY) throw std::bad_alloc();
            if (halt) return;
            if (outcome != BREATHES) break;
        }
        if (part.finished != part.known()) return give_up();
        for (const uint32_t* f = from; f != to; ++f) {
            start[*f] = part.flows[f - from].start;
            finish[*f] = part.flows[f - from].finish;
        }
        part.tally();
        for (size_t l = 0; l < mine.size(); ++l) {
            busy[mine[l]] = part.busy[l];
            carried[mine[l]] = part.carried[l];
        }
        const std::lock_guard<std::mutex> lock(mutex);
        now = std::max(now, part.now);
        counters += part.counters;
        if (++ended == SHARES) news.notify_all();
    }

    // The links of these flows, in their old order; no other share has any of them.
    std::vector<int32_t> number_links(const uint32_t* from, const uint32_t* to) {
        std::vector<int32_t> mine;
        for (const uint32_t* f = from; f != to; ++f) {
            number[*f] = static_cast<uint32_t>(f - from);
            const int32_t* p = whole.path_of(static_cast<int32_t>(*f));
            for (uint32_t k = 0; k < whole.flows[*f].hops; ++k) {
                if (link_number[p[k]] != NONE) continue;
                link_number[p[k]] = 0;
                mine.push_back(p[k]);
            }
        }
        std::sort(mine.begin(), mine.end());
        for (size_t l = 0; l < mine.size(); ++l) link_number[mine[l]] = static_cast<uint32_t>(l);
        return mine;
    }

    // These flows into an engine of their own, and who waits for whom.
    void hand_over(Engine& part, const uint32_t* from, const uint32_t* to) const {
        size_t hops = 0;
        for (const uint32_t* f = from; f != to; ++f) hops += whole.flows[*f].hops;
        part.flows.reserve(to - from);
        part.path.reserve(hops);
        for (const uint32_t* f = from; f != to; ++f) {
            Flow flow = whole.flows[*f];
            const int32_t* p = whole.path_of(static_cast<int32_t>(*f));
            flow.path_at = static_cast<int64_t>(part.path.size());
            for (uint32_t k = 0; k < flow.hops; ++k)
                part.path.push_back(static_cast<int32_t>(link_number[p[k]]));
            if (flow.follower != NONE && flow.follower & LONE)
                flow.follower = LONE | number[flow.follower & ~LONE];
            else if (flow.follower != NONE)
                flow.follower = hand_over_list(part, flow.follower);
            part.flows.push_back(flow);
            if (!whole.gap.empty()) part.gap.push_back(whole.gap[*f]);
            if (!whole.latency.empty()) part.latency.push_back(whole.latency[*f]);
        }
        part.weighted = whole.weighted;
        part.put_on_agenda(0);
    }

    uint32_t hand_over_list(Engine& part, uint32_t from) const {
        const auto first = static_cast<uint32_t>(part.followers.size());
        for (uint32_t k = from; k != NONE; k = whole.followers[k].next) {
            const auto after = static_cast<uint32_t>(part.followers.size() + 1);
            part.followers.push_back(
                {static_cast<int32_t>(number[whole.followers[k].flow]), after});
        }
        part.followers.back().next = NONE;
        return first;
    }
};

Engine::~Engine() { stay_together(); }  // its threads read the tables

int64_t Engine::done() const { return apart ? apart->done() : finished; }

void Engine::stay_together() { apart.reset(); }

Engine::Parting Engine::run_apart() {
    if (!apart) {
        apart = Apart::of(*this);
        tied = !apart;
        return apart ? APART_UNDER_WAY : NOT_APART;
    }
    if (!apart->over()) return APART_UNDER_WAY;
    const std::unique_ptr<Apart> over = std::move(apart);
    tied = true;
    if (over->failed()) return NOT_APART;
    over->tell(*this);
    return APART_DONE;
}

template <typename Do>
int guarded(Do&& act) {
    try {
        return act();
    } catch (const std::bad_alloc&) { return NO_MEMORY; }
}

}  // namespace

extern "C" {

int rf_interface() {
    return 14;
}  // raised with every change below; native.py refuses another number

#ifndef RF_SOURCE
#define RF_SOURCE ""
#endif
const char* rf_source() {
    return RF_SOURCE;
}  // what build.py says of the files that it compiles (native.source_digest)

void* rf_new(const double* capacity, int64_t links, double tolerance) {
    try {
        return new Engine(capacity, links, tolerance);
    } catch (const std::bad_alloc&) { return nullptr; }
}

void rf_free(void* engine) { delete static_cast<Engine*>(engine); }

int rf_add(void* engine, int64_t n, const int64_t* path_offsets, const int32_t* path_links,
           const double* size, const double* start, const int64_t* after_offsets,
           const int32_t* after, const double* gap, const double* latency, const double* weight) {
    return guarded([&] {
        static_cast<Engine*>(engine)->add(n, path_offsets, path_links, size, start, after_offsets,
                                          after, gap, latency, weight);
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
    for (const Event& e : events)
        *time++ = e.time, *flow++ = e.flow, *kind++ = static_cast<int8_t>(e.kind);
    events.clear();
}

int rf_set_capacity(void* engine, int64_t n, const int32_t* links, const double* bps) {
    return guarded([&] { return static_cast<Engine*>(engine)->set_capacity(n, links, bps), 0; });
}

int rf_reroute(void* engine, int64_t n, const int32_t* flows, const int64_t* path_offsets,
               const int32_t* path_links) {
    return guarded([&] {
        return static_cast<Engine*>(engine)->reroute(n, flows, path_offsets, path_links), 0;
    });
}

// How many flows are in flight; with `out`, which.
int64_t rf_active(const void* engine, int32_t* out) {
    try {
        const std::vector<int32_t> flying = static_cast<const Engine*>(engine)->active();
        if (out) std::copy(flying.begin(), flying.end(), out);
        return static_cast<int64_t>(flying.size());
    } catch (const std::bad_alloc&) { return NO_MEMORY; }
}

void rf_remaining(const void* engine, int64_t n, const int32_t* flows, double* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = static_cast<const Engine*>(engine)->remaining(flows[i]);
}

double rf_now(const void* engine) { return static_cast<const Engine*>(engine)->now; }
int64_t rf_finished(const void* engine) { return static_cast<const Engine*>(engine)->done(); }
int64_t rf_flows(const void* engine) { return static_cast<const Engine*>(engine)->known(); }

void rf_times(const void* engine, double* start, double* finish) {
    const auto* e = static_cast<const Engine*>(engine);
    for (int64_t f = 0; start && f < e->known(); ++f) start[f] = e->start(f);
    for (int64_t f = 0; finish && f < e->known(); ++f) finish[f] = e->finish_time(f);
}

void rf_link_bytes(void* engine, double* out) { static_cast<Engine*>(engine)->link_bytes(out); }
void rf_busy_time(const void* engine, double* out) {
    static_cast<const Engine*>(engine)->busy_time(out);
}

// instants, evaluations, level changes, fills, flow visits, takeovers, fallbacks, flows that joined
// a crowd
void rf_counters(const void* engine, int64_t* out) {
    const Counters& c = static_cast<const Engine*>(engine)->counters;
    const int64_t all[] = {c.instants, c.evaluations, c.changes,  c.fills,
                           c.visits,   c.takeovers,   c.fallbacks, c.joined};
    std::copy(std::begin(all), std::end(all), out);
}

}  // extern "C"
