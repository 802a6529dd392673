// The gate: softmax of base + up g, as sparsebag.local.gate has it, in loops over rows side by side
// that compilers make vectors of.
//
// As in sums.h each row gets the same operations in the same order whatever its neighbours.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compare.h"
#include "keys.h"
#include "power.h"
#include "sums.h"

namespace sparsebag {

// The same loops with the instructions of the machine.
#if defined(SPARSEBAG_X86)
#define SPARSEBAG_WITH_AVX2(NAME, DECLARED, GIVEN)                                         \
    void NAME DECLARED const {                                                             \
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed); \
        if (chosen->compare == compare_avx2) NAME##_avx2 GIVEN;                            \
        else NAME##_here GIVEN;                                                            \
    }                                                                                      \
    __attribute__((target("avx2"))) void NAME##_avx2 DECLARED const { NAME##_here GIVEN; }
#else
#define SPARSEBAG_WITH_AVX2(NAME, DECLARED, GIVEN) \
    void NAME DECLARED const { NAME##_here GIVEN; }
#endif

// Inlined into a function of other instructions than the file's, where compilers ask to be told.
#if defined(__GNUC__)
#define INLINED_LAMBDA __attribute__((always_inline))
#else
#define INLINED_LAMBDA
#endif

// What a smooth gate has read of some rows: all that their weights hang on. Numbers of a direction
// side by side, those of the next one `stride` on.
struct Reading {
    std::vector<double> g, largest, room;
    std::size_t stride = 0;
};

struct SmoothGate {
    Sums sums;
    std::size_t n_members = 0;
    std::vector<double> up, base;  // up: n_members numbers a rank; both in powers of two
    std::vector<double> offset;    // of each direction
    // Bounded sums have logits between known ends: where those are not too far apart no row's largest
    // has to be found, and `base` is from the highest end.
    bool ends_known = false;

    std::size_t nbytes() const {
        return sums.nbytes() +
               (up.size() + base.size() + offset.size()) * sizeof(double);
    }

    // Logits are powers of two, from their highest end where every weight is a number that float64
    // has, and a sum of them far above its least ones.
    void scale_for_softmax() {
        for (double &x : up) x *= LOG2_E;
        for (double &x : base) x *= LOG2_E;
        double top = -INFINITY, least = INFINITY, least_top = -INFINITY;
        for (std::size_t j = 0; j < n_members; ++j) {
            double spread = 0.0;
            for (std::size_t r = 0; r < sums.rank; ++r)
                spread += std::fabs(up[r * n_members + j]);
            top = std::max(top, base[j] + spread);
            least = std::min(least, base[j] - spread);
            least_top = std::max(least_top, base[j] - spread);
        }
        ends_known = least - top > LEAST_POWER && least_top - top >= 0.5 * LEAST_POWER;
        if (!ends_known) return;
        for (double &x : base) x -= top;
    }

    template <typename T>
    void read(const Rows<T> &rows, Reading &to) const {
        const std::size_t rank = sums.rank, n = rows.n;
        to.stride = n;
        fit(to.g, rank * n);
        fit(to.largest, n);
        fit(to.room, sums.n_room() + rank * GATE_ROWS);
        double *h = to.room.data(), *room = h + rank * GATE_ROWS;
        if (n == 1) {
            sums.of_row<T>(rows.x, rows.column_stride, room, h, GATE_ROWS);
            return after_sums_here(h, 1, to.g.data(), 1, to.largest.data(), room);
        }
        for (std::size_t i = 0; i < n; i += GATE_ROWS) {
            const Rows<T> part = rows.part(i, std::min(GATE_ROWS, n - i));
            sums.of_rows<T>(part, room, h, GATE_ROWS);
            after_sums(h, part.n, to.g.data() + i, n, to.largest.data() + i, room);
        }
    }

    // Not normalised yet: weights of one member for the first n rows, which are
    // added to the rows' totals.
    SPARSEBAG_WITH_AVX2(weigh_member,
                        (std::size_t j, std::size_t n, const Reading &of, double *w,
                         double *totals),
                        (j, n, of, w, totals))

    // The same, and what the member's leaves say of the rows, so weighed, is added to sums: `number`
    // tells a row's leaf, and `leaves` their values.
    void vote_member(std::size_t j, std::size_t n, const Reading &of, const double *leaves,
                     const std::uint8_t *number, double *w, double *totals, double *sums) const {
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2 && ends_known && this->sums.rank <= MOST_SUMS) {
            const Logits logits{of.g.data(), of.stride, up.data() + j, n_members, base[j]};
            switch (this->sums.rank) {
                case 1: return vote_rows<1>(logits, n, leaves, number, totals, sums);
                case 2: return vote_rows<2>(logits, n, leaves, number, totals, sums);
                case 3: return vote_rows<3>(logits, n, leaves, number, totals, sums);
                default: return vote_rows<MOST_SUMS>(logits, n, leaves, number, totals, sums);
            }
        }
#endif
        weigh_member(j, n, of, w, totals);
        for (std::size_t i = 0; i < n; ++i) sums[i] += w[i] * leaves[number[i]];
    }

    // Of all members for one row; the same operations. Returns their total.
    double weigh_row(std::size_t row, const Reading &of, double *w) const {
        weigh_row_of(row, of, w);
        double total = 0.0;
        for (std::size_t j = 0; j < n_members; ++j) total += w[j];
        return total;
    }

    static void fit(std::vector<double> &room, std::size_t n) {
        if (room.size() < n) room.resize(n);
    }

  private:
    SPARSEBAG_INLINE static double bounded(double h) { return h / std::sqrt(1.0 + h * h); }

    // From the sums of at most GATE_ROWS rows to what weights need.
    SPARSEBAG_WITH_AVX2(after_sums,
                        (const double *h, std::size_t n, double *g, std::size_t stride,
                         double *largest, double *room),
                        (h, n, g, stride, largest, room))

    SPARSEBAG_INLINE void after_sums_here(const double *h, std::size_t n, double *g,
                                          std::size_t stride, double *RESTRICT largest,
                                          double *RESTRICT room) const {
        for (std::size_t r = 0; r < sums.rank; ++r) {
            const double *RESTRICT from = h + r * GATE_ROWS;
            double *RESTRICT to = g + r * stride;
            const double start = offset[r];
            for (std::size_t i = 0; i < n; ++i) to[i] = bounded(from[i] + start);
        }
        if (ends_known) return;
        for (std::size_t j = 0; j < n_members; ++j) {
            linear(g, stride, n, up.data() + j, n_members, base[j], room);
            for (std::size_t i = 0; i < n; ++i)
                largest[i] = j == 0 ? room[i] : at_least(room[i], largest[i]);
        }
    }

    // start + slopes . h of each row; slopes are `step` apart.
    SPARSEBAG_INLINE void linear(const double *h, std::size_t stride, std::size_t n,
                                 const double *slopes, std::size_t step, double start,
                                 double *RESTRICT to) const {
        for (std::size_t i = 0; i < n; ++i) to[i] = start;
        for (std::size_t r = 0; r < sums.rank; ++r) {
            const double *RESTRICT from = h + r * stride, slope = slopes[r * step];
            for (std::size_t i = 0; i < n; ++i) to[i] += slope * from[i];
        }
    }

    SPARSEBAG_INLINE void weigh_member_here(std::size_t j, std::size_t n, const Reading &of,
                                            double *w, double *totals) const {
        switch (sums.rank) {
            case 1: return weigh_of_rank<1>(j, n, of, w, totals);
            case 2: return weigh_of_rank<2>(j, n, of, w, totals);
            case 3: return weigh_of_rank<3>(j, n, of, w, totals);
            default: break;
        }
        linear(of.g.data(), of.stride, n, up.data() + j, n_members, base[j], w);
        to_weights(n, of.largest.data(), w, totals);
    }

    // A logit is read and written once.
    template <std::size_t RANK>
    SPARSEBAG_INLINE void weigh_of_rank(std::size_t j, std::size_t n, const Reading &of,
                                        double *RESTRICT w, double *RESTRICT totals) const {
        const double *RESTRICT g = of.g.data(), start = base[j];
        const std::size_t stride = of.stride;
        double slopes[RANK];
        for (std::size_t r = 0; r < RANK; ++r) slopes[r] = up[r * n_members + j];
        const auto logit = [&](std::size_t i) INLINED_LAMBDA {
            double t = start;
            UNROLLED for (std::size_t r = 0; r < RANK; ++r) t += slopes[r] * g[r * stride + i];
            return t;
        };
        if (ends_known) {
            for (std::size_t i = 0; i < n; ++i) {
                w[i] = power_of_two(logit(i));
                totals[i] += w[i];
            }
            return;
        }
        for (std::size_t i = 0; i < n; ++i) w[i] = logit(i);
        to_weights(n, of.largest.data(), w, totals);
    }

    SPARSEBAG_INLINE void to_weights(std::size_t n, const double *RESTRICT largest,
                                     double *RESTRICT w, double *RESTRICT totals) const {
        if (!ends_known)
            for (std::size_t i = 0; i < n; ++i) w[i] = at_least(w[i] - largest[i], LEAST_POWER);
        for (std::size_t i = 0; i < n; ++i) {
            w[i] = power_of_two(w[i]);
            totals[i] += w[i];
        }
    }

#if defined(SPARSEBAG_X86)
    // One member's, of the rows that were read.
    struct Logits {
        const double *g;
        std::size_t stride;
        const double *slopes;
        std::size_t step;
        double start;
    };

    // The same operations as above. Registers by twos, for one would wait for its own sums.
    template <std::size_t RANK>
    __attribute__((target("avx2"))) static void vote_rows(const Logits &of, std::size_t n,
                                                          const double *leaves,
                                                          const std::uint8_t *number,
                                                          double *totals, double *sums) {
        constexpr std::size_t R = 2, QUAD = 4;
        std::size_t i = 0;
        for (; i + R * QUAD <= n; i += R * QUAD) {
            __m256d t[R];
            UNROLLED for (std::size_t q = 0; q < R; ++q) t[q] = _mm256_set1_pd(of.start);
            UNROLLED for (std::size_t r = 0; r < RANK; ++r) {
                const __m256d slope = _mm256_set1_pd(of.slopes[r * of.step]);
                const double *g = of.g + r * of.stride + i;
                UNROLLED for (std::size_t q = 0; q < R; ++q)
                    t[q] = _mm256_add_pd(
                        t[q], _mm256_mul_pd(slope, _mm256_loadu_pd(g + QUAD * q)));
            }
            powers_of_two<R>(t);
            UNROLLED for (std::size_t q = 0; q < R; ++q) {
                const std::uint8_t *at = number + i + QUAD * q;
                double *total = totals + i + QUAD * q, *sum = sums + i + QUAD * q;
                const __m256d leaf =
                    _mm256_setr_pd(leaves[at[0]], leaves[at[1]], leaves[at[2]], leaves[at[3]]);
                _mm256_storeu_pd(total, _mm256_add_pd(_mm256_loadu_pd(total), t[q]));
                _mm256_storeu_pd(sum,
                                 _mm256_add_pd(_mm256_loadu_pd(sum), _mm256_mul_pd(t[q], leaf)));
            }
        }
        for (; i < n; ++i) {
            double t = of.start;
            for (std::size_t r = 0; r < RANK; ++r)
                t += of.slopes[r * of.step] * of.g[r * of.stride + i];
            const double w = power_of_two(t);
            totals[i] += w;
            sums[i] += w * leaves[number[i]];
        }
    }
#endif

    SPARSEBAG_WITH_AVX2(weigh_row_of, (std::size_t row, const Reading &of, double *w),
                        (row, of, w))

    SPARSEBAG_INLINE void weigh_row_of_here(std::size_t row, const Reading &of,
                                            double *RESTRICT w) const {
        const std::size_t k = n_members;
        for (std::size_t j = 0; j < k; ++j) w[j] = base[j];
        for (std::size_t r = 0; r < sums.rank; ++r) {
            const double *RESTRICT slopes = up.data() + r * k, at = of.g[r * of.stride + row];
            for (std::size_t j = 0; j < k; ++j) w[j] += slopes[j] * at;
        }
        if (!ends_known)
            for (std::size_t j = 0; j < k; ++j)
                w[j] = at_least(w[j] - of.largest[row], LEAST_POWER);
        for (std::size_t j = 0; j < k; ++j) w[j] = power_of_two(w[j]);
    }
};

}  // namespace sparsebag
