// Nodes of the trees, and one step from a node to its child.
#pragma once

#include <cstdint>

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

}  // namespace sparsebag
