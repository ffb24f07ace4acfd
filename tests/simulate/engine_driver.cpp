// Runs a workload that rfabric.simulate.bench.write_work wrote with the compiled core, so that its
// instructions can be counted without Python's.    engine_driver WORK [BINS END]     The layout of
// WORK stands in rfabric/simulate/peer.cpp. With BINS, the bytes of all links are asked for at the
// end of each of so many equal bins up to END (s), and busy times.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

extern "C" {
void* rf_new(const double* capacity, int64_t links, double tolerance);
int rf_add(void* engine, int64_t n, const int64_t* path_offsets, const int32_t* path_links,
           const double* size, const double* start, const int64_t* after_offsets,
           const int32_t* after, const double* gap, const double* latency, const double* weight);
int rf_run(void* engine, double until);
int64_t rf_finished(const void* engine);
void rf_link_bytes(void* engine, double* out);
void rf_busy_time(const void* engine, double* out);
void rf_free(void* engine);
}

template <typename T>
std::vector<T> read(FILE* file, size_t n) {
    std::vector<T> data(n);
    if (n && std::fread(data.data(), sizeof(T), n, file) != n) std::exit(2);
    return data;
}

int main(int argc, char** argv) {
    FILE* file = argc == 2 || argc == 4 ? std::fopen(argv[1], "rb") : nullptr;
    if (!file) return 2;
    const auto head = read<int64_t>(file, 3);
    auto capacity = read<double>(file, head[0]);
    for (double& c : capacity) c *= 8;
    const int64_t n = head[1];
    const auto offsets = read<int64_t>(file, n + 1);
    const auto path = read<int32_t>(file, offsets[n]);
    const auto size = read<double>(file, n), start = read<double>(file, n);
    const auto after_offsets = read<int64_t>(file, n + 1);
    const auto after = read<int32_t>(file, head[2]);
    std::fclose(file);

    void* engine = rf_new(capacity.data(), head[0], 0.0);
    if (!engine) return 3;
    if (rf_add(engine, n, offsets.data(), path.data(), size.data(), start.data(),
               after_offsets.data(), after.data(), nullptr, nullptr, nullptr))
        return 3;
    const int bins = argc == 4 ? std::atoi(argv[2]) : 0;
    std::vector<double> carried(head[0]), busy(head[0]);
    for (int bin = 1; bin <= bins; ++bin) {
        while (rf_run(engine, std::atof(argv[3]) * bin / bins) == 3) {}
        rf_link_bytes(engine, carried.data());
    }
    if (bins) rf_busy_time(engine, busy.data());
    while (rf_run(engine, std::numeric_limits<double>::infinity()) == 3) {}
    const bool all = rf_finished(engine) == n;
    rf_free(engine);
    return all ? 0 : 4;
}
