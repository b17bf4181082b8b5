// JSON that was decoded already: whether one of its objects may have a key twice, of which decoders keep the last.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace treetop {

// Whether two of the hashes are equal, by a table with room for four times as many.
inline bool has_equal(std::span<const std::size_t> hashes, std::vector<std::size_t>& table) {
    table.assign(std::bit_ceil(4 * hashes.size()), 0);  // 0 is a free place
    for (const std::size_t hash : hashes) {
        std::size_t place = hash >> 1 & (table.size() - 1);  // the last bit is always set
        for (; table[place] != 0; place = (place + 1) & (table.size() - 1))
            if (table[place] == hash) return true;
        table[place] = hash;
    }
    return false;
}

// False is certain. True is also said of keys with escapes, which may be spelled in two ways, and of equal hashes.
inline bool may_repeat_keys(std::string_view json) {
    thread_local std::vector<std::size_t> keys, table;  // hashes of the keys of all objects that are open
    thread_local std::vector<std::size_t> opened;       // where those of each of them begin
    keys.clear();
    opened.clear();
    for (std::size_t i = 0; i < json.size(); ++i) {
        if (json[i] == '"') {
            const std::size_t first = ++i;
            bool escaped = false;
            for (; i < json.size() && json[i] != '"'; ++i)
                if (json[i] == '\\') escaped = true, ++i;
            std::size_t next = i + 1;
            while (next < json.size() && (json[next] == ' ' || (json[next] >= '\t' && json[next] <= '\r'))) ++next;
            if (next >= json.size() || json[next] != ':') continue;
            if (escaped) return true;
            keys.push_back(std::hash<std::string_view>{}(json.substr(first, i - first)) | 1);
        } else if (json[i] == '{') {
            opened.push_back(keys.size());
        } else if (json[i] == '}' && !opened.empty()) {
            if (has_equal(std::span(keys).subspan(opened.back()), table)) return true;
            keys.resize(opened.back());
            opened.pop_back();
        }
    }
    return false;
}

}  // namespace treetop
