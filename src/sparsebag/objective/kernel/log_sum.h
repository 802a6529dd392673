// Sums of weighted logarithms: a call of the library's for every row would take as long as reading a
// short one.
#ifndef SPARSEBAG_LOG_SUM_H
#define SPARSEBAG_LOG_SUM_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "products.h"

namespace {

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

}  // namespace

#endif
