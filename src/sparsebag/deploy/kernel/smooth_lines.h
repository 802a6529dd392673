// Linear regressors under a smooth gate, all in registers: sum_j e_j(x) (b_j + a_j x) / sum_j e_j(x)
// with e = 2^(base + up g(down z)).
//
// Neither votes nor weights are ever written for all rows. A few rows are read as the caller has
// them, features and then members side by side in a register (smooth_lines_few.h); eight or more
// stand side by side themselves where registers hold as many numbers (smooth_lines_eight.h). Products and sums are
// fused here, and only here: it is a third of the time. Both take the same operations in the same
// order: a row gets the same bits alone and among others, but on a machine without fused
// instructions linear.h's, which differ in the last digits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compare.h"
#include "gate.h"
#include "keys.h"
#include "linear.h"

namespace sparsebag {

constexpr std::size_t QUAD = 4;        // numbers a register
constexpr std::size_t MOST_QUADS = 6;  // registers of members at once
constexpr std::size_t MOST_RANK = QUAD;
constexpr double MOST_SCALES = 64.0;  // a mean that costs two digits of sixteen
constexpr double LEAST_REACH = 1e-290, MOST_SLOPE = 1e290;  // products of which float64 has

inline std::size_t quads(std::size_t n) { return (n + QUAD - 1) / QUAD; }

// The members and the gate in the order in which they are read, padded to whole registers.
struct SmoothLines {
    bool fits = false;  // whether these sums are for this gate
    std::size_t n_features = 0, rank = 0;
    // Of every feature, in whole registers: its mean, what is subtracted from it, the ends that is held
    // between, and its slopes in the gate's directions, one direction after another. The scale is part
    // of ends and slopes. So is the mean of ends and offset, and nothing is subtracted, unless a mean
    // is so many scales that it would take the digits of all the rest.
    bool is_centred = false;
    std::vector<double> mean, origin, least, most, down;
    double offset[QUAD] = {};
    // MOST_QUADS registers of members after another; slopes: feature by feature, up: rank by rank.
    struct Part {
        std::size_t n_quads;
        std::vector<double> slopes, intercepts, up, base;
    };
    std::vector<Part> parts;

    std::size_t nbytes() const {
        std::size_t numbers = mean.size() + origin.size() + least.size() + most.size() + down.size();
        for (const Part &part : parts)
            numbers += part.slopes.size() + part.intercepts.size() + part.up.size() +
                       part.base.size();
        return numbers * sizeof(double);
    }

    // The gate's logits are powers of two, from a known end: no row's largest has to be found.
    SmoothLines(const SmoothGate &gate, std::size_t d, const double *slopes,
                const double *intercepts) {
        n_features = d;
        rank = gate.sums.rank;
        const std::size_t k = gate.n_members;
        if (!gate.ends_known || rank > MOST_RANK) return;
        fits = true;
        std::copy(gate.offset.begin(), gate.offset.end(), offset);
        const std::size_t width = quads(d) * QUAD;
        mean.assign(width, 0.0);
        origin.assign(width, 0.0);
        least.assign(width, 0.0);
        most.assign(width, 0.0);
        down.assign(rank * width, 0.0);
        const std::size_t n_columns = gate.sums.columns.size();
        for (std::size_t f = 0; f < n_columns; ++f)
            is_centred |= !(std::fabs(gate.sums.mean[f] * gate.sums.inverse_scale[f]) <= MOST_SCALES);
        for (std::size_t f = 0; f < n_columns; ++f) {
            const std::size_t at = gate.sums.columns[f];
            const double scale = gate.sums.inverse_scale[f], reach = gate.sums.clip / scale;
            mean[at] = gate.sums.mean[f];
            origin[at] = is_centred ? mean[at] : 0.0;
            const double middle = mean[at] - origin[at];
            least[at] = middle - reach;
            most[at] = middle + reach;
            // A spread so small that its inverse is no slope, or so large that it is none either.
            fits = fits && std::isfinite(most[at] - least[at]) && reach >= LEAST_REACH;
            for (std::size_t r = 0; r < rank; ++r) {
                const double slope = gate.sums.down[f * rank + r] * scale;
                down[r * width + at] = slope;
                offset[r] -= middle * slope;
                fits = fits && std::fabs(slope) <= MOST_SLOPE;
            }
        }
        if (!fits) return;
        for (std::size_t first = 0; first < k; first += MOST_QUADS * QUAD) {
            const std::size_t n = std::min(MOST_QUADS * QUAD, k - first), room = quads(n) * QUAD;
            Part part{quads(n), std::vector<double>(d * room), std::vector<double>(room),
                      std::vector<double>(rank * room), std::vector<double>(room, LEAST_POWER)};
            for (std::size_t j = 0; j < n; ++j) {
                for (std::size_t f = 0; f < d; ++f)
                    part.slopes[f * room + j] = slopes[f * k + first + j];
                part.intercepts[j] = intercepts[first + j];
                for (std::size_t r = 0; r < rank; ++r)
                    part.up[r * room + j] = gate.up[r * k + first + j];
                part.base[j] = gate.base[first + j];
            }
            parts.push_back(std::move(part));
        }
    }
};

}  // namespace sparsebag

#if defined(SPARSEBAG_X86)
#include "smooth_lines_eight.h"
#include "smooth_lines_few.h"
#endif

namespace sparsebag {

// All rows; false where a sum is not finite. Only where `lines.fits` and the machine has them.
template <typename T>
bool smooth_lines(const SmoothLines &lines, LineSums how, const Rows<T> &rows, double *out) {
#if defined(SPARSEBAG_X86)
    const std::size_t done = how == LineSums::eight ? eight::sum_rows<T>(lines, rows, out) : 0;
    few::sum_rows<T>(lines, rows.part(done, rows.n - done), out + done);
#endif
    return all_finite(out, rows.n);
}

}  // namespace sparsebag
