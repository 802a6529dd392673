// Linear regressors under a gate: sum_j w_j(x) (b_j + a_j x). Weights and votes of a few rows at a
// time, so that neither is ever written to memory for all rows.
//
// As in gate.h rows stand side by side, and each gets the same operations in the same order
// whatever its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compare.h"
#include "gate.h"
#include "keys.h"

namespace sparsebag {

// Slopes are of shape (n_features, n_members), as files hold them.
struct Lines {
    const double *slopes, *intercepts;
    std::size_t n_features, n_members;
};

constexpr std::size_t COLUMNS_AT_ONCE = 16;  // few enough that those of the rows stay in cache
// Columns `from` and on of a few rows, as float64, column after column.
template <typename T>
SPARSEBAG_INLINE void read_columns(const Rows<T> &rows, std::size_t n, std::size_t from,
                                   std::size_t count, double *RESTRICT to) {
    for (std::size_t c = 0; c < count; ++c) {
        const T *x = rows.x + static_cast<std::int64_t>(from + c) * rows.column_stride;
        for (std::size_t i = 0; i < n; ++i)
            to[c * GATE_ROWS + i] =
                static_cast<double>(x[static_cast<std::int64_t>(i) * rows.row_stride]);
    }
}

// Adds to n sums what one member says of as many rows from some of their columns.
SPARSEBAG_INLINE void add_member(std::size_t n, double start, const double *slopes,
                                 std::size_t n_members, std::size_t count,
                                 const double *RESTRICT x, const double *RESTRICT weight,
                                 double *RESTRICT vote, double *RESTRICT out) {
    constexpr std::size_t R = GATE_ROWS;
    for (std::size_t i = 0; i < n; ++i) vote[i] = start;
    std::size_t c = 0;
    for (; c + 4 <= count; c += 4, x += 4 * R) {  // a vote is read and written once for four
        const double s0 = slopes[c * n_members], s1 = slopes[(c + 1) * n_members];
        const double s2 = slopes[(c + 2) * n_members], s3 = slopes[(c + 3) * n_members];
        for (std::size_t i = 0; i < n; ++i)
            vote[i] = (((vote[i] + s0 * x[i]) + s1 * x[R + i]) + s2 * x[2 * R + i]) +
                      s3 * x[3 * R + i];
    }
    for (; c < count; ++c, x += R) {
        const double slope = slopes[c * n_members];
        for (std::size_t i = 0; i < n; ++i) vote[i] += slope * x[i];
    }
    for (std::size_t i = 0; i < n; ++i) out[i] += weight[i] * vote[i];
}

// n is at most GATE_ROWS, and known to the compiler where it is that. What a member says of a block
// of columns is weighed at once: votes are never held.
template <typename T>
SPARSEBAG_INLINE void weighted_block(const Rows<T> &rows, std::size_t n,
                                     const Lines &members, const double *w,
                                     std::size_t stride, double *RESTRICT out) {
    const std::size_t k = members.n_members, d = members.n_features;
    double x[COLUMNS_AT_ONCE * GATE_ROWS], vote[GATE_ROWS];
    for (std::size_t i = 0; i < n; ++i) out[i] = 0.0;
    for (std::size_t f = 0; f < d; f += COLUMNS_AT_ONCE) {
        const std::size_t count = d - f < COLUMNS_AT_ONCE ? d - f : COLUMNS_AT_ONCE;
        read_columns<T>(rows, n, f, count, x);
        for (std::size_t j = 0; j < k; ++j)
            add_member(n, f == 0 ? members.intercepts[j] : 0.0, members.slopes + f * k + j, k,
                       count, x, w + j * stride, vote, out);
    }
}

// At most GATE_ROWS rows, whose weights begin at `w`.
template <typename T>
SPARSEBAG_INLINE void weighted_lines(const Rows<T> &rows, const Lines &members,
                                     const double *w, std::size_t stride, double *out) {
    if (rows.n == GATE_ROWS) weighted_block<T>(rows, GATE_ROWS, members, w, stride, out);
    else weighted_block<T>(rows, rows.n, members, w, stride, out);
}

#if defined(SPARSEBAG_X86)
template <typename T>
__attribute__((target("avx2"))) void weighted_lines_avx2(const Rows<T> &rows,
                                                         const Lines &members,
                                                         const double *w, std::size_t stride,
                                                         double *out) {
    weighted_lines<T>(rows, members, w, stride, out);
}
#endif

// Whether all are numbers: x - x is zero for those alone. A sum is none where one of X is none,
// for no slope, not even zero, makes a number of NaN or infinity.
inline bool all_finite(const double *x, std::size_t n) {
    double unusual = 0.0;
    for (std::size_t i = 0; i < n; ++i) unusual += x[i] - x[i];
    return unusual == 0.0;
}

// All rows; false where a sum is not finite.
template <typename T>
bool gated_lines(const RowGate &gate, const Rows<T> &rows, const Lines &members, double *out) {
    thread_local RowWeights said;
    for (std::size_t first = 0; first < rows.n; first += GATE_ROWS) {
        const std::size_t left = rows.n - first;
        const Rows<T> part = rows.part(first, left < GATE_ROWS ? left : GATE_ROWS);
        gate.weigh<T>(part, said);
        const double *w = said.weights.data();
#if defined(SPARSEBAG_X86)
        const Instructions *chosen = chosen_instructions().load(std::memory_order_relaxed);
        if (chosen->compare == compare_avx2) {
            weighted_lines_avx2<T>(part, members, w, said.stride, out + first);
            continue;
        }
#endif
        weighted_lines<T>(part, members, w, said.stride, out + first);
    }
    return all_finite(out, rows.n);
}

}  // namespace sparsebag
