// When something that paid stopped paying: a sequential test over the rewards of one arm. Knows nothing of models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace treetop {

// The sample from which on rewards are a fifth of their mean until then, if that is exp(15) times as likely as that
// they went on as before (Page's CUSUM test); the last such sample, 0 if there is none. Rewards are taken as chances in
// [0, 1].
inline std::size_t last_fall(std::span<const float> rewards) {
    constexpr double fall = 5, alarm = 15;
    std::size_t begin = 0, low = 0;  // where the present mean begins, and where the odds were last even
    double total = 0, odds = 0;
    for (std::size_t i = 0; i < rewards.size(); ++i) {
        const double reward = std::clamp<double>(rewards[i], 0, 1);
        const double mean = std::clamp((total + 0.1) / static_cast<double>(i - begin + 1), 1e-3, 0.95);
        odds += (1 - reward) * std::log((1 - mean / fall) / (1 - mean)) - reward * std::log(fall);
        total += reward;
        if (odds <= 0 || (odds > alarm && (low == begin || total == 0))) {  // nothing falls from nothing
            odds = 0;
            low = i + 1;
        } else if (odds > alarm) {
            begin = low;
            i = low - 1;  // once more from there: it may have fallen again
            total = odds = 0;
        }
    }
    return begin;
}

}  // namespace treetop
