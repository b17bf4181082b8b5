// A context by names becomes a row. Once a request, and as short as it is, most of its time would go into Python's
// steps between one small array and the next.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "keys.hpp"
#include "python.hpp"

namespace treetop {
namespace {

// The value as a number, or false for what is none: a list, a truth value, a whole number beyond all floats.
bool number(PyObject* value, double& out) {
    if (PyFloat_CheckExact(value)) {
        out = PyFloat_AS_DOUBLE(value);
        return true;
    }
    if (!PyLong_CheckExact(value)) return false;
    out = PyLong_AsDouble(value);
    if (out == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return true;
}

// start, index and value of one row, and how many names are not in `places`; None if anything has to be looked at.
nb::object named_row(const nb::dict& features, const nb::dict& places, std::int64_t columns) {
    std::vector<std::pair<std::int32_t, float>> found;
    found.reserve(features.size());
    std::int64_t unknown = 0;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(features.ptr(), &at, &name, &value)) {
        double given = 0.0;
        if (!PyUnicode_CheckExact(name) || !number(value, given)) return nb::none();
        PyObject* place = PyDict_GetItemWithError(places.ptr(), name);
        if (place == nullptr) {
            if (PyErr_Occurred()) throw nb::python_error();
            ++unknown;
            continue;
        }
        const long column = PyLong_CheckExact(place) ? PyLong_AsLong(place) : -1;
        const auto single = static_cast<float>(given);
        if (column < 0 || column >= columns || !std::isfinite(single)) return nb::none();
        found.emplace_back(static_cast<std::int32_t>(column), single);
    }
    std::ranges::sort(found, {}, &std::pair<std::int32_t, float>::first);
    std::vector<std::int32_t> index(found.size());
    std::vector<float> row(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) std::tie(index[i], row[i]) = found[i];
    std::vector<std::int64_t> start{0, static_cast<std::int64_t>(found.size())};
    return nb::make_tuple(pack1(std::move(start)), pack1(std::move(index)), pack1(std::move(row)), unknown);
}

// How many values of a row are larger in size than the limit of their column.
std::int64_t beyond(In<std::int32_t> index, In<float> value, In<float> limit) {
    if (index.size() != value.size()) throw std::invalid_argument("indices and values differ in number");
    std::int64_t count = 0;
    for (std::size_t j = 0; j < index.size(); ++j) {
        const auto column = static_cast<std::size_t>(index(j));
        if (column >= limit.size()) throw std::invalid_argument("a column has no limit");
        count += std::abs(value(j)) > limit(column);
    }
    return count;
}

}  // namespace

void bind_names(nb::module_& m) {
    using namespace nb::literals;
    m.def("named_row", &named_row, "features"_a, "places"_a, "columns"_a,
          nb::sig("def named_row(features: dict[str, object], places: dict[str, int], columns: int) -> "
                  "tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32], int] | None"),
          "(start, index, value, names that have no place) of a context by names; None for what is not plain.");
    m.def("beyond", &beyond, "index"_a.noconvert(), "value"_a.noconvert(), "limit"_a.noconvert(),
          "How many values of a row are larger in size than the limit of their column.");
    m.def(
        "may_repeat_keys",
        [](const nb::bytes& json) { return may_repeat_keys(std::string_view(json.c_str(), json.size())); }, "json"_a,
        "False only if no object of this JSON has a key twice; it must have been decoded before.");
}

}  // namespace treetop
