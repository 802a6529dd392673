// Rows on their way down the trees.
//
// The splits of some trees, each distinct one once, are compared with 64 rows at a time, one bit a
// row. A node's rows are then a word: those above its split go right, the others left, whatever
// their number, without a walk. Trees of up to MAX_WHOLE inner nodes are done with; larger ones have
// their first levels done so, and rows walk on from there, or all the way where that takes less time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "trees.h"

namespace sparsebag {

// -- which of 64 rows are above each threshold -----------------------------------------------------
//
// The only code here that knows a processor: portable C++, and AVX2 where the machine that runs it
// has it (no build flags, so one wheel serves all). Both give the same bits.

struct Split {
    std::uint32_t feature, threshold;
};

// Splits sorted by feature; features[k] is the first split of the k-th one, the last their number.
struct Splits {
    std::vector<Split> all;
    std::vector<std::uint32_t> features;
};

constexpr std::uint32_t SIGN = 0x80000000u;  // flipped, unsigned order becomes signed order

// keys: of the first of WORD rows, groups of LANES rows `width` apart; the bits of split j go to
// above[j * stride].
using Compare = void (*)(const Splits &, const std::uint32_t *keys, std::size_t width,
                         std::uint64_t *above, std::size_t stride);

// Written for the compiler to make vectors of: lanes of LANES rows collect their bits apart.
inline void compare_portable(const Splits &splits, const std::uint32_t *keys, std::size_t width,
                             std::uint64_t *above, std::size_t stride) {
    const Split *split = splits.all.data();
    std::int32_t x[WORD];
    std::uint32_t bit[WORD / 2];
    for (std::size_t i = 0; i < WORD / 2; ++i) bit[i] = std::uint32_t(1) << i;
    for (std::size_t f = 0; f + 1 < splits.features.size(); ++f) {
        const std::uint32_t *from = keys + split[splits.features[f]].feature;
        for (std::size_t i = 0; i < WORD; ++i)
            x[i] = static_cast<std::int32_t>(from[i / LANES * width + i % LANES] ^ SIGN);
        for (std::size_t j = splits.features[f]; j < splits.features[f + 1]; ++j) {
            const auto t = static_cast<std::int32_t>(split[j].threshold ^ SIGN);
            std::uint32_t low[LANES] = {}, high[LANES] = {};
            for (std::size_t g = 0; g < WORD / 2; g += LANES)
                for (std::size_t l = 0; l < LANES; ++l) {
                    low[l] |= t < x[g + l] ? bit[g + l] : 0;
                    high[l] |= t < x[WORD / 2 + g + l] ? bit[g + l] : 0;
                }
            for (std::size_t l = 1; l < LANES; ++l) {
                low[0] |= low[l];
                high[0] |= high[l];
            }
            above[j * stride] = static_cast<std::uint64_t>(high[0]) << 32 | low[0];
        }
    }
}

#if defined(SPARSEBAG_X86)
__attribute__((target("avx2"))) inline std::uint64_t above_avx2(const __m256i *x, __m256i t) {
    const __m256i low = _mm256_packs_epi32(_mm256_cmpgt_epi32(x[0], t), _mm256_cmpgt_epi32(x[1], t));
    const __m256i high =
        _mm256_packs_epi32(_mm256_cmpgt_epi32(x[2], t), _mm256_cmpgt_epi32(x[3], t));
    // Packs stay within halves of a register: four bytes of each operand's first half, then of
    // its second; the permutation puts rows back in order.
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

__attribute__((target("avx2"))) inline void compare_avx2(const Splits &splits,
                                                         const std::uint32_t *keys,
                                                         std::size_t width, std::uint64_t *above,
                                                         std::size_t stride) {
    const Split *split = splits.all.data();
    const __m256i sign = _mm256_set1_epi32(static_cast<int>(SIGN));
    for (std::size_t f = 0; f + 1 < splits.features.size(); ++f) {
        __m256i x[WORD / LANES];
        const std::uint32_t *from = keys + split[splits.features[f]].feature;
        for (std::size_t g = 0; g < WORD / LANES; ++g)
            x[g] = _mm256_xor_si256(
                sign, _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + g * width)));
        for (std::size_t j = splits.features[f]; j < splits.features[f + 1]; ++j) {
            const __m256i t = _mm256_set1_epi32(static_cast<int>(split[j].threshold ^ SIGN));
            above[j * stride] = above_avx2(x, t) | above_avx2(x + 4, t) << 32;
        }
    }
}
#endif

struct Instructions {
    const char *name;
    Compare compare;
    double split_cost;  // of one split against a word of rows, in the unit of the costs below
};

inline Ways<Instructions> &instructions() {
    static Ways<Instructions> here([] {
        std::vector<Instructions> all{{"portable", compare_portable, 9.8}};
#if defined(SPARSEBAG_X86)
        if (__builtin_cpu_supports("avx2")) all.push_back({"avx2", compare_avx2, 1.6});
#endif
        return all;
    }());
    return here;
}

