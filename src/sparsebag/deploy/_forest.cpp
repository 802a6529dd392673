// The weighted vote of many small decision trees, over flat arrays.
//
// Why it is fast: every number of a row becomes an unsigned key with the order of float32, so a
// step down a tree is one integer comparison that picks one of two neighbouring child offsets, no
// branch to mispredict. Eight walks run side by side, hiding each other's memory latency, and a
// walk that reaches its leaf is at once replaced by the next, so no step is taken below a leaf.
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
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace nb = nanobind;

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 8")
#else
#define UNROLLED
#endif

namespace {

constexpr int WALKS = 8;                          // side by side; more spill out of registers
constexpr std::size_t MAX_BLOCK_ROWS = 1024;      // rows whose keys are made at a time
constexpr std::size_t MIN_BLOCK_ROWS = 32;
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

// A child is the distance in bytes to its node, or ~(row of the leaf's values).
struct Node {
    std::uint32_t threshold, feature;
    std::int32_t child[2];
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

inline std::int32_t step(const Node *node, const std::uint32_t *row) {
    return node->child[node->threshold < row[node->feature]];
}

// Takes n walks to their leaves, WALKS at a time. `start(i)` is the node walk i begins at,
// `row(i)` the keys it reads; `finish(i, leaf)` gets its leaf.
template <typename Start, typename Row, typename Finish>
inline void walk(std::size_t n, Start start, Row row, Finish finish) {
    if (n < WALKS) {
        for (std::size_t i = 0; i < n; ++i) {
            const char *at = reinterpret_cast<const char *>(start(i));
            const std::uint32_t *keys = row(i);
            std::int32_t child;
            while ((child = step(reinterpret_cast<const Node *>(at), keys)) >= 0) at += child;
            finish(i, ~child);
        }
        return;
    }
    const char *at[WALKS];
    const std::uint32_t *keys[WALKS];
    std::size_t id[WALKS], next = WALKS, left = n;
    UNROLLED for (int l = 0; l < WALKS; ++l) {
        at[l] = reinterpret_cast<const char *>(start(l));
        keys[l] = row(l);
        id[l] = l;
    }
    for (;;) {
        UNROLLED for (int l = 0; l < WALKS; ++l) {
            const std::int64_t child = step(reinterpret_cast<const Node *>(at[l]), keys[l]);
            if (child < 0) {
                if (id[l] < n) {  // past the end a walk repeats the last one, for nothing
                    finish(id[l], static_cast<std::int32_t>(~child));
                    if (--left == 0) return;
                }
                id[l] = next;
                const std::size_t i = next < n ? next : n - 1;
                ++next;
                keys[l] = row(i);
                at[l] = reinterpret_cast<const char *>(start(i));
            } else {
                at[l] += child;
            }
        }
    }
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

        nodes_.resize(n);
        missing_left_.assign(missing_left.data(), missing_left.data() + n);
        for (std::size_t i = 0; i < n; ++i) {
            const auto at = std::lower_bound(columns_.begin(), columns_.end(),
                                             static_cast<std::uint32_t>(feature.data()[i]));
            nodes_[i].feature = static_cast<std::uint32_t>(at - columns_.begin());
            nodes_[i].threshold = key_of(threshold.data()[i]);
            for (int side = 0; side < 2; ++side) {
                const std::int32_t child = children.data()[2 * i + side];
                nodes_[i].child[side] =
                    child < 0 ? child
                              : static_cast<std::int32_t>((child - static_cast<std::int64_t>(i)) *
                                                          static_cast<std::int64_t>(sizeof(Node)));
            }
        }
        for (std::size_t t = 0; t < roots.shape(0); ++t) {
            std::int32_t root = roots.data()[t];
            if (root < 0) {  // a tree of one leaf: a node whose two children are it
                nodes_.push_back({LAST_KEY, 0, {root, root}});
                missing_left_.push_back(1);
                root = static_cast<std::int32_t>(nodes_.size() - 1);
            }
            roots_.push_back(static_cast<std::uint32_t>(root));
        }
    }

    std::size_t nbytes() const {
        return nodes_.size() * sizeof(Node) + missing_left_.size() + columns_.size() * 4 +
               roots_.size() * 4 + values_.size() * sizeof(double) +
               nan_nodes_.size() * sizeof(Node);
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
        check(x.shape(0) == n_features_, "the row has the wrong number of columns");
        check(out.shape(0) == n_outputs(), "out has the wrong shape");
        thread_local std::vector<std::uint32_t> keys;
        thread_local std::vector<std::int32_t> leaves;
        keys.resize(2 * columns_.size());
        leaves.resize(roots_.size());
        const std::uint32_t largest = make_keys<T>(x.data(), 0, x.stride(0), 1, keys.data());
        check_numbers(largest, allow_nan, false);
        const Node *nodes = nodes_.data();
        if (largest > INFINITE) {
            make_missing_keys<T>(x.data(), 0, x.stride(0), 1, keys.data());
            nodes = nodes_for_missing();
        }
        one_row(nodes, keys.data(), leaves.data(), out.data());
        Finish{vote, floor, inverse_temperature, share}(out.data(), n_outputs());
    }

  private:
    std::size_t n_features_, width_;
    bool complement_;
    double total_;
    std::vector<Node> nodes_, nan_nodes_;
    std::vector<std::uint8_t> missing_left_;
    std::vector<std::uint32_t> columns_, roots_;
    std::vector<double> values_;
    std::once_flag nan_nodes_made_;

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

    // The same nodes for rows with missing values, whose keys come twice: first with NaN above
    // every threshold (it goes right), then below (it goes left).
    const Node *nodes_for_missing() {
        std::call_once(nan_nodes_made_, [this] {
            nan_nodes_ = nodes_;
            for (std::size_t i = 0; i < nan_nodes_.size(); ++i)
                if (missing_left_[i])
                    nan_nodes_[i].feature += static_cast<std::uint32_t>(columns_.size());
        });
        return nan_nodes_.data();
    }

