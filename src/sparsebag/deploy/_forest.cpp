// The weighted vote of many small decision trees, over flat arrays.
//
// Why it is fast: every number of a row becomes an unsigned key with the order of float32, so a
// step down a tree is one integer comparison that picks a child, no branch to mispredict. The top
// levels of a tree are a complete binary tree in heap order, which eight rows walk in lockstep;
// below it rows walk a few steps at a time (a leaf is its own child, so a step too many stays),
// and those that have arrived leave the list. A branch a leaf would cost more than all the steps.
// `make bench-latency` shows what that is worth.
//
// Why it is safe: the constructor checks every index it is given and keeps its own copy, so no
// file and no later write to an array can send a walk out of bounds or round in circles.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <string>
#include <vector>

namespace nb = nanobind;

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 12")
#else
#define UNROLLED
#endif

namespace {

constexpr int LANES = 8;                          // rows in lockstep; more spill out of registers
constexpr int MAX_TOP = 8;                        // levels in heap order; 3 kB a tree
constexpr int WALKS = 12;                         // side by side below the top
constexpr int STRIDE = 4;                         // steps between two looks for leaves
constexpr std::size_t FEW_WALKS = 64;             // left in the list: not worth another pass
constexpr std::size_t MAX_BLOCK_ROWS = 1024;      // rows whose keys are made at a time
constexpr std::size_t MIN_BLOCK_ROWS = 32;
constexpr std::size_t ROWS_A_TIME = 64;           // whose keys fit the nearest cache, beside a top
constexpr std::size_t TREES_A_TIME = 16;
constexpr std::size_t BLOCK_BYTES = 256 * 1024;   // of keys: a part of the second-level cache
constexpr std::size_t ROWS_TO_INTERLEAVE = 24;    // below, walk all trees of one row at a time
constexpr std::size_t WALKS_TO_THREAD = 50000;    // a thread costs about as much as this many
constexpr std::size_t MAX_NODES = std::size_t(1) << 26;  // child offsets are in bytes, in 31 bits
constexpr std::uint32_t INFINITE = 0x7f800000u;   // bits of float32's infinity; NaN is above
constexpr std::uint32_t LAST_KEY = 0xffffffffu;   // above every number: sends any walk left

template <typename T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Strided = nb::ndarray<const T, nb::ndim<N>, nb::device::cpu>;
template <int N>
using Out = nb::ndarray<double, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

// A child is the distance to its node in bytes. A leaf is its own left child, where every walk
// goes (no key is above LAST_KEY), and its right one is the row of its values.
struct Node {
    std::uint32_t threshold, feature;
    std::int32_t child[2];

    bool is_leaf() const { return child[0] == 0; }
};

// A node of the complete tree on top: its children are where heap order has them.
struct Split {
    std::uint32_t threshold, feature;
};

// The trees in the form the kernel walks; features are multiples of LANES, the distance of two
// features of a row among its keys.
struct Layout {
    std::vector<Node> nodes;            // tree after tree, breadth first, leaves included
    std::vector<Split> tops;            // 2^levels a tree, the first unused
    std::vector<std::uint32_t> exits;   // 2^levels a tree: distance in bytes from its root

    std::size_t nbytes() const {
        return nodes.size() * sizeof(Node) + tops.size() * sizeof(Split) + exits.size() * 4;
    }
};

// Unsigned integers in the order of the floats; adding 0 makes -0.0 and 0.0 one number.
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

// Keys of a block of rows, LANES rows interleaved: feature after feature, lane after lane.
struct Keys {
    std::vector<std::uint32_t> values;
    std::size_t width = 0;

