// Continuous batching played to its end: what compute/serving.py does event by event, to the last
// bit. Names are those of the Python side, which says why.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <new>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kNone = -1;

// The roofline of a step (`roofline.DecodeStep`), in the order of its fields.
struct Step {
    double weights, kv, matmul, attention, overhead, overhead_token, experts, missed, matmul_prompt,
        attention_pair, own, window_kv, window_attention, window_size;

    int64_t window() const { return static_cast<int64_t>(window_size); }

    double seconds(int64_t n, int64_t context, int64_t steps = 1) const {
        const int64_t full = n * window();
        if (window_kv == 0.0 || context >= full) return in_row(n, context, steps, false);
        const int64_t filling = std::min(steps, (full - context + n - 1) / n);
        const double rest =
            steps > filling ? in_row(n, context + n * filling, steps - filling, false) : 0.0;
        return in_row(n, context, filling, true) + rest;
    }

    double mixed(int64_t n, int64_t context, int64_t tokens, double pairs) const {
        double memory = touched(n + tokens) + kv * context;
        memory += window_kv * std::min(context, n * window());
        double compute = decoding(n, context) + matmul_prompt * tokens;
        const double windowed =
            window_attention * std::min(pairs, static_cast<double>(tokens * window()));
        compute += attention_pair * pairs + windowed;
        const double busy =
            std::max(memory, compute) + overhead + overhead_token * (n + tokens);
        return busy + own * n;
    }

    // The fewest decode steps, `most` at most, that take so many seconds.
    int64_t steps_in(double time, int64_t n, int64_t context, int64_t most) const {
        int64_t low = 0, high = std::max<int64_t>(most - 1, 0);
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (seconds(n, context, middle + 1) < time) low = middle + 1;
            else high = middle;
        }
        return 1 + low;
    }

private:
    double touched(int64_t tokens) const {
        return weights + experts * (1 - std::pow(missed, static_cast<double>(tokens)));
    }

    double decoding(int64_t n, int64_t context) const { return matmul * n + attention * context; }

    double in_row(int64_t n, int64_t context, int64_t steps, bool filling) const {
        double memory = touched(n) + kv * context;
        memory += window_kv * (filling ? context : n * window());
        const double grown = (kv + window_kv * filling) * n, attended = attention * n;
        const double busy = sum_of_max(memory, grown, decoding(n, context), attended, steps);
        return busy + steps * (overhead + (overhead_token + own) * n);
    }

    static double sum_of_max(double a, double up, double b, double other_up, int64_t steps) {
        if (a < b || (a == b && up < other_up)) std::swap(a, b), std::swap(up, other_up);
        if (other_up <= up) return sum(a, up, 0, steps);
        const double meet = (a - b) / (other_up - up);
        const int64_t whole = meet < steps ? static_cast<int64_t>(meet) : steps;
        const int64_t turn = std::min(steps, whole + 1);
        return sum(a, up, 0, turn) + sum(b, other_up, turn, steps);
    }

    static double sum(double start, double up, int64_t first, int64_t last) {
        return (last - first) * (start + up * (first + last - 1) / 2);
    }
};

// What an engine may do (`serving.Batching`) with so many tokens of KV cache.
struct Rules {
    int64_t capacity, batched_tokens, max_num_seqs, prefill_first, chunked;
};

// Columns of n requests, each with the one that follows it; whether the KV of a prompt is there.
struct Requests {
    int64_t n;
    const int64_t *prompt, *output, *after, *cached, *group, *following;
    const double* gap;
    const bool* resident;
};

struct Request {
    int64_t prompt, left, cached, computed, own, end;
    bool started;
};

struct Group {
    int64_t members = 0;
    bool ready = false;
};

// What came out: columns of n, then seconds of prefill, decode and idle; most tokens held, and how
// many requests were preempted.
struct Served {
    double *arrival, *first, *end, *seconds;
    int64_t* counts;
};

class Session {
public:
    Session(const Step& step, const Rules& rules, double reserve, double watermark,
            const Requests& asked, const Served& out)
        : step_(step), rules_(rules), reserve_(reserve), limit_(rules.capacity * (1 - watermark)),
          asked_(asked), out_(out), requests_(asked.n), stamp_(asked.n, 0), behind_(asked.n, kNone),
          resident_(asked.resident, asked.resident + asked.n), unfinished_(asked.n) {
        for (int64_t i = 0; i < asked.n; ++i) {
            if (asked.after[i] == kNone) coming_.push({asked.gap[i], i});
        }
    }

