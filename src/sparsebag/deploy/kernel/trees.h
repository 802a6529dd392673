// Trees as the kernel walks them, made of the arrays of a file with every index checked on the way,
// and rows as keys: their numbers as unsigned integers in the order of float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../../objective/kernel/module.h"

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 12")
#else
#define UNROLLED
#endif

namespace sparsebag {

// A child is the distance to its node in bytes. A leaf is its own left child, where every walk
// goes (no key is above LAST_KEY), and its right one is the row of its values. A feature is the
// distance of its key from a row's first one.
struct Node {
    std::uint32_t threshold, feature;
    std::int32_t child[2];

    bool is_leaf() const { return child[0] == 0; }
};

inline const Node *moved(const Node *node, std::int64_t bytes) {
    return reinterpret_cast<const Node *>(reinterpret_cast<const char *>(node) + bytes);
}

inline std::uint32_t distance(const Node *from, const Node *to) {
    return static_cast<std::uint32_t>(reinterpret_cast<const char *>(to) -
                                      reinterpret_cast<const char *>(from));
}

inline const Node *step(const Node *node, const std::uint32_t *row) {
    return moved(node, node->child[node->threshold < row[node->feature]]);
}

// -- rows ------------------------------------------------------------------------------------------

constexpr int LANES = 8;                         // rows whose keys lie side by side
constexpr std::size_t WORD = 64;                 // rows whose bits make one word
constexpr std::uint32_t INFINITE = 0x7f800000u;  // bits of float32's infinity; NaN is above
constexpr std::uint32_t LAST_KEY = 0xffffffffu;  // above every number: sends any walk left

// Adding 0 makes -0.0 and 0.0 one number.
inline std::uint32_t key_of(float x) {
    x += 0.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
}

inline std::uint32_t magnitude_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

// Rows as the caller has them; strides in numbers.
template <typename T>
struct Rows {
    const T *x;
    std::int64_t row_stride, column_stride;
    std::size_t n;

    const T *row(std::size_t i) const { return x + static_cast<std::int64_t>(i) * row_stride; }
    Rows part(std::size_t first, std::size_t count) const {
        return {row(first), row_stride, column_stride, count};
    }
};

// Keys of a block of rows, LANES rows interleaved: feature after feature, lane after lane. More
// than one row have room for whole words of them; past the last row keys are of no effect.
struct Keys {
    std::vector<std::uint32_t> values;
    std::size_t width = 0;

    void fit(std::size_t n_rows, std::size_t n_columns) {
        width = n_columns * LANES;
        const std::size_t groups = n_rows == 1 ? 1 : (n_rows + WORD - 1) / WORD * (WORD / LANES);
        const std::size_t needed = groups * width;
        if (values.size() < needed) values.resize(needed);
    }
    std::uint32_t *row(std::size_t i) { return values.data() + i / LANES * width + i % LANES; }
    const std::uint32_t *row(std::size_t i) const {
        return values.data() + i / LANES * width + i % LANES;
    }
};

// Keys of a block of rows; returns the largest magnitude of the numbers read. N: lanes made at a
// time, all of them or, for a single row, its own.
template <int N, typename T>
std::uint32_t make_keys(const Rows<T> &rows, const std::vector<std::uint32_t> &columns,
                        Keys &keys) {
    std::uint32_t largest[N] = {};
    for (std::size_t i = 0; i < rows.n; i += N) {
        const T *row[N];  // past the last row, the last row again
        UNROLLED for (int l = 0; l < N; ++l) row[l] = rows.row(std::min(i + l, rows.n - 1));
        std::uint32_t *out = keys.row(i);
        for (std::size_t f = 0; f < columns.size(); ++f, out += LANES) {
            const std::int64_t at = static_cast<std::int64_t>(columns[f]) * rows.column_stride;
            float value[N];
            UNROLLED for (int l = 0; l < N; ++l) value[l] = static_cast<float>(row[l][at]);
            for (int l = 0; l < N; ++l) {
                out[l] = key_of(value[l]);
                largest[l] = std::max(largest[l], magnitude_of(value[l]));
            }
        }
    }
    return *std::max_element(largest, largest + N);
}

// Keys of rows with missing values come twice: with NaN above every threshold (it goes right),
// then below (it goes left); nodes read the one they need. Returns whether a number is infinite.
template <typename T>
bool make_missing_keys(const Rows<T> &rows, const std::vector<std::uint32_t> &columns,
                       Keys &keys) {
    keys.fit(rows.n, 2 * columns.size());
    bool infinite = false;
    for (std::size_t i = 0; i < rows.n; ++i) {
        const T *row = rows.row(i);
        std::uint32_t *right = keys.row(i), *left = right + columns.size() * LANES;
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const float value = static_cast<float>(
                row[static_cast<std::int64_t>(columns[f]) * rows.column_stride]);
            const bool missing = std::isnan(value);
            infinite |= std::isinf(value);
            right[f * LANES] = missing ? LAST_KEY : key_of(value);
            left[f * LANES] = missing ? 0 : key_of(value);
        }
    }
    return infinite;
}

// -- arrays to nodes -------------------------------------------------------------------------------

constexpr std::size_t MAX_NODES = std::size_t(1) << 26;  // child offsets are in bytes, in 31 bits

// Trees as files hold them, over inner nodes; a child or root below zero is ~row of a leaf.
struct Arrays {
    const float *threshold;
    const std::int32_t *feature;
    const std::uint8_t *missing_left;
    const std::int32_t *children, *roots;
    std::size_t n_nodes, n_trees;
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

}  // namespace sparsebag
