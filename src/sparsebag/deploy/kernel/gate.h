// Weights of the trees that depend on the row: what sparsebag.refine.gate and region_gate say, in
// loops over rows side by side that compilers make vectors of.
//
// Rows never mix and each gets the same operations in the same order, whatever its neighbours: a
// row gets the same bits alone and among others, with the instructions of any machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "compare.h"
#include "keys.h"

namespace sparsebag {

// Small functions that must be part of the loop they are in, or the loop is no vector's; and of
// the function it is in, or they are not of its instructions.
#if defined(__GNUC__)
#define SPARSEBAG_INLINE inline __attribute__((always_inline))
#else
#define SPARSEBAG_INLINE inline
#endif

#if defined(__GNUC__) || defined(_MSC_VER)
#define RESTRICT __restrict
#else
#define RESTRICT
#endif

constexpr std::size_t GATE_ROWS = 64;  // that are weighed together
// Partial sums of a row's features, the f-th to the one f modulo their number: of a single chain of
// additions each would wait for the one before. Whoever sums a row does it in this order.
constexpr std::size_t SUM_LANES = 4;

SPARSEBAG_INLINE double at_least(double x, double least) { return x < least ? least : x; }
SPARSEBAG_INLINE double at_most(double x, double most) { return x > most ? most : x; }

// exp(x) for -700 <= x <= 700 in arithmetic that compilers make vectors of, which a call of the
// library's is not; within two units in the last place. x = n log 2 + r, |r| <= log(2) / 2, the
// series of exp(r) to where its rest is below rounding, and n added to the exponent's bits.
SPARSEBAG_INLINE double fast_exp(double x) {
    constexpr double MAGIC = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
    constexpr double LOG2_HIGH = 6.93147180369123816490e-01, LOG2_LOW = 1.90821492927058770002e-10;
    x = at_most(at_least(x, -700.0), 700.0);
    const double shifted = x * 1.44269504088896340736 + MAGIC;
    const double n = shifted - MAGIC;
    const double r = (x - n * LOG2_HIGH) - n * LOG2_LOW;
    double p = 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    std::uint64_t bits, exponent;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 52;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

// What a gate says of a block of rows, member after member: weights of the j-th one begin at
// weights[j * stride].
struct RowWeights {
    std::vector<double> weights, inverse_temperatures, totals, room;
    std::size_t stride = 0;

    void fit(std::size_t n_members, std::size_t n_rows, std::size_t n_room) {
        stride = n_rows;
        if (weights.size() < n_members * stride) weights.resize(n_members * stride);
        if (inverse_temperatures.size() < stride) inverse_temperatures.resize(stride);
        if (room.size() < n_room) room.resize(n_room);
    }
    // Sums of the weights of some members, in their order, as votes are summed: a class with every
    // vote leaves exactly zero.
    const double *summed(std::size_t first, std::size_t n_members, std::size_t n_rows) {
        totals.assign(n_rows, 0.0);
        double *RESTRICT to = totals.data();
        for (std::size_t j = first; j < first + n_members; ++j) {
            const double *RESTRICT of = weights.data() + j * stride;
            for (std::size_t i = 0; i < n_rows; ++i) to[i] += of[i];
        }
        return to;
    }
    std::size_t nbytes() const { return weights.size() * sizeof(double); }
};

enum class Activation { softmax, sparsemax };

// The smooth gate: softmax or sparsemax of base + up h, with h = down z and z the standardised row.
struct SmoothGate {
    std::size_t n_members = 0, rank = 0;
    Activation activation = Activation::softmax;
    double clip = 0.0, log_least = 0.0, log_most = 0.0;
    std::vector<std::uint32_t> columns;             // that have a say
    std::vector<double> mean, inverse_scale, down;  // of those; down: rank numbers a column
    std::vector<double> up, base, log_temperature;  // up: n_members numbers a rank
    std::vector<double> offset;                     // empty: the weights read h itself

    std::size_t nbytes() const {
        return columns.size() * 4 + (mean.size() + inverse_scale.size() + down.size() + up.size() +
                                     base.size() + log_temperature.size() + offset.size()) *
                                        sizeof(double);
    }

    // Numbers of a few rows on the way.
    std::size_t n_room() const { return ((1 + SUM_LANES) * rank + 3) * GATE_ROWS; }

    // At most GATE_ROWS rows: few enough that what is known of them stays in the first cache.
    template <typename T>
    SPARSEBAG_INLINE void weigh(const Rows<T> &rows, double *room, double *w, std::size_t stride,
                                double *RESTRICT inverse_temperature) const {
        const std::size_t n = rows.n;
        double *h = room, *g = room + SUM_LANES * rank * GATE_ROWS;
        double *a = g + rank * GATE_ROWS, *b = a + GATE_ROWS, *c = b + GATE_ROWS;
        hidden(rows, h, a);
        for (std::size_t r = 0; r < offset.size(); ++r)
            for (std::size_t i = 0; i < n; ++i)
                g[r * GATE_ROWS + i] = bounded(h[r * GATE_ROWS + i] + offset[r]);
        logits(offset.empty() ? h : g, n, w, stride, a);
        if (activation == Activation::softmax) softmax(w, stride, n, a, b);
        else sparsemax(w, stride, n, a, b, c);
        if (log_temperature.empty()) return;
        linear(h, n, log_temperature.data() + 1, 1, log_temperature[0], a);
        for (std::size_t i = 0; i < n; ++i)
            inverse_temperature[i] = fast_exp(-at_most(at_least(a[i], log_least), log_most));
    }

    // One row, with loops over members instead; the same operations in the same order.
    template <typename T>
    SPARSEBAG_INLINE void weigh_one(const Rows<T> &rows, double *room, double *RESTRICT w,
                                    double *inverse_temperature) const {
        double *RESTRICT h = room;  // partial sums, rank of them a lane; then the sums
        const std::size_t k = n_members;
        std::fill(h, h + SUM_LANES * rank, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const auto x = static_cast<float>(
                rows.x[static_cast<std::int64_t>(columns[f]) * rows.column_stride]);
            const double z = standardised(static_cast<double>(x), f);
            double *RESTRICT to = h + f % SUM_LANES * rank;
            for (std::size_t r = 0; r < rank; ++r) to[r] += down[f * rank + r] * z;
        }
        for (std::size_t r = 0; r < rank; ++r)
            h[r] = together(h[r], h[rank + r], h[2 * rank + r], h[3 * rank + r]);
        for (std::size_t j = 0; j < k; ++j) w[j] = base[j];
        for (std::size_t r = 0; r < rank; ++r) {
            const double *RESTRICT slopes = up.data() + r * k;
            const double at = offset.empty() ? h[r] : bounded(h[r] + offset[r]);
            for (std::size_t j = 0; j < k; ++j) w[j] += slopes[j] * at;
        }
        double largest = w[0];
        for (std::size_t j = 1; j < k; ++j) largest = at_least(w[j], largest);
        if (activation == Activation::softmax) {
            double total = 0.0;
            for (std::size_t j = 0; j < k; ++j) w[j] = fast_exp(w[j] - largest);
            for (std::size_t j = 0; j < k; ++j) total += w[j];
            total = 1.0 / total;
            for (std::size_t j = 0; j < k; ++j) w[j] *= total;
        } else {
            double sum, count;
            sparsemax(w, 1, 1, &largest, &sum, &count);
        }
        if (log_temperature.empty()) return;
        double log_t = log_temperature[0];
        for (std::size_t r = 0; r < rank; ++r) log_t += log_temperature[1 + r] * h[r];
        *inverse_temperature = fast_exp(-at_most(at_least(log_t, log_least), log_most));
    }

    // Sums of standardised features of at most GATE_ROWS rows; those of a direction side by side.
    // `h` has room for the partial sums, of all directions a lane.
    template <typename T>
    SPARSEBAG_INLINE void hidden(const Rows<T> &rows, double *h, double *RESTRICT z) const {
        const std::size_t n = rows.n, lane = rank * GATE_ROWS;
        std::fill(h, h + SUM_LANES * lane, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const T *from = rows.x + static_cast<std::int64_t>(columns[f]) * rows.column_stride;
            for (std::size_t i = 0; i < n; ++i)  // float32, as trees read it
                z[i] = static_cast<double>(static_cast<float>(
                    from[static_cast<std::int64_t>(i) * rows.row_stride]));
            for (std::size_t i = 0; i < n; ++i) z[i] = standardised(z[i], f);
            for (std::size_t r = 0; r < rank; ++r) {
                const double slope = down[f * rank + r];
                double *RESTRICT to = h + f % SUM_LANES * lane + r * GATE_ROWS;
                for (std::size_t i = 0; i < n; ++i) to[i] += slope * z[i];
            }
        }
        for (std::size_t i = 0; i < lane; ++i)
            h[i] = together(h[i], h[lane + i], h[2 * lane + i], h[3 * lane + i]);
    }

    // One sum of one row: the same operations in the same order.
    template <typename T>
    SPARSEBAG_INLINE double sum_of(const T *row, std::int64_t column_stride, std::size_t r) const {
        double lanes[SUM_LANES] = {};
        const std::size_t d = columns.size(), whole = d / SUM_LANES * SUM_LANES;
        if (whole > 0 && rank == 1 && column_stride == 1 && columns[0] + d == columns[d - 1] + 1) {
            add_neighbours<T>(row + columns[0], whole, lanes);
        } else {
            for (std::size_t f = 0; f < whole; ++f) add<T>(row, column_stride, r, f, lanes);
        }
        for (std::size_t f = whole; f < d; ++f) add<T>(row, column_stride, r, f, lanes);
        return together(lanes[0], lanes[1], lanes[2], lanes[3]);
    }

  private:
    template <typename T>
    SPARSEBAG_INLINE void add(const T *row, std::int64_t column_stride, std::size_t r,
                              std::size_t f, double *lanes) const {
        const auto x =
            static_cast<float>(row[static_cast<std::int64_t>(columns[f]) * column_stride]);
        lanes[f % SUM_LANES] += down[f * rank + r] * standardised(static_cast<double>(x), f);
    }

    // The first `n` features, whole lanes of them, where they lie side by side in the row.
    template <typename T>
    SPARSEBAG_INLINE void add_neighbours(const T *RESTRICT x, std::size_t n,
                                         double *RESTRICT lanes) const {
        const double *RESTRICT means = mean.data(), *RESTRICT inverse = inverse_scale.data();
        const double *RESTRICT slopes = down.data(), most = clip, least = -clip;
        double sum[SUM_LANES] = {};
        for (std::size_t f = 0; f < n; f += SUM_LANES)
            for (std::size_t l = 0; l < SUM_LANES; ++l) {
                const double at = static_cast<double>(static_cast<float>(x[f + l]));
                double z = (at - means[f + l]) * inverse[f + l];
                z = at_most(at_least(z, least), most);
                sum[l] += slopes[f + l] * (at - at == 0.0 ? z : 0.0);
            }
        for (std::size_t l = 0; l < SUM_LANES; ++l) lanes[l] += sum[l];
    }

    SPARSEBAG_INLINE static double together(double a, double b, double c, double d) {
        return (a + b) + (c + d);
    }
    SPARSEBAG_INLINE static double bounded(double h) { return h / std::sqrt(1.0 + h * h); }

    // NaN and infinities are read as the mean: x - x is zero for numbers alone.
    SPARSEBAG_INLINE double standardised(double x, std::size_t f) const {
        const double z = at_most(at_least((x - mean[f]) * inverse_scale[f], -clip), clip);
        return x - x == 0.0 ? z : 0.0;
    }

    // start + slopes . h of each row; slopes are `step` apart.
    SPARSEBAG_INLINE void linear(const double *h, std::size_t n, const double *slopes,
                                 std::size_t step, double start, double *RESTRICT to) const {
        for (std::size_t i = 0; i < n; ++i) to[i] = start;
        for (std::size_t r = 0; r < rank; ++r) {
            const double *RESTRICT from = h + r * GATE_ROWS, slope = slopes[r * step];
            for (std::size_t i = 0; i < n; ++i) to[i] += slope * from[i];
        }
    }

    SPARSEBAG_INLINE void logits(const double *h, std::size_t n, double *w, std::size_t stride,
                                 double *RESTRICT largest) const {
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * stride;
            linear(h, n, up.data() + j, n_members, base[j], of);
            if (j == 0)
                for (std::size_t i = 0; i < n; ++i) largest[i] = of[i];
            else
                for (std::size_t i = 0; i < n; ++i) largest[i] = at_least(of[i], largest[i]);
        }
    }

    SPARSEBAG_INLINE void softmax(double *w, std::size_t stride, std::size_t n,
                                  const double *RESTRICT largest, double *RESTRICT total) const {
        for (std::size_t i = 0; i < n; ++i) total[i] = 0.0;
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) {
                of[i] = fast_exp(of[i] - largest[i]);
                total[i] += of[i];
            }
        }
        for (std::size_t i = 0; i < n; ++i) total[i] = 1.0 / total[i];
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) of[i] *= total[i];
        }
    }

    // The threshold of the projection on the simplex by Michelot's rounds (1986): of the logits
    // above it, again and again, until none falls below. A row that is done stays as it is.
    SPARSEBAG_INLINE void sparsemax(double *w, std::size_t stride, std::size_t n,
                                    double *RESTRICT tau, double *RESTRICT sum,
                                    double *RESTRICT count) const {
        // Only differences matter: the largest, which tau holds, becomes zero.
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) of[i] -= tau[i];
        }
        for (std::size_t i = 0; i < n; ++i) tau[i] = -1.0;  // none below has a weight
        for (std::size_t round = 0; round <= n_members; ++round) {
            for (std::size_t i = 0; i < n; ++i) sum[i] = -1.0;
            for (std::size_t i = 0; i < n; ++i) count[i] = 0.0;
            for (std::size_t j = 0; j < n_members; ++j) {
                const double *RESTRICT of = w + j * stride;
                for (std::size_t i = 0; i < n; ++i) {
                    const bool above = of[i] > tau[i];
                    sum[i] += above ? of[i] : 0.0;
                    count[i] += above ? 1.0 : 0.0;
                }
            }
            std::size_t rising = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const double next = sum[i] / count[i];
                rising += next > tau[i];
                tau[i] = at_least(next, tau[i]);
            }
            if (rising == 0) break;
        }
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) of[i] = at_least(of[i] - tau[i], 0.0);
        }
    }
};

