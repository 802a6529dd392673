// Linear regressors under a smooth gate, all in registers: sum_j e_j(x) (b_j + a_j x) / sum_j e_j(x)
// with e = 2^(base + up g(down z)).
//
// Members lie side by side, rows are read as the caller has them, and neither votes nor weights
// are ever written to memory. Products and sums are fused here, and only here: it is a third of the
// time. A row gets the same bits alone and among others, but on a machine without fused
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
constexpr std::size_t TILE_ROWS = 16;  // whose numbers stay in the first cache
constexpr std::size_t MOST_RANK = QUAD;

inline std::size_t quads(std::size_t n) { return (n + QUAD - 1) / QUAD; }

// The members and the gate in the order in which they are read, padded to whole registers.
struct SmoothLines {
    bool fits = false;  // whether these sums are for this gate
    std::size_t n_features = 0, rank = 0;
    double clip = 0.0;
    std::vector<double> mean, inverse_scale, down;  // of every feature; down: direction by direction
    double offset[QUAD] = {};
    // MOST_QUADS registers of members after another; slopes: feature by feature, up: rank by rank.
    struct Part {
        std::size_t n_quads;
        std::vector<double> slopes, intercepts, up, base;
    };
    std::vector<Part> parts;

    std::size_t nbytes() const {
        std::size_t numbers = mean.size() + inverse_scale.size() + down.size();
        for (const Part &part : parts)
            numbers += part.slopes.size() + part.intercepts.size() + part.up.size() +
                       part.base.size();
        return numbers * sizeof(double);
    }

    // Bounded sums alone: their logits lie between known ends, so no row's largest has to be found.
    SmoothLines(const SmoothGate &gate, std::size_t d, const double *slopes,
                const double *intercepts) {
        n_features = d;
        rank = gate.rank;
        clip = gate.clip;
        const std::size_t k = gate.n_members;
        if (gate.activation != Activation::softmax || gate.offset.empty() || rank > MOST_RANK) return;
        constexpr double LOG2_E = 1.44269504088896340736;
        double top = -INFINITY, least = INFINITY, least_top = -INFINITY;
        for (std::size_t j = 0; j < k; ++j) {
            double spread = 0.0;
            for (std::size_t r = 0; r < rank; ++r) spread += std::fabs(gate.up[r * k + j]);
            const double base = gate.base[j] * LOG2_E;
            spread *= LOG2_E;
            top = std::max(top, base + spread);
            least = std::min(least, base - spread);
            least_top = std::max(least_top, base - spread);
        }
        // Exponents of two that float64 has, and a sum far above what padding adds to it.
        constexpr double LEAST_LOGIT = -1000.0, LEAST_TOP = -500.0;
        if (!(least - top >= LEAST_LOGIT && least_top - top >= LEAST_TOP)) return;
        fits = true;
        std::copy(gate.offset.begin(), gate.offset.end(), offset);
        const std::size_t width = quads(d) * QUAD;
        mean.assign(width, 0.0);
        inverse_scale.assign(width, 0.0);
        down.assign(rank * width, 0.0);
        for (std::size_t f = 0; f < gate.columns.size(); ++f) {
            const std::size_t at = gate.columns[f];
            mean[at] = gate.mean[f];
            inverse_scale[at] = gate.inverse_scale[f];
            for (std::size_t r = 0; r < rank; ++r) down[r * width + at] = gate.down[f * rank + r];
        }
        for (std::size_t first = 0; first < k; first += MOST_QUADS * QUAD) {
            const std::size_t n = std::min(MOST_QUADS * QUAD, k - first), room = quads(n) * QUAD;
            Part part{quads(n), std::vector<double>(d * room), std::vector<double>(room),
                      std::vector<double>(rank * room), std::vector<double>(room, LEAST_LOGIT)};
            for (std::size_t j = 0; j < n; ++j) {
                for (std::size_t f = 0; f < d; ++f)
                    part.slopes[f * room + j] = slopes[f * k + first + j];
                part.intercepts[j] = intercepts[first + j];
                for (std::size_t r = 0; r < rank; ++r)
                    part.up[r * room + j] = gate.up[r * k + first + j] * LOG2_E;
                part.base[j] = gate.base[first + j] * LOG2_E - top;
            }
            parts.push_back(std::move(part));
        }
    }
};

}  // namespace sparsebag

#if defined(SPARSEBAG_X86)
#define SPARSEBAG_TILE fused16
#define SPARSEBAG_TILE_TARGET __attribute__((target("avx2,fma")))
#define SPARSEBAG_TILE_REGISTERS 16
#include "smooth_lines_tile.h"
#undef SPARSEBAG_TILE
#undef SPARSEBAG_TILE_TARGET
#undef SPARSEBAG_TILE_REGISTERS
#define SPARSEBAG_TILE fused32
#define SPARSEBAG_TILE_TARGET __attribute__((target("avx2,fma,avx512f,avx512vl")))
#define SPARSEBAG_TILE_REGISTERS 32
#include "smooth_lines_tile.h"
#undef SPARSEBAG_TILE
#undef SPARSEBAG_TILE_TARGET
#undef SPARSEBAG_TILE_REGISTERS
#endif

namespace sparsebag {

// Rows as float64 side by side: their own memory where it is that already.
inline const double *as_numbers(const Rows<double> &rows, std::size_t, std::vector<double> &) {
    return rows.column_stride == 1 ? rows.x : nullptr;
}
inline const double *as_numbers(const Rows<float> &, std::size_t, std::vector<double> &) {
    return nullptr;
}

// All rows; false where a sum is not finite. Only where `lines.fits` and the machine has them.
template <typename T>
bool smooth_lines(const SmoothLines &lines, LineSums how, const Rows<T> &rows, double *out) {
#if defined(SPARSEBAG_X86)
    thread_local std::vector<double> copy;
    const std::size_t d = lines.n_features;
    for (std::size_t first = 0; first < rows.n; first += TILE_ROWS) {
        const Rows<T> part = rows.part(first, std::min(TILE_ROWS, rows.n - first));
        const double *x = as_numbers(part, d, copy);
        std::int64_t stride = rows.row_stride;
        if (x == nullptr) {
            if (copy.size() < TILE_ROWS * d) copy.resize(TILE_ROWS * d);
            for (std::size_t i = 0; i < part.n; ++i)
                for (std::size_t f = 0; f < d; ++f)
                    copy[i * d + f] = static_cast<double>(
                        part.row(i)[static_cast<std::int64_t>(f) * rows.column_stride]);
            x = copy.data();
            stride = static_cast<std::int64_t>(d);
        }
        if (how == LineSums::fused32) fused32::sum_tile(lines, x, stride, part.n, out + first);
        else fused16::sum_tile(lines, x, stride, part.n, out + first);
    }
#endif
    return all_finite(out, rows.n);
}

}  // namespace sparsebag
