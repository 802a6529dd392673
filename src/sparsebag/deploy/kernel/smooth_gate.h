// The smooth gate: softmax or sparsemax of base + up g, what sparsebag.refine.gate says, in loops
// over rows side by side that compilers make vectors of.
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

enum class Activation { softmax, sparsemax };

// What a smooth gate has read of some rows: all that their weights hang on. Numbers of a direction
// side by side, those of the next one `stride` on.
struct Reading {
    std::vector<double> g, largest, inverse_temperatures, room;
    std::size_t stride = 0;
};

struct SmoothGate {
    Sums sums;
    std::size_t n_members = 0;
    Activation activation = Activation::softmax;
    double log_least = 0.0, log_most = 0.0;
    std::vector<double> up, base;         // up: n_members numbers a rank; in powers of two if softmax
    std::vector<double> log_temperature;  // empty, or of the temperature at the mean and its slopes
    std::vector<double> offset;           // empty: the weights read h itself
    // Bounded sums have logits between known ends: where those are not too far apart no row's largest
    // has to be found, and `base` is from the highest end.
    bool ends_known = false;

    std::size_t nbytes() const {
        return sums.nbytes() +
               (up.size() + base.size() + log_temperature.size() + offset.size()) * sizeof(double);
    }

    // Logits are powers of two, from their highest end where every weight is a number that float64
    // has, and a sum of them far above its least ones.
    void scale_for_softmax() {
        for (double &x : up) x *= LOG2_E;
        for (double &x : base) x *= LOG2_E;
        if (offset.empty()) return;
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
        fit(to.inverse_temperatures, n);
        fit(to.room, sums.n_room() + rank * GATE_ROWS);
        double *h = to.room.data(), *room = h + rank * GATE_ROWS;
        if (n == 1) {
            sums.of_row<T>(rows.x, rows.column_stride, room, h, GATE_ROWS);
            return after_sums_here(h, 1, to.g.data(), 1, to.largest.data(),
                                   to.inverse_temperatures.data(), room);
        }
        for (std::size_t i = 0; i < n; i += GATE_ROWS) {
            const Rows<T> part = rows.part(i, std::min(GATE_ROWS, n - i));
            sums.of_rows<T>(part, room, h, GATE_ROWS);
            after_sums(h, part.n, to.g.data() + i, n, to.largest.data() + i,
                       to.inverse_temperatures.data() + i, room);
        }
    }

    // Of the softmax, not normalised yet: weights of one member for the first n rows, which are
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

    // Sparsemax of all rows: weights of the j-th member begin at w[j * stride].
    void sparsemax(std::size_t n, const Reading &of, double *w, std::size_t stride,
                   std::vector<double> &room) const {
        fit(room, std::max(3 * GATE_ROWS, n_members));
        for (std::size_t i = 0; i < n; i += GATE_ROWS)
            project(i, std::min(GATE_ROWS, n - i), of, w + i, stride, room.data());
    }

    static void fit(std::vector<double> &room, std::size_t n) {
        if (room.size() < n) room.resize(n);
    }

  private:
    SPARSEBAG_INLINE static double bounded(double h) { return h / std::sqrt(1.0 + h * h); }

    // From the sums of at most GATE_ROWS rows to what weights and temperature need.
    SPARSEBAG_WITH_AVX2(after_sums,
                        (const double *h, std::size_t n, double *g, std::size_t stride,
                         double *largest, double *inverse_temperature, double *room),
                        (h, n, g, stride, largest, inverse_temperature, room))

    SPARSEBAG_INLINE void after_sums_here(const double *h, std::size_t n, double *g,
                                          std::size_t stride, double *RESTRICT largest,
                                          double *RESTRICT inverse_temperature,
                                          double *RESTRICT room) const {
        for (std::size_t r = 0; r < sums.rank; ++r) {
            const double *RESTRICT from = h + r * GATE_ROWS;
            double *RESTRICT to = g + r * stride;
            if (offset.empty()) {
                for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
            } else {
                const double start = offset[r];
                for (std::size_t i = 0; i < n; ++i) to[i] = bounded(from[i] + start);
            }
        }
        if (!ends_known && activation == Activation::softmax)
            for (std::size_t j = 0; j < n_members; ++j) {
                linear(g, stride, n, up.data() + j, n_members, base[j], room);
                for (std::size_t i = 0; i < n; ++i)
                    largest[i] = j == 0 ? room[i] : at_least(room[i], largest[i]);
            }
        if (log_temperature.empty()) return;
        linear(h, GATE_ROWS, n, log_temperature.data() + 1, 1, log_temperature[0], room);
        for (std::size_t i = 0; i < n; ++i)
            inverse_temperature[i] =
                power_of_two(-LOG2_E * at_most(at_least(room[i], log_least), log_most));
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

    // The threshold of the projection on the simplex by Michelot's rounds (1986): of the logits
    // above it, again and again, until none falls below. A row that is done stays as it is. At most
    // GATE_ROWS rows.
    void project(std::size_t first, std::size_t n, const Reading &of, double *w,
                 std::size_t stride, double *room) const {
        std::size_t done = 0;
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2)
            for (; done + EIGHT_ROWS <= n; done += EIGHT_ROWS)
                project_eight(of.g.data() + first + done, of.stride, w + done, stride);
#endif
        if (n - done == 1)
            project_row(of.g.data() + first + done, of.stride, w + done, stride, room);
        else
            project_here(first + done, n - done, of, w + done, stride, room);
    }

