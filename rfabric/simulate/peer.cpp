// SimGrid (3.32 or newer) runs a workload that bench.py wrote: the peer of the benchmark.
//
//   peer WORK TIMES PATIENCE [--cfg=...]    prints the CPU seconds of the simulation alone; writes
//   finish times (float64)
//
// PATIENCE: CPU seconds (whole) after which the simulation is ended by SIGXCPU; setting up the
// network does not count. WORK, little-endian: int64 hosts, links, flows, dependencies, star;
// float64 capacity (B/s) per link; then per flow int64 path offsets (flows+1), int32 path, float64
// size, start, int64 dependency offsets (flows+1), int32 dependencies. Flow f runs from host
// path[0] to host path.back() - hosts; pairs have one path. star: hosts have an up and a down link,
// nothing else.

#include <simgrid/kernel/resource/Action.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <unordered_map>
#include <vector>

namespace sg = simgrid::s4u;

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

int main(int argc, char** argv) {
    sg::Engine engine(&argc, argv);
    if (argc < 4) return 2;
    FILE* file = std::fopen(argv[1], "rb");
    if (!file) return 2;
    const auto head = read<int64_t>(file, 5);
    const int64_t n_hosts = head[0], n_links = head[1], n = head[2], star = head[4];
    const auto capacity = read<double>(file, n_links);
    const auto offsets = read<int64_t>(file, n + 1);
    const auto path = read<int32_t>(file, offsets[n]);
    const auto size = read<double>(file, n), start = read<double>(file, n);
    const auto after_offsets = read<int64_t>(file, n + 1);
    const auto after = read<int32_t>(file, head[3]);
    std::fclose(file);

#if SIMGRID_VERSION_MAJOR >= 4
    auto* zone = star ? engine.get_netzone_root()->add_netzone_star("net")
                      : engine.get_netzone_root()->add_netzone_full("net");
#else
    auto* zone = star ? sg::create_star_zone("net") : sg::create_full_zone("net");
#endif
    std::vector<sg::Link*> links;
    std::vector<sg::Host*> hosts;
    for (int64_t l = 0; l < n_links; ++l)
        links.push_back(
            zone->create_link("l" + std::to_string(l), capacity[l])->set_latency(0)->seal());
    for (int64_t h = 0; h < n_hosts; ++h)
        hosts.push_back(zone->create_host("h" + std::to_string(h), 1e9)->seal());
    const auto source = [&](int64_t f) { return path[offsets[f]]; };
    const auto target = [&](int64_t f) { return path[offsets[f + 1] - 1] - n_hosts; };
    if (star) {
        for (int64_t h = 0; h < n_hosts; ++h) {
            auto* at = hosts[h]->get_netpoint();
            zone->add_route(at, nullptr, nullptr, nullptr, {sg::LinkInRoute(links[h])}, false);
            zone->add_route(nullptr, at, nullptr, nullptr, {sg::LinkInRoute(links[n_hosts + h])},
                            false);
        }
    } else {
        std::vector<bool> known(n_hosts * n_hosts);
        for (int64_t f = 0; f < n; ++f) {
            if (known[source(f) * n_hosts + target(f)]) continue;
            known[source(f) * n_hosts + target(f)] = true;
            std::vector<sg::LinkInRoute> route;
            for (int64_t k = offsets[f]; k < offsets[f + 1]; ++k)
                route.emplace_back(links[path[k]]);
            zone->add_route(hosts[source(f)]->get_netpoint(), hosts[target(f)]->get_netpoint(),
                            nullptr, nullptr, route, false);
        }
    }
    zone->seal();

    std::vector<int64_t> waits(n), first(n, -1), next(head[3]), owner(head[3]);
    for (int64_t f = n - 1; f >= 0; --f) {
        waits[f] = after_offsets[f + 1] - after_offsets[f];
        for (int64_t k = after_offsets[f]; k < after_offsets[f + 1]; ++k) {
            owner[k] = f;
            next[k] = first[after[k]];
            first[after[k]] = k;
        }
    }
    std::vector<double> finish(n, -1.0);
    std::vector<sg::CommPtr> sent(n);
    std::unordered_map<const void*, int64_t> flow_of;
    // Two actors a source host, one for timed starts and one for those after other flows: SimGrid
    // walks the list of an actor's communications whenever one ends, so a single actor for all
    // would make it look slower than it is.
    struct Sender {
        std::vector<int64_t> timed, ready;
        int64_t dependent = 0;
        sg::ActorPtr follower;
    };
    std::vector<Sender> senders(n_hosts);
    const auto send = [&](int64_t f) {
        sent[f] = sg::Comm::sendto_async(hosts[source(f)], hosts[target(f)],
                                         static_cast<uint64_t>(size[f] + 0.5));
        flow_of[sent[f]->get_impl()] = f;
    };
    sg::Link::on_communication_state_change_cb(
        [&](simgrid::kernel::resource::NetworkAction& network_action,
            simgrid::kernel::resource::Action::State) {
            const auto& action =
                reinterpret_cast<const simgrid::kernel::resource::Action&>(network_action);
            if (action.get_state() != simgrid::kernel::resource::Action::State::FINISHED) return;
            const auto sent_flow = flow_of.find(action.get_activity());
            if (sent_flow == flow_of.end()) return;
            const int64_t f = sent_flow->second;
            flow_of.erase(sent_flow);
            finish[f] = sg::Engine::get_clock();
            for (int64_t k = first[f]; k >= 0; k = next[k]) {
                if (--waits[owner[k]] > 0) continue;
                Sender& sender = senders[source(owner[k])];
                sender.ready.push_back(owner[k]);
                if (sender.ready.size() == 1 && sender.follower) sender.follower->resume();
            }
        });
    for (int64_t f = 0; f < n; ++f) {
        if (waits[f])
            ++senders[source(f)].dependent;
        else
            senders[source(f)].timed.push_back(f);
    }
    for (int64_t h = 0; h < n_hosts; ++h) {
        Sender& sender = senders[h];
        std::stable_sort(sender.timed.begin(), sender.timed.end(),
                         [&](int64_t a, int64_t b) { return start[a] < start[b]; });
        if (!sender.timed.empty())
            sg::Actor::create("timed", hosts[h], [&] {
                for (int64_t f : sender.timed) {
                    if (start[f] > sg::Engine::get_clock()) sg::this_actor::sleep_until(start[f]);
                    send(f);
                }
            });
        if (sender.dependent)
            sender.follower = sg::Actor::create("follower", hosts[h], [&] {
                while (sender.dependent > 0) {
                    if (sender.ready.empty()) sg::this_actor::suspend();
                    std::vector<int64_t> now;
                    now.swap(sender.ready);
                    for (int64_t f : now) send(f);
                    sender.dependent -= static_cast<int64_t>(now.size());
                }
            });
    }
    if (!end_after(std::atof(argv[3]))) return 2;
    const double before = cpu_seconds();
    engine.run();
    std::printf("%.6f\n", cpu_seconds() - before);

    FILE* out = std::fopen(argv[2], "wb");
    if (!out || std::fwrite(finish.data(), sizeof(double), n, out) != static_cast<size_t>(n))
        return 2;
    return std::fclose(out) ? 2 : 0;
}
