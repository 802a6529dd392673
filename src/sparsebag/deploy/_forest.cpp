// The weighted vote of many small decision trees, over flat arrays.
//
// Why it is fast: every number of a row becomes an unsigned key with the order of float32
// (kernel/keys.h). The splits of the trees are compared with 64 rows at a time, and rows then go
// down as bits of a word (kernel/tops.h); what large trees have below their tops, and rows for
// which words cost more (kernel/choice.h), are walked side by side, without branches to mispredict
// (kernel/walk.h). `make bench-latency` shows what that is worth.
//
// Why it is safe: the constructor checks every index it is given and keeps its own copy, so no
// file and no later write to an array can send a walk out of bounds or round in circles.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../objective/kernel/without_gil.h"
#include "kernel/choice.h"
#include "kernel/compare.h"
#include "kernel/gate.h"
#include "kernel/keys.h"
#include "kernel/layout.h"
#include "kernel/linear.h"
#include "kernel/nodes.h"
#include "kernel/smooth_lines.h"
#include "kernel/tops.h"
#include "kernel/vote.h"
#include "kernel/walk.h"

namespace nb = nanobind;

namespace {

using namespace sparsebag;

constexpr int TREES_OF_A_ROW = 8;                 // side by side, where rows are few
constexpr std::size_t MAX_BLOCK_ROWS = 1024;      // rows whose keys are made at a time
constexpr std::size_t MIN_BLOCK_ROWS = WORD;
constexpr std::size_t BLOCK_BYTES = 256 * 1024;   // of keys: a part of the second-level cache
constexpr std::size_t KEPT_BYTES = 4 * BLOCK_BYTES;  // of keys, by a thread between calls
constexpr std::size_t WALKS_TO_THREAD = 50000;    // a thread costs about as much as this many

template <typename T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Strided = nb::ndarray<const T, nb::ndim<N>, nb::device::cpu>;
template <int N>
using Out = nb::ndarray<double, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

// A gate, checked as the forest is and with its own copy of what it reads.
class Gate {
  public:
    Gate(In<double, 1> mean, In<double, 1> scale, In<double, 2> down, In<double, 1> offset,
         In<double, 2> up, In<double, 1> base, double clip) {
        const std::size_t d = mean.shape(0), rank = down.shape(0), k = base.shape(0);
        check(d > 0 && d <= 0x7fffffff && rank > 0 && k > 0 && scale.shape(0) == d &&
                  down.shape(1) == d && offset.shape(0) == rank && up.shape(0) == k &&
                  up.shape(1) == rank,
              "the arrays of the gate do not fit together");
        own.n_features = d;
        own.n_members = k;
        SmoothGate &gate = own.smooth;
        gate.n_members = k;
        gate.sums.set(d, rank, mean.data(), scale.data(), down.data(), clip);
        gate.offset.assign(offset.data(), offset.data() + rank);
        for (std::size_t r = 0; r < rank; ++r)
            for (std::size_t j = 0; j < k; ++j) gate.up.push_back(up.data()[j * rank + r]);
        gate.base.assign(base.data(), base.data() + k);
        gate.scale_for_softmax();
    }

    std::size_t nbytes() const { return own.nbytes(); }

    // Weights of shape (rows, members).
    template <typename T>
    void weigh(Strided<T, 2> X, Out<2> weights) const {
        const std::size_t n = X.shape(0), k = own.n_members;
        check(X.shape(1) == own.n_features, "X has the wrong number of columns");
        check(weights.shape(0) == n && weights.shape(1) == k, "out has the wrong shape");
        const WithoutGil meanwhile;
        const Rows<T> rows{X.data(), X.stride(0), X.stride(1), n};
        RowWeights room;
        for (std::size_t first = 0; first < n; first += MIN_BLOCK_ROWS) {
            const Rows<T> part = rows.part(first, std::min(MIN_BLOCK_ROWS, n - first));
            own.weigh<T>(part, room);
            for (std::size_t i = 0; i < part.n; ++i) {
                double *to = weights.data() + (first + i) * k;
                for (std::size_t j = 0; j < k; ++j) to[j] = room.weights[j * room.stride + i];
            }
        }
    }