// The gate of regions: a shallow tree; weights and temperature of its leaves.
struct RegionTree {
    struct Node {
        std::uint32_t feature;  // after the features come sums of them
        std::int32_t child[2];  // left, right; a region for a leaf, in the first
        float threshold;        // the largest float32 not above the tree's own
        bool missing_left, is_leaf;
    };
    std::size_t n_members = 0, n_features = 0;
    SmoothGate sums;  // of which only the sums are of use; rank zero where there are none
    std::vector<Node> nodes;
    std::vector<double> weights, inverse_temperatures;  // region after region

    std::size_t nbytes() const {
        return nodes.size() * sizeof(Node) + sums.nbytes() +
               (weights.size() + inverse_temperatures.size()) * sizeof(double);
    }

    // Of a few rows, their regions. A fit has one sum, which several nodes ask for: those of all rows
    // come first, for a branch that was guessed wrong would throw away the next row's. Many sums
    // are made as they are asked for.
    template <typename T>
    SPARSEBAG_INLINE void regions_of(const Rows<T> &rows, double *sum, std::size_t *to) const {
        const std::int64_t step = rows.column_stride;
        if (sums.rank == 1)
            for (std::size_t i = 0; i < rows.n; ++i) sum[i] = sums.sum_of<T>(rows.row(i), step, 0);
        for (std::size_t i = 0; i < rows.n; ++i) {
            const T *row = rows.row(i);
            if (sums.rank == 1) {
                const double only = sum[i];
                to[i] = walked<T>(row, step, [only](std::size_t) { return only; });
            } else {
                to[i] = walked<T>(
                    row, step, [&](std::size_t r) { return sums.sum_of<T>(row, step, r); });
            }
        }
    }

