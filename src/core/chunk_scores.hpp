// Scores of chunks for one context, slot by slot. Knows nothing of trees and arms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows.hpp"
#include "simd.hpp"

namespace treetop {

class ChunkScores {
public:
    explicit ChunkScores(std::int64_t columns) : kernels_(chosen_kernels()), scatter_(columns) {}

    // Begins with another context.
    void begin(const Row& x) {
        forget();
        scattered_.clear();
        for (const std::int32_t f : x.index) scattered_.push_back(scatter_(f));
    }
    void forget() { used_ = 0; }

    // Room for a chunk's scores, zeros at first; score() fills in what was planned. Says where they begin. A chunk may
    // have fewer slots than there is room for.
    std::size_t plan(const Chunk& chunk, std::size_t room) {
        const std::size_t scored = used_;
        used_ += room;
        if (slots_.size() < used_ + beyond) slots_.resize(2 * used_ + beyond);
        std::fill(slots_.data() + scored, slots_.data() + used_, 0.0f);
        if (chunk.form != Entry::Form::empty) jobs_.push_back({chunk, scored, 0});
        return scored;
    }

    // A chunk's lines are asked for, a little later its lists, a little later they are added up: memory and arithmetic
    // of neighbouring chunks overlap. `row` has the context of begin().
    void score(const Row& row) {
        const Query x{row.index, row.value, scattered_, scatter_};
        hits_.resize((apart + 1) * x.size());
        const auto hits = [&](std::size_t i) { return hits_.data() + i % (apart + 1) * x.size(); };
        for (std::size_t i = 0; i < jobs_.size() + 2 * apart; ++i) {
            if (i < jobs_.size()) jobs_[i].chunk.ask(x);
            if (i >= apart && i - apart < jobs_.size()) find(jobs_[i - apart], x, hits(i - apart));
            if (i >= 2 * apart) add(jobs_[i - 2 * apart], x, hits(i - 2 * apart));
        }
        jobs_.clear();
    }

    // The scores from a place on.
    const float* at(std::size_t place) const { return slots_.data() + place; }

    const Kernels& kernels() const { return kernels_; }

    // Notes every cache line of the layout that is read; nullptr stops it.
    void trace(std::vector<const std::byte*>* lines) { trace_ = lines; }

private:
    struct Job {
        Chunk chunk;
        std::size_t scored, hits;
    };
    static constexpr std::size_t apart = 1;       // chunks between asking for memory and reading it
    static constexpr std::size_t beyond = 65536;  // what a 16-bit slot can reach, so that damaged ones do no harm

    void find(Job& job, const Query& x, Hit* hits) const {
        if (job.chunk.form != Entry::Form::own) job.hits = kernels_.locate(job.chunk, x, hits);
    }

    void add(const Job& job, const Query& x, const Hit* hits) {
        if (trace_) note(job, x, hits);
        if (job.chunk.form == Entry::Form::own)
            kernels_.add_own(job.chunk, x, slots_.data() + job.scored);
        else
            kernels_.add(job.chunk, hits, job.hits, slots_.data() + job.scored);
    }

    void note(const Job& job, const Query& x, const Hit* hits) {
        const auto stretch = [&](const std::byte* line, std::uint64_t bytes) {
            const std::byte* last = line + bytes;
            for (line -= reinterpret_cast<std::uintptr_t>(line) % line_bytes; line < last; line += line_bytes)
                trace_->push_back(line);
        };
        for (std::size_t j = 0; j < x.size(); ++j)
            if (job.chunk.form == Entry::Form::own)
                stretch(job.chunk.row(x.index[j]), job.chunk.slots * sizeof(float));
            else
                trace_->push_back(job.chunk.line(x, j));
        const Lists lists(job.chunk.slots);
        for (std::size_t i = 0; i < job.hits; ++i) stretch(job.chunk.lists + hits[i].first, lists.bytes(hits[i].n));
    }

    const Kernels& kernels_;
    Scatter scatter_;
    std::vector<std::uint32_t> scattered_;
    std::vector<float> slots_;  // of all chunks so far, `used_` of them, and room
    std::size_t used_ = 0;
    std::vector<Hit> hits_;
    std::vector<Job> jobs_;
    std::vector<const std::byte*>* trace_ = nullptr;
};

}  // namespace treetop
