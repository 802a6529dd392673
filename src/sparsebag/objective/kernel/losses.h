// What turns rows' products into losses and slopes. Plain loops without branches, which compile to
// vectors of whatever instructions they are inlined into.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(_MSC_VER)
#define INLINE __forceinline
#else
#define INLINE inline __attribute__((always_inline))
#endif

namespace sparsebag {

INLINE std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof x);
    return bits;
}

// Natural logarithm of a positive number that is not subnormal, in operations that compile to
// vectors: with x = 2^e m and m between √½ and √2, log m = 2 atanh(s) where s = (m - 1) / (m + 1).
// What its series has beyond s^21 is less than a double's last digit.
INLINE double logarithm(double x) {
    constexpr std::uint64_t ROOT_HALF = 0x3fe6a09e667f3bcd, ONE = 0x3ff0000000000000;
    constexpr std::uint64_t FRACTION = 0x000fffffffffffff, TWO_TO_52 = 0x4330000000000000;
    const std::uint64_t bits = bits_of(x) + (ONE - ROOT_HALF);
    // A small integer in the last digits of 2^52 is a double without being converted.
    const std::uint64_t power = (bits >> 52) | TWO_TO_52, fraction = (bits & FRACTION) + ROOT_HALF;
    double e, m;
    std::memcpy(&e, &power, sizeof e);
    std::memcpy(&m, &fraction, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double series = 2.0 / 21.0;
    series = series * z + 2.0 / 19.0;
    series = series * z + 2.0 / 17.0;
    series = series * z + 2.0 / 15.0;
    series = series * z + 2.0 / 13.0;
    series = series * z + 2.0 / 11.0;
    series = series * z + 2.0 / 9.0;
    series = series * z + 2.0 / 7.0;
    series = series * z + 2.0 / 5.0;
    series = series * z + 2.0 / 3.0;
    constexpr double BIAS = 4503599627370496.0 + 1023.0, LOG_TWO = 0.69314718055994530942;
    return (e - BIAS) * LOG_TWO + (2.0 * s + s * z * series);
}

// Σ w log x. Of equal weights, the usual case, several numbers are multiplied before a logarithm is
// taken, sixteen logarithms together: one for every few rows is a chain of steps behind which the
// processor has no room left for what could be done meanwhile.
class LogSum {
  public:
    static constexpr std::size_t N = 16;  // most numbers at a time

    LogSum() {
        for (double &x : product) x = 1.0;
    }

    INLINE void add(const double *x, const double *weight, std::size_t n) {
        const std::uint64_t first = bits_of(weight[0]);
        std::uint64_t unlike = 0;
        for (std::size_t i = 0; i < n; ++i) unlike |= bits_of(weight[i]) ^ first;
        if (unlike || !are_within(x, n, LEAST_FACTOR, MOST_FACTOR)) {
            add_each(x, weight, n);
            return;
        }
        if (weight[0] != shared_weight) {
            if (n_factors > 0) take();
            shared_weight = weight[0];
        }
        for (std::size_t i = 0; i < n; ++i) product[i] *= x[i];
        if (++n_factors == MOST_FACTORS) take();
    }

    INLINE double total() {
        if (n_factors > 0) take();
        return sum;
    }

  private:
    // A double holds the product of so many numbers within these bounds.
    static constexpr std::size_t MOST_FACTORS = 8;
    static constexpr double LEAST_FACTOR = 1e-30, MOST_FACTOR = 1e30;

    // Without weight even a vote of zero, which has no logarithm, adds nothing.
    INLINE void add_each(const double *x, const double *weight, std::size_t n) {
        using Limits = std::numeric_limits<double>;
        double term[N];
        if (are_within(x, n, Limits::min(), Limits::max()))
            for (std::size_t i = 0; i < n; ++i) term[i] = weight[i] * logarithm(x[i]);
        else
            for (std::size_t i = 0; i < n; ++i)
                term[i] = weight[i] == 0.0 ? 0.0 : weight[i] * std::log(x[i]);
        for (std::size_t i = 0; i < n; ++i) sum += term[i];
    }

    // Positive doubles are in the order of their bits, as integers, which compile to vectors.
    INLINE static bool are_within(const double *x, std::size_t n, double least, double most) {
        const std::uint64_t low = bits_of(least), high = bits_of(most);
        std::uint64_t outside = 0;
        for (std::size_t i = 0; i < n; ++i)
            outside |= (bits_of(x[i]) - low) | (high - bits_of(x[i]));
        return outside >> 63 == 0;
    }

    INLINE void take() {
        double term[N];
        for (std::size_t i = 0; i < N; ++i) term[i] = shared_weight * logarithm(product[i]);
        for (std::size_t i = 0; i < N; ++i) sum += term[i];
        for (std::size_t i = 0; i < N; ++i) product[i] = 1.0;
        n_factors = 0;
    }

    double sum = 0.0, shared_weight = 0.0, product[N];
    std::size_t n_factors = 0;
};

// What is known of rows beside their votes. `losses.py` has the slopes.
struct RowTerms {
    const double *prior, *target, *row_weight;
    double prior_mass, least_denominator, least_vote, kept_share, floor, multiplicity;
    bool log_loss, is_zeroed;
    // Without a mask every member votes on every row, and the denominator is the same for all.
    bool has_mask = true;
    double denominator = 0.0;
};

// What rows hold of the members that have them in the bag: anything, zeros, or there is no mask and
// no such member.
enum class InBag { ANYTHING, ZEROS, NOBODY };

constexpr std::size_t SETTLED_ROWS = LogSum::N;  // most whose losses are found together
constexpr std::size_t MOST_ROWS = 64;     // voted on, then differentiated, from the cache
constexpr std::size_t SHORT_ROW = 400;    // members below which a turn stays in the first cache
constexpr std::size_t MEDIUM_ROW = 2048;  // members up to which the second one holds a large turn
constexpr std::size_t LONG_ROW = 4096;    // members whose weights take half the first cache
constexpr std::size_t SUMMED_MEMBERS = 256;  // before a new sum: equal weights round the same way
constexpr std::size_t FLUSH_ROWS = 64;  // rows summed in single precision before doubles take over

// Sums over some rows, to which each of them adds; `logs` are still to be taken from the loss.
struct Totals {
    double loss = 0.0;
    LogSum logs;
};

// Of a turn's rows: the weighted sum of a row's votes, that of the weights, and the slopes in both.
struct Turn {
    double n[MOST_ROWS], d[MOST_ROWS];
    float on_votes[MOST_ROWS], on_mask[MOST_ROWS];
};

// Changes no sum but zero, and one over it is finite: of rows without weight nothing must be left,
// whatever their votes.
constexpr double TINIEST = 1e-290;

// Losses of a few rows, from their products, and the slopes in them. With N = n + τ u, D = d + τ,
// q = N / D and p = (1 - ε) q + ε / C, the logarithm's slope is -1 / (p D): as a fraction of its own
// it need not wait for p.
template <bool LOG_LOSS>
INLINE void losses_of_rows(const RowTerms &t, std::size_t first, std::size_t rows, const double *n,
                           const double *d, float *on_votes, float *on_mask, Totals &found) {
    double p[SETTLED_ROWS], w[SETTLED_ROWS];
    float a[SETTLED_ROWS], b[SETTLED_ROWS];  // what is stored elsewhere could be t's own
    const double *prior = t.prior + first, *weight = t.row_weight + first;
    const double *target = t.target + first;
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
        a[r] = static_cast<float>(slope);
        b[r] = static_cast<float>(-slope * q);
    }
    std::memcpy(on_votes, a, rows * sizeof(float));
    std::memcpy(on_mask, b, rows * sizeof(float));
    if constexpr (LOG_LOSS) {
        found.logs.add(p, w, rows);
    } else {
        for (std::size_t r = 0; r < rows; ++r) p[r] = w[r] * (p[r] - target[r]) * (p[r] - target[r]);
        for (std::size_t r = 0; r < rows; ++r) found.loss += p[r];
    }
}