    // False where requests are left that nothing will wake.
    bool run() {
        while (unfinished_ && now_ < std::numeric_limits<double>::infinity()) {
            arrive();
            let_in();
            if (!filling_.empty()) {
                fill();
            } else if (decoding_) {
                decode();
            } else {
                if (coming_.empty()) return false;
                idle_ += coming_.top().first - now_;
                now_ = coming_.top().first;
            }
        }
        out_.seconds[0] = prefill_;
        out_.seconds[1] = decode_;
        out_.seconds[2] = idle_;
        out_.counts[0] = peak_;
        out_.counts[1] = preempted_;
        return true;
    }

private:
    template <class One>
    using Soonest = std::priority_queue<One, std::vector<One>, std::greater<One>>;

    const Step& step_;
    const Rules& rules_;
    const double reserve_, limit_;
    const Requests& asked_;
    const Served& out_;
    std::vector<Request> requests_;
    std::deque<int64_t> waiting_, filling_;
    // those let in, in order, each with a stamp: one that has left since has another
    std::vector<std::pair<int64_t, int64_t>> inside_;
    std::vector<int64_t> stamp_;
    int64_t let_in_ = 0, stamps_ = 0;
    Soonest<std::pair<int64_t, int64_t>> ends_;
    Soonest<std::pair<double, int64_t>> coming_;
    std::vector<int64_t> behind_;  // [request]: tokens its context keeps in the cache, or kNone
    std::deque<int64_t> oldest_;   // of these, some of which are gone
    std::unordered_map<int64_t, Group> groups_;
    std::vector<bool> resident_;
    double now_ = 0.0, prefill_ = 0.0, decode_ = 0.0, idle_ = 0.0;
    int64_t unfinished_, clock_ = 0, decoding_ = 0, context_ = 0, to_come_ = 0, held_ = 0,
                         kept_ = 0, peak_ = 0, preempted_ = 0;

    int64_t shared(int64_t i) const { return asked_.group[i] >= 0 ? asked_.prompt[i] : 0; }

    void arrive() {
        while (!coming_.empty() && coming_.top().first <= now_) {
            const auto [at, i] = coming_.top();
            coming_.pop();
            out_.arrival[i] = at;
            requests_[i] = {asked_.prompt[i], asked_.output[i], asked_.cached[i],
                            0,                0,                kNone,            false};
            waiting_.push_back(i);
        }
    }

    void let_in() {
        while (!waiting_.empty() && let_in_ < rules_.max_num_seqs) {
            const int64_t i = waiting_.front();
            const Request& one = requests_[i];
            const int64_t tokens =
                one.prompt + 1 - (groups_.count(asked_.group[i]) ? shared(i) : 0);
            if (let_in_ && held_ + tokens + reserve_ * (to_come_ + one.left) > limit_) return;
            waiting_.pop_front();
            take(i);
        }
    }

    void take(int64_t i) {
        Request& one = requests_[i];
        const int64_t before = one.cached ? asked_.after[i] : kNone;
        if (before != kNone && behind_[before] != kNone) {
            kept_ -= std::exchange(behind_[before], kNone);
            one.computed = std::min(one.cached, one.prompt - 1);
        }
        if (resident_[i]) {
            resident_[i] = false;
            one.computed = one.prompt - 1;
        }
        if (asked_.group[i] >= 0) {
            Group& group = groups_[asked_.group[i]];
            if (!group.members++) held_ += shared(i);
        }
        one.own = one.prompt + 1 - shared(i);
        held_ += one.own;
        to_come_ += one.left;
        stamp_[i] = ++stamps_;
        inside_.push_back({i, stamps_});
        ++let_in_;
        filling_.push_back(i);
        make_room();
    }

    void make_room() {
        while (held_ + kept_ > rules_.capacity && !oldest_.empty()) {
            const int64_t tokens = std::exchange(behind_[oldest_.front()], kNone);
            oldest_.pop_front();
            if (tokens != kNone) kept_ -= tokens;
        }
        peak_ = std::max(peak_, held_);
    }

    void fill() {
        const bool alone = rules_.prefill_first;
        const int64_t n = alone ? 0 : decoding_, context = alone ? 0 : context_;
        const int64_t budget = std::max<int64_t>(rules_.batched_tokens - n, 1);
        int64_t tokens = 0;
        double pairs = 0.0;
        std::vector<int64_t> done;
        while (!filling_.empty() && tokens < budget) {
            const int64_t i = filling_.front();
            Request& one = requests_[i];
            Group* group = asked_.group[i] >= 0 ? &groups_[asked_.group[i]] : nullptr;
            if (group && group->ready)
                one.computed = std::max(one.computed, std::min(shared(i), one.prompt - 1));
            const int64_t need = one.prompt - one.computed;
            if (!rules_.chunked && tokens && tokens + need > budget) break;
            const int64_t part = rules_.chunked ? std::min(need, budget - tokens) : need;
            pairs += part * (one.computed + part / 2.0);
            tokens += part;
            one.computed += part;
            if (part < need) break;
            if (group) group->ready = true;
            done.push_back(i);
            filling_.pop_front();
        }
        pass(tokens, pairs, n, context, done);
    }

