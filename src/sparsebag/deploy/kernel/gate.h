// Weights of the trees that depend on the row, and how much each tree has to say.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "keys.h"
#include "smooth_gate.h"

namespace sparsebag {

// What a gate says of a block of rows, member after member: weights of the j-th one begin at
// weights[j * stride].
struct RowWeights {
    Reading reading;
    std::vector<double> weights, totals;
    std::size_t stride = 0;

    std::size_t nbytes() const { return (weights.size() + reading.g.size()) * sizeof(double); }
};

struct RowGate {
    std::size_t n_features = 0, n_members = 0;
    SmoothGate smooth;

    std::size_t nbytes() const { return smooth.nbytes(); }

    // All that weights of the rows hang on.
    template <typename T>
    void read(const Rows<T> &rows, RowWeights &to) const {
        smooth.read<T>(rows, to.reading);
    }

    // All weights of all rows.
    template <typename T>
    void weigh(const Rows<T> &rows, RowWeights &to) const {
        read<T>(rows, to);
        const std::size_t n = rows.n;
        to.stride = n;
        SmoothGate::fit(to.weights, n_members * n);
        double *w = to.weights.data();
        to.totals.assign(n, 0.0);
        double *RESTRICT totals = to.totals.data();
        if (n == 1) totals[0] = smooth.weigh_row(0, to.reading, w);
        else
            for (std::size_t j = 0; j < n_members; ++j)
                smooth.weigh_member(j, n, to.reading, w + j * n, totals);
        for (std::size_t i = 0; i < n; ++i) totals[i] = 1.0 / totals[i];
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT of = w + j * n;
            for (std::size_t i = 0; i < n; ++i) of[i] *= totals[i];
        }
    }
};

// How much the trees of a forest have to say: of_tree is asked once a tree, in their order, for the
// first n rows, and of_row for rows that are summed one at a time.

// Weights that are the same everywhere are in the leaves.
struct InLeaves {
    double total_weight;

    struct One {
        constexpr double operator()(std::size_t) const { return 1.0; }
    };
    One of_tree(std::size_t, std::size_t) const { return {}; }
    One of_row(std::size_t) const { return {}; }
    double total(std::size_t) const { return total_weight; }
};

// Numbers `step` apart.
struct Apart {
    const double *x;
    std::size_t step;
    double operator()(std::size_t i) const { return x[i * step]; }
};
struct Beside {
    const double *x;
    double operator()(std::size_t i) const { return x[i]; }
};

// Adds the weighted leaves of a tree, which `number` tells of a row.
inline void add_weighted(std::size_t n, const double *leaves, const std::uint8_t *number,
                         const double *w, double *sums) {
    for (std::size_t i = 0; i < n; ++i) sums[i] += w[i] * leaves[number[i]];
}
#if defined(SPARSEBAG_X86)
__attribute__((target("avx2"))) inline void add_weighted_avx2(std::size_t n, const double *leaves,
                                                              const std::uint8_t *number,
                                                              const double *w, double *sums) {
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m256d leaf = _mm256_setr_pd(leaves[number[i]], leaves[number[i + 1]],
                                            leaves[number[i + 2]], leaves[number[i + 3]]);
        const __m256d vote = _mm256_mul_pd(_mm256_loadu_pd(w + i), leaf);
        _mm256_storeu_pd(sums + i, _mm256_add_pd(_mm256_loadu_pd(sums + i), vote));
    }
    for (; i < n; ++i) sums[i] += w[i] * leaves[number[i]];
}
#endif

// A gate said it of all rows; `of` is the weights of the first tree, and `totals` those of all.
struct Stored {
    const double *of, *totals;
    std::size_t stride;

    Beside of_tree(std::size_t tree, std::size_t) const { return {of + tree * stride}; }
    Apart of_row(std::size_t row) const { return {of + row, stride}; }
    double total(std::size_t row) const { return totals[row]; }

    // The weighted leaves of a tree, numbered, in place of its weights.
    void add_leaves(std::size_t tree, std::size_t n, const double *leaves,
                    const std::uint8_t *number, double *sums) const {
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2)
            return add_weighted_avx2(n, leaves, number, of + tree * stride, sums);
#endif
        add_weighted(n, leaves, number, of + tree * stride, sums);
    }
};

// A softmax over these trees and no other members: weights of a tree when it is its turn, never
// written for all of them, and over their sum at the end. Totals begin at zero.
struct Softmax {
    const SmoothGate *gate;
    RowWeights *said;

    Beside of_tree(std::size_t tree, std::size_t n) const {
        gate->weigh_member(tree, n, said->reading, said->weights.data(), said->totals.data());
        return {said->weights.data()};
    }
    Beside of_row(std::size_t row) const {
        said->totals[row] = gate->weigh_row(row, said->reading, said->weights.data());
        return {said->weights.data()};
    }
    double total(std::size_t row) const { return said->totals[row]; }

    void add_leaves(std::size_t tree, std::size_t n, const double *leaves,
                    const std::uint8_t *number, double *sums) const {
        gate->vote_member(tree, n, said->reading, leaves, number, said->weights.data(),
                          said->totals.data(), sums);
    }
};

}  // namespace sparsebag
