// Sparse rows from text that comes in blocks of any size. Knows nothing of files: blocks in, arrays out. A line is
// parsed as soon as it is whole; what stays in memory is the arrays and the unfinished line.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "decimal.hpp"

namespace treetop {

// xmc: a header `rows features labels`, then `l1,l2 f:v f:v` a row. svmlight: the same without a header, comments from
// # on, empty lines are no rows. sparse: a header `rows columns`, then `f:v f:v` a row.
enum class Form : std::int32_t { xmc, svmlight, sparse };

struct Text {
    std::vector<std::int64_t> start{0};  // features
    std::vector<std::int32_t> index;
    std::vector<float> value;
    std::vector<std::int64_t> label_start{0};  // without values: a label is there or not
    std::vector<std::int32_t> label;
    std::int64_t columns = 0, labels = 0;  // of the header, otherwise one more than the largest index
};

class Reader {
public:
    static constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max() - 1;  // of rows, features and labels
    static constexpr std::size_t longest_line = std::size_t{1} << 26;

    explicit Reader(Form form) : form_(form), header_seen_(form == Form::svmlight) {}

    // Every line that ends in this block is parsed; the rest waits for the next one.
    void feed(std::string_view block) {
        if (spent_) throw std::invalid_argument("this reader has finished or failed");
        spent_ = true;  // until all of it went well
        while (!block.empty()) {
            const auto* end = static_cast<const char*>(std::memchr(block.data(), '\n', block.size()));
            const std::size_t length = end ? static_cast<std::size_t>(end - block.data()) : block.size();
            if (pending_.size() + length > longest_line)
                fail("longer than " + std::to_string(longest_line) + " bytes; this is not sparse text", lines_ + 1);
            if (!end || !pending_.empty()) pending_.append(block.substr(0, length));
            if (end) parse(pending_.empty() ? block.substr(0, length) : std::string_view(pending_));
            if (end) pending_.clear();
            block.remove_prefix(end ? length + 1 : length);
        }
        spent_ = false;
    }

    // The last line need not end. Refuses fewer rows than the header promised.
    Text finish() {
        feed(pending_.empty() ? std::string_view() : std::string_view("\n"));
        spent_ = true;
        if (!header_seen_) throw std::invalid_argument("is empty; it must begin with the header " + header_form());
        if (form_ != Form::svmlight && rows() < rows_)
            throw std::invalid_argument("ends after " + std::to_string(rows()) + " rows; its header says " +
                                        std::to_string(rows_));
        return std::move(text_);
    }

private:
    using Place = const char*;
    static constexpr double max_float = std::numeric_limits<float>::max();

    [[noreturn]] static void fail(const std::string& why, std::int64_t line) {
        throw std::invalid_argument("line " + std::to_string(line) + ": " + why);
    }
    [[noreturn]] void fail(const std::string& why) const { fail(why, lines_); }

    static bool is_space(char c) { return c == ' ' || c == '\t'; }
    static Place skip_space(Place at, Place end) {
        while (at != end && is_space(*at)) ++at;
        return at;
    }

    // The word at a place, fit to be printed: one line of ASCII, cut where it gets long.
    static std::string quoted(Place at, Place end) {
        Place stop = at;
        while (stop != end && !is_space(*stop) && stop - at < 40) ++stop;
        std::string word(at, stop);
        for (char& c : word)
            if (c < ' ' || c > '~') c = '?';
        return "'" + word + (stop != end && !is_space(*stop) ? "...'" : "'");
    }

    std::string header_form() const { return form_ == Form::xmc ? "'rows features labels'" : "'rows columns'"; }
    std::int64_t rows() const { return static_cast<std::int64_t>(text_.start.size()) - 1; }

    void parse(std::string_view line) {
        ++lines_;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (form_ == Form::svmlight) line = line.substr(0, line.find('#'));
        const Place end = line.data() + line.size();
        Place at = skip_space(line.data(), end);
        if (!header_seen_) return parse_header(at, end);
        const bool full = form_ != Form::svmlight && rows() == rows_;
        if (at == end && (full || form_ == Form::svmlight)) return;
        if (full) fail("more rows than the " + std::to_string(rows_) + " of the header");
        if (form_ != Form::sparse) at = parse_labels(at, end);
        while (at != end) at = skip_space(parse_pair(at, end), end);
        close_row();
    }

    void parse_header(Place at, const Place end) {
        const Place first = at;
        std::int64_t* const numbers[] = {&rows_, &text_.columns, &text_.labels};
        const int count = form_ == Form::xmc ? 3 : 2;
        bool good = true;
        for (int i = 0; good && i < count; ++i) {
            const auto [stop, error] = std::from_chars(at, end, *numbers[i]);
            good = error == std::errc() && *numbers[i] >= 0 && *numbers[i] <= limit && (stop == end || is_space(*stop));
            at = skip_space(stop, end);
        }
        if (!good || at != end)
            fail("the header must be " + header_form() + ", " + std::to_string(count) + " whole numbers from 0 to " +
                 std::to_string(limit) + "; it begins with " + quoted(first, end));
        header_seen_ = true;
    }

