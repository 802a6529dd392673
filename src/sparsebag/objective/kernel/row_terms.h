// What turns rows' products into losses and slopes.
#ifndef SPARSEBAG_ROW_TERMS_H
#define SPARSEBAG_ROW_TERMS_H

#include <cstddef>
#include <limits>

#include "log_sum.h"
#include "products.h"

namespace {

// The whole evaluation of a block in one read: a few rows' products, their slopes, and the rows'
// share of the gradient while they are still in the first cache. `losses.py` has the slopes.
//
// What is known of rows beside their votes comes in one of two ways: of evidence in memory as
// uniform_vote and row_weight; of a block of a stream as prior (NaN: no member has the row out of
// bag), or, where that is not held, from the votes themselves while they are read. Pointers may be
// null: a target is then 1, a weight too.
struct RowTerms {
    const double *uniform_vote, *target, *row_weight;
    double prior_mass, least_denominator, least_vote, kept_share, floor, multiplicity;
    bool log_loss, is_zeroed;
    const float *prior = nullptr;
    float *found_prior = nullptr;
    double weight_scale = 1.0;
    // Without a mask: every member votes on every row, so that these are the same for all of them.
    bool has_mask = true;
    double denominator = 0.0, n_voters = 0.0;

    bool finds_prior() const { return !uniform_vote && !prior; }
    double target_of(std::size_t i) const { return target ? target[i] : 1.0; }
};


constexpr std::size_t SETTLED_ROWS = LogSum::N;  // most whose losses are found together
constexpr std::size_t MOST_ROWS = 64;     // voted on, then differentiated, from the cache
constexpr std::size_t TINY_ROW = 128;     // members of which the first cache holds SETTLED_ROWS
constexpr std::size_t SHORT_ROW = 400;    // members below which a turn stays in the first cache
constexpr std::size_t MEDIUM_ROW = 2048;  // members up to which the second one holds a large turn
constexpr std::size_t LONG_ROW = 4096;    // members whose weights take half the first cache
constexpr std::size_t MOST_LANES = 16;    // members a register
constexpr std::size_t SUMMED_MEMBERS = 256;  // before a new sum: equal weights round the same way
constexpr std::size_t CACHED_BYTES = 16 << 20;  // of evidence that stays in caches between passes
constexpr std::size_t FLUSH_ROWS = 64;  // rows summed in single precision before doubles take over

// Sums over some rows, to which each of them adds; `logs` are still to be taken from the loss.
struct Totals {
    double loss = 0.0, weight = 0.0;
    LogSum logs;
};

// Prior votes and weights of a few rows of a stream: as given, or from the sum and the number of a
// row's votes.
INLINE double priors_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *sum, const double *count, double *prior,
                             double *weight) {
    // Plain loops without branches, which compile to vectors. Without votes 0 / 0 says so; sums that
    // overflowed both ways are no such thing.
    float vote[SETTLED_ROWS];
    if (t.prior)
        for (std::size_t r = 0; r < rows; ++r) vote[r] = t.prior[first + r];
    else
        for (std::size_t r = 0; r < rows; ++r) {
            const double mean = sum[r] / count[r];
            const bool overflowed = mean != mean && count[r] > 0.0;
            vote[r] = overflowed ? std::numeric_limits<float>::infinity() : static_cast<float>(mean);
        }
    if (t.found_prior)
        for (std::size_t r = 0; r < rows; ++r) t.found_prior[first + r] = vote[r];
    const double scale = t.weight_scale;
    for (std::size_t r = 0; r < rows; ++r) {
        const bool counts = vote[r] == vote[r];
        prior[r] = counts ? static_cast<double>(vote[r]) : 0.0;
        weight[r] = counts ? scale : 0.0;
    }
    if (t.row_weight)
        for (std::size_t r = 0; r < rows; ++r) weight[r] *= t.row_weight[first + r];
    double total = 0.0;
    for (std::size_t r = 0; r < rows; ++r) total += weight[r];
    return total;
}

// Changes no sum but zero, and one over it is finite: of rows without weight nothing must be left,
// whatever their votes.
constexpr double TINIEST = 1e-290;

