// The gate of regions, as sparsebag.refine.region_gate has it: a shallow tree; weights and
// temperature of its leaves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "keys.h"
#include "nodes.h"
#include "sums.h"

namespace sparsebag {

struct RegionTree {
    // A leaf is its own child, so a step too many stays. Children are distances from the first node.
    struct Node {
        float threshold;        // the largest float32 not above the tree's own
        std::uint32_t feature;  // after the features come sums of them
        std::int32_t child[2];  // left, right
        std::uint32_t missing_right;
        std::int32_t region;    // of a leaf; below zero elsewhere
    };
    static constexpr std::size_t MOST_STEPS = 8;  // without a look whether all have arrived
    static constexpr int SIDE_BY_SIDE = 8;        // rows whose steps do not wait for each other

    std::size_t n_members = 0, n_features = 0, n_regions = 0, depth = 0;
    Sums sums;  // rank zero where there are none
    std::vector<Node> nodes;
    std::vector<double> weights, inverse_temperatures;  // region after region
    std::vector<double> by_member;                      // the weights, member after member

    std::size_t nbytes() const {
        return nodes.size() * sizeof(Node) + sums.nbytes() +
               (weights.size() + by_member.size() + inverse_temperatures.size()) * sizeof(double);
    }

    // Once nodes, children after their parents, and weights are there.
    void finish() {
        n_regions = weights.size() / n_members;
        std::vector<std::size_t> level(nodes.size(), 0);
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            depth = std::max(depth, level[i]);
            for (std::int32_t &child : nodes[i].child) {
                level[static_cast<std::size_t>(child)] =
                    std::max(level[static_cast<std::size_t>(child)],
                             level[i] + (nodes[i].region < 0 ? 1 : 0));
                child *= static_cast<std::int32_t>(sizeof(Node));
            }
        }
        by_member.resize(weights.size());
        for (std::size_t r = 0; r < n_regions; ++r)
            for (std::size_t j = 0; j < n_members; ++j)
                by_member[j * n_regions + r] = weights[r * n_members + j];
    }

    // The regions of rows.
    template <typename T>
    void regions_of(const Rows<T> &rows, std::vector<double> &room, std::uint32_t *to) const {
        if (sums.rank == 0) return route<T, false>(rows, nullptr, to);
        const std::size_t h = sums.rank * GATE_ROWS, n_room = sums.n_room() + 2 * h;
        if (room.size() < n_room) room.resize(n_room);
        double *sum = room.data();
        T *read = reinterpret_cast<T *>(sum + h);  // as trees read features, and of their type
        for (std::size_t first = 0; first < rows.n; first += GATE_ROWS) {
            const Rows<T> part = rows.part(first, std::min(GATE_ROWS, rows.n - first));
            if (part.n == 1)
                sums.of_row<T>(part.x, part.column_stride, sum + 2 * h, sum, GATE_ROWS);
            else
                sums.of_rows<T>(part, sum + 2 * h, sum, GATE_ROWS);
            for (std::size_t r = 0; r < sums.rank; ++r)
                for (std::size_t i = 0; i < part.n; ++i)
                    read[r * GATE_ROWS + i] =
                        static_cast<T>(static_cast<float>(sum[r * GATE_ROWS + i]));
            route<T, true>(part, read, to + first);
        }
    }

  private:
    template <typename T, bool HAS_SUMS>
    void route(const Rows<T> &rows, const T *sum, std::uint32_t *to) const {
        std::size_t i = 0;
        for (; i + SIDE_BY_SIDE <= rows.n; i += SIDE_BY_SIDE)
            walk<SIDE_BY_SIDE, T, HAS_SUMS>(rows, i, sum, to);
        for (; i < rows.n; ++i) walk<1, T, HAS_SUMS>(rows, i, sum, to);
    }

    template <int N, typename T, bool HAS_SUMS>
    SPARSEBAG_INLINE void walk(const Rows<T> &rows, std::size_t first, const T *sum,
                               std::uint32_t *to) const {
        const Node *node[N];
        const T *row[N];
        UNROLLED for (int w = 0; w < N; ++w) {
            node[w] = nodes.data();
            row[w] = rows.row(first + w);
        }
        const std::size_t steps = std::min(depth, MOST_STEPS);
        std::int32_t arrived;
        do {
            for (std::size_t s = 0; s < steps; ++s) {
                UNROLLED for (int w = 0; w < N; ++w) {
                    const std::uint32_t f = node[w]->feature;
                    const T *at = row[w] + static_cast<std::int64_t>(f) * rows.column_stride;
                    if (HAS_SUMS)
                        at = f < n_features ? at : sum + (f - n_features) * GATE_ROWS + first + w;
                    const auto x = static_cast<float>(*at);
                    const bool right =
                        (x > node[w]->threshold) | ((x != x) & (node[w]->missing_right != 0));
                    node[w] = moved_to(node[w]->child[right]);
                }
            }
            arrived = 0;
            UNROLLED for (int w = 0; w < N; ++w) arrived |= node[w]->region;
        } while (arrived < 0);
        UNROLLED for (int w = 0; w < N; ++w)
            to[first + w] = static_cast<std::uint32_t>(node[w]->region);
    }

    const Node *moved_to(std::int32_t bytes) const {
        return reinterpret_cast<const Node *>(reinterpret_cast<const char *>(nodes.data()) + bytes);
    }
};

}  // namespace sparsebag
