// An array of plain values that grows at its end and is handed over at last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace treetop {

// Unlike a vector that grows, it need not have its old and its new memory side by side: where the system can, large
// memory is moved, not copied, and what is set aside but not yet filled takes none.
template <class T>
class Growing {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    void append(std::span<const T> more) {
        if (size_ + more.size() > capacity_) grow(std::max(size_ + more.size(), capacity_ + capacity_ / 2));
        if (!more.empty()) std::memcpy(data_.get() + size_, more.data(), more.size() * sizeof(T));
        size_ += more.size();
    }
    std::size_t size() const { return size_; }
    T* release() { return data_.release(); }  // to be freed by std::free

private:
    struct Free {
        void operator()(T* p) const { std::free(p); }
    };

    void grow(std::size_t capacity) {
        void* moved = std::realloc(data_.get(), capacity * sizeof(T));
        if (moved == nullptr) throw std::bad_alloc();
        (void)data_.release();
        data_.reset(static_cast<T*>(moved));
        capacity_ = capacity;
    }

    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace treetop