// Losses of a few rows, from their products, and the slopes in them. With N = n + τ u, D = d + τ,
// q = N / D and p = (1 - ε) q + ε / C, the logarithm's slope is -1 / (p D): as a fraction of its own it
// need not wait for p.
template <bool LOG_LOSS>
INLINE void losses_of_rows(const RowTerms &t, std::size_t first, std::size_t rows, const double *n,
                           const double *d, const double *prior, const double *weight,
                           float *__restrict on_votes, float *__restrict on_mask, Totals &found) {
    double p[SETTLED_ROWS], w[SETTLED_ROWS], target[SETTLED_ROWS];
    if constexpr (!LOG_LOSS)
        for (std::size_t r = 0; r < rows; ++r) target[r] = t.target_of(first + r);
    // Locals: what is stored below could be t's own, for all the compiler knows.
    const double tau = t.prior_mass, added = t.prior_mass + t.least_denominator;
    const double least = t.least_vote, kept = t.kept_share, floor = t.floor;
    const double multiplicity = t.multiplicity;
    for (std::size_t r = 0; r < rows; ++r) {
        const double whole = d[r] + added, share = 1.0 / whole;
        const double voted = n[r] + tau * prior[r], least_voted = least * whole;
        const double part = voted > least_voted ? voted : least_voted, q = part * share;
        p[r] = kept * q + floor;
        w[r] = multiplicity * weight[r];
        double slope = kept * w[r];
        if constexpr (LOG_LOSS)
            slope *= -1.0 / (kept * part + (floor * whole + TINIEST));
        else
            slope *= 2.0 * (p[r] - target[r]) * share;
        on_votes[r] = static_cast<float>(slope);
        on_mask[r] = static_cast<float>(-slope * q);
    }
    if constexpr (LOG_LOSS) {
        found.logs.add(p, w, rows);
    } else {
        for (std::size_t r = 0; r < rows; ++r) p[r] = w[r] * (p[r] - target[r]) * (p[r] - target[r]);
        for (std::size_t r = 0; r < rows; ++r) found.loss += p[r];
    }
}

// What is known of a turn's rows: products with the weights, and from them the slopes.
struct Turn {
    static constexpr std::size_t ROOM = MOST_ROWS + 3;  // kernels store those of four rows at a time
    double n[ROOM], d[ROOM];        // weighted sum of a row's votes, of their weights
    double sum[ROOM], count[ROOM];  // of a row's votes, where the prior is found
    float on_votes[MOST_ROWS], on_mask[MOST_ROWS];
};

INLINE void settle_rows(const RowTerms &t, std::size_t first, std::size_t from, std::size_t rows,
                        Turn &turn, Totals &found) {
    double found_prior[SETTLED_ROWS], found_weight[SETTLED_ROWS];
    const double *prior = found_prior, *weight = found_weight;
    if (t.uniform_vote) {
        prior = t.uniform_vote + first + from;
        weight = t.row_weight + first + from;
    } else {
        found.weight += priors_of_rows(t, first + from, rows, turn.sum + from, turn.count + from,
                                       found_prior, found_weight);
    }
    if (t.log_loss)
        losses_of_rows<true>(t, first + from, rows, turn.n + from, turn.d + from, prior, weight,
                             turn.on_votes + from, turn.on_mask + from, found);
    else
        losses_of_rows<false>(t, first + from, rows, turn.n + from, turn.d + from, prior, weight,
                              turn.on_votes + from, turn.on_mask + from, found);
}

// Losses and slopes of a turn, of numbers of rows that the compiler knows: loops over so few are
// otherwise half preparation.
INLINE void settle(const RowTerms &t, std::size_t first, std::size_t rows, Turn &turn,
                   Totals &found) {
    if (!t.has_mask)
        for (std::size_t r = 0; r < rows; ++r) {
            turn.d[r] = t.denominator;
            turn.count[r] = t.n_voters;
        }
    std::size_t from = 0;
    for (; from + SETTLED_ROWS <= rows; from += SETTLED_ROWS)
        settle_rows(t, first, from, SETTLED_ROWS, turn, found);
    if (from + SETTLED_ROWS / 2 <= rows) {
        settle_rows(t, first, from, SETTLED_ROWS / 2, turn, found);
        from += SETTLED_ROWS / 2;
    }
    if (from < rows) settle_rows(t, first, from, rows - from, turn, found);
}

}  // namespace

#endif
