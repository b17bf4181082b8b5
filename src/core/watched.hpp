// Work that takes long: an onlooker in Python sees how far it is and may stop it. For the files that know Python.
#pragma once

#include <nanobind/stl/optional.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "growing.hpp"
#include "parallel.hpp"
#include "python.hpp"

namespace treetop {

using Progress = std::optional<nb::typed<nb::callable, nb::object(std::int64_t, std::int64_t)>>;  // done, total

template <class T>
Out<T> pack_grown(Growing<T>&& data) {
    const std::size_t n = data.size();
    T* const kept = data.release();
    nb::capsule owner(kept, [](void* p) noexcept { std::free(p); });
    return Out<T>(kept, {n}, owner);
}

// Runs work() on a thread of its own without the GIL, while this one hears Ctrl-C and tells `progress` how far it is,
// ten times a second. What either of them throws ends the work and is thrown here.
template <class Work>
void watched(const Progress& progress, Watch& watch, Work&& work) {
    std::mutex guard;
    std::condition_variable ended;
    bool over = false;
    std::exception_ptr failure, interrupt;
    const auto run = [&] {
        try {
            work();
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(guard);
        over = true;
        ended.notify_one();
    };
    std::thread thread;
    try {
        thread = std::thread(run);
    } catch (const std::system_error&) {
        const nb::gil_scoped_release release;
        run();  // the system gives no more threads: nobody looks on
    }
    for (bool running = true; running;) {
        {
            const nb::gil_scoped_release release;
            std::unique_lock<std::mutex> lock(guard);
            running = !ended.wait_for(lock, std::chrono::milliseconds(100), [&] { return over; });
        }
        if (interrupt || (!running && failure)) continue;
        try {
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (progress && watch.total() > 0) (*progress)(watch.done(), watch.total());
        } catch (...) {
            interrupt = std::current_exception();
            watch.stop();
        }
    }
    if (thread.joinable()) thread.join();
    if (interrupt) std::rethrow_exception(interrupt);
    if (failure) std::rethrow_exception(failure);
}

}  // namespace treetop
