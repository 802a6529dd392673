// Weights of the trees that depend on the row: what sparsebag.refine.gate and region_gate say,
// LANES rows side by side.
//
// Lanes never mix and every lane does the same operations in the same order, whatever its
// neighbours: a row gets the same bits alone and among others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "keys.h"
#include "nodes.h"

namespace sparsebag {

// exp(x) for -700 <= x <= 700 in arithmetic that compilers make vectors of, which a call of the
// library's is not; within two units in the last place. x = n log 2 + r, |r| <= log(2) / 2, the
// series of exp(r) to where its rest is below rounding, and n added to the exponent's bits.
inline double fast_exp(double x) {
    constexpr double MAGIC = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
    constexpr double LOG2_HIGH = 6.93147180369123816490e-01, LOG2_LOW = 1.90821492927058770002e-10;
    x = x < -700.0 ? -700.0 : x;
    x = x > 700.0 ? 700.0 : x;
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
    std::vector<double> weights, inverse_temperatures, hidden;
    std::size_t stride = 0;

    void fit(std::size_t n_members, std::size_t n_rows, std::size_t rank) {
        stride = n_rows == 1 ? 1 : (n_rows + LANES - 1) / LANES * LANES;
        if (weights.size() < n_members * stride) weights.resize(n_members * stride);
        if (inverse_temperatures.size() < stride) inverse_temperatures.resize(stride);
        if (hidden.size() < rank * LANES) hidden.resize(rank * LANES);
    }
    std::size_t nbytes() const { return weights.size() * sizeof(double); }
};

enum class Activation { softmax, sparsemax };

// The smooth gate: softmax or sparsemax of base + up h, with h = down z and z the standardised row.
struct SmoothGate {
    std::size_t n_members = 0, rank = 0;
    Activation activation = Activation::softmax;
    double clip = 0.0, log_least = 0.0, log_most = 0.0;
    std::vector<std::uint32_t> columns;           // that have a say
    std::vector<double> mean, inverse_scale, down;  // of those; down: rank numbers a column
    std::vector<double> up, base, log_temperature;  // up: rank numbers a member

    std::size_t nbytes() const {
        return columns.size() * 4 + (mean.size() + inverse_scale.size() + down.size() + up.size() +
                                     base.size() + log_temperature.size()) * sizeof(double);
    }

    // `rank` numbers for each of L rows; past the last row, the last row again.
    template <int L, typename T>
    void hidden(const Rows<T> &rows, std::size_t first, double *h) const {
        const T *row[L];
        for (int l = 0; l < L; ++l) row[l] = rows.row(std::min(first + l, rows.n - 1));
        std::fill(h, h + rank * L, 0.0);
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const std::int64_t at = static_cast<std::int64_t>(columns[f]) * rows.column_stride;
            double z[L];
            for (int l = 0; l < L; ++l) z[l] = static_cast<double>(row[l][at]);
            for (int l = 0; l < L; ++l) {
                // NaN and infinities: x - x is zero for numbers alone.
                const bool is_number = z[l] - z[l] == 0.0;
                double s = (z[l] - mean[f]) * inverse_scale[f];
                s = s < -clip ? -clip : s;
                s = s > clip ? clip : s;
                z[l] = is_number ? s : 0.0;
            }
            for (std::size_t r = 0; r < rank; ++r) {
                const double slope = down[f * rank + r];
                for (int l = 0; l < L; ++l) h[r * L + l] += slope * z[l];
            }
        }
    }

    template <int L>
    void logits(const double *h, double *out, std::size_t stride, double *largest) const {
        for (int l = 0; l < L; ++l) largest[l] = -std::numeric_limits<double>::infinity();
        for (std::size_t j = 0; j < n_members; ++j) {
            double z[L];
            for (int l = 0; l < L; ++l) z[l] = 0.0;
            for (std::size_t r = 0; r < rank; ++r) {
                const double slope = up[j * rank + r];
                for (int l = 0; l < L; ++l) z[l] += slope * h[r * L + l];
            }
            for (int l = 0; l < L; ++l) {
                z[l] += base[j];
                largest[l] = z[l] > largest[l] ? z[l] : largest[l];
                out[j * stride + l] = z[l];
            }
        }
    }

    template <int L>
    void softmax(double *w, std::size_t stride, const double *largest) const {
        double total[L];
        for (int l = 0; l < L; ++l) total[l] = 0.0;
        for (std::size_t j = 0; j < n_members; ++j)
            for (int l = 0; l < L; ++l) {
                const double e = fast_exp(w[j * stride + l] - largest[l]);
                w[j * stride + l] = e;
                total[l] += e;
            }
        for (int l = 0; l < L; ++l) total[l] = 1.0 / total[l];
        for (std::size_t j = 0; j < n_members; ++j)
            for (int l = 0; l < L; ++l) w[j * stride + l] *= total[l];
    }