    // `l1,l2,...` with or without spaces around the commas. A first word with a colon is a feature: no labels.
    Place parse_labels(Place at, const Place end) {
        const Place after = std::find_if(at, end, [](char c) { return c == ':' || c == ',' || is_space(c); });
        if (at == end || (after != end && *after == ':')) return at;
        for (;;) {
            const Place word = at;
            std::int64_t label = 0;
            const auto [stop, error] = std::from_chars(at, end, label);
            const bool ends = stop == end || is_space(*stop) || *stop == ',';
            if (error == std::errc::invalid_argument || !ends) fail(quoted(word, end) + " is not a label");
            check("label", label, error, word, end, form_ == Form::svmlight ? limit : text_.labels);
            text_.label.push_back(static_cast<std::int32_t>(label));
            at = skip_space(stop, end);
            if (at == end || *at != ',') return at;
            at = skip_space(at + 1, end);
        }
    }

    Place parse_pair(const Place at, const Place end) {
        std::int64_t feature = 0;
        const auto [stop, error] = std::from_chars(at, end, feature);
        if (error == std::errc::invalid_argument || stop == end || *stop != ':') refuse_pair(at, end);
        check("feature", feature, error, at, end, form_ == Form::svmlight ? limit : text_.columns);
        float value = 0;
        const Place after = parse_value(stop + 1, end, at, value);
        if (after != end && !is_space(*after)) refuse_pair(at, end);
        text_.index.push_back(static_cast<std::int32_t>(feature));
        text_.value.push_back(value);
        return after;
    }

    [[noreturn]] void refuse_pair(Place at, Place end) const {
        if (std::string_view(at, static_cast<std::size_t>(end - at)).starts_with("qid:"))
            fail(quoted(at, end) + ": query ids are not supported");
        fail(quoted(at, end) + " is not a feature:value pair");
    }

    void check(const char* what, std::int64_t number, std::errc error, Place word, Place end,
               std::int64_t columns) const {
        if (error == std::errc() && number >= 0 && number < columns) return;
        fail(std::string(what) + " " + (error == std::errc() ? std::to_string(number) : quoted(word, end)) +
             " is outside [0, " + std::to_string(columns) + ")");
    }

    // The float32 nearest to the decimal number; smaller than the smallest is 0.
    Place parse_value(Place at, const Place end, const Place pair, float& value) const {
        if (at != end && *at == '+' && at + 1 != end && at[1] != '-') ++at;
        const auto [stop, error] = parse_decimal(at, end, value);
        if (error == std::errc::invalid_argument) refuse_pair(pair, end);
        if (error == std::errc::result_out_of_range)
            fail("the value of " + quoted(pair, end) + " is beyond the range of float32");
        if (!std::isfinite(value)) fail("the value of " + quoted(pair, end) + " is not finite");
        return stop;
    }

    // Puts the row in order: labels once each, the values of a repeated feature added up.
    void close_row() {
        auto& label = text_.label;
        const auto first_label = label.begin() + text_.label_start.back();
        std::sort(first_label, label.end());
        label.erase(std::unique(first_label, label.end()), label.end());
        text_.label_start.push_back(static_cast<std::int64_t>(label.size()));
        const auto first = text_.index.begin() + text_.start.back();
        if (std::adjacent_find(first, text_.index.end(), std::greater_equal<>()) != text_.index.end()) order_features();
        text_.start.push_back(static_cast<std::int64_t>(text_.index.size()));
        if (form_ != Form::svmlight) return;
        if (label.end() != first_label) text_.labels = std::max<std::int64_t>(text_.labels, label.back() + 1);
        if (text_.index.end() != first) text_.columns = std::max<std::int64_t>(text_.columns, text_.index.back() + 1);
    }

    void order_features() {
        const auto first = static_cast<std::size_t>(text_.start.back());
        row_.clear();
        for (std::size_t j = first; j < text_.index.size(); ++j) row_.emplace_back(text_.index[j], text_.value[j]);
        std::stable_sort(row_.begin(), row_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        std::size_t out = first;
        for (std::size_t j = 0; j < row_.size(); ++out) {
            const std::int32_t feature = row_[j].first;
            double sum = 0;
            for (; j < row_.size() && row_[j].first == feature; ++j) sum += row_[j].second;
            if (std::abs(sum) > max_float)
                fail("the values of feature " + std::to_string(feature) + " add up beyond the range of float32");
            text_.index[out] = feature;
            text_.value[out] = static_cast<float>(sum);
        }
        text_.index.resize(out);
        text_.value.resize(out);
    }

    Form form_;
    bool header_seen_, spent_ = false;
    std::int64_t rows_ = 0, lines_ = 0;
    std::string pending_;
    std::vector<std::pair<std::int32_t, float>> row_;
    Text text_;
};

}  // namespace treetop