    void pass(int64_t tokens, double pairs, int64_t n, int64_t context,
              const std::vector<int64_t>& done) {
        if (n && held_ + n > rules_.capacity) {
            preempt(n);
            n = decoding_, context = context_;
        }
        const double seconds = step_.mixed(n, context, tokens, pairs);
        const double alone = n ? step_.seconds(n, context) : 0.0;
        now_ += seconds;
        prefill_ = prefill_ + seconds - alone;
        decode_ += alone;
        if (n) advance(1);
        for (const int64_t i : done) {
            if (stamp_[i]) start(i);
        }
        finish();
    }

    void start(int64_t i) {
        Request& one = requests_[i];
        if (!one.started) {
            one.started = true;
            out_.first[i] = now_;
        }
        ++one.prompt;
        --one.left;
        --to_come_;
        one.end = clock_ + one.left;
        ++decoding_;
        context_ += one.prompt;
        ends_.push({one.end, i});
    }

    void decode() {
        if (held_ + decoding_ > rules_.capacity) preempt(decoding_);
        const int64_t n = decoding_;
        if (!n) return;
        int64_t steps = std::min(next_end() - clock_,
                                 std::max<int64_t>((rules_.capacity - held_) / n, 1));
        if (!coming_.empty() && waiting_.empty() && let_in_ < rules_.max_num_seqs)
            steps = step_.steps_in(coming_.top().first - now_, n, context_, steps);
        const double seconds = step_.seconds(n, context_, steps);
        now_ += seconds;
        decode_ += seconds;
        advance(steps);
        finish();
    }

    void advance(int64_t steps) {
        const int64_t grown = decoding_ * steps;
        clock_ += steps;
        context_ += grown;
        held_ += grown;
        to_come_ -= grown;
        if (held_ + kept_ > rules_.capacity) make_room();
        peak_ = std::max(peak_, held_);
    }

    int64_t next_end() {
        while (true) {
            const auto [end, i] = ends_.top();
            if (stamp_[i] && requests_[i].end == end) return end;
            ends_.pop();  // it was preempted
        }
    }

    void finish() {
        while (decoding_ && next_end() <= clock_) {
            const int64_t i = ends_.top().second;
            ends_.pop();
            const Request one = requests_[i];
            out(i);
            out_.end[i] = now_;
            --unfinished_;
            leave(i, one.own + one.left, one.prompt + one.left);
            const int64_t next = asked_.following[i];
            if (next == kNone) continue;
            coming_.push({now_ + asked_.gap[next], next});
            if (asked_.cached[next]) keep(i, one.prompt + one.left);
        }
    }

    void out(int64_t i) {
        stamp_[i] = 0;
        --let_in_;
    }

    void keep(int64_t i, int64_t tokens) {
        behind_[i] = tokens;
        oldest_.push_back(i);
        kept_ += tokens;
        make_room();
    }

    void leave(int64_t i, int64_t own, int64_t context) {
        --decoding_;
        context_ -= context;
        held_ -= own;
        leave_group(i);
    }

    void leave_group(int64_t i) {
        if (asked_.group[i] < 0) return;
        const auto group = groups_.find(asked_.group[i]);
        if (--group->second.members) return;
        held_ -= shared(i);
        groups_.erase(group);
    }

    void preempt(int64_t need) {
        make_room();
        while (held_ + std::min(need, decoding_) > rules_.capacity && let_in_ > 1) {
            while (stamp_[inside_.back().first] != inside_.back().second) inside_.pop_back();
            const int64_t i = inside_.back().first;
            inside_.pop_back();
            out(i);
            ++preempted_;
            const Request one = requests_[i];
            int64_t made = 0;
            if (one.end >= 0) {
                made = clock_ - (one.end - one.left);
                leave(i, one.own + made, one.prompt + made);
                to_come_ -= one.left - made;
            } else {
                const auto at = std::find(filling_.begin(), filling_.end(), i);
                if (at != filling_.end()) filling_.erase(at);
                held_ -= one.own;
                to_come_ -= one.left;
                leave_group(i);
            }
            requests_[i] = {one.prompt + made, one.left - made, 0, 0, 0, kNone, one.started};
            waiting_.push_front(i);
        }
    }
};

}  // namespace

extern "C" {

// Plays requests until all are done: 0; 1 where some are left that nothing will wake; -1 without
// memory.
int rf_serve(const Step* step, const Rules* rules, double reserve, double watermark,
             const Requests* asked, const Served* out) try {
    return Session(*step, *rules, reserve, watermark, *asked, *out).run() ? 0 : 1;
} catch (const std::bad_alloc&) { return -1; }

}  // extern "C"
