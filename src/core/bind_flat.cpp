// The flat index for Python: a baseline to measure against, not a way to decide.
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <utility>
#include <vector>

#include "flat.hpp"
#include "python.hpp"

namespace treetop {
namespace {

// Safe to call from several threads at once.
class Flat {
public:
    Flat(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t columns, int threads)
        : index_(make({view(start), view(index), view(value), columns}, threads)), columns_(columns) {}

    auto top(In<std::int64_t> start, In<std::int32_t> index, In<float> value, std::int64_t k) const {
        const Rows contexts{view(start), view(index), view(value), columns_ - 1};
        within<std::int64_t>("k", k, 1, static_cast<std::int64_t>(index_.arms()));
        const std::size_t n = start.size() > 0 ? start.size() - 1 : 0;
        std::vector<std::int32_t> arms;
        std::vector<float> scores;
        std::int64_t work = 0;
        {
            const nb::gil_scoped_release release;
            validate(contexts, "context");
            std::vector<float> score;
            std::vector<std::pair<float, std::int32_t>> best;
            for (std::size_t i = 0; i < n; ++i) {
                work += index_.top(contexts[i], static_cast<std::size_t>(k), score, best);
                for (const auto& [value_of, arm] : best) {
                    arms.push_back(arm);
                    scores.push_back(value_of);
                }
            }
        }
        return std::make_tuple(pack<Out2<std::int32_t>>(std::move(arms), n, k),
                               pack<Out2<float>>(std::move(scores), n, k), work);
    }

private:
    static FlatIndex make(const Rows& rows, int threads) {
        const nb::gil_scoped_release release;
        validate(rows, "rewards");
        if (rows.size() == 0 || rows.columns < 1) throw std::invalid_argument("a flat index needs arms and a bias");
        return FlatIndex(rows, threads);
    }

    FlatIndex index_;
    std::int64_t columns_;
};

}  // namespace

void bind_flat(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<Flat>(m, "Flat")
        .def(nb::init<In<std::int64_t>, In<std::int32_t>, In<float>, std::int64_t, int>(), "start"_a.noconvert(),
             "index"_a.noconvert(), "value"_a.noconvert(), "columns"_a, "threads"_a)
        .def("top", &Flat::top, "start"_a.noconvert(), "index"_a.noconvert(), "value"_a.noconvert(), "k"_a,
             "The k best arms of each context and their scores, every arm scored, on one thread; and how many weights "
             "were multiplied.");
}

}  // namespace treetop