    // Keys of a block of rows; returns the largest magnitude of the numbers read.
    template <typename T>
    std::uint32_t make_keys(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                            std::size_t n, std::uint32_t *keys) const {
        const std::size_t width = columns_.size();
        const bool plain = column_stride == 1 && width == n_features_;
        std::uint32_t largest = 0;
        for (std::size_t i = 0; i < n; ++i, keys += width) {
            const T *row = x + static_cast<std::int64_t>(i) * row_stride;
            if (plain) {
                for (std::size_t f = 0; f < width; ++f) {
                    const float value = static_cast<float>(row[f]);
                    keys[f] = key_of(value);
                    largest = std::max(largest, magnitude_of(value));
                }
            } else {
                for (std::size_t f = 0; f < width; ++f) {
                    const float value = static_cast<float>(
                        row[static_cast<std::int64_t>(columns_[f]) * column_stride]);
                    keys[f] = key_of(value);
                    largest = std::max(largest, magnitude_of(value));
                }
            }
        }
        return largest;
    }

    template <typename T>
    void make_missing_keys(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                           std::size_t n, std::uint32_t *keys) const {
        const std::size_t width = columns_.size();
        for (std::size_t i = 0; i < n; ++i, keys += 2 * width) {
            const T *row = x + static_cast<std::int64_t>(i) * row_stride;
            for (std::size_t f = 0; f < width; ++f) {
                const float value = static_cast<float>(
                    row[static_cast<std::int64_t>(columns_[f]) * column_stride]);
                const bool missing = std::isnan(value);
                keys[f] = missing ? LAST_KEY : key_of(value);
                keys[width + f] = missing ? 0 : key_of(value);
            }
        }
    }

    void add_leaf(std::int32_t leaf, double *sums) const {
        const double *value = values_.data() + static_cast<std::size_t>(leaf) * width_;
        for (std::size_t c = 0; c < width_; ++c) sums[c] += value[c];
    }

    // All trees of one row side by side; summed in the trees' order, as every path does.
    void one_row(const Node *nodes, const std::uint32_t *keys, std::int32_t *leaves,
                 double *out) const {
        walk(
            roots_.size(), [&](std::size_t t) { return nodes + roots_[t]; },
            [&](std::size_t) { return keys; },
            [&](std::size_t t, std::int32_t leaf) { leaves[t] = leaf; });
        double *sums = complement_ ? out + 1 : out;
        std::fill(sums, sums + width_, 0.0);
        for (std::size_t t = 0; t < roots_.size(); ++t) add_leaf(leaves[t], sums);
        if (complement_) out[0] = total_ - out[1];
    }

    // All rows of one tree side by side, tree after tree.
    void rows_of_each_tree(const Node *nodes, const std::uint32_t *keys, std::size_t width,
                           std::size_t n, double *sums) const {
        std::fill(sums, sums + n * width_, 0.0);
        const auto row = [=](std::size_t i) { return keys + i * width; };
        const double *values = values_.data();
        for (const std::uint32_t root : roots_) {
            const auto start = [=](std::size_t) { return nodes + root; };
            if (width_ == 1)
                walk(n, start, row,
                     [=](std::size_t i, std::int32_t leaf) { sums[i] += values[leaf]; });
            else
                walk(n, start, row, [=](std::size_t i, std::int32_t leaf) {
                    add_leaf(leaf, sums + i * width_);
                });
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
            std::vector<std::uint32_t> keys(std::min(n, block) * columns_.size());
            std::vector<double> sums;
            std::uint32_t mine = 0;
            for (std::size_t b; (b = next.fetch_add(1)) < n_blocks;) {
                const std::size_t first = b * block, rows = std::min(block, n - first);
                const T *from = x + static_cast<std::int64_t>(first) * row_stride;
                mine = std::max(mine, predict_block<T>(from, row_stride, column_stride, rows,
                                                       out + first * n_outputs(), keys, sums,
                                                       finish));
            }
            std::uint32_t seen = largest.load();
            while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
            }
        };
        std::vector<std::thread> helpers;
        for (std::size_t t = 1; t < n_threads; ++t) helpers.emplace_back(work);
        work();
        for (std::thread &helper : helpers) helper.join();
        return largest.load();
    }

    template <typename T>
    std::uint32_t predict_block(const T *x, std::int64_t row_stride, std::int64_t column_stride,
                                std::size_t n, double *out, std::vector<std::uint32_t> &keys,
                                std::vector<double> &sums, const Finish &finish) {
        const Node *nodes = nodes_.data();
        std::size_t width = columns_.size();
        const std::uint32_t largest = make_keys<T>(x, row_stride, column_stride, n, keys.data());
        if (largest > INFINITE) {
            nodes = nodes_for_missing();
            width *= 2;
            keys.resize(std::max(keys.size(), n * width));
            make_missing_keys<T>(x, row_stride, column_stride, n, keys.data());
        }
        if (n < ROWS_TO_INTERLEAVE) {
            std::vector<std::int32_t> leaves(roots_.size());
            for (std::size_t i = 0; i < n; ++i)
                one_row(nodes, keys.data() + i * width, leaves.data(), out + i * n_outputs());
        } else if (complement_) {
            sums.resize(n);
            rows_of_each_tree(nodes, keys.data(), width, n, sums.data());
            for (std::size_t i = 0; i < n; ++i) {
                out[2 * i] = total_ - sums[i];
                out[2 * i + 1] = sums[i];
            }
        } else {
            rows_of_each_tree(nodes, keys.data(), width, n, out);
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
