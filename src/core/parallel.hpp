// One loop over independent items on several threads. Results must not depend on which worker takes which item.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace treetop {

struct Stopped : std::exception {
    const char* what() const noexcept override { return "stopped before the end"; }
};

// How far a long loop is, for whoever looks on from another thread, and the onlooker's wish that it end. Loops call
// advance or check every few milliseconds at least.
class Watch {
public:
    void begin(std::int64_t total) { total_ = total; }
    void advance(std::int64_t by) {
        done_ += by;
        check();
    }
    void check() const {
        if (stop_) throw Stopped();
    }
    void stop() { stop_ = true; }
    std::int64_t done() const { return done_; }
    std::int64_t total() const { return total_; }

private:
    std::atomic<std::int64_t> done_{0}, total_{0};
    std::atomic<bool> stop_{false};
};

// What "all cores" means: those of the machine, or fewer if TREETOP_THREADS says so, as where several processes share
// it.
inline int all_cores() {
    const int hardware = std::max(1u, std::thread::hardware_concurrency());
    const char* most = std::getenv("TREETOP_THREADS");
    const int given = most ? std::atoi(most) : 0;
    return given > 0 ? std::min(given, hardware) : hardware;
}

inline int worker_count(int asked, std::size_t items) {
    const int wanted = asked > 0 ? asked : all_cores();
    return static_cast<int>(std::max<std::size_t>(1, std::min<std::size_t>(wanted, items)));
}

// Calls body(worker, item) for every item in [0, n), `grain` items at a time; worker in [0, worker_count(threads, n)).
template <class Body>
void parallel_for(std::size_t n, int threads, std::size_t grain, Body&& body) {
    const int workers = worker_count(threads, (n + grain - 1) / grain);
    if (workers == 1) {
        for (std::size_t i = 0; i < n; ++i) body(0, i);
        return;
    }
    std::atomic<std::size_t> next{0};
    std::exception_ptr error;
    std::mutex guard;
    const auto run = [&](int worker) {
        try {
            for (;;) {
                const std::size_t first = next.fetch_add(grain);
                if (first >= n) return;
                for (std::size_t i = first; i < std::min(n, first + grain); ++i) body(worker, i);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(guard);
            if (!error) error = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> pool;
    pool.reserve(workers);
    try {
        for (int worker = 1; worker < workers; ++worker) pool.emplace_back(run, worker);
    } catch (const std::system_error&) {
        // The system gives no more threads: those that run take all items.
    }
    run(0);
    for (auto& thread : pool) thread.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace treetop
