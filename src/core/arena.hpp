// One stretch of memory for a whole serving layout: owned and in huge pages where the system has them, or borrowed from
// whoever mapped a file. Knows nothing of what is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "machine.hpp"

#ifdef TREETOP_LINUX
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace treetop {

constexpr std::size_t line_bytes = 64, huge_page = std::size_t{1} << 21;

// Asks for pages of 2 MB: with pages of 4 kB most reads of a large model would first miss the translation of their
// address. Refusal costs speed and nothing else. A mapped file gets them where its file system keeps large folios.
inline void ask_for_huge_pages([[maybe_unused]] const void* first, [[maybe_unused]] std::size_t bytes) {
#ifdef TREETOP_LINUX
    constexpr std::uintptr_t page = 4096;
    const auto begin = reinterpret_cast<std::uintptr_t>(first) & ~(page - 1);
    madvise(reinterpret_cast<void*>(begin), reinterpret_cast<std::uintptr_t>(first) + bytes - begin, MADV_HUGEPAGE);
#endif
}

class Arena {
public:
    Arena() = default;
    Arena(Arena&& other) noexcept
        : raw_(std::exchange(other.raw_, nullptr)),
          raw_bytes_(std::exchange(other.raw_bytes_, 0)),
          bytes_(std::exchange(other.bytes_, {})) {}
    Arena& operator=(Arena&& other) noexcept {
        std::swap(raw_, other.raw_);
        std::swap(raw_bytes_, other.raw_bytes_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Arena() {
#ifdef TREETOP_LINUX
        if (raw_bytes_) munmap(raw_, raw_bytes_);
#endif
        if (raw_ && !raw_bytes_) ::operator delete(raw_, std::align_val_t{line_bytes});
    }

    // All zeros, at the start of a cache line; of a huge page if it fills one.
    static Arena make(std::size_t bytes) {
        Arena arena;
        std::byte* first = nullptr;
#ifdef TREETOP_LINUX
        if (bytes >= huge_page) {
            const std::size_t room = bytes + huge_page;
            void* raw = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (raw == MAP_FAILED) throw std::bad_alloc();
            arena.raw_ = raw;
            arena.raw_bytes_ = room;
            const auto address = reinterpret_cast<std::uintptr_t>(raw);
            first = static_cast<std::byte*>(raw) + (huge_page - address % huge_page) % huge_page;
            ask_for_huge_pages(first, bytes);
        }
#endif
        if (!first) {
            arena.raw_ = ::operator new(bytes, std::align_val_t{line_bytes});
            first = static_cast<std::byte*>(arena.raw_);
            std::memset(first, 0, bytes);
        }
        arena.bytes_ = {first, bytes};
        return arena;
    }

    // All zeros, in a new file, which the system may write out whenever memory is short. Its room on the disk is taken
    // beforehand: a full disk is an error here, not a fault when a page is written. Elsewhere than on Linux: in memory.
    static Arena make([[maybe_unused]] const std::string& file, std::size_t bytes) {
#ifdef TREETOP_LINUX
        if (!file.empty() && bytes > 0) {
            const int handle = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (handle < 0) throw std::system_error(errno, std::generic_category(), file);
            int problem = posix_fallocate(handle, 0, static_cast<off_t>(bytes));
            Arena arena;
            if (problem == 0) {
                void* raw = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
                if (raw == MAP_FAILED) {
                    problem = errno;
                } else {
                    arena.raw_ = raw;
                    arena.raw_bytes_ = bytes;
                    arena.bytes_ = {static_cast<std::byte*>(raw), bytes};
                }
            }
            close(handle);
            if (problem != 0) throw std::system_error(problem, std::generic_category(), file);
            return arena;
        }
#endif
        return make(bytes);
    }

    // Somebody else's memory, which must outlive this.
    static Arena borrow(std::span<const std::byte> bytes) {
        Arena arena;
        arena.bytes_ = bytes;
        return arena;
    }

    std::byte* writable() { return raw_ ? const_cast<std::byte*>(bytes_.data()) : nullptr; }
    std::span<const std::byte> bytes() const { return bytes_; }
    const std::byte* at(std::size_t offset) const { return bytes_.data() + offset; }

private:
    void* raw_ = nullptr;  // what is given back; nullptr: borrowed
    std::size_t raw_bytes_ = 0;
    std::span<const std::byte> bytes_;
};

}  // namespace treetop