    void fit(std::size_t n_rows, std::size_t n_columns) {
        width = n_columns * LANES;
        const std::size_t needed = (n_rows + LANES - 1) / LANES * width;
        if (values.size() < needed) values.resize(needed);
    }
    std::uint32_t *row(std::size_t i) { return values.data() + i / LANES * width + i % LANES; }
    const std::uint32_t *row(std::size_t i) const {
        return values.data() + i / LANES * width + i % LANES;
    }
};

// LANES rows at a time through the complete tree on top; at[i] becomes row i's exit.
inline void walk_top(const Split *top, const std::uint32_t *exits, int levels, const Keys &keys,
                     std::size_t from, std::size_t n, std::uint32_t *at) {
    const std::size_t first = std::size_t(1) << levels;
    for (std::size_t i = from; i < n; i += LANES) {  // lanes past the last row hold old keys
        const std::uint32_t *group = keys.row(i);
        std::size_t index[LANES];
        UNROLLED for (int l = 0; l < LANES; ++l) index[l] = 1;
        for (int d = 0; d < levels; ++d) {
            UNROLLED for (int l = 0; l < LANES; ++l) {
                const Split &split = top[index[l]];
                const std::size_t feature = split.feature;  // 64 bits: + l folds into the address
                index[l] = 2 * index[l] + (split.threshold < group[feature + l]);
            }
        }
        UNROLLED for (int l = 0; l < LANES; ++l) at[i + l] = exits[index[l] - first];
    }
}

// N walks in step until all have arrived.
template <int N, typename Row, typename Finish>
inline void walk_together(const Node *root, const std::uint64_t *walks, Row row, Finish finish) {
    const Node *node[N];
    const std::uint32_t *key[N];
    UNROLLED for (int w = 0; w < N; ++w) {
        node[w] = moved(root, static_cast<std::uint32_t>(walks[w]));
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
    UNROLLED for (int w = 0; w < N; ++w) finish(walks[w] >> 32, distance(root, node[w]));
}

// From the exits of the top to the leaves, in passes over those still underway. A walk is its
// row, then its distance from the root; the lists have room for WALKS more.
inline void walk_rest(const Node *root, const Keys &keys, std::size_t n, std::uint32_t *at,
                      std::uint64_t *walks, std::uint64_t *next) {
    const auto row = [&](std::size_t i) { return keys.row(i); };
    const auto finish = [at](std::size_t i, std::uint32_t leaf) { at[i] = leaf; };
    std::size_t left = 0;
    for (std::size_t i = 0; i < n; ++i) {
        walks[left] = static_cast<std::uint64_t>(i) << 32 | at[i];
        left += !moved(root, at[i])->is_leaf();
    }
    while (left >= FEW_WALKS) {
        std::size_t kept = 0, j = 0;
        for (; j + WALKS <= left; j += WALKS) {
            const Node *node[WALKS];
            const std::uint32_t *key[WALKS];
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                node[w] = moved(root, static_cast<std::uint32_t>(walks[j + w]));
                key[w] = row(walks[j + w] >> 32);
            }
            UNROLLED for (int s = 0; s < STRIDE; ++s) {
                UNROLLED for (int w = 0; w < WALKS; ++w) node[w] = step(node[w], key[w]);
            }
            UNROLLED for (int w = 0; w < WALKS; ++w) {
                const std::uint64_t i = walks[j + w] >> 32;
                const std::uint32_t reached = distance(root, node[w]);
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
    for (; j + 4 <= left; j += 4) walk_together<4>(root, walks + j, row, finish);
    for (; j < left; ++j) walk_together<1>(root, walks + j, row, finish);
}

// What is done to the raw sums of a row: nothing (a part of a larger vote, or regression), or
// floor, normalisation and temperature.
struct Finish {
    bool vote = false;
    double floor = 0.0, inverse_temperature = 1.0, share = 0.0;

    void operator()(double *p, std::size_t n_classes) const {
        if (!vote) return;
        clip(p, n_classes);
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = (1.0 - floor) * p[c] + floor / static_cast<double>(n_classes);
            total += p[c];
        }
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
        if (inverse_temperature != 1.0) temper(p, n_classes);
        if (share == 0.0) return;
        const double uniform = share / static_cast<double>(n_classes);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] = (1.0 - share) * p[c] + uniform;
    }

  private:
    // Refined leaves may give a class less than nothing; votes that do not are left to the bit.
    void clip(double *p, std::size_t n_classes) const {
        bool below = false;
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) {
            if (p[c] < 0.0) {
                p[c] = 0.0;
                below = true;
            }
            total += p[c];
        }
        if (!below) return;
        const double uniform = 1.0 / static_cast<double>(n_classes);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] = total > 0.0 ? p[c] / total : uniform;
    }