    // One row; the same sums, made in the same order.
    template <typename T>
    void weigh_one(const Rows<T> &rows, double *w, double *inverse_temperature) const {
        double sum;
        std::size_t r;
        regions_of<T>(rows, &sum, &r);
        const double *of_region = weights.data() + r * n_members;
        std::copy(of_region, of_region + n_members, w);
        if (!inverse_temperatures.empty()) *inverse_temperature = inverse_temperatures[r];
    }

    // At most GATE_ROWS rows where there are sums.
    template <typename T>
    SPARSEBAG_INLINE void weigh(const Rows<T> &rows, double *room, double *w, std::size_t stride,
                                double *inverse_temperature) const {
        if (sums.rank > 0) sums.hidden<T>(rows, room, room + SUM_LANES * sums.rank * GATE_ROWS);
        for (std::size_t i = 0; i < rows.n; ++i) {
            const double *h = room + i;
            const std::size_t r = walked<T>(rows.row(i), rows.column_stride,
                                            [h](std::size_t at) { return h[at * GATE_ROWS]; });
            const double *of_region = weights.data() + r * n_members;
            for (std::size_t j = 0; j < n_members; ++j) w[j * stride + i] = of_region[j];
            if (!inverse_temperatures.empty()) inverse_temperature[i] = inverse_temperatures[r];
        }
    }

