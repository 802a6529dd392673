// What turns rows' products into losses and slopes.
#ifndef SPARSEBAG_ROW_TERMS_H
#define SPARSEBAG_ROW_TERMS_H

#include <cmath>
#include <cstddef>
#include <limits>

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


constexpr std::size_t MOST_ROWS = 64;     // voted on, then differentiated, from the cache
constexpr std::size_t LOG_ROWS = 8;       // of equal weight, that share one logarithm
constexpr std::size_t SHORT_ROW = 400;    // members below which a turn stays in the first cache
constexpr std::size_t MEDIUM_ROW = 2048;  // members up to which the second one holds a large turn
constexpr std::size_t LONG_ROW = 4096;    // members whose weights take half the first cache
constexpr std::size_t MOST_LANES = 16;    // members a register
constexpr std::size_t FLUSH_ROWS = 64;  // rows summed in single precision before doubles take over

// Prior votes and weights of a few rows: as given, or from the sum and the number of a row's votes.
INLINE double priors_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *sum, const double *count, double *prior,
                             double *weight) {
    if (t.uniform_vote) {
        for (std::size_t r = 0; r < rows; ++r) {
            prior[r] = t.uniform_vote[first + r];
            weight[r] = t.row_weight[first + r];
        }
        return 0.0;
    }
    // Plain loops without branches, which compile to vectors. Without votes 0 / 0 says so; sums that
    // overflowed both ways are no such thing.
    float vote[MOST_ROWS];
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

// Losses of a few rows, from their products, and the slopes in them. Rows of equal weight, the
// usual case, share one logarithm: eight votes of at least 1e-15 multiply to no less than 1e-120.
INLINE double losses_of_rows(const RowTerms &t, std::size_t first, std::size_t rows,
                             const double *n, const double *d, const double *prior, double *weight,
                             float *on_votes, float *on_mask) {
    double p[MOST_ROWS], q[MOST_ROWS], share[MOST_ROWS], slope[MOST_ROWS];
    // Locals: what is stored below could be t's own, for all the compiler knows.
    const double tau = t.prior_mass, added = t.prior_mass + t.least_denominator;
    const double least = t.least_vote, kept = t.kept_share, floor = t.floor;
    const double multiplicity = t.multiplicity;
    for (std::size_t r = 0; r < rows; ++r) {
        share[r] = 1.0 / (d[r] + added);
        const double found = (n[r] + tau * prior[r]) * share[r];
        q[r] = found > least ? found : least;
        p[r] = kept * q[r] + floor;
        weight[r] *= multiplicity;
    }
    if (t.log_loss)
        for (std::size_t r = 0; r < rows; ++r) slope[r] = -1.0 / p[r];
    else
        for (std::size_t r = 0; r < rows; ++r) slope[r] = 2.0 * (p[r] - t.target_of(first + r));
    for (std::size_t r = 0; r < rows; ++r) {
        const double found = kept * weight[r] * slope[r] * share[r];
        on_votes[r] = static_cast<float>(found);
        on_mask[r] = static_cast<float>(-found * q[r]);
    }
    double loss = 0.0;
    if (!t.log_loss) {
        for (std::size_t r = 0; r < rows; ++r) {
            const double off = p[r] - t.target_of(first + r);
            loss += weight[r] * off * off;
        }
        return loss;
    }
    for (std::size_t begin = 0; begin < rows; begin += LOG_ROWS) {
        const std::size_t end = begin + LOG_ROWS < rows ? begin + LOG_ROWS : rows;
        double product[4] = {1.0, 1.0, 1.0, 1.0};  // no chain of eight
        bool alike = true;
        for (std::size_t r = begin; r < end; ++r) {
            product[r % 4] *= p[r];
            alike &= weight[r] == weight[begin];
        }
        if (alike)
            loss -= weight[begin] * std::log((product[0] * product[2]) * (product[1] * product[3]));
        else
            for (std::size_t r = begin; r < end; ++r) loss -= weight[r] * std::log(p[r]);
    }
    return loss;
}

// What is known of a turn's rows: products with the weights, and from them the slopes.
struct Turn {
    double n[MOST_ROWS], d[MOST_ROWS];          // weighted sum of a row's votes, of their weights
    double sum[MOST_ROWS], count[MOST_ROWS];    // of a row's votes, where the prior is found
    float on_votes[MOST_ROWS], on_mask[MOST_ROWS];
};

INLINE double settle_rows(const RowTerms &t, std::size_t first, std::size_t from, std::size_t rows,
                          Turn &turn, double &total) {
    double prior[MOST_ROWS], weight[MOST_ROWS];
    total += priors_of_rows(t, first + from, rows, turn.sum + from, turn.count + from, prior, weight);
    return losses_of_rows(t, first + from, rows, turn.n + from, turn.d + from, prior, weight,
                          turn.on_votes + from, turn.on_mask + from);
}

// Losses and slopes of a turn; LOG_ROWS at a time, a number the compiler knows: loops over so few
// rows are otherwise half preparation.
INLINE double settle(const RowTerms &t, std::size_t first, std::size_t rows, Turn &turn,
                     double &total) {
    if (!t.has_mask)
        for (std::size_t r = 0; r < rows; ++r) {
            turn.d[r] = t.denominator;
            turn.count[r] = t.n_voters;
        }
    double loss = 0.0;
    std::size_t from = 0;
    for (; from + LOG_ROWS <= rows; from += LOG_ROWS)
        loss += settle_rows(t, first, from, LOG_ROWS, turn, total);
    if (from < rows) loss += settle_rows(t, first, from, rows - from, turn, total);
    return loss;
}

}  // namespace

#endif
