// A single decision as Python asks for it and gets it back.
#pragma once

#include <nanobind/stl/variant.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "asked.hpp"
#include "decide.hpp"
#include "python.hpp"

namespace treetop {

namespace nb = nanobind;

// A single decision: what it needs, and the slots that it fills.
struct One {
    Ask ask;
    Allowed allowed;
    std::uint64_t key = 0;
    In<std::int32_t> index;
    In<float> value;
    Row x;
    std::unique_ptr<Slots> slots;

    One(std::int64_t key_, std::int64_t k, std::int64_t explore, std::int64_t beam, double beta, std::int32_t strategy,
        const Rate& rate, const Mask* mask, double diversity)
        : ask{k, explore, width_of(beam, beta), strategy_of(strategy, rate), diversity},
          allowed{0, {}, {}, mask},
          key(static_cast<std::uint64_t>(key_)) {}

    // arms, propensities, scores, explored, nodes, components
    nb::object packed() {
        const auto filled = static_cast<std::size_t>(std::ranges::count_if(slots->arms, [](auto a) { return a >= 0; }));
        Slots& out = *slots;
        const nb::capsule owner(slots.release(), [](void* p) noexcept { delete static_cast<Slots*>(p); });
        return nb::make_tuple(Out<std::int32_t>(out.arms.data(), {filled}, owner),
                              Out<double>(out.propensities.data(), {filled}, owner),
                              Out<float>(out.scores.data(), {filled}, owner),
                              Out<bool>(reinterpret_cast<bool*>(out.explored.data()), {filled}, owner),
                              Out<std::int32_t>(out.nodes.data(), {filled}, owner),
                              Out2<float>(out.components.data(), {filled, out.C}, owner));
    }
};

}  // namespace treetop