  private:
    template <typename T, typename Sum>
    SPARSEBAG_INLINE std::size_t walked(const T *row, std::int64_t column_stride, Sum sum) const {
        const Node *node = nodes.data();
        while (!node->is_leaf) {
            const auto x = static_cast<float>(
                node->feature < n_features
                    ? static_cast<double>(
                          row[static_cast<std::int64_t>(node->feature) * column_stride])
                    : sum(node->feature - n_features));
            const bool left = std::isnan(x) ? node->missing_left : x <= node->threshold;
            node = nodes.data() + node->child[left ? 0 : 1];
        }
        return static_cast<std::size_t>(node->child[0]);
    }
};

// Either of them.
struct RowGate {
    std::size_t n_features = 0, n_members = 0;
    bool is_smooth = true, has_temperature = false;
    SmoothGate smooth;
    RegionTree regions;

    std::size_t nbytes() const { return is_smooth ? smooth.nbytes() : regions.nbytes(); }

    template <typename T>
    void weigh(const Rows<T> &rows, RowWeights &out) const {
        out.fit(n_members, rows.n, is_smooth ? smooth.n_room() : regions.sums.n_room());
        double *w = out.weights.data(), *t = out.inverse_temperatures.data();
        if (!is_smooth && rows.n == 1) return regions.weigh_one<T>(rows, w, t);
        const bool is_tree = !is_smooth && regions.sums.rank == 0;
        if (is_tree) return regions.weigh<T>(rows, out.room.data(), w, out.stride, t);
        if (is_smooth && rows.n == 1) return smooth.weigh_one<T>(rows, out.room.data(), w, t);
        for (std::size_t i = 0; i < rows.n; i += GATE_ROWS) {
            const Rows<T> part = rows.part(i, std::min(GATE_ROWS, rows.n - i));
            weigh_few<T>(part, out.room.data(), w + i, out.stride, t + i);
        }
    }

  private:
    template <typename T>
    void weigh_few(const Rows<T> &rows, double *room, double *w, std::size_t stride,
                   double *t) const {
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2) return weigh_avx2<T>(rows, room, w, stride, t);
#endif
        weigh_here<T>(rows, room, w, stride, t);
    }

    template <typename T>
    SPARSEBAG_INLINE void weigh_here(const Rows<T> &rows, double *room, double *w,
                                     std::size_t stride, double *t) const {
        if (is_smooth) smooth.weigh<T>(rows, room, w, stride, t);
        else regions.weigh<T>(rows, room, w, stride, t);
    }

#if defined(SPARSEBAG_X86)
    template <typename T>
    __attribute__((target("avx2"))) void weigh_avx2(const Rows<T> &rows, double *room, double *w,
                                                    std::size_t stride, double *t) const {
        weigh_here<T>(rows, room, w, stride, t);
    }
#endif
};

}  // namespace sparsebag