    void temper(double *p, std::size_t n_classes) const {
        double top = -std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = std::log(p[c]) * inverse_temperature;
            top = std::max(top, p[c]);
        }
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) total += p[c] = std::exp(p[c] - top);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
    }
};

class Forest {
  public:
    // values: one row a leaf, or rows shared by leaves with equal values. complement: for two
    // classes stored as the second one's share, the total weight the first one's is taken from.
    Forest(In<float, 1> threshold, In<std::int32_t, 1> feature, In<std::uint8_t, 1> missing_left,
           In<std::int32_t, 2> children, In<std::int32_t, 1> roots, In<double, 2> values,
           std::size_t n_features, bool complement, double total)
        : n_features_(n_features), width_(values.shape(1)), complement_(complement), total_(total) {
        const std::size_t n = threshold.shape(0);
        check(feature.shape(0) == n && missing_left.shape(0) == n && children.shape(0) == n &&
                  children.shape(1) == 2,
              "the arrays of the trees differ in length");
        check(n + roots.shape(0) <= MAX_NODES, "the trees have too many nodes");
        check(roots.shape(0) > 0, "there are no trees");
        check(width_ > 0 && (!complement || width_ == 1), "the leaves have no values");
        check(n_features > 0 && n_features <= 0x7fffffff, "the trees read no features");
        check(values.shape(0) <= 0x7fffffff, "there are too many leaf values");
        check_shape(children.data(), roots.data(), n, roots.shape(0), values.shape(0));
        values_.assign(values.data(), values.data() + values.size());
        for (const double v : values_) check(std::isfinite(v), "a leaf value is not finite");
        check(std::isfinite(total), "the total weight is not finite");

        for (std::size_t i = 0; i < n; ++i) {
            check(feature.data()[i] >= 0 &&
                      static_cast<std::size_t>(feature.data()[i]) < n_features,
                  "a node reads a feature that does not exist");
            check(!std::isnan(threshold.data()[i]), "a threshold is not a number");
        }
        columns_.assign(feature.data(), feature.data() + n);
        std::sort(columns_.begin(), columns_.end());
        columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
        if (columns_.empty()) columns_.push_back(0);  // single leaves read a column, to no effect

        std::size_t most = 1;
        for (std::size_t t = 0; t < roots.shape(0); ++t) {
            const std::size_t before = layout_.nodes.size();
            roots_.push_back(static_cast<std::uint32_t>(before));
            add_tree(roots.data()[t], threshold.data(), feature.data(), missing_left.data(),
                     children.data());
            most = std::max(most, (layout_.nodes.size() - before) / 2);
        }
        while (levels_ < MAX_TOP && (std::size_t(1) << levels_) <= most) ++levels_;
        add_tops(layout_);
    }

    std::size_t nbytes() const {
        return layout_.nbytes() + missing_.nbytes() + missing_left_.size() +
               (columns_.size() + roots_.size()) * 4 + values_.size() * sizeof(double);
    }

    // Adds nothing to `out`: writes the weighted sums of the rows' leaves, finished or raw.
    template <typename T>
    void predict(Strided<T, 2> X, Out<2> out, std::size_t n_threads, bool allow_nan,
                 bool allow_inf, bool vote, double floor, double inverse_temperature,
                 double share) {
        const std::size_t n = X.shape(0);
        check(X.shape(1) == n_features_, "X has the wrong number of columns");
        check(out.shape(0) == n && out.shape(1) == n_outputs(), "out has the wrong shape");
        const Finish finish{vote, floor, inverse_temperature, share};
        std::uint32_t largest = 0;
        {
            nb::gil_scoped_release release;
            largest = predict_rows<T>(X.data(), X.stride(0), X.stride(1), n, out.data(), n_threads,
                                      finish);
        }
        check_numbers(largest, allow_nan, allow_inf);
    }

