// The weighted vote of many small decision trees, over flat arrays.
//
// Why it is fast: every number of a row becomes an unsigned key with the order of float32
// (kernel/trees.h). The splits of the trees are compared with 64 rows at a time, and rows then go
// down as bits of a word; what large trees have below their tops, and rows for which words cost more,
// are walked side by side, without branches to mispredict (kernel/descent.h). `make bench-latency`
// shows what that is worth.
//
// Why it is safe: the constructor checks every index it is given and keeps its own copy, so no
// file and no later write to an array can send a walk out of bounds or round in circles.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../objective/kernel/module.h"
#include "../objective/kernel/threads.h"
#include "kernel/descent.h"
#include "kernel/trees.h"

namespace {

using namespace sparsebag;

constexpr int TREES_OF_A_ROW = 8;                 // side by side, where rows are few
constexpr std::size_t MAX_BLOCK_ROWS = 1024;      // rows whose keys are made at a time
constexpr std::size_t MIN_BLOCK_ROWS = WORD;
constexpr std::size_t BLOCK_BYTES = 256 * 1024;   // of keys: a part of the second-level cache
constexpr std::size_t KEPT_BYTES = 4 * BLOCK_BYTES;  // of keys, by a thread between calls
constexpr std::size_t WALKS_TO_THREAD = 50000;    // a thread costs about as much as this many

template <typename T, int N>
using Strided = nb::ndarray<const T, nb::ndim<N>, nb::device::cpu>;

// What is done to the raw sums of a row: nothing (a part of a larger vote, or regression), or
// floor, normalisation and temperature.
struct Finish {
    bool vote = false;
    double floor = 0.0, inverse_temperature = 1.0, share = 0.0;
    double scale = 0.0;  // of votes that are scores; else their logarithms are read

    void operator()(double *p, std::size_t n_classes) const {
        if (!vote) return;
        clip(p, n_classes);
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = (1.0 - floor) * p[c] + floor / static_cast<double>(n_classes);
            total += p[c];
        }
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
        if (inverse_temperature != 1.0 || scale > 0.0) temper(p, n_classes);
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
        if (!below && total > 0.0) return;
        const double uniform = 1.0 / static_cast<double>(n_classes);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] = total > 0.0 ? p[c] / total : uniform;
    }

    void temper(double *p, std::size_t n_classes) const {
        double top = -std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = (scale > 0.0 ? scale * p[c] : std::log(p[c])) * inverse_temperature;
            top = std::max(top, p[c]);
        }
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) total += p[c] = std::exp(p[c] - top);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
    }
};

// How much each tree has to say. Weights that are the same for all rows are in the leaves.
struct InLeaves {
    double total_weight;
    constexpr double operator()(std::size_t, std::size_t) const { return 1.0; }
    double total(std::size_t, std::size_t) const { return total_weight; }
};

// Weights that depend on the row; strides in numbers.
struct OfRows {
    const double *w;
    std::int64_t row_stride, tree_stride;
    double operator()(std::size_t row, std::size_t tree) const {
        return w[static_cast<std::int64_t>(row) * row_stride +
                 static_cast<std::int64_t>(tree) * tree_stride];
    }
    // In the trees' order, as votes are summed: a class with every vote leaves exactly zero.
    double total(std::size_t row, std::size_t n_trees) const {
        double sum = 0.0;
        for (std::size_t t = 0; t < n_trees; ++t) sum += (*this)(row, t);
        return sum;
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
        check(width_ > 0 && (!complement || width_ == 1), "the leaves have no values");
        check(n_features > 0 && n_features <= 0x7fffffff, "the trees read no features");
        check(values.shape(0) <= 0x7fffffff, "there are too many leaf values");
        const Arrays trees{threshold.data(), feature.data(), missing_left.data(), children.data(),
                           roots.data(),     n,              roots.shape(0)};
        check_arrays(trees, values.shape(0), n_features);
        values_.assign(values.data(), values.data() + values.size());
        for (const double v : values_) check(std::isfinite(v), "a leaf value is not finite");
        check(std::isfinite(total), "the total weight is not finite");
        columns_ = columns_read(trees);
        for (std::size_t t = 0; t < trees.n_trees; ++t) {
            roots_.push_back(static_cast<std::uint32_t>(layout_.nodes.size()));
            add_tree(trees, trees.roots[t], columns_, layout_.nodes, missing_left_);
        }
        layout_.make_tops(roots_);
    }

    std::size_t nbytes() const {
        return layout_.nbytes() + missing_nbytes_.load() + missing_left_.size() +
               (columns_.size() + roots_.size()) * 4 + values_.size() * sizeof(double);
    }

