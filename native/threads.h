// Work shared out among threads: OpenMP's, so that they are the ones torch already keeps warm (the loader gives both the
// same runtime), or else threads that live as long as one call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace lioncub {

// ``work(first, last)`` over 0..size in at most ``threads`` ranges, each a multiple of ``align`` and hardly smaller than
// ``grain``.
template <class Work> void parallel(int threads, int64_t size, int64_t grain, int64_t align, Work work) {
    const int64_t shares = std::clamp<int64_t>(size / grain, 1, std::max(threads, 1));
    const int64_t share = (size / shares / align + 1) * align;
#ifdef _OPENMP
    const int ranges = int((size + share - 1) / share);
    if (ranges > 1) {
#pragma omp parallel for num_threads(ranges) schedule(static, 1)
        for (int k = 0; k < ranges; ++k) work(k * share, std::min(size, (k + 1) * share));
        return;
    }
    work(int64_t(0), size);
#else
    std::vector<std::thread> helpers;
    int64_t first = 0;
    for (; first + share < size; first += share) {
        try {
            helpers.emplace_back(work, first, first + share);
        } catch (const std::system_error &) {  // no thread to be had: do it here
            work(first, first + share);
        }
    }
    work(first, size);
    for (std::thread &helper : helpers) helper.join();
#endif
}

}  // namespace lioncub