    // The threshold of the projection on the simplex by Michelot's rounds (1986): of the logits
    // above it, again and again, until none falls below. A lane that is done stays as it is.
    template <int L>
    void sparsemax(double *w, std::size_t stride, const double *largest) const {
        double tau[L], before[L];
        for (int l = 0; l < L; ++l) before[l] = -std::numeric_limits<double>::infinity();
        for (std::size_t j = 0; j < n_members; ++j)
            for (int l = 0; l < L; ++l) w[j * stride + l] -= largest[l];
        for (std::size_t round = 0; round <= n_members; ++round) {
            double sum[L], count[L];
            for (int l = 0; l < L; ++l) sum[l] = count[l] = 0.0;
            for (std::size_t j = 0; j < n_members; ++j)
                for (int l = 0; l < L; ++l) {
                    const double z = w[j * stride + l];
                    sum[l] += z > before[l] ? z : 0.0;
                    count[l] += z > before[l] ? 1.0 : 0.0;
                }
            bool moved = false;
            for (int l = 0; l < L; ++l) {
                tau[l] = (sum[l] - 1.0) / count[l];  // the largest logit, zero, is always above
                moved |= tau[l] > before[l];
                before[l] = tau[l] > before[l] ? tau[l] : before[l];
            }
            if (!moved) break;
        }
        for (std::size_t j = 0; j < n_members; ++j)
            for (int l = 0; l < L; ++l) {
                const double z = w[j * stride + l] - before[l];
                w[j * stride + l] = z > 0.0 ? z : 0.0;
            }
    }

    // h: room for rank * L numbers.
    template <int L, typename T>
    void weigh(const Rows<T> &rows, std::size_t first, double *h, double *w, std::size_t stride,
               double *inverse_temperature) const {
        double largest[L];
        hidden<L>(rows, first, h);
        logits<L>(h, w, stride, largest);
        if (activation == Activation::softmax) softmax<L>(w, stride, largest);
        else sparsemax<L>(w, stride, largest);
        if (log_temperature.empty()) return;
        double log_t[L];
        for (int l = 0; l < L; ++l) log_t[l] = log_temperature[0];
        for (std::size_t r = 0; r < rank; ++r)
            for (int l = 0; l < L; ++l) log_t[l] += log_temperature[1 + r] * h[r * L + l];
        for (int l = 0; l < L; ++l) {
            const double t = std::min(std::max(log_t[l], log_least), log_most);
            inverse_temperature[l] = fast_exp(-t);
        }
    }
};

// The gate of regions: a shallow tree; weights and temperature of its leaves.
struct RegionTree {
    struct Node {
        std::uint32_t feature;
        std::int32_t child[2];  // left, right; a region for a leaf, in the first
        float threshold;        // the largest float32 not above the tree's own
        bool missing_left, is_leaf;
    };
    std::size_t n_members = 0;
    std::vector<Node> nodes;
    std::vector<double> weights, inverse_temperatures;  // region after region

    std::size_t nbytes() const {
        return nodes.size() * sizeof(Node) +
               (weights.size() + inverse_temperatures.size()) * sizeof(double);
    }

    template <typename T>
    std::size_t region(const T *row, std::int64_t column_stride) const {
        const Node *node = nodes.data();
        while (!node->is_leaf) {
            const auto x = static_cast<float>(
                row[static_cast<std::int64_t>(node->feature) * column_stride]);
            const bool left = std::isnan(x) ? node->missing_left : x <= node->threshold;
            node = nodes.data() + node->child[left ? 0 : 1];
        }
        return static_cast<std::size_t>(node->child[0]);
    }

    template <typename T>
    void weigh(const Rows<T> &rows, std::size_t first, std::size_t count, double *w,
               std::size_t stride, double *inverse_temperature) const {
        for (std::size_t l = 0; l < count; ++l) {
            const std::size_t r = region<T>(rows.row(first + l), rows.column_stride);
            const double *of_region = weights.data() + r * n_members;
            for (std::size_t j = 0; j < n_members; ++j) w[j * stride + l] = of_region[j];
            if (!inverse_temperatures.empty()) inverse_temperature[l] = inverse_temperatures[r];
        }
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
        out.fit(n_members, rows.n, smooth.rank);
        double *w = out.weights.data(), *t = out.inverse_temperatures.data();
        if (!is_smooth) {
            regions.weigh<T>(rows, 0, rows.n, w, out.stride, t);
        } else if (rows.n == 1) {
            smooth.weigh<1, T>(rows, 0, out.hidden.data(), w, out.stride, t);
        } else {
            for (std::size_t i = 0; i < rows.n; i += LANES)
                smooth.weigh<LANES, T>(rows, i, out.hidden.data(), w + i, out.stride, t + i);
        }
    }
};

}  // namespace sparsebag
