// What the files that know Python share. Arrays come in as they are (no conversion, no copy) and go out by moving.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rows.hpp"

namespace treetop {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
template <class T>
using Out2 = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;

template <class T>
using Out3 = nb::ndarray<nb::numpy, T, nb::ndim<3>, nb::c_contig>;

template <class T>
std::span<const T> view(const In<T>& array) {
    return {array.data(), array.size()};
}

inline Rows rows(const In<std::int64_t>& start, const In<std::int32_t>& index, const In<float>& value,
                 std::int64_t columns) {
    return {view(start), view(index), view(value), columns};
}

// Whether short calls keep Python's lock. Where one thread decides and others mostly wait for a disk, letting go of it
// for some microseconds costs more than it gives: whoever takes it meanwhile has to be waited for.
inline std::atomic<bool> keeps_lock{false};

class BriefRelease {
public:
    BriefRelease() : released_(keeps_lock.load(std::memory_order_relaxed) ? nullptr : PyEval_SaveThread()) {}
    ~BriefRelease() {
        if (released_) PyEval_RestoreThread(released_);
    }
    BriefRelease(const BriefRelease&) = delete;
    BriefRelease& operator=(const BriefRelease&) = delete;

private:
    PyThreadState* released_;  // nullptr: the lock was kept
};

template <class Array, class T, class... Sizes>
Array pack(std::vector<T>&& data, Sizes... sizes) {
    auto* kept = new std::vector<T>(std::move(data));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return Array(kept->data(), {static_cast<std::size_t>(sizes)...}, owner);
}

template <class T>
Out<T> pack1(std::vector<T>&& data) {
    const std::size_t n = data.size();
    return pack<Out<T>>(std::move(data), n);
}

// vector<bool> has no storage to hand over: bytes go out under the type bool.
template <class Array, class... Sizes>
Array pack_bool(std::vector<std::uint8_t>&& data, Sizes... sizes) {
    auto* kept = new std::vector<std::uint8_t>(std::move(data));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::uint8_t>*>(p); });
    return Array(reinterpret_cast<bool*>(kept->data()), {static_cast<std::size_t>(sizes)...}, owner);
}

void bind_choose(nb::module_& m);       // bind_choose.cpp
void bind_engine(nb::module_& m);       // bind_engine.cpp
void bind_evaluation(nb::module_& m);   // bind_evaluation.cpp
void bind_fit(nb::module_& m);          // bind_fit.cpp
void bind_flat(nb::module_& m);         // bind_flat.cpp
void bind_layout(nb::module_& m);       // bind_layout.cpp
void bind_names(nb::module_& m);        // bind_names.cpp
void bind_probability(nb::module_& m);  // bind_probability.cpp
void bind_read(nb::module_& m);         // bind_read.cpp
void bind_trees(nb::module_& m);        // bind_trees.cpp

}  // namespace treetop
