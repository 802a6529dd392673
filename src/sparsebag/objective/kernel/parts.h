// Rows in parts that threads share. How rows are cut depends on the evidence alone and parts are
// added in order, so the sums have the same bits whatever the number of threads.
#ifndef SPARSEBAG_PARTS_H
#define SPARSEBAG_PARTS_H

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "helpers.h"
#include "row_terms.h"

namespace {

constexpr std::size_t ENTRY_BYTES = 5;       // a vote and its mask
constexpr std::size_t PART_BYTES = 1 << 20;  // of evidence, at least: less is not worth a helper
constexpr std::size_t MOST_PARTS = 64;

// Cuts of rows into a power of two of parts, which most numbers of threads share evenly. They lie
// between groups of FLUSH_ROWS, which single precision adds up: sums over blocks of whole groups
// then do not depend on the number of groups a block has, but for a double's last digits.
struct Parts {
    std::size_t rows, groups, n = 1;

    Parts(std::size_t rows, std::size_t members)
        : rows(rows), groups((rows + FLUSH_ROWS - 1) / FLUSH_ROWS) {
        const std::size_t fit =
            std::min({MOST_PARTS, rows * members * ENTRY_BYTES / PART_BYTES, rows / FLUSH_ROWS});
        while (2 * n <= fit) n *= 2;
    }

    // Of at most so many threads, those that have a part to read.
    std::size_t threads(std::size_t most) const {
        return std::max<std::size_t>(1, std::min(most, n));
    }

    std::size_t begin(std::size_t part) const {
        return std::min(rows, part * groups / n * FLUSH_ROWS);
    }
    std::size_t end(std::size_t part) const { return begin(part + 1); }
};

// work(part, thread) for every part, by up to so many threads, of which the caller's is the first.
// It must not throw.
template <typename WORK>
void share(std::size_t n_parts, std::size_t n_threads, const WORK &work) {
    std::atomic<std::size_t> next{0};
    const auto take_parts = [&](std::size_t thread) {
        for (std::size_t part; (part = next.fetch_add(1)) < n_parts;) work(part, thread);
    };
    if (n_threads > 1)
        own_helpers().run(n_threads, take_parts);
    else
        take_parts(0);
}

}  // namespace

#endif
