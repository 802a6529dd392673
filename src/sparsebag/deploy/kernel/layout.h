// From the arrays of a file to the nodes the kernel walks, with every index checked on the way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "choice.h"
#include "keys.h"
#include "nodes.h"
#include "tops.h"

namespace sparsebag {

constexpr std::size_t MAX_NODES = std::size_t(1) << 26;  // child offsets are in bytes, in 31 bits

inline void check(bool holds, const char *message) {
    if (!holds) throw std::invalid_argument(message);  // Python's ValueError
}

// Trees as files hold them, over inner nodes; a child or root below zero is ~row of a leaf.
struct Arrays {
    const float *threshold;
    const std::int32_t *feature;
    const std::uint8_t *missing_left;
    const std::int32_t *children, *roots;
    std::size_t n_nodes, n_trees;
};

// The trees in the form the kernel walks.
struct Layout {
    std::vector<Node> nodes;     // tree after tree, breadth first, leaves included
    std::vector<Bunch> bunches;  // their tops
    Effort effort;

    std::size_t nbytes() const {
        std::size_t total = nodes.size() * sizeof(Node);
        for (const Bunch &bunch : bunches) total += bunch.nbytes();
        return total;
    }
};

// Each node is the child of one earlier node or a root: walks end, and visit a node once.
inline void check_arrays(const Arrays &trees, std::size_t n_values, std::size_t n_features) {
    const std::size_t n = trees.n_nodes;
    check(n + trees.n_trees <= MAX_NODES, "the trees have too many nodes");
    check(trees.n_trees > 0, "there are no trees");
    std::vector<std::uint8_t> seen(n, 0);
    const auto visit = [&](std::int32_t child, std::int64_t parent) {
        if (child < 0) {
            check(static_cast<std::size_t>(~child) < n_values,
                  "a leaf has no row in the table of values");
            return;
        }
        check(static_cast<std::size_t>(child) < n && child > parent,
              "a child does not come after its parent");
        check(!seen[child], "a node has two parents");
        seen[child] = 1;
    };
    for (std::size_t t = 0; t < trees.n_trees; ++t) visit(trees.roots[t], -1);
    for (std::size_t i = 0; i < n; ++i) {
        visit(trees.children[2 * i], static_cast<std::int64_t>(i));
        visit(trees.children[2 * i + 1], static_cast<std::int64_t>(i));
        check(trees.feature[i] >= 0 && static_cast<std::size_t>(trees.feature[i]) < n_features,
              "a node reads a feature that does not exist");
        check(!std::isnan(trees.threshold[i]), "a threshold is not a number");
    }
}

// The columns some node reads, sorted: only they get keys.
inline std::vector<std::uint32_t> columns_read(const Arrays &trees) {
    std::vector<std::uint32_t> columns(trees.feature, trees.feature + trees.n_nodes);
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    if (columns.empty()) columns.push_back(0);  // single leaves read a column, to no effect
    return columns;
}

// Nodes of one tree, breadth first.
inline void add_tree(const Arrays &trees, std::int32_t root,
                     const std::vector<std::uint32_t> &columns, std::vector<Node> &nodes,
                     std::vector<std::uint8_t> &missing_left) {
    std::vector<std::int32_t> order{root};
    for (std::size_t at = 0; at < order.size(); ++at) {
        const std::int32_t i = order[at];
        if (i < 0) {
            nodes.push_back({LAST_KEY, 0, {0, ~i}});
            missing_left.push_back(1);
            continue;
        }
        const auto column = std::lower_bound(columns.begin(), columns.end(),
                                             static_cast<std::uint32_t>(trees.feature[i]));
        const auto left = static_cast<std::int32_t>((order.size() - at) * sizeof(Node));
        nodes.push_back({key_of(trees.threshold[i]),
                         static_cast<std::uint32_t>(column - columns.begin()) * LANES,
                         {left, left + static_cast<std::int32_t>(sizeof(Node))}});
        missing_left.push_back(trees.missing_left[i]);
        order.push_back(trees.children[2 * i]);
        order.push_back(trees.children[2 * i + 1]);
    }
}

// All trees and their tops; returns the indices of the roots.
inline std::vector<std::uint32_t> add_trees(const Arrays &trees,
                                            const std::vector<std::uint32_t> &columns,
                                            Layout &layout,
                                            std::vector<std::uint8_t> &missing_left) {
    std::vector<std::uint32_t> roots;
    for (std::size_t t = 0; t < trees.n_trees; ++t) {
        roots.push_back(static_cast<std::uint32_t>(layout.nodes.size()));
        add_tree(trees, trees.roots[t], columns, layout.nodes, missing_left);
    }
    layout.bunches = make_bunches(layout.nodes, roots);
    measure_levels(layout.nodes, roots, layout.effort);
    measure_words(layout.bunches, layout.effort);
    return roots;
}

}  // namespace sparsebag
