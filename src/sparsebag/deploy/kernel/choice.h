// Which rows go down as words, and which are walked: whatever is expected to take less time.
//
// Costs are nanoseconds on one x86-64 server, of which only the ratios matter; `make
// bench-latency` and a run with each of `instruction_sets()` show where they are off.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compare.h"
#include "keys.h"
#include "nodes.h"
#include "tops.h"

namespace sparsebag {

constexpr double STEP_COST = 2.1;       // of one row down one level, trees side by side
constexpr double FORK_COST = 1.5;       // of one word through one node of a top
constexpr double NUMBER_COST = 125.0;   // of one word's exits from one tree, and their leaves
constexpr double REST_COST = 1.4;       // of one row one level below a top, many rows together
constexpr double FEW_REST_COST = 3.3;   // the same with fewer rows than MANY_ROWS
constexpr std::size_t MANY_ROWS = 128;
constexpr double MANY_SHARE = 0.8;      // of a word's cost, where several go down together

// What the trees ask of each way.
struct Effort {
    double splits = 0, forks = 0, trees = 0;  // a word of rows
    double steps = 0, below = 0;              // a row: levels to a leaf, and below the tops

    double walks(std::size_t rows) const { return static_cast<double>(rows) * steps * STEP_COST; }

    // One word's, of which `rows` are there, in a block of n rows.
    double word(std::size_t rows, std::size_t n, double split_cost) const {
        const bool many = n >= MANY_ROWS;
        const double word = splits * split_cost + forks * FORK_COST + trees * NUMBER_COST;
        return word * (many ? MANY_SHARE : 1.0) +
               static_cast<double>(rows) * below * (many ? REST_COST : FEW_REST_COST);
    }
};

// Levels to a leaf, and those below a tree's top. Rows are not known yet: halfway between rows
// spread evenly over the leaves and rows halved at every node, as trees are between those two.
// Nodes of a tree lie breadth first, and its top is the first PART inner ones.
inline void measure_levels(const std::vector<Node> &nodes,
                           const std::vector<std::uint32_t> &roots, Effort &effort) {
    std::vector<std::uint32_t> level, below;
    std::vector<double> share;
    for (std::size_t t = 0; t < roots.size(); ++t) {
        const std::size_t first = roots[t];
        const std::size_t end = t + 1 < roots.size() ? roots[t + 1] : nodes.size();
        const std::size_t n_inner = (end - first) / 2;
        const std::size_t in_top = n_inner <= MAX_WHOLE ? n_inner : PART;
        level.assign(end - first, 0);
        below.assign(end - first, 0);
        share.assign(end - first, 1.0);
        const double even = 0.5 / static_cast<double>(n_inner + 1);
        std::size_t rank = 0;
        for (std::size_t i = 0; i < end - first; ++i) {
            const Node &node = nodes[first + i];
            if (node.is_leaf()) {
                const double reached = even + 0.5 * share[i];
                effort.steps += reached * (level[i] + 1);  // the last sees that it has arrived
                effort.below += reached * below[i];
                continue;
            }
            const bool top = rank++ < in_top;
            for (int side = 0; side < 2; ++side) {
                const std::size_t child =
                    i + static_cast<std::uint32_t>(node.child[side]) / sizeof(Node);
                level[child] = level[i] + 1;
                share[child] = share[i] / 2;
                below[child] = top ? 0 : below[i] + 1;
            }
        }
    }
}

inline void measure_words(const std::vector<Bunch> &bunches, Effort &effort) {
    for (const Bunch &bunch : bunches) {
        effort.splits += static_cast<double>(bunch.splits.all.size());
        effort.forks += static_cast<double>(bunch.forks.size());
        effort.trees += static_cast<double>(bunch.tops.size());
    }
}

// How many of n rows, the first ones, go down as words; the others are walked.
inline std::size_t rows_by_words(const Effort &effort, std::size_t n, double split_cost) {
    const std::size_t whole = n / WORD * WORD, rest = n - whole;
    if (whole > 0 && effort.walks(WORD) <= effort.word(WORD, n, split_cost)) return 0;
    return rest > 0 && effort.walks(rest) > effort.word(rest, n, split_cost) ? n : whole;
}

}  // namespace sparsebag