    RowGate own;
};

// Linear regressors under a gate whose members they are, with its own copy of both.
class GatedLines {
  public:
    GatedLines(const Gate &gate, In<double, 2> slopes, In<double, 1> intercepts)
        : gate_(gate.own), smooth_(gate.own.smooth, gate.own.n_features,
                                   checked(gate.own, slopes, intercepts), intercepts.data()),
          slopes_(slopes.data(), slopes.data() + slopes.size()),
          intercepts_(intercepts.data(), intercepts.data() + intercepts.size()) {}

    std::size_t nbytes() const {
        return smooth_.nbytes() + (slopes_.size() + intercepts_.size()) * sizeof(double);
    }

    // False where a sum is not finite.
    template <typename T>
    bool predict(Strided<T, 2> X, Out<1> out) const {
        const std::size_t n = X.shape(0), d = gate_.n_features;
        check(X.shape(1) == d, "X has the wrong number of columns");
        check(out.shape(0) == n, "out has the wrong shape");
        const WithoutGil meanwhile;
        const Rows<T> rows{X.data(), X.stride(0), X.stride(1), n};
        const LineSums how = chosen_instructions().load(std::memory_order_relaxed)->lines;
        if (smooth_.fits && how != LineSums::portable)
            return smooth_lines<T>(smooth_, how, rows, out.data());
        const Lines lines{slopes_.data(), intercepts_.data(), d, gate_.n_members};
        return gated_lines<T>(gate_, rows, lines, out.data());
    }

  private:
    static const double *checked(const RowGate &gate, In<double, 2> slopes,
                                 In<double, 1> intercepts) {
        check(slopes.shape(0) == gate.n_features && slopes.shape(1) == gate.n_members &&
                  intercepts.shape(0) == gate.n_members,
              "the gate weighs other members");
        return slopes.data();
    }

    RowGate gate_;
    SmoothLines smooth_;
    std::vector<double> slopes_, intercepts_;
};

// A gate, and which of its members is the first tree.
struct Gating {
    const RowGate *gate = nullptr;
    std::size_t first = 0;
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
        roots_ = add_trees(trees, columns_, layout_, missing_left_);
    }

    std::size_t nbytes() const {
        return layout_.nbytes() + missing_nbytes_.load() + missing_left_.size() +
               (columns_.size() + roots_.size()) * 4 + values_.size() * sizeof(double);
    }

    // Adds nothing to `out`: writes the weighted sums of the rows' leaves, finished or raw.
    template <typename T>
    void predict(Strided<T, 2> X, Out<2> out, std::size_t n_threads, bool allow_nan,
                 bool allow_inf, bool vote, double floor, double inverse_temperature,
                 double share) {
        const Finish finish{vote, floor, inverse_temperature, share};
        predict_all<T>(X, out, n_threads, allow_nan, allow_inf, finish, {});
    }

    // The same with weights by a gate, of which the trees are members `first` and on.
    template <typename T>
    void predict_gated(const Gate &gate, std::size_t first, Strided<T, 2> X, Out<2> out,
                       std::size_t n_threads, bool allow_nan, bool allow_inf, bool vote,
                       double floor, double inverse_temperature, double share) {
        const Finish finish{vote, floor, inverse_temperature, share};
        predict_all<T>(X, out, n_threads, allow_nan, allow_inf, finish, gating(gate, first));
    }

    // One row, with the GIL held: releasing it costs more than the walk.
    template <typename T>
    void predict_one(Strided<T, 1> x, Out<1> out, bool allow_nan, bool vote, double floor,
                     double inverse_temperature, double share) {
        predict_single<T>(x, out, allow_nan, InLeaves{total_});
        Finish{vote, floor, inverse_temperature, share}(out.data(), n_outputs());
    }