    // The same for one row, whose logits above the threshold move together at the front of the
    // room, in their order: sums are those of project_here, which adds zeros for the others.
    void project_row(const double *g, std::size_t g_stride, double *w, std::size_t stride,
                     double *room) const {
        double largest = 0.0;
        for (std::size_t j = 0; j < n_members; ++j) {
            double t = base[j];
            for (std::size_t r = 0; r < sums.rank; ++r)
                t += up[r * n_members + j] * g[r * g_stride];
            w[j * stride] = t;
            largest = j == 0 ? t : at_least(t, largest);
        }
        double tau = -1.0;
        std::size_t n_above = 0;
        for (std::size_t j = 0; j < n_members; ++j) {
            const double x = w[j * stride] -= largest;
            room[n_above] = x;
            n_above += x > tau;
        }
        for (std::size_t round = 0; round <= n_members; ++round) {
            double sum = -1.0;
            std::size_t count = 0;
            for (std::size_t a = 0; a < n_above; ++a) {
                const double x = room[a];
                if (!(x > tau)) continue;
                sum += x;
                room[count++] = x;
            }
            n_above = count;
            const double next = sum / static_cast<double>(count);
            const bool rising = next > tau;
            tau = at_least(next, tau);
            if (!rising) break;
        }
        for (std::size_t j = 0; j < n_members; ++j)
            w[j * stride] = at_least(w[j * stride] - tau, 0.0);
    }

#if defined(SPARSEBAG_X86)
    static constexpr std::size_t EIGHT_ROWS = 8;

    // What project_here does, with what is known of the rows in registers.
    __attribute__((target("avx2"))) void project_eight(const double *g, std::size_t g_stride,
                                                       double *w, std::size_t stride) const {
        constexpr std::size_t R = 2, QUAD = 4;
        const __m256d zero = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0);
        __m256d largest[R], tau[R], sum[R], count[R];
        for (std::size_t j = 0; j < n_members; ++j)
            UNROLLED for (std::size_t q = 0; q < R; ++q) {
                __m256d t = _mm256_set1_pd(base[j]);
                for (std::size_t r = 0; r < sums.rank; ++r)
                    t = _mm256_add_pd(t, _mm256_mul_pd(_mm256_set1_pd(up[r * n_members + j]),
                                                       _mm256_loadu_pd(g + r * g_stride + QUAD * q)));
                _mm256_storeu_pd(w + j * stride + QUAD * q, t);
                largest[q] = j == 0 ? t : _mm256_max_pd(t, largest[q]);
            }
        UNROLLED for (std::size_t q = 0; q < R; ++q) tau[q] = _mm256_set1_pd(-1.0);
        for (std::size_t round = 0; round <= n_members; ++round) {
            UNROLLED for (std::size_t q = 0; q < R; ++q) {
                sum[q] = _mm256_set1_pd(-1.0);
                count[q] = zero;
            }
            for (std::size_t j = 0; j < n_members; ++j)
                UNROLLED for (std::size_t q = 0; q < R; ++q) {
                    double *at = w + j * stride + QUAD * q;
                    __m256d x = _mm256_loadu_pd(at);
                    if (round == 0) _mm256_storeu_pd(at, x = _mm256_sub_pd(x, largest[q]));
                    const __m256d above = _mm256_cmp_pd(x, tau[q], _CMP_GT_OQ);
                    sum[q] = _mm256_add_pd(sum[q], _mm256_and_pd(above, x));
                    count[q] = _mm256_add_pd(count[q], _mm256_and_pd(above, one));
                }
            int rising = 0;
            UNROLLED for (std::size_t q = 0; q < R; ++q) {
                const __m256d next = _mm256_div_pd(sum[q], count[q]);
                rising |= _mm256_movemask_pd(_mm256_cmp_pd(next, tau[q], _CMP_GT_OQ));
                tau[q] = _mm256_max_pd(next, tau[q]);
            }
            if (rising == 0) break;
        }
        for (std::size_t j = 0; j < n_members; ++j)
            UNROLLED for (std::size_t q = 0; q < R; ++q) {
                double *to = w + j * stride + QUAD * q;
                _mm256_storeu_pd(
                    to, _mm256_max_pd(_mm256_sub_pd(_mm256_loadu_pd(to), tau[q]), zero));
            }
    }
#endif

    void project_here(std::size_t first, std::size_t n, const Reading &of, double *w,
                      std::size_t stride, double *room) const {
        double *RESTRICT tau = room, *RESTRICT sum = tau + GATE_ROWS;
        double *RESTRICT count = sum + GATE_ROWS;
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT to = w + j * stride;
            linear(of.g.data() + first, of.stride, n, up.data() + j, n_members, base[j], to);
            for (std::size_t i = 0; i < n; ++i) tau[i] = j == 0 ? to[i] : at_least(to[i], tau[i]);
        }
        // Only differences matter: the largest becomes zero.
        for (std::size_t j = 0; j < n_members; ++j) {
            double *RESTRICT to = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) to[i] -= tau[i];
        }
        for (std::size_t i = 0; i < n; ++i) tau[i] = -1.0;  // none below has a weight
        for (std::size_t round = 0; round <= n_members; ++round) {
            for (std::size_t i = 0; i < n; ++i) sum[i] = -1.0;
            for (std::size_t i = 0; i < n; ++i) count[i] = 0.0;
            for (std::size_t j = 0; j < n_members; ++j) {
                const double *RESTRICT from = w + j * stride;
                for (std::size_t i = 0; i < n; ++i) {
                    const bool above = from[i] > tau[i];
                    sum[i] += above ? from[i] : 0.0;
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
            double *RESTRICT to = w + j * stride;
            for (std::size_t i = 0; i < n; ++i) to[i] = at_least(to[i] - tau[i], 0.0);
        }
    }
};

}  // namespace sparsebag