    // Adds nothing to `out`: writes the weighted sums of the rows' leaves, finished or raw. `weights`
    // of shape (rows, trees), where there are any, multiply what the leaves say.
    template <typename T>
    void predict(Strided<T, 2> X, std::optional<Strided<double, 2>> weights, Out<double, 2> out,
                 std::size_t n_threads, bool allow_nan, bool vote, double floor,
                 double inverse_temperature, double share, double scale) {
        const std::size_t n = X.shape(0);
        check(X.shape(1) == n_features_, "X has the wrong number of columns");
        check(out.shape(0) == n && out.shape(1) == n_outputs(), "out has the wrong shape");
        check(!weights || (weights->shape(0) == n && weights->shape(1) == roots_.size()),
              "weights have the wrong shape");
        const Finish finish{vote, floor, inverse_temperature, share, scale};
        const Rows<T> rows{X.data(), X.stride(0), X.stride(1), n};
        Special special;
        {
            const WithoutGil meanwhile;
            if (weights) {
                const OfRows says{weights->data(), weights->stride(0), weights->stride(1)};
                special = predict_rows<T>(rows, out.data(), n_threads, finish, says);
            } else {
                special = predict_rows<T>(rows, out.data(), n_threads, finish, InLeaves{total_});
            }
        }
        check_numbers(special, allow_nan);
    }

    // One row, with the GIL held: releasing it costs more than the walk.
    template <typename T>
    void predict_one(Strided<T, 1> x, Out<double, 1> out, bool allow_nan, bool vote, double floor,
                     double inverse_temperature, double share, double scale) {
        check_width(x.shape(0));
        check(out.shape(0) == n_outputs(), "out has the wrong shape");
        thread_local Keys keys;
        thread_local std::vector<std::int32_t> leaves;
        const Rows<T> rows{x.data(), 0, x.stride(0), 1};
        keys.fit(1, columns_.size());
        Special special = special_of(make_keys<1>(rows, columns_, keys));
        if (special.nan) special.infinity = make_missing_keys<T>(rows, columns_, keys);
        check_numbers(special, allow_nan);
        const Layout *layout = special.nan ? &layout_for_missing() : &layout_;
        leaves.resize(roots_.size());
        one_row(*layout, keys.row(0), leaves.data(), out.data(), 0, InLeaves{total_});
        Finish{vote, floor, inverse_temperature, share, scale}(out.data(), n_outputs());
    }

  private:
    std::size_t n_features_, width_;
    bool complement_;
    double total_;
    Layout layout_, missing_;
    std::vector<std::uint8_t> missing_left_;
    std::vector<std::uint32_t> columns_, roots_;
    std::vector<double> values_;
    std::once_flag missing_made_;
    std::atomic<std::size_t> missing_nbytes_{0};  // read while another thread may make it

    // What a thread needs for a block of rows.
    struct Work {
        Keys keys;
        std::vector<double> sums;
        std::vector<std::int32_t> leaves;
        std::vector<std::uint8_t> numbers;
        std::vector<std::uint32_t> at;
        std::vector<std::uint64_t> above, reach, walks, next;
    };

    // What X holds besides numbers.
    struct Special {
        bool nan = false, infinity = false;
    };

    // From the largest magnitude seen. NaN is above infinity and hides it: only the keys for
    // missing values, which are made then, tell whether there is any.
    static Special special_of(std::uint32_t largest) {
        return {largest > INFINITE, largest == INFINITE};
    }

    static void check_numbers(Special special, bool allow_nan) {
        check(allow_nan || !special.nan, "Input X contains NaN.");
        check(!special.infinity,
              "Input X contains infinity or a value too large for dtype('float32').");
    }

    std::size_t n_outputs() const { return complement_ ? 2 : width_; }