    template <typename T>
    void predict_one_gated(const Gate &gate, Strided<T, 1> x, Out<1> out, bool allow_nan,
                           bool vote, double floor, double inverse_temperature, double share) {
        const Gating by = gating(gate, 0);
        check_width(x.shape(0));
        thread_local RowWeights room;
        gated<T>(by, {x.data(), 0, x.stride(0), 1}, room, out.data(), [&](const auto &says) {
            predict_single<T>(x, out, allow_nan, says);
        });
        Finish{vote, floor, inverse_temperature, share}(out.data(), n_outputs());
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
        std::vector<double> sums, values;
        std::vector<std::int32_t> leaves;
        std::vector<std::uint8_t> numbers;
        std::vector<std::uint32_t> at;
        std::vector<std::uint64_t> above, reach, walks, next;
        RowWeights gated;
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

    static void check_numbers(Special special, bool allow_nan, bool allow_inf) {
        check(allow_nan || !special.nan, "Input X contains NaN.");
        check(allow_inf || !special.infinity,
              "Input X contains infinity or a value too large for dtype('float32').");
    }

    std::size_t n_outputs() const { return complement_ ? 2 : width_; }

    void check_width(std::size_t n_columns) const {
        if (n_columns == n_features_) return;
        const std::string has = std::to_string(n_columns);
        throw nb::value_error(("the row has " + has + " columns, but " +
                               std::to_string(n_features_) + " were fitted.").c_str());
    }

    Gating gating(const Gate &gate, std::size_t first) const {
        check(gate.own.n_features == n_features_ && first <= gate.own.n_members &&
                  gate.own.n_members - first >= roots_.size(),
              "the gate is of other trees");
        return {&gate.own, first};
    }

    // Has the rows' sums made, with what the gate says of the trees.
    template <typename T, typename Sum>
    void gated(const Gating &by, const Rows<T> &rows, RowWeights &said, double *out,
               const Sum &sum) const {
        const RowGate &gate = *by.gate;
        const std::size_t k = roots_.size(), n = rows.n;
        if (k == gate.n_members) {
            gate.read<T>(rows, said);
            SmoothGate::fit(said.weights, std::max(n, k));
            said.totals.assign(n, 0.0);
            sum(Softmax{&gate.smooth, &said});
            for (std::size_t i = 0; i < n; ++i) {
                const double norm = 1.0 / said.totals[i];
                for (std::size_t c = 0; c < n_outputs(); ++c) out[i * n_outputs() + c] *= norm;
            }
            return;
        }
        gate.weigh<T>(rows, said);
        const double *of = said.weights.data() + by.first * n;
        // In the trees' order, as votes are summed: a class with every vote leaves exactly zero.
        said.totals.assign(complement_ ? n : 0, 0.0);
        double *RESTRICT totals = said.totals.data();
        if (complement_)
            for (std::size_t t = 0; t < k; ++t)
                for (std::size_t i = 0; i < n; ++i) totals[i] += of[t * n + i];
        sum(Stored{of, totals, n});
    }

    template <typename T>
    void predict_all(const Strided<T, 2> &X, Out<2> &out, std::size_t n_threads, bool allow_nan,
                     bool allow_inf, const Finish &finish, const Gating &by) {
        const std::size_t n = X.shape(0);
        check(X.shape(1) == n_features_, "X has the wrong number of columns");
        check(out.shape(0) == n && out.shape(1) == n_outputs(), "out has the wrong shape");
        Special special;
        {
            const WithoutGil meanwhile;
            const Rows<T> rows{X.data(), X.stride(0), X.stride(1), n};
            special = predict_rows<T>(rows, out.data(), n_threads, finish, by);
        }
        check_numbers(special, allow_nan, allow_inf);
    }

    template <typename T, typename Says>
    void predict_single(const Strided<T, 1> &x, Out<1> &out, bool allow_nan, const Says &says) {
        check_width(x.shape(0));
        check(out.shape(0) == n_outputs(), "out has the wrong shape");
        thread_local Keys keys;
        thread_local std::vector<std::int32_t> leaves;
        const Rows<T> rows{x.data(), 0, x.stride(0), 1};
        keys.fit(1, columns_.size());
        Special special = special_of(make_row_keys<T>(rows, columns_, keys));
        if (special.nan) special.infinity = make_missing_keys<T>(rows, columns_, keys);
        check_numbers(special, allow_nan, false);
        const Layout *layout = special.nan ? &layout_for_missing() : &layout_;
        leaves.resize(roots_.size());
        one_row(*layout, keys.row(0), leaves.data(), out.data(), 0, says);
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
            layout.bunches = make_bunches(layout.nodes, roots_);
            measure_levels(layout.nodes, roots_, layout.effort);
            measure_words(layout.bunches, layout.effort);
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
        const auto weight = says.of_row(row);
        for (std::size_t t = 0; t < n; ++t) add_leaf(leaves[t], weight(t), sums);
        if (complement_) out[0] = says.total(row) - out[1];
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
            for (std::size_t t = 0; t < bunch.tops.size(); ++t, ++tree) {
                const std::uint8_t *number = work.numbers.data() + t * stride;
                if constexpr (std::is_same_v<Says, Softmax> || std::is_same_v<Says, Stored>)
                    if (width_ == 1 && bunch.tops[t].whole) {
                        says.add_leaves(tree, n, leaves_of(bunch, bunch.tops[t], work), number, sums);
                        continue;
                    }
                add_votes(layout, bunch, bunch.tops[t], keys, n, number, sums, work,
                          says.of_tree(tree, n));
            }
        }
    }