    // One row, with the GIL held: releasing it costs more than the walk.
    template <typename T>
    void predict_one(Strided<T, 1> x, Out<1> out, bool allow_nan, bool vote, double floor,
                     double inverse_temperature, double share) {
        if (x.shape(0) != n_features_) {
            const std::string has = std::to_string(x.shape(0));
            throw nb::value_error(("the row has " + has + " columns, but " +
                                   std::to_string(n_features_) + " were fitted.").c_str());
        }
        check(out.shape(0) == n_outputs(), "out has the wrong shape");
        thread_local Keys keys;
        thread_local std::vector<std::int32_t> leaves;
        keys.fit(1, columns_.size());
        const std::uint32_t largest = make_row_keys<T>(x.data(), x.stride(0), keys);
        check_numbers(largest, allow_nan, false);
        const Layout *layout = &layout_;
        if (largest > INFINITE) {
            make_missing_keys<T>(x.data(), 0, x.stride(0), 1, keys);
            layout = &layout_for_missing();
        }
        leaves.resize(roots_.size());
        one_row(*layout, keys.row(0), leaves.data(), out.data());
        Finish{vote, floor, inverse_temperature, share}(out.data(), n_outputs());
    }

  private:
    std::size_t n_features_, width_;
    bool complement_;
    double total_;
    int levels_ = 1;
    Layout layout_, missing_;
    std::vector<std::uint8_t> missing_left_;
    std::vector<std::uint32_t> columns_, roots_;
    std::vector<double> values_;
    std::once_flag missing_made_;

    // What a thread needs for a block of rows.
    struct Work {
        Keys keys;
        std::vector<double> sums;
        std::vector<std::int32_t> leaves;
        std::vector<std::uint32_t> at;
        std::vector<std::uint64_t> walks, next;

        explicit Work(std::size_t n)
            : at(TREES_A_TIME * (n + LANES)), walks(n + WALKS), next(n + WALKS) {}
    };

    static void check(bool holds, const char *message) {
        if (!holds) throw nb::value_error(message);
    }

    static void check_numbers(std::uint32_t largest, bool allow_nan, bool allow_inf) {
        // `largest` is the largest magnitude seen; NaN is above infinity.
        if (largest < INFINITE) return;
        check(allow_nan || largest <= INFINITE, "Input X contains NaN.");
        check(allow_inf || largest != INFINITE,
              "Input X contains infinity or a value too large for dtype('float32').");
    }

    // Each node is the child of one earlier node or a root: walks end, and visit a node once.
    static void check_shape(const std::int32_t *children, const std::int32_t *roots, std::size_t n,
                            std::size_t n_trees, std::size_t n_values) {
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
        for (std::size_t t = 0; t < n_trees; ++t) visit(roots[t], -1);
        for (std::size_t i = 0; i < n; ++i) {
            visit(children[2 * i], static_cast<std::int64_t>(i));
            visit(children[2 * i + 1], static_cast<std::int64_t>(i));
        }
    }

    std::size_t n_outputs() const { return complement_ ? 2 : width_; }

    // Nodes of one tree, breadth first.
    void add_tree(std::int32_t root, const float *threshold, const std::int32_t *feature,
                  const std::uint8_t *missing_left, const std::int32_t *children) {
        std::vector<std::int32_t> order{root};
        for (std::size_t at = 0; at < order.size(); ++at) {
            const std::int32_t i = order[at];
            if (i < 0) {
                layout_.nodes.push_back({LAST_KEY, 0, {0, ~i}});
                missing_left_.push_back(1);
                continue;
            }
            const auto column = std::lower_bound(columns_.begin(), columns_.end(),
                                                 static_cast<std::uint32_t>(feature[i]));
            const auto left = static_cast<std::int32_t>((order.size() - at) * sizeof(Node));
            layout_.nodes.push_back(
                {key_of(threshold[i]),
                 static_cast<std::uint32_t>(column - columns_.begin()) * LANES,
                 {left, left + static_cast<std::int32_t>(sizeof(Node))}});
            missing_left_.push_back(missing_left[i]);
            order.push_back(children[2 * i]);
            order.push_back(children[2 * i + 1]);
        }
    }