    void check_width(std::size_t n_columns) const {
        if (n_columns == n_features_) return;
        const std::string has = std::to_string(n_columns), fitted = std::to_string(n_features_);
        check(false, ("the row has " + has + " columns, but " + fitted + " were fitted.").c_str());
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
            layout.make_tops(roots_);
            missing_ = std::move(layout);
            missing_nbytes_ = missing_.nbytes();
        });
        return missing_;
    }

    void add_leaf(std::int32_t leaf, double weight, double *sums) const {
        const double *value = values_.data() + static_cast<std::size_t>(leaf) * width_;
        for (std::size_t c = 0; c < width_; ++c) sums[c] += weight * value[c];
    }

    // All trees of one row side by side, a tree that has arrived replaced by the next; summed in
    // the trees' order, as every path does.
    template <typename Says>
    void one_row(const Layout &layout, const std::uint32_t *keys, std::int32_t *leaves,
                 double *out, std::size_t row, const Says &says) const {
        const std::size_t n = roots_.size();
        const Node *node[TREES_OF_A_ROW], *nodes = layout.nodes.data();
        std::size_t tree[TREES_OF_A_ROW], next = TREES_OF_A_ROW, left = n;
        for (std::size_t l = 0; l < TREES_OF_A_ROW; ++l) {
            tree[l] = l;
            node[l] = nodes + roots_[std::min(l, n - 1)];
        }
        while (left > 0) {
            UNROLLED for (int l = 0; l < TREES_OF_A_ROW; ++l) {
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
        for (std::size_t t = 0; t < n; ++t) add_leaf(leaves[t], says(row, t), sums);
        if (complement_) out[0] = says.total(row, n) - out[1];
    }

    // All rows down the tops of some trees, tree after tree to the leaves, then the next trees.
    template <typename Says>
    void rows_of_each_tree(const Layout &layout, const Keys &keys, std::size_t n, double *sums,
                           Work &work, const Says &says) const {
        std::size_t tree = 0;
        std::fill(sums, sums + n * width_, 0.0);
        const std::size_t stride = (n + WORDS * WORD - 1) / (WORDS * WORD) * (WORDS * WORD);
        fit(work.reach, MAX_SLOTS * WORDS);
        fit(work.at, n);
        for (const Bunch &bunch : layout.bunches) {
            fit(work.above, bunch.splits.all.size() * WORDS);
            fit(work.numbers, bunch.tops.size() * stride);
            for (std::size_t i = 0; i < n;) {
                const std::size_t left = n - i;
                const auto number = [&](auto words) {
                    number_rows<words>(bunch, keys, i, n, work.numbers.data() + i, stride, work);
                    i += words * WORD;
                };
                if (left <= WORD) number(std::integral_constant<int, 1>());
                else if (left <= 2 * WORD) number(std::integral_constant<int, 2>());
                else number(std::integral_constant<int, WORDS>());
            }
            for (std::size_t t = 0; t < bunch.tops.size(); ++t, ++tree)
                add_votes(layout, bunch, bunch.tops[t], keys, n, work.numbers.data() + t * stride,
                          sums, work, [&](std::size_t row) { return says(row, tree); });
        }
    }

    // The exits of W words of rows, from the i-th on, for each tree of a bunch.
    template <int W>
    static void number_rows(const Bunch &bunch, const Keys &keys, std::size_t i, std::size_t n,
                            std::uint8_t *numbers, std::size_t stride, Work &work) {
        const Compare compare = instructions().now().compare;
        for (int w = 0; w < W && i + w * WORD < n; ++w)  // a last word may have no rows
            compare(bunch.splits, keys.row(i + w * WORD), keys.width, work.above.data() + w, W);
        for (std::size_t t = 0; t < bunch.tops.size(); ++t)
            number_exits<W>(bunch, bunch.tops[t], work.above.data(), work.reach.data(),
                            numbers + t * stride);
    }

    // Adds what one tree's leaves say of the rows, whose exits from its top are known.
    template <typename Weight>
    void add_votes(const Layout &layout, const Bunch &bunch, const Top &top, const Keys &keys,
                   std::size_t n, const std::uint8_t *number, double *sums, Work &work,
                   Weight weight) const {
        const std::uint32_t *exits = bunch.exits.data() + top.exit;
        if (top.whole) {
            add_leaves(n, sums, [&](std::size_t i) { return exits[number[i]]; }, weight);
            return;
        }
        const Node *nodes = layout.nodes.data();
        fit(work.walks, n + WALKS);
        fit(work.next, n + WALKS);
        for (std::size_t i = 0; i < n; ++i) work.at[i] = exits[number[i]];
        walk_rest(nodes, keys, n, work.at.data(), work.walks.data(), work.next.data());
        const auto leaf = [&](std::size_t i) { return moved(nodes, work.at[i])->child[1]; };
        add_leaves(n, sums, leaf, weight);
    }

    template <typename Leaf, typename Weight>
    void add_leaves(std::size_t n, double *sums, Leaf leaf, Weight weight) const {
        if (width_ == 1)
            for (std::size_t i = 0; i < n; ++i) sums[i] += weight(i) * values_[leaf(i)];
        else
            for (std::size_t i = 0; i < n; ++i)
                add_leaf(static_cast<std::int32_t>(leaf(i)), weight(i), sums + i * width_);
    }

    template <typename T>
    static void fit(std::vector<T> &room, std::size_t n) {
        if (room.size() < n) room.resize(n);
    }

    static InLeaves part_of(const InLeaves &says, std::size_t) { return says; }
    static OfRows part_of(const OfRows &says, std::size_t first) {
        return {says.w + static_cast<std::int64_t>(first) * says.row_stride, says.row_stride,
                says.tree_stride};
    }

    template <typename T, typename Says>
    Special predict_rows(const Rows<T> &rows, double *out, std::size_t n_threads,
                         const Finish &finish, const Says &says) {
        const std::size_t n = rows.n;
        const std::size_t fitting = BLOCK_BYTES / (4 * columns_.size());
        n_threads = std::min(n_threads, n * roots_.size() / WALKS_TO_THREAD + 1);
        std::size_t block = std::clamp(fitting, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS);
        if (n < n_threads * block)  // a share for each thread, in whole words of rows
            block = std::max(MIN_BLOCK_ROWS, (n / n_threads + WORD - 1) / WORD * WORD);
        const std::size_t n_blocks = (n + block - 1) / block;
        n_threads = std::max<std::size_t>(1, std::min(n_threads, n_blocks));
        std::atomic<bool> nan{false}, infinity{false};
        share(n_blocks, n_threads, [&](std::size_t b, std::size_t) {
            // Fresh pages for every call would cost a tenth of it. Behind a pointer: a thread's
            // own object would be looked up again at every use.
            thread_local std::unique_ptr<Work> kept;
            if (!kept) kept = std::make_unique<Work>();
            Work &room = *kept;
            const std::size_t first = b * block;
            const Rows<T> part = rows.part(first, std::min(block, n - first));
            double *to = out + first * n_outputs();
            const Special found = sum_block<T>(part, to, room, part_of(says, first));
            for (std::size_t i = 0; i < part.n; ++i) finish(to + i * n_outputs(), n_outputs());
            if (found.nan) nan = true;
            if (found.infinity) infinity = true;
            if (room.keys.values.size() * 4 > KEPT_BYTES) kept.reset();
        });
        return {nan.load(), infinity.load()};
    }

    template <typename T, typename Says>
    Special sum_block(const Rows<T> &rows, double *out, Work &work, const Says &says) {
        const std::size_t n = rows.n;
        const Layout *layout = &layout_;
        work.keys.fit(n, columns_.size());
        Special special = special_of(make_keys<LANES>(rows, columns_, work.keys));
        if (special.nan) {
            layout = &layout_for_missing();
            special.infinity = make_missing_keys<T>(rows, columns_, work.keys);
        }
        const std::size_t by_words =
            rows_by_words(layout->effort, n, instructions().now().split_cost);
        if (by_words > 0 && complement_) {
            work.sums.resize(by_words);
            rows_of_each_tree(*layout, work.keys, by_words, work.sums.data(), work, says);
            for (std::size_t i = 0; i < by_words; ++i) {
                out[2 * i] = says.total(i, roots_.size()) - work.sums[i];
                out[2 * i + 1] = work.sums[i];
            }
        } else if (by_words > 0) {
            rows_of_each_tree(*layout, work.keys, by_words, out, work, says);
        }
        work.leaves.resize(roots_.size());
        for (std::size_t i = by_words; i < n; ++i)
            one_row(*layout, work.keys.row(i), work.leaves.data(), out + i * n_outputs(), i, says);
        return special;
    }
};

void finish_votes(Out<double, 2> scores, double floor, double inverse_temperature, double share, double scale) {
    const Finish finish{true, floor, inverse_temperature, share, scale};
    for (std::size_t i = 0; i < scores.shape(0); ++i)
        finish(scores.data() + i * scores.shape(1), scores.shape(1));
}

}  // namespace

