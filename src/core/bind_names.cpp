// A context by names becomes a row. Once a request, and as short as it is, most of its time would go into Python's
// steps between one small array and the next.
#include <nanobind/stl/pair.h>
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

// The cells of one row, found by names.
struct Cells {
    std::vector<std::pair<std::int32_t, float>> found;
    std::int64_t columns = 0;

    bool add(std::int64_t column, double given) {
        const auto single = static_cast<float>(given);
        if (column < 0 || column >= columns || !std::isfinite(single)) return false;
        found.emplace_back(static_cast<std::int32_t>(column), single);
        return true;
    }

    // The numbers of a vector that begins at a column; zeros take no place, as in any dense row.
    bool add_vector(std::int64_t first, std::int64_t dims, PyObject* value) {
        if (PyList_CheckExact(value)) {
            if (PyList_GET_SIZE(value) != dims) return false;
            for (std::int64_t i = 0; i < dims; ++i) {
                double given = 0.0;
                if (!number(PyList_GET_ITEM(value, i), given)) return false;
                if (static_cast<float>(given) != 0.0f && !add(first + i, given)) return false;
            }
            return true;
        }
        In<float> numbers;
        if (!nb::try_cast(nb::handle(value), numbers, false) || static_cast<std::int64_t>(numbers.size()) != dims)
            return false;
        for (std::int64_t i = 0; i < dims; ++i)
            if (numbers(i) != 0.0f && !add(first + i, numbers(i))) return false;
        return true;
    }
};

// What a dict has for a key; nullptr for nothing.
PyObject* look_up(const nb::dict& places, PyObject* key) {
    PyObject* place = PyDict_GetItemWithError(places.ptr(), key);
    if (place == nullptr && PyErr_Occurred()) throw nb::python_error();
    return place;
}

// start, index and value of one row, and how many names are not in `places`; None if anything has to be looked at. A
// text is the feature "name=text"; a list, or an array, is the vector that `vectors` has (first, dims) of.
nb::object named_row(const nb::dict& features, const nb::dict& places, std::int64_t columns, const nb::dict& vectors) {
    Cells cells;
    cells.columns = columns;
    cells.found.reserve(features.size());
    std::int64_t unknown = 0;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(features.ptr(), &at, &name, &value)) {
        double given = 1.0;
        if (!PyUnicode_CheckExact(name)) return nb::none();
        nb::object key = nb::borrow(name);
        if (PyUnicode_CheckExact(value)) {
            if (look_up(places, name) != nullptr || look_up(vectors, name) != nullptr) return nb::none();
            key = nb::steal(PyUnicode_FromFormat("%U=%U", name, value));
            if (!key.is_valid()) throw nb::python_error();
        } else if (!number(value, given)) {
            PyObject* vector = look_up(vectors, name);
            if (vector == nullptr) return nb::none();
            const auto [first, dims] = nb::cast<std::pair<std::int64_t, std::int64_t>>(nb::handle(vector));
            if (!cells.add_vector(first, dims, value)) return nb::none();
            continue;
        }
        PyObject* place = look_up(places, key.ptr());
        if (place == nullptr) {
            if (look_up(vectors, name) != nullptr) return nb::none();
            ++unknown;
            continue;
        }
        if (!PyLong_CheckExact(place) || !cells.add(PyLong_AsLong(place), given)) return nb::none();
    }
    std::ranges::sort(cells.found, {}, &std::pair<std::int32_t, float>::first);
    const auto twice = std::ranges::adjacent_find(cells.found, {}, &std::pair<std::int32_t, float>::first);
    if (twice != cells.found.end()) return nb::none();
    std::vector<std::int32_t> index(cells.found.size());
    std::vector<float> row(cells.found.size());
    for (std::size_t i = 0; i < row.size(); ++i) std::tie(index[i], row[i]) = cells.found[i];
    std::vector<std::int64_t> start{0, static_cast<std::int64_t>(row.size())};
    return nb::make_tuple(pack1(std::move(start)), pack1(std::move(index)), pack1(std::move(row)), unknown);
}

// start, index and value of dense rows: what is not 0.
auto dense_rows(nb::ndarray<const float, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu> x) {
    const std::size_t n = x.shape(0), columns = x.shape(1);
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> index;
    std::vector<float> value;
    start.reserve(n + 1);
    index.reserve(n * columns);
    value.reserve(n * columns);
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = x.data() + i * columns;
        for (std::size_t j = 0; j < columns; ++j) {
            if (row[j] == 0.0f) continue;
            index.push_back(static_cast<std::int32_t>(j));
            value.push_back(row[j]);
        }
        start.push_back(static_cast<std::int64_t>(index.size()));
    }
    return nb::make_tuple(pack1(std::move(start)), pack1(std::move(index)), pack1(std::move(value)));
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
    m.def("named_row", &named_row, "features"_a, "places"_a, "columns"_a, "vectors"_a = nb::dict(),
          nb::sig("def named_row(features: dict[str, object], places: dict[str, int], columns: int, "
                  "vectors: dict[str, tuple[int, int]] = {}) -> "
                  "tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32], int] | None"),
          "(start, index, value, names that have no place) of a context by names; None for what is not plain.");
    m.def("dense_rows", &dense_rows, "x"_a.noconvert(),
          nb::sig("def dense_rows(x: NDArray[numpy.float32]) -> "
                  "tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32]]"),
          "(start, index, value) of dense rows; their columns must be fewer than 2^31.");
    m.def("beyond", &beyond, "index"_a.noconvert(), "value"_a.noconvert(), "limit"_a.noconvert(),
          "How many values of a row are larger in size than the limit of their column.");
    m.def(
        "may_repeat_keys",
        [](const nb::bytes& json) { return may_repeat_keys(std::string_view(json.c_str(), json.size())); }, "json"_a,
        "False only if no object of this JSON has a key twice; it must have been decoded before.");
}

}  // namespace treetop
