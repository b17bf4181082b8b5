// The text readers for Python, which opens the files and hands their bytes over block by block.
#include <nanobind/stl/tuple.h>

#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>

#include "python.hpp"
#include "read.hpp"

namespace treetop {
namespace {

// Safe to call from several threads, one at a time.
class TextReader {
public:
    explicit TextReader(std::int32_t form) : reader_(form_of(form)) {}

    void feed(const nb::bytes& block) {
        const std::string_view text(block.c_str(), block.size());
        const nb::gil_scoped_release release;
        const std::lock_guard<std::mutex> lock(guard_);
        reader_.feed(text);
    }

    auto finish() {
        Text text;
        {
            const nb::gil_scoped_release release;
            const std::lock_guard<std::mutex> lock(guard_);
            text = reader_.finish();
        }
        return std::make_tuple(pack1(std::move(text.start)), pack1(std::move(text.index)), pack1(std::move(text.value)),
                               pack1(std::move(text.label_start)), pack1(std::move(text.label)), text.columns,
                               text.labels);
    }

private:
    static Form form_of(std::int32_t form) {
        within("form", form, 0, 2);
        return static_cast<Form>(form);
    }

    std::mutex guard_;
    Reader reader_;
};

}  // namespace

void bind_read(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<TextReader>(m, "TextReader")
        .def(nb::init<std::int32_t>(), "form"_a)
        .def("feed", &TextReader::feed, "block"_a, "Parses the lines that end in a block of bytes.")
        .def("finish", &TextReader::finish,
             "start, index, value of the features, start, index of the labels, how many of each there can be.");
}

}  // namespace treetop