INLINE void settle_rows(const RowTerms &t, std::size_t first, std::size_t from, std::size_t rows,
                        Turn &turn, Totals &found) {
    const double *n = turn.n + from, *d = turn.d + from;
    float *a = turn.on_votes + from, *b = turn.on_mask + from;
    if (t.log_loss) losses_of_rows<true>(t, first + from, rows, n, d, a, b, found);
    else losses_of_rows<false>(t, first + from, rows, n, d, a, b, found);
}

// Losses and slopes of a turn, of numbers of rows that the compiler knows: loops over so few are
// otherwise half preparation.
INLINE void settle(const RowTerms &t, std::size_t first, std::size_t rows, Turn &turn,
                   Totals &found) {
    if (!t.has_mask)
        for (std::size_t r = 0; r < rows; ++r) turn.d[r] = t.denominator;
    std::size_t from = 0;
    for (; from + SETTLED_ROWS <= rows; from += SETTLED_ROWS)
        settle_rows(t, first, from, SETTLED_ROWS, turn, found);
    if (from + SETTLED_ROWS / 2 <= rows) {
        settle_rows(t, first, from, SETTLED_ROWS / 2, turn, found);
        from += SETTLED_ROWS / 2;
    }
    if (from < rows) settle_rows(t, first, from, rows - from, turn, found);
}

}  // namespace sparsebag
