// The tops of the trees, which many rows go down together as bits of a word.
//
// The splits of some trees, each distinct one once, are compared with WORD rows at a time
// (compare.h). A node's rows are then a word: those above its split go right, the others left,
// whatever their number, without a walk. Trees of up to MAX_WHOLE inner nodes are done with;
// larger ones have their first levels done so, and rows walk on from there (walk.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "compare.h"
#include "keys.h"
#include "nodes.h"

namespace sparsebag {

constexpr std::size_t MAX_WHOLE = 255;      // inner nodes: exits are numbered in a byte
constexpr std::size_t PART = 63;            // inner nodes of a larger tree's top
constexpr std::size_t MAX_SLOTS = 2 * MAX_WHOLE + 1;
constexpr std::size_t TREES_A_TIME = 128;
constexpr std::size_t SPLITS_A_TIME = 8192; // whose bits are 256 kB; more trees share more
constexpr std::size_t WORDS = 4;            // of rows that go down a tree at a time
constexpr int PLANES = 8;                   // bits of an exit's number

// An inner node of a top: children are slots, inner nodes first, then exits.
struct Fork {
    std::uint16_t split, child[2];
};

// One tree's part of a bunch; `whole`: every exit is a leaf.
struct Top {
    std::uint32_t fork, n_forks, exit, n_exits;
    bool whole;
};

// Some trees, in their order. An exit is its leaf's row of values if the top is the whole tree,
// else its node's distance from the first one.
struct Bunch {
    Splits splits;
    std::vector<Fork> forks;
    std::vector<std::uint32_t> exits;
    std::vector<Top> tops;

