// Work that is begun before its result is wanted, by one thread beside the caller's. What nobody has begun when it is
// wanted, the caller does: nothing waits for a thread that has yet to wake. Knows nothing of what the work is.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace treetop {

class Ahead {
public:
    class Task {
        friend Ahead;
        explicit Task(std::function<void()> work) : work_(std::move(work)) {}
        std::function<void()> work_;
        std::exception_ptr error_;
        bool done_ = false;
    };
    using Handle = std::shared_ptr<Task>;

    Ahead() : thread_([this] { run(); }) {}
    ~Ahead() {
        {
            const std::lock_guard<std::mutex> lock(guard_);
            closing_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
    Ahead(const Ahead&) = delete;
    Ahead& operator=(const Ahead&) = delete;

    // What the work reads and writes must be there until it is claimed or waited for.
    Handle begin(std::function<void()> work) {
        const Handle task(new Task(std::move(work)));
        bool enough = false;
        {
            const std::lock_guard<std::mutex> lock(guard_);
            waiting_.push_back(task);
            enough = asleep_ && waiting_.size() >= worth_waking;
        }
        if (enough) wake_.notify_one();
        return task;
    }

    // Whether the work was not begun. It is then the caller's to do, or to leave undone.
    bool claim(const Handle& task) {
        const std::lock_guard<std::mutex> lock(guard_);
        const auto found = std::find(waiting_.begin(), waiting_.end(), task);
        if (found == waiting_.end()) return false;
        waiting_.erase(found);
        return true;
    }

    // Whether work that was begun is done. If it is not, this does some that nobody has begun, where there is any.
    bool done_or_helped(const Handle& task) {
        Handle other;
        {
            const std::lock_guard<std::mutex> lock(guard_);
            if (task->done_) return true;
            if (waiting_.empty()) return false;
            other = std::move(waiting_.back());
            waiting_.pop_back();
        }
        work(*other);
        const std::lock_guard<std::mutex> lock(guard_);
        other->done_ = true;
        finished_.notify_all();
        return task->done_;
    }

    // Until work that was begun is done.
    void wait(const Handle& task) {
        std::unique_lock<std::mutex> lock(guard_);
        finished_.wait(lock, [&] { return task->done_; });
    }

    // What went wrong with work that is done, if anything.
    static void rethrow(const Handle& task) {
        if (task->error_) std::rethrow_exception(task->error_);
    }

private:
    static constexpr std::size_t worth_waking = 2;  // a single one is done sooner where it is wanted

    static void work(Task& task) {
        try {
            task.work_();
        } catch (...) {
            task.error_ = std::current_exception();
        }
    }

    void run() {
        std::unique_lock<std::mutex> lock(guard_);
        while (!closing_) {
            if (waiting_.empty()) {
                asleep_ = true;
                wake_.wait(lock, [&] { return closing_ || waiting_.size() >= worth_waking; });
                asleep_ = false;
                continue;
            }
            const Handle task = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            work(*task);
            lock.lock();
            task->done_ = true;
            finished_.notify_all();
        }
    }

    std::mutex guard_;
    std::condition_variable wake_, finished_;
    std::deque<Handle> waiting_;
    bool asleep_ = false, closing_ = false;
    std::thread thread_;  // the last member: it uses the others
};

}  // namespace treetop