    // The exits of W words of rows, from the i-th on, for each tree of a bunch.
    template <int W>
    static void number_rows(const Bunch &bunch, const Keys &keys, std::size_t i, std::size_t n,
                            std::uint8_t *numbers, std::size_t stride, Work &work) {
        const Compare compare = chosen_instructions().load(std::memory_order_relaxed)->compare;
        for (int w = 0; w < W && i + w * WORD < n; ++w)  // a last word may have no rows
            compare(bunch.splits, keys.row(i + w * WORD), keys.width, work.above.data() + w, W);
        for (std::size_t t = 0; t < bunch.tops.size(); ++t)
            number_exits<W>(bunch, bunch.tops[t], work.above.data(), work.reach.data(),
                            numbers + t * stride);
    }

    // The single values of a whole tree's leaves, in the order of its exits.
    const double *leaves_of(const Bunch &bunch, const Top &top, Work &work) const {
        const std::uint32_t *exits = bunch.exits.data() + top.exit;
        fit(work.values, MAX_WHOLE + 1);
        for (std::uint32_t e = 0; e < top.n_exits; ++e) work.values[e] = values_[exits[e]];
        return work.values.data();
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

    template <typename T>
    Special predict_rows(const Rows<T> &rows, double *out, std::size_t n_threads,
                         const Finish &finish, const Gating &by) {
        const std::size_t n = rows.n;
        const std::size_t fitting = BLOCK_BYTES / (4 * columns_.size());
        n_threads = std::min(n_threads, n * roots_.size() / WALKS_TO_THREAD + 1);
        std::size_t block = std::clamp(fitting, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS);
        if (n < n_threads * block)  // a share for each thread, in whole words of rows
            block = std::max(MIN_BLOCK_ROWS, (n / n_threads + WORD - 1) / WORD * WORD);
        const std::size_t n_blocks = (n + block - 1) / block;
        n_threads = std::max<std::size_t>(1, std::min(n_threads, n_blocks));
        std::atomic<std::size_t> next{0};
        std::atomic<bool> nan{false}, infinity{false};
        const auto work = [&] {
            // Fresh pages for every call would cost a tenth of it. Behind a pointer: a thread's
            // own object would be looked up again at every use.
            thread_local std::unique_ptr<Work> kept;
            if (!kept) kept = std::make_unique<Work>();
            Work &room = *kept;
            for (std::size_t b; (b = next.fetch_add(1)) < n_blocks;) {
                const std::size_t first = b * block;
                const Rows<T> part = rows.part(first, std::min(block, n - first));
                double *to = out + first * n_outputs();
                const Special found = by.gate == nullptr
                                          ? predict_block<T>(part, to, room, finish)
                                          : predict_gated_block<T>(part, to, room, finish, by);
                if (found.nan) nan = true;
                if (found.infinity) infinity = true;
            }
            if (room.keys.values.size() * 4 > KEPT_BYTES || room.gated.nbytes() > KEPT_BYTES)
                kept.reset();
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
        return {nan.load(), infinity.load()};
    }

    template <typename T>
    Special predict_block(const Rows<T> &rows, double *out, Work &work, const Finish &finish) {
        const Special special = sum_block<T>(rows, out, work, InLeaves{total_});
        for (std::size_t i = 0; i < rows.n; ++i) finish(out + i * n_outputs(), n_outputs());
        return special;
    }

    template <typename T>
    Special predict_gated_block(const Rows<T> &rows, double *out, Work &work, const Finish &finish,
                                const Gating &by) {
        Special special;
        gated<T>(by, rows, work.gated, out,
                 [&](const auto &says) { special = sum_block<T>(rows, out, work, says); });
        for (std::size_t i = 0; i < rows.n; ++i) finish(out + i * n_outputs(), n_outputs());
        return special;
    }

    template <typename T, typename Says>
    Special sum_block(const Rows<T> &rows, double *out, Work &work, const Says &says) {
        const std::size_t n = rows.n;
        const Layout *layout = &layout_;
        work.keys.fit(n, columns_.size());
        Special special = special_of(make_keys<T>(rows, columns_, work.keys));
        if (special.nan) {
            layout = &layout_for_missing();
            special.infinity = make_missing_keys<T>(rows, columns_, work.keys);
        }
        const double split_cost =
            chosen_instructions().load(std::memory_order_relaxed)->split_cost;
        const std::size_t by_words = rows_by_words(layout->effort, n, split_cost);
        if (by_words > 0 && complement_) {
            work.sums.resize(by_words);
            rows_of_each_tree(*layout, work.keys, by_words, work.sums.data(), work, says);
            for (std::size_t i = 0; i < by_words; ++i) {
                out[2 * i] = says.total(i) - work.sums[i];
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

void finish_votes(Out<2> scores, double floor, double inverse_temperature, double share) {
    const Finish finish{true, floor, inverse_temperature, share};
    for (std::size_t i = 0; i < scores.shape(0); ++i)
        finish(scores.data() + i * scores.shape(1), scores.shape(1));
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Instructions &one : instructions()) names.push_back(one.name);
    return names;
}

void use_instructions(const std::string &name) {
    for (const Instructions &one : instructions())
        if (name == one.name) {
            chosen_instructions().store(&one);
            return;
        }
    throw nb::value_error(("this machine has no instructions named " + name + ".").c_str());
}

}  // namespace

NB_MODULE(_forest, m) {
    m.doc() = "The weighted vote of flat decision trees.";
    // noconvert: a converted output would be a copy, and the result lost with it.
    const auto exact = nb::arg().noconvert();
    const auto plain = nb::arg();
    nb::class_<Gate>(m, "Gate")
        .def(nb::init<In<double, 1>, In<double, 1>, In<double, 2>, In<double, 1>, In<double, 2>,
                      In<double, 1>, double>(),
             exact, exact, exact, exact, exact, exact, plain)
        .def_prop_ro("nbytes", &Gate::nbytes)
        .def("weigh", &Gate::weigh<float>, exact, exact)
        .def("weigh", &Gate::weigh<double>, exact, exact);
    nb::class_<GatedLines>(m, "GatedLines")
        .def(nb::init<const Gate &, In<double, 2>, In<double, 1>>(), plain, exact, exact)
        .def_prop_ro("nbytes", &GatedLines::nbytes)
        .def("predict", &GatedLines::predict<double>, exact, exact)
        .def("predict", &GatedLines::predict<float>, exact, exact);
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
             plain)
        .def("predict_gated", &Forest::predict_gated<float>, plain, plain, exact, exact, plain,
             plain, plain, plain, plain, plain, plain)
        .def("predict_gated", &Forest::predict_gated<double>, plain, plain, exact, exact, plain,
             plain, plain, plain, plain, plain, plain)
        .def("predict_one_gated", &Forest::predict_one_gated<double>, plain, exact, exact, plain,
             plain, plain, plain, plain)
        .def("predict_one_gated", &Forest::predict_one_gated<float>, plain, exact, exact, plain,
             plain, plain, plain, plain);
    m.def("finish_votes", &finish_votes, exact, plain, plain, plain);
    // For tests: every way to compare must give the same bits.
    m.def("instruction_sets", &instruction_sets);
    m.def("use_instructions", &use_instructions, plain);
}