    std::size_t nbytes() const {
        return splits.all.size() * sizeof(Split) + splits.features.size() * 4 +
               forks.size() * sizeof(Fork) + exits.size() * 4 + tops.size() * sizeof(Top);
    }
};

namespace detail {

// The inner nodes of a tree's top and the nodes below them, as indices, breadth first.
struct Outline {
    std::vector<std::uint32_t> inner, exits;
    std::vector<Fork> forks;
    bool whole;
};

inline std::uint32_t child_of(const std::vector<Node> &nodes, std::uint32_t node, int side) {
    return node + static_cast<std::uint32_t>(nodes[node].child[side]) / sizeof(Node);
}

inline Outline outline(const std::vector<Node> &nodes, std::uint32_t root, std::size_t n_nodes) {
    const std::size_t n_inner = n_nodes / 2;
    Outline out;
    out.whole = n_inner <= MAX_WHOLE;
    const std::size_t most = out.whole ? n_inner : PART;
    if (n_inner == 0) out.exits.push_back(root);
    else out.inner.push_back(root);
    constexpr std::uint16_t EXIT = 0x8000;
    for (std::size_t i = 0; i < out.inner.size(); ++i) {
        Fork fork{};
        for (int side = 0; side < 2; ++side) {
            const std::uint32_t child = child_of(nodes, out.inner[i], side);
            const bool goes_on = !nodes[child].is_leaf() && out.inner.size() < most;
            std::vector<std::uint32_t> &list = goes_on ? out.inner : out.exits;
            fork.child[side] = static_cast<std::uint16_t>(list.size() | (goes_on ? 0 : EXIT));
            list.push_back(child);
        }
        out.forks.push_back(fork);
    }
    for (Fork &fork : out.forks)
        for (std::uint16_t &slot : fork.child)
            if (slot & EXIT)
                slot = static_cast<std::uint16_t>((slot ^ EXIT) + out.inner.size());
    return out;
}

inline std::uint64_t packed(const Node &node) {
    return static_cast<std::uint64_t>(node.feature) << 32 | node.threshold;
}

}  // namespace detail

// roots: indices of the trees' first nodes; a tree's nodes are together, breadth first.
inline std::vector<Bunch> make_bunches(const std::vector<Node> &nodes,
                                       const std::vector<std::uint32_t> &roots) {
    std::vector<Bunch> out;
    for (std::size_t t = 0; t < roots.size();) {
        std::vector<std::uint64_t> splits;  // distinct and sorted, feature first
        std::vector<detail::Outline> trees;
        for (; t < roots.size() && trees.size() < TREES_A_TIME; ++t) {
            const std::size_t end = t + 1 < roots.size() ? roots[t + 1] : nodes.size();
            detail::Outline tree = detail::outline(nodes, roots[t], end - roots[t]);
            std::vector<std::uint64_t> own, both;
            for (const std::uint32_t i : tree.inner) own.push_back(detail::packed(nodes[i]));
            std::sort(own.begin(), own.end());
            own.erase(std::unique(own.begin(), own.end()), own.end());
            std::set_union(splits.begin(), splits.end(), own.begin(), own.end(),
                           std::back_inserter(both));
            if (both.size() > SPLITS_A_TIME) break;  // one tree alone has far fewer
            splits = std::move(both);
            trees.push_back(std::move(tree));
        }
        Bunch bunch;
        for (const std::uint64_t split : splits) {
            const auto feature = static_cast<std::uint32_t>(split >> 32);
            if (bunch.splits.all.empty() || bunch.splits.all.back().feature != feature)
                bunch.splits.features.push_back(
                    static_cast<std::uint32_t>(bunch.splits.all.size()));
            bunch.splits.all.push_back({feature, static_cast<std::uint32_t>(split)});
        }
        bunch.splits.features.push_back(static_cast<std::uint32_t>(splits.size()));
        for (detail::Outline &tree : trees) {
            bunch.tops.push_back({static_cast<std::uint32_t>(bunch.forks.size()),
                                  static_cast<std::uint32_t>(tree.forks.size()),
                                  static_cast<std::uint32_t>(bunch.exits.size()),
                                  static_cast<std::uint32_t>(tree.exits.size()), tree.whole});
            for (std::size_t i = 0; i < tree.forks.size(); ++i) {
                const auto at = std::lower_bound(splits.begin(), splits.end(),
                                                 detail::packed(nodes[tree.inner[i]]));
                tree.forks[i].split = static_cast<std::uint16_t>(at - splits.begin());
                bunch.forks.push_back(tree.forks[i]);
            }
            for (const std::uint32_t i : tree.exits)
                bunch.exits.push_back(tree.whole
                                          ? static_cast<std::uint32_t>(nodes[i].child[1])
                                          : distance(nodes.data(), nodes.data() + i));
        }
        out.push_back(std::move(bunch));
    }
    return out;
}

// Which rows reach each slot of a top, W words of rows at a time.
template <int W>
inline void split_rows(const Fork *forks, std::size_t n_forks, const std::uint64_t *above,
                       std::uint64_t *reach) {
    for (std::size_t i = 0; i < n_forks; ++i) {
        const Fork fork = forks[i];
        const std::uint64_t *rows = reach + i * W, *test = above + std::size_t(fork.split) * W;
        std::uint64_t left[W], right[W];
        for (int w = 0; w < W; ++w) right[w] = rows[w] & test[w];
        for (int w = 0; w < W; ++w) left[w] = rows[w] ^ right[w];
        std::memcpy(reach + std::size_t(fork.child[0]) * W, left, sizeof left);
        std::memcpy(reach + std::size_t(fork.child[1]) * W, right, sizeof right);
    }
}

// The bits of the rows' exit numbers: bit b is set where a row is in an exit whose number has it,
// that is in the second of a pair once exits are merged b times two by two.
template <int W>
inline int number_planes(std::uint64_t *exits, std::size_t n, std::uint64_t (&plane)[PLANES][W]) {
    int b = 0;
    for (; n > 1; ++b) {
        std::uint64_t bits[W] = {};
        for (std::size_t i = 0; i < n / 2; ++i) {
            std::uint64_t merged[W];
            UNROLLED for (int w = 0; w < W; ++w) {
                const std::uint64_t second = exits[(2 * i + 1) * W + w];
                bits[w] |= second;
                merged[w] = exits[2 * i * W + w] | second;
            }
            UNROLLED for (int w = 0; w < W; ++w) exits[i * W + w] = merged[w];
        }
        if (n % 2)
            for (int w = 0; w < W; ++w) exits[n / 2 * W + w] = exits[(n - 1) * W + w];
        n = (n + 1) / 2;
        for (int w = 0; w < W; ++w) plane[b][w] = bits[w];
    }
    return b;
}

// Bytes of eight rows from one byte of each plane: an 8 by 8 transposition of bits (Hacker's
// Delight, 7-3).
inline std::uint64_t transposed(std::uint64_t x) {
    std::uint64_t t = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000cccc0000ccccu;
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
    return x ^ t ^ t << 28;
}

// W words of rows down one tree's top: the number of each row's exit.
template <int W>
inline void number_exits(const Bunch &bunch, const Top &top, const std::uint64_t *above,
                         std::uint64_t *reach, std::uint8_t *number) {
    std::uint64_t plane[PLANES][W] = {};
    for (int w = 0; w < W; ++w) reach[w] = ~std::uint64_t(0);
    split_rows<W>(bunch.forks.data() + top.fork, top.n_forks, above, reach);
    number_planes<W>(reach + top.n_forks * W, top.n_exits, plane);
    for (int w = 0; w < W; ++w)
        for (int k = 0; k < 8; ++k) {
            std::uint64_t bytes = 0;
            UNROLLED for (int b = 0; b < PLANES; ++b)
                bytes |= (plane[b][w] >> 8 * k & 0xff) << 8 * b;
            bytes = transposed(bytes);
            UNROLLED for (int r = 0; r < 8; ++r)
                number[WORD * w + 8 * k + r] = static_cast<std::uint8_t>(bytes >> 8 * r);
        }
}

}  // namespace sparsebag