NB_MODULE(_forest, m) {
    open_module();
    instructions().bind(m);
    m.doc() = "The weighted vote of flat decision trees.";
    // noconvert: a converted output would be a copy, and the result lost with it.
    const auto exact = nb::arg().noconvert();
    const auto plain = nb::arg();
    nb::class_<Forest>(m, "Forest")
        .def(nb::init<In<float, 1>, In<std::int32_t, 1>, In<std::uint8_t, 1>, In<std::int32_t, 2>,
                      In<std::int32_t, 1>, In<double, 2>, std::size_t, bool, double>(),
             exact, exact, exact, exact, exact, exact, plain, plain, plain)
        .def_prop_ro("nbytes", &Forest::nbytes)
        .def("predict", &Forest::predict<float>, exact, exact, exact, plain, plain, plain, plain,
             plain, plain, plain)
        .def("predict", &Forest::predict<double>, exact, exact, exact, plain, plain, plain, plain,
             plain, plain, plain)
        .def("predict_one", &Forest::predict_one<double>, exact, exact, plain, plain, plain, plain,
             plain, plain)
        .def("predict_one", &Forest::predict_one<float>, exact, exact, plain, plain, plain, plain,
             plain, plain);
    m.def("finish_votes", &finish_votes, exact, plain, plain, plain, plain);
}
