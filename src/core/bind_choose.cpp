// The draw by itself, for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "asked.hpp"
#include "explore.hpp"
#include "python.hpp"

namespace treetop {
namespace {

auto choose(In<float> scores, In<bool> is_node, In<std::int32_t> id, std::int64_t k, std::int64_t explore,
            std::int32_t strategy, const Rate& rate, std::int64_t key, std::optional<In<float>> value,
            std::optional<In<float>> new_share, std::optional<In<float>> prior) {
    const auto fits = [&](const auto& array) { return array.size() == scores.size(); };
    if (!fits(is_node) || !fits(id) || (value && !fits(*value)) || (new_share && !fits(*new_share)) ||
        (prior && !fits(*prior)))
        throw std::invalid_argument("scores, is_node, id, value, new_share and prior must have one length");
    check_slots(k, explore);
    const Strategy how = strategy_of(strategy, rate);
    const auto* node = reinterpret_cast<const std::uint8_t*>(is_node.data());  // bytes may be other than 0 and 1
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < scores.size(); ++i)
        candidates.push_back({id.data()[i], node[i] != 0, scores.data()[i], value ? value->data()[i] : 0.0f});
    Newness fresh;
    if (new_share) fresh = {view(*new_share), view(prior ? *prior : scores)};
    Explorer explorer;
    std::vector<std::int32_t> chosen;
    std::vector<double> probability;
    std::vector<std::uint8_t> explored;
    for (const Choice& c : explorer(candidates, k, explore, how, static_cast<std::uint64_t>(key), fresh)) {
        chosen.push_back(c.candidate);
        probability.push_back(c.probability);
        explored.push_back(c.explored);
    }
    const std::size_t n = chosen.size();
    return std::make_tuple(pack1(std::move(chosen)), pack1(std::move(probability)),
                           pack_bool<Out<bool>>(std::move(explored), n));
}

}  // namespace

void bind_choose(nb::module_& m) {
    using namespace nb::literals;
    m.def("choose", &choose, "scores"_a.noconvert(), "is_node"_a.noconvert(), "id"_a.noconvert(), "k"_a, "explore"_a,
          "strategy"_a, "rate"_a, "key"_a, "value"_a = nb::none(), "new_share"_a = nb::none(), "prior"_a = nb::none(),
          "Slots from scores: which candidate, its probability, whether drawn.");
}

}  // namespace treetop
