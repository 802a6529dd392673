// Walks from a node to a leaf, many rows side by side: a walk is a chain of dependent loads, and
// a step picks a child by arithmetic, without a branch to mispredict.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "keys.h"
#include "nodes.h"

namespace sparsebag {

constexpr int WALKS = 12;              // side by side
constexpr int STRIDE = 4;              // steps between two looks for leaves
constexpr std::size_t FEW_WALKS = 64;  // left in the list: not worth another pass

// N walks in step until all have arrived (a leaf is its own child, so a step too many stays).
template <int N, typename Row, typename Finish>
inline void walk_together(const Node *nodes, const std::uint64_t *walks, Row row, Finish finish) {
    const Node *node[N];
    const std::uint32_t *key[N];
    UNROLLED for (int w = 0; w < N; ++w) {
        node[w] = moved(nodes, static_cast<std::uint32_t>(walks[w]));
        key[w] = row(walks[w] >> 32);
    }
    std::int32_t underway;
    do {
        UNROLLED for (int s = 0; s < STRIDE; ++s) {
            UNROLLED for (int w = 0; w < N; ++w) node[w] = step(node[w], key[w]);
        }
        underway = 0;
        UNROLLED for (int w = 0; w < N; ++w) underway |= node[w]->child[0];
    } while (underway != 0);
    UNROLLED for (int w = 0; w < N; ++w) finish(walks[w] >> 32, distance(nodes, node[w]));
}

// From where rows are (at: distances from the first node) to their leaves, in passes over those
// still underway. A walk is its row, then its distance; the lists have room for WALKS more.
inline void walk_rest(const Node *nodes, const Keys &keys, std::size_t n, std::uint32_t *at,
                      std::uint64_t *walks, std::uint64_t *next) {
    const auto row = [&](std::size_t i) { return keys.row(i); };
    const auto finish = [at](std::size_t i, std::uint32_t leaf) { at[i] = leaf; };
    std::size_t left = 0;
    for (std::size_t i = 0; i < n; ++i) {
        walks[left] = static_cast<std::uint64_t>(i) << 32 | at[i];
        left += !moved(nodes, at[i])->is_leaf();
    }
    while (left >= FEW_WALKS) {
        std::size_t kept = 0, j = 0;
        for (; j + WALKS <= left; j += WALKS) {
            const Node *node[WALKS];
            const std::uint32_t *key[WALKS];
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                node[w] = moved(nodes, static_cast<std::uint32_t>(walks[j + w]));
                key[w] = row(walks[j + w] >> 32);
            }
            UNROLLED for (int s = 0; s < STRIDE; ++s) {
                UNROLLED for (int w = 0; w < WALKS; ++w) node[w] = step(node[w], key[w]);
            }
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                const std::uint64_t i = walks[j + w] >> 32;
                const std::uint32_t reached = distance(nodes, node[w]);
                at[i] = reached;
                next[kept] = i << 32 | reached;
                kept += !node[w]->is_leaf();
            }
        }
        while (j < left) next[kept++] = walks[j++];
        left = kept;
        std::swap(walks, next);
    }
    std::size_t j = 0;
    for (; j + 4 <= left; j += 4) walk_together<4>(nodes, walks + j, row, finish);
    for (; j < left; ++j) walk_together<1>(nodes, walks + j, row, finish);
}

}  // namespace sparsebag
