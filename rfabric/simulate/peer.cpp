// SimGrid (4.0 or newer) plays a workload that bench.py wrote: the peer of the benchmark.
//
//   peer WORK TIMES PATIENCE [--cfg=...]    prints the CPU seconds of the simulation alone; writes
//   finish times (float64)
//
// PATIENCE: CPU seconds (whole) after which the simulation is ended by SIGXCPU; setting up the
// network does not count. WORK, little-endian: int64 links, flows, dependencies; float64 capacity
// (B/s) per link; then per flow int64 path offsets (flows+1), int32 path, float64 size, start,
// int64 dependency offsets (flows+1), int32 dependencies.
//
// This is SimGrid at its fastest, as far as we know: a zone that gives each flow the path of its
// own, without a table of routes; one actor, which starts what has a time of its own; and flows
// that wait for others are started by the last of them, with no actor at all.

#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;
namespace routing = simgrid::kernel::routing;

template <typename T>
std::vector<T> read(FILE* file, size_t n) {
    std::vector<T> data(n);
    if (n && std::fread(data.data(), sizeof(T), n, file) != n) std::exit(2);
    return data;
}

double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

bool end_after(double seconds) {
    const auto last = static_cast<rlim_t>(std::ceil(cpu_seconds() + seconds));
    const rlimit none = {0, 0}, most = {last, last + 1};
    return !setrlimit(RLIMIT_CORE, &none) && !setrlimit(RLIMIT_CPU, &most);
}

struct Work {
    std::vector<double> capacity, size, start;
    std::vector<int64_t> offsets, after_offsets;
    std::vector<int32_t> path, after;

    explicit Work(FILE* file) {
        const auto head = read<int64_t>(file, 3);
        const int64_t n = head[1];
        capacity = read<double>(file, head[0]);
        offsets = read<int64_t>(file, n + 1);
        path = read<int32_t>(file, offsets[n]);
        size = read<double>(file, n);
        start = read<double>(file, n);
        after_offsets = read<int64_t>(file, n + 1);
        after = read<int32_t>(file, head[2]);
    }
    int64_t flows() const { return static_cast<int64_t>(size.size()); }
};

// A network in which the flow that is being started takes the links from `first` to `last`.
struct Paths : routing::NetZoneImpl {
    std::vector<simgrid::kernel::resource::StandardLinkImpl*> links;
    const int32_t *first = nullptr, *last = nullptr;

    explicit Paths(const std::string& name) : NetZoneImpl(name) {}
    void get_local_route(const routing::NetPoint*, const routing::NetPoint*, routing::Route* route,
                         double*) override {
        for (const int32_t* link = first; link != last; ++link)
            route->link_list_.push_back(links[*link]);
    }
};

struct Player {
    const Work& work;
    Paths& paths;
    sg::Host *from, *to;
    std::vector<double> finish;
    std::vector<int64_t> waits, first, next, owner, ended;  // followers as a list, by dependency
    std::vector<sg::CommPtr> sent;

    Player(const Work& work, Paths& paths, sg::Host* from, sg::Host* to)
        : work(work), paths(paths), from(from), to(to), finish(work.flows(), -1.0),
          waits(work.flows()), first(work.flows(), -1), next(work.after.size()),
          owner(work.after.size()), sent(work.flows()) {
        for (int64_t f = work.flows() - 1; f >= 0; --f) {
            waits[f] = work.after_offsets[f + 1] - work.after_offsets[f];
            for (int64_t k = work.after_offsets[f]; k < work.after_offsets[f + 1]; ++k) {
                owner[k] = f;
                next[k] = first[work.after[k]];
                first[work.after[k]] = k;
            }
        }
    }

    void send(int64_t f) {
        auto comm = sg::Comm::sendto_init(from, to);
        comm->set_payload_size(static_cast<uint64_t>(work.size[f] + 0.5));
        comm->on_this_completion_cb([this, f](const sg::Comm&) { end(f); });
        sent[f] = comm;
        paths.first = work.path.data() + work.offsets[f];
        paths.last = work.path.data() + work.offsets[f + 1];
        comm->start();
    }

    void end(int64_t f) {
        finish[f] = sg::Engine::get_clock();
        ended.push_back(f);
        for (int64_t k = first[f]; k >= 0; k = next[k])
            if (--waits[owner[k]] == 0) send(owner[k]);
    }

    // The actor.
    void start() {
        std::vector<int64_t> timed;
        for (int64_t f = 0; f < work.flows(); ++f)
            if (waits[f] == 0) timed.push_back(f);
        std::stable_sort(timed.begin(), timed.end(), [this](int64_t a, int64_t b) {
            return work.start[a] < work.start[b];
        });
        for (int64_t f : timed) {
            if (work.start[f] > sg::Engine::get_clock()) {
                for (int64_t e : ended) sent[e] = nullptr;
                ended.clear();
                sg::this_actor::sleep_until(work.start[f]);
            }
            send(f);
        }
    }
};

int main(int argc, char** argv) {
    sg::Engine engine(&argc, argv);
    if (argc < 4) return 2;
    FILE* file = std::fopen(argv[1], "rb");
    if (!file) return 2;
    const Work work(file);
    std::fclose(file);

    auto* paths = new Paths("net");  // the engine owns it
    paths->set_parent(engine.get_netzone_root()->get_impl());
    auto* zone = paths->get_iface();
    auto *from = zone->add_host("from", 1e9), *to = zone->add_host("to", 1e9);
    for (size_t l = 0; l < work.capacity.size(); ++l) {
        auto* link = zone->add_link("l" + std::to_string(l), work.capacity[l]);
        paths->links.push_back(link->set_latency(0)->get_impl());
    }
    zone->seal();

    Player player(work, *paths, from, to);
    from->add_actor("start", [&player] { player.start(); });
    if (!end_after(std::atof(argv[3]))) return 2;
    const double before = cpu_seconds();
    engine.run();
    std::printf("%.6f\n", cpu_seconds() - before);

    FILE* out = std::fopen(argv[2], "wb");
    const auto n = player.finish.size();
    if (!out || std::fwrite(player.finish.data(), sizeof(double), n, out) != n) return 2;
    return std::fclose(out) ? 2 : 0;
}
