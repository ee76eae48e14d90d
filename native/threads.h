// Work shared out among threads that live as long as one call: no pool to lose in a fork, none to contend with torch's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace lioncub {

// ``work(first, last, slot)`` over 0..size in at most ``threads`` ranges, each a multiple of ``align`` and no smaller
// than ``grain``. Slots are numbered from 0.
template <class Work> int parallel(int threads, int64_t size, int64_t grain, int64_t align, Work work) {
    const int64_t shares = std::clamp<int64_t>(size / grain, 1, std::max(threads, 1));
    const int64_t share = (size / shares / align + 1) * align;
    std::vector<std::thread> helpers;
    int slot = 0;
    int64_t first = 0;
    for (; first + share < size; first += share, ++slot) {
        try {
            helpers.emplace_back(work, first, first + share, slot);
        } catch (const std::system_error &) {  // no thread to be had: do it here
            work(first, first + share, slot);
        }
    }
    work(first, size, slot);
    for (std::thread &helper : helpers) helper.join();
    return slot + 1;
}

}  // namespace lioncub