    // The top levels of each tree as a complete one; below a leaf, the leaf again.
    void add_tops(Layout &layout) const {
        const std::size_t size = std::size_t(1) << levels_;
        std::vector<std::uint32_t> at(2 * size);
        for (const std::uint32_t first : roots_) {
            const Node *root = layout.nodes.data() + first;
            layout.tops.push_back({LAST_KEY, 0});
            at[1] = 0;
            for (std::size_t i = 1; i < size; ++i) {
                const Node *node = moved(root, at[i]);
                layout.tops.push_back({node->threshold, node->feature});
                for (int side = 0; side < 2; ++side)
                    at[2 * i + side] =
                        node->is_leaf() ? at[i] : distance(root, moved(node, node->child[side]));
            }
            layout.exits.insert(layout.exits.end(), at.begin() + size, at.end());
        }
    }

    // The same trees for rows with missing values, whose keys come twice: first with NaN above
    // every threshold (it goes right), then below (it goes left).
    const Layout &layout_for_missing() {
        std::call_once(missing_made_, [this] {
            Layout layout;
            layout.nodes = layout_.nodes;
            for (std::size_t i = 0; i < layout.nodes.size(); ++i)
                if (missing_left_[i])
                    layout.nodes[i].feature += static_cast<std::uint32_t>(columns_.size()) * LANES;
            add_tops(layout);
            missing_ = std::move(layout);
        });
        return missing_;
    }

    // Keys of a block of rows; returns the largest magnitude of the numbers read.
    template <typename T>
    std::uint32_t make_keys(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                            std::size_t n, Keys &keys) const {
        const std::size_t n_columns = columns_.size();
        std::uint32_t largest[LANES] = {};
        for (std::size_t i = 0; i < n; i += LANES) {
            const T *row[LANES];  // past the last row, the last row again
            UNROLLED for (int l = 0; l < LANES; ++l)
                row[l] = x + static_cast<std::int64_t>(std::min(i + l, n - 1)) * row_stride;
            std::uint32_t *out = keys.row(i);
            for (std::size_t f = 0; f < n_columns; ++f, out += LANES) {
                const std::int64_t at = static_cast<std::int64_t>(columns_[f]) * column_stride;
                float value[LANES];
                UNROLLED for (int l = 0; l < LANES; ++l) value[l] = static_cast<float>(row[l][at]);
                for (int l = 0; l < LANES; ++l) {
                    out[l] = key_of(value[l]);
                    largest[l] = std::max(largest[l], magnitude_of(value[l]));
                }
            }
        }
        return *std::max_element(largest, largest + LANES);
    }

    // Keys of one row, where other lanes would be work for nothing.
    template <typename T>
    std::uint32_t make_row_keys(const T *x, std::int64_t column_stride, Keys &keys) const {
        std::uint32_t largest = 0, *out = keys.row(0);
        for (const std::uint32_t column : columns_) {
            const float value = static_cast<float>(x[column * column_stride]);
            *out = key_of(value);
            out += LANES;
            largest = std::max(largest, magnitude_of(value));
        }
        return largest;
    }

    template <typename T>
    void make_missing_keys(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                           std::size_t n, Keys &keys) const {
        const std::size_t n_columns = columns_.size();
        keys.fit(n, 2 * n_columns);
        for (std::size_t i = 0; i < n; ++i) {
            const T *row = x + static_cast<std::int64_t>(i) * row_stride;
            std::uint32_t *out = keys.row(i);
            for (std::size_t f = 0; f < n_columns; ++f) {
                const float value = static_cast<float>(
                    row[static_cast<std::int64_t>(columns_[f]) * column_stride]);
                const bool missing = std::isnan(value);
                out[f * LANES] = missing ? LAST_KEY : key_of(value);
                out[(n_columns + f) * LANES] = missing ? 0 : key_of(value);
            }
        }
    }