// -- the tops of the trees -------------------------------------------------------------------------

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

// roots: indices of the trees' first nodes; a tree's nodes are together, breadth first.
inline std::vector<Bunch> make_bunches(const std::vector<Node> &nodes,
                                       const std::vector<std::uint32_t> &roots) {
    std::vector<Bunch> out;
    for (std::size_t t = 0; t < roots.size();) {
        std::vector<std::uint64_t> splits;  // distinct and sorted, feature first
        std::vector<Outline> trees;
        for (; t < roots.size() && trees.size() < TREES_A_TIME; ++t) {
            const std::size_t end = t + 1 < roots.size() ? roots[t + 1] : nodes.size();
            Outline tree = outline(nodes, roots[t], end - roots[t]);
            std::vector<std::uint64_t> own, both;
            for (const std::uint32_t i : tree.inner) own.push_back(packed(nodes[i]));
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
        for (Outline &tree : trees) {
            bunch.tops.push_back({static_cast<std::uint32_t>(bunch.forks.size()),
                                  static_cast<std::uint32_t>(tree.forks.size()),
                                  static_cast<std::uint32_t>(bunch.exits.size()),
                                  static_cast<std::uint32_t>(tree.exits.size()), tree.whole});
            for (std::size_t i = 0; i < tree.forks.size(); ++i) {
                const auto at = std::lower_bound(splits.begin(), splits.end(),
                                                 packed(nodes[tree.inner[i]]));
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
inline void number_planes(std::uint64_t *exits, std::size_t n, std::uint64_t (&plane)[PLANES][W]) {
    for (int b = 0; n > 1; ++b) {
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

// -- walks -----------------------------------------------------------------------------------------
//
// Many rows side by side: a walk is a chain of dependent loads, and a step picks a child by
// arithmetic, without a branch to mispredict.

constexpr int WALKS = 12;              // side by side
constexpr int STRIDE = 4;              // steps between two looks for leaves

// From where rows are (at: distances from the first node) to their leaves, in passes over those
// still underway (a leaf is its own child, so a step too many stays). A walk is its row, then its
// distance; the lists have room for WALKS more.
inline void walk_rest(const Node *nodes, const Keys &keys, std::size_t n, std::uint32_t *at,
                      std::uint64_t *walks, std::uint64_t *next) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < n; ++i) {
        walks[left] = static_cast<std::uint64_t>(i) << 32 | at[i];
        left += !moved(nodes, at[i])->is_leaf();
    }
    while (left > 0) {
        std::size_t kept = 0;
        std::fill_n(walks + left, WALKS, walks[left - 1]);  // the last walk again, to no effect
        for (std::size_t j = 0; j < left; j += WALKS) {
            const Node *node[WALKS];
            const std::uint32_t *key[WALKS];
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                node[w] = moved(nodes, static_cast<std::uint32_t>(walks[j + w]));
                key[w] = keys.row(walks[j + w] >> 32);
            }
            UNROLLED for (int s = 0; s < STRIDE; ++s) {
                UNROLLED for (int w = 0; w < WALKS; ++w) node[w] = step(node[w], key[w]);
            }
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                const std::uint64_t i = walks[j + w] >> 32;
                const std::uint32_t reached = distance(nodes, node[w]);
                at[i] = reached;
                next[kept] = i << 32 | reached;
                kept += j + w < left && !node[w]->is_leaf();
            }
        }
        left = kept;
        std::swap(walks, next);
    }
}

// -- which rows go down as words, and which are walked: whatever is expected to take less time ------
//
// Costs are nanoseconds on one x86-64 server, of which only the ratios matter; `make
// bench-latency` and a run with each of `instruction_sets()` show where they are off.

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

// How many of n rows, the first ones, go down as words; the others are walked.
inline std::size_t rows_by_words(const Effort &effort, std::size_t n, double split_cost) {
    const std::size_t whole = n / WORD * WORD, rest = n - whole;
    if (whole > 0 && effort.walks(WORD) <= effort.word(WORD, n, split_cost)) return 0;
    return rest > 0 && effort.walks(rest) > effort.word(rest, n, split_cost) ? n : whole;
}

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

    // Once the nodes are there; roots are indices of the trees' first ones.
    void make_tops(const std::vector<std::uint32_t> &roots) {
        bunches = make_bunches(nodes, roots);
        measure_levels(nodes, roots, effort);
        for (const Bunch &bunch : bunches) {
            effort.splits += static_cast<double>(bunch.splits.all.size());
            effort.forks += static_cast<double>(bunch.forks.size());
            effort.trees += static_cast<double>(bunch.tops.size());
        }
    }
};

}  // namespace sparsebag
