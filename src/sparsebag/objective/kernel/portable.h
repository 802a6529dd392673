#ifndef SPARSEBAG_PORTABLE_H
#define SPARSEBAG_PORTABLE_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "products.h"
#include "row_terms.h"

namespace {

// Wherever there are no kernels of our own below: two plain products of a few rows.
struct Portable {
    static void run(const float *v, const std::uint8_t *m, const float *w, std::size_t rows,
                      std::size_t first, std::size_t c, const RowTerms &t, float *sums,
                      Totals &found) {
        Turn turn;
        // Votes in the bag may be anything, NaN included: a copy of these rows has zeros there.
        static thread_local std::vector<float> kept;
        static thread_local std::vector<std::uint8_t> in;
        // The products multiply by the mask's bytes, and a set one may be other than 1.
        static thread_local std::vector<std::uint8_t> all;
        if (t.has_mask) {
            in.resize(rows * c);
            std::uint8_t *to = in.data();  // a local: bytes written could be the vector's own
            for (std::size_t j = 0; j < rows * c; ++j) to[j] = m[j] != 0;
        } else {
            all.resize(rows * c, 1);
        }
        m = t.has_mask ? in.data() : all.data();
        if (t.has_mask && !t.is_zeroed) {
            kept.resize(rows * c);
            for (std::size_t j = 0; j < rows * c; ++j) kept[j] = m[j] ? v[j] : 0.0f;
            v = kept.data();
        }
        if (t.finds_prior()) {
            static thread_local std::vector<float> ones;
            ones.resize(c, 1.0f);
            forward_f32(v, m, ones.data(), rows, c, turn.sum, turn.count);
        }
        forward_f32(v, m, w, rows, c, turn.n, turn.d);
        settle(t, first, rows, turn, found);
        transposed_f32(v, m, turn.on_votes, turn.on_mask, rows, c, sums);
    }
};

}  // namespace

#endif