    void add_leaf(std::int32_t leaf, double *sums) const {
        const double *value = values_.data() + static_cast<std::size_t>(leaf) * width_;
        for (std::size_t c = 0; c < width_; ++c) sums[c] += value[c];
    }

    // All trees of one row side by side, a tree that has arrived replaced by the next; summed in
    // the trees' order, as every path does.
    void one_row(const Layout &layout, const std::uint32_t *keys, std::int32_t *leaves,
                 double *out) const {
        const std::size_t n = roots_.size();
        const Node *node[LANES], *nodes = layout.nodes.data();
        std::size_t tree[LANES], next = LANES, left = n;
        for (std::size_t l = 0; l < LANES; ++l) {
            tree[l] = l;
            node[l] = nodes + roots_[std::min(l, n - 1)];
        }
        while (left > 0) {
            UNROLLED for (int l = 0; l < LANES; ++l) {
                const Node *reached = step(node[l], keys);
                if (reached == node[l]) {
                    if (tree[l] < n) {  // past the last tree, walks are for nothing
                        leaves[tree[l]] = reached->child[1];
                        --left;
                    }
                    tree[l] = next;
                    reached = nodes + roots_[std::min(next++, n - 1)];
                }
                node[l] = reached;
            }
        }
        double *sums = complement_ ? out + 1 : out;
        std::fill(sums, sums + width_, 0.0);
        for (std::size_t t = 0; t < n; ++t) add_leaf(leaves[t], sums);
        if (complement_) out[0] = total_ - out[1];
    }

    // All rows of one tree side by side, tree after tree.
    void rows_of_each_tree(const Layout &layout, const Keys &keys, std::size_t n, double *sums,
                           Work &work) const {
        std::fill(sums, sums + n * width_, 0.0);
        const std::size_t n_trees = roots_.size(), stride = n + LANES;
        for (std::size_t first = 0; first < n_trees; first += TREES_A_TIME) {
            const std::size_t some = std::min(TREES_A_TIME, n_trees - first);
            // A few rows through the tops of some trees: their keys stay in the nearest cache.
            for (std::size_t i = 0; i < n; i += ROWS_A_TIME)
                for (std::size_t t = 0; t < some; ++t)
                    walk_top(layout.tops.data() + ((first + t) << levels_),
                             layout.exits.data() + ((first + t) << levels_), levels_, keys, i,
                             std::min(i + ROWS_A_TIME, n), work.at.data() + t * stride);
            for (std::size_t t = 0; t < some; ++t) {
                const Node *root = layout.nodes.data() + roots_[first + t];
                std::uint32_t *at = work.at.data() + t * stride;
                walk_rest(root, keys, n, at, work.walks.data(), work.next.data());
                if (width_ == 1)
                    for (std::size_t i = 0; i < n; ++i)
                        sums[i] += values_[moved(root, at[i])->child[1]];
                else
                    for (std::size_t i = 0; i < n; ++i)
                        add_leaf(moved(root, at[i])->child[1], sums + i * width_);
            }
        }
    }

    template <typename T>
    std::uint32_t predict_rows(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                               std::size_t n, double *out, std::size_t n_threads,
                               const Finish &finish) {
        const std::size_t fitting = BLOCK_BYTES / (4 * columns_.size());
        const std::size_t block = std::clamp(fitting, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS);
        const std::size_t n_blocks = (n + block - 1) / block;
        n_threads = std::min(n_threads, n * roots_.size() / WALKS_TO_THREAD + 1);
        n_threads = std::max<std::size_t>(1, std::min(n_threads, n_blocks));
        std::atomic<std::size_t> next{0};
        std::atomic<std::uint32_t> largest{0};
        const auto work = [&] {
            Work room(std::min(n, block));
            std::uint32_t mine = 0;
            for (std::size_t b; (b = next.fetch_add(1)) < n_blocks;) {
                const std::size_t first = b * block, rows = std::min(block, n - first);
                const T *from = x + static_cast<std::int64_t>(first) * row_stride;
                mine = std::max(mine, predict_block<T>(from, row_stride, column_stride, rows,
                                                       out + first * n_outputs(), room,
                                                       finish));
            }
            std::uint32_t seen = largest.load();
            while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
            }
        };
        // An exception that leaves a thread, or a thread nobody joins, would end the process.
        std::exception_ptr failure;
        std::mutex telling;
        const auto guarded = [&] {
            try {
                work();
            } catch (...) {
                const std::lock_guard<std::mutex> lock(telling);
                failure = std::current_exception();
            }
        };
        std::vector<std::thread> helpers;
        helpers.reserve(n_threads - 1);
        try {
            for (std::size_t t = 1; t < n_threads; ++t) helpers.emplace_back(guarded);
        } catch (...) {
            // The system gives no more threads: those there are share the blocks.
        }
        guarded();
        for (std::thread &helper : helpers) helper.join();
        if (failure) std::rethrow_exception(failure);
        return largest.load();
    }

    template <typename T>
    std::uint32_t predict_block(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                                std::size_t n, double *out, Work &work, const Finish &finish) {
        const Layout *layout = &layout_;
        work.keys.fit(n, columns_.size());
        const std::uint32_t largest = make_keys<T>(x, row_stride, column_stride, n, work.keys);
        if (largest > INFINITE) {
            layout = &layout_for_missing();
            make_missing_keys<T>(x, row_stride, column_stride, n, work.keys);
        }
        if (n < ROWS_TO_INTERLEAVE) {
            work.leaves.resize(roots_.size());
            for (std::size_t i = 0; i < n; ++i)
                one_row(*layout, work.keys.row(i), work.leaves.data(), out + i * n_outputs());
        } else if (complement_) {
            work.sums.resize(n);
            rows_of_each_tree(*layout, work.keys, n, work.sums.data(), work);
            for (std::size_t i = 0; i < n; ++i) {
                out[2 * i] = total_ - work.sums[i];
                out[2 * i + 1] = work.sums[i];
            }
        } else {
            rows_of_each_tree(*layout, work.keys, n, out, work);
        }
        for (std::size_t i = 0; i < n; ++i) finish(out + i * n_outputs(), n_outputs());
        return largest;
    }
};

void finish_votes(Out<2> scores, double floor, double inverse_temperature, double share) {
    const Finish finish{true, floor, inverse_temperature, share};
    for (std::size_t i = 0; i < scores.shape(0); ++i)
        finish(scores.data() + i * scores.shape(1), scores.shape(1));
}

}  // namespace

NB_MODULE(_forest, m) {
    m.doc() = "The weighted vote of flat decision trees.";
    // noconvert: a converted output would be a copy, and the result lost with it.
    const auto exact = nb::arg().noconvert();
    const auto plain = nb::arg();
    nb::class_<Forest>(m, "Forest")
        .def(nb::init<In<float, 1>, In<std::int32_t, 1>, In<std::uint8_t, 1>, In<std::int32_t, 2>,
                      In<std::int32_t, 1>, In<double, 2>, std::size_t, bool, double>(),
             exact, exact, exact, exact, exact, exact, plain, plain, plain)
        .def_prop_ro("nbytes", &Forest::nbytes)
        .def("predict", &Forest::predict<float>, exact, exact, plain, plain, plain, plain, plain,
             plain, plain)
        .def("predict", &Forest::predict<double>, exact, exact, plain, plain, plain, plain, plain,
             plain, plain)
        .def("predict_one", &Forest::predict_one<double>, exact, exact, plain, plain, plain, plain,
             plain)
        .def("predict_one", &Forest::predict_one<float>, exact, exact, plain, plain, plain, plain,
             plain);
    m.def("finish_votes", &finish_votes, exact, plain, plain, plain);
}
