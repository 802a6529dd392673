// A few rows of smooth_lines.h. Included once for every set of instructions, whose functions must
// all be compiled for it to be part of one another: no include guard.
#define SPARSEBAG_TILE_INLINE inline __attribute__((always_inline)) SPARSEBAG_TILE_TARGET
#define SPARSEBAG_ALL _Pragma("GCC unroll 16")

namespace sparsebag {
namespace SPARSEBAG_TILE {

SPARSEBAG_TILE_INLINE __m256d every(double x) { return _mm256_set1_pd(x); }
SPARSEBAG_TILE_INLINE __m256d load(const double *x) { return _mm256_loadu_pd(x); }
SPARSEBAG_TILE_INLINE __m256d fused(__m256d a, __m256d b, __m256d c) {
    return _mm256_fmadd_pd(a, b, c);
}
SPARSEBAG_TILE_INLINE double total(__m256d x) {
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// 2^t for -1000 <= t <= 0: n + f = t, |f| <= 1/2, the series of 2^f, whose rest is below 1e-14, by
// pairs (Estrin), since one chain of products would be waited for, and n added to the exponent.
SPARSEBAG_TILE_INLINE __m256d power_of_two(__m256d t) {
    const __m256d magic = every(6755399441055744.0);  // 1.5 * 2^52, as in fast_exp
    const __m256d shifted = _mm256_add_pd(t, magic);
    const __m256d f = _mm256_sub_pd(t, _mm256_sub_pd(shifted, magic));
    const __m256d f2 = _mm256_mul_pd(f, f), f4 = _mm256_mul_pd(f2, f2);
    const auto pair = [&](double a, double b) __attribute__((always_inline)) SPARSEBAG_TILE_TARGET {
        return fused(every(b), f, every(a));
    };
    // log(2)^i / i!
    const __m256d a = fused(pair(2.402265069591007e-01, 5.550410866482158e-02), f2,
                            pair(1.0, 6.931471805599453e-01));
    const __m256d b = fused(pair(1.540353039338161e-04, 1.525273380405984e-05), f2,
                            pair(9.618129107628477e-03, 1.333355814642844e-03));
    const __m256d c = fused(pair(7.054911620801123e-09, 4.445538271870812e-10), f2,
                            pair(1.321548679014431e-06, 1.017808600923970e-07));
    const __m256d p = fused(fused(c, f4, b), f4, a);
    const __m256i n = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), n));
}

// Adds four standardised features of R rows to their sums along RANK directions.
template <std::size_t R, std::size_t RANK>
SPARSEBAG_TILE_INLINE void add_features(const SmoothLines &of, std::size_t f, std::size_t width,
                                        __m256d (&x)[R], __m256d (&sums)[R][RANK]) {
    const __m256d mean = load(of.mean.data() + f), inverse = load(of.inverse_scale.data() + f);
    const __m256d most = every(of.clip), least = every(-of.clip), nothing = _mm256_setzero_pd();
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        x[i] = _mm256_cvtps_pd(_mm256_cvtpd_ps(x[i]));  // float32, as trees read it
        // What float32 does not reach is the mean, as in gate.h: x - x is zero for numbers alone.
        const __m256d known = _mm256_cmp_pd(_mm256_sub_pd(x[i], x[i]), nothing, _CMP_EQ_OQ);
        x[i] = _mm256_mul_pd(_mm256_sub_pd(x[i], mean), inverse);
        x[i] = _mm256_and_pd(known, _mm256_min_pd(_mm256_max_pd(x[i], least), most));
    }
    SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) {
        const __m256d slopes = load(of.down.data() + r * width + f);
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
            sums[i][r] = fused(x[i], slopes, sums[i][r]);
    }
}

// g of R rows, QUAD numbers each.
template <std::size_t R, std::size_t RANK>
SPARSEBAG_TILE_INLINE void sides(const SmoothLines &of, const double *x, std::int64_t stride,
                                 double *g) {
    const std::size_t d = of.n_features, width = quads(d) * QUAD;
    __m256d sums[R][RANK], part[R];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) sums[i][r] = _mm256_setzero_pd();
    std::size_t f = 0;
    for (; f + QUAD <= d; f += QUAD) {
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
            part[i] = load(x + static_cast<std::int64_t>(i) * stride + f);
        add_features<R, RANK>(of, f, width, part, sums);
    }
    if (f < d) {
        const std::size_t left = d - f;
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            const double *at = x + static_cast<std::int64_t>(i) * stride + f;
            part[i] = _mm256_setr_pd(at[0], left > 1 ? at[1] : 0.0, left > 2 ? at[2] : 0.0, 0.0);
        }
        add_features<R, RANK>(of, f, width, part, sums);
    }
    const __m256d none = _mm256_setzero_pd(), one = every(1.0), offset = load(of.offset);
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        // Four registers of partial sums to one of sums.
        const __m256d a = sums[i][0], b = RANK > 1 ? sums[i][RANK > 1 ? 1 : 0] : none;
        const __m256d c = RANK > 2 ? sums[i][RANK > 2 ? 2 : 0] : none;
        const __m256d e = RANK > 3 ? sums[i][RANK > 3 ? 3 : 0] : none;
        const __m256d ab = _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
        const __m256d ce = _mm256_add_pd(_mm256_unpacklo_pd(c, e), _mm256_unpackhi_pd(c, e));
        const __m256d h = _mm256_add_pd(_mm256_add_pd(_mm256_permute2f128_pd(ab, ce, 0x20),
                                                      _mm256_permute2f128_pd(ab, ce, 0x31)),
                                        offset);
        _mm256_storeu_pd(g + QUAD * i, _mm256_div_pd(h, _mm256_sqrt_pd(fused(h, h, one))));
    }
}

// What Q registers of members add to the sums of R rows, weighted votes and weights.
template <std::size_t R, std::size_t Q, std::size_t RANK>
SPARSEBAG_TILE_INLINE void add_members(const SmoothLines::Part &part, std::size_t d, const double *x,
                                       std::int64_t stride, const double *g, __m256d (&votes)[R],
                                       __m256d (&weights)[R]) {
    __m256d vote[R][Q];
    SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i)
            vote[i][q] = load(part.intercepts.data() + QUAD * q);
    const double *slopes = part.slopes.data();
    for (std::size_t f = 0; f < d; ++f, slopes += QUAD * Q)
        SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
            const __m256d at = every(x[static_cast<std::int64_t>(i) * stride + f]);
            SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q)
                vote[i][q] = fused(at, load(slopes + QUAD * q), vote[i][q]);
        }
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) {
        __m256d side[RANK];
        SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r) side[r] = every(g[QUAD * i + r]);
        SPARSEBAG_ALL for (std::size_t q = 0; q < Q; ++q) {
            __m256d logit = load(part.base.data() + QUAD * q);
            SPARSEBAG_ALL for (std::size_t r = 0; r < RANK; ++r)
                logit = fused(side[r], load(part.up.data() + QUAD * (r * Q + q)), logit);
            const __m256d weight = power_of_two(logit);
            weights[i] = _mm256_add_pd(weights[i], weight);
            votes[i] = fused(weight, vote[i][q], votes[i]);
        }
    }
}

template <std::size_t R, std::size_t RANK>
SPARSEBAG_TILE_INLINE void sum_rows(const SmoothLines &of, const double *x, std::int64_t stride,
                                    const double *g, double *out) {
    __m256d votes[R], weights[R];
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) votes[i] = weights[i] = _mm256_setzero_pd();
    for (const SmoothLines::Part &part : of.parts) {
        const std::size_t d = of.n_features;
        switch (part.n_quads) {
            case 1: add_members<R, 1, RANK>(part, d, x, stride, g, votes, weights); break;
            case 2: add_members<R, 2, RANK>(part, d, x, stride, g, votes, weights); break;
            case 3: add_members<R, 3, RANK>(part, d, x, stride, g, votes, weights); break;
            case 4: add_members<R, 4, RANK>(part, d, x, stride, g, votes, weights); break;
            case 5: add_members<R, 5, RANK>(part, d, x, stride, g, votes, weights); break;
            default: add_members<R, MOST_QUADS, RANK>(part, d, x, stride, g, votes, weights);
        }
    }
    SPARSEBAG_ALL for (std::size_t i = 0; i < R; ++i) out[i] = total(votes[i]) / total(weights[i]);
}

template <std::size_t RANK>
SPARSEBAG_TILE_INLINE void sum_tile_of(const SmoothLines &of, const double *x, std::int64_t stride,
                                       std::size_t n, double *out) {
    // As many rows at once as there are registers for their members.
    constexpr std::size_t R = SPARSEBAG_TILE_REGISTERS / 8;
    double g[TILE_ROWS * QUAD];
    std::size_t i = 0;
    for (; i + R <= n; i += R)
        sides<R, RANK>(of, x + static_cast<std::int64_t>(i) * stride, stride, g + QUAD * i);
    for (; i < n; ++i)
        sides<1, RANK>(of, x + static_cast<std::int64_t>(i) * stride, stride, g + QUAD * i);
    for (i = 0; i + R <= n; i += R)
        sum_rows<R, RANK>(of, x + static_cast<std::int64_t>(i) * stride, stride, g + QUAD * i,
                          out + i);
    for (; i < n; ++i)
        sum_rows<1, RANK>(of, x + static_cast<std::int64_t>(i) * stride, stride, g + QUAD * i,
                          out + i);
}

// At most TILE_ROWS rows.
SPARSEBAG_TILE_TARGET inline void sum_tile(const SmoothLines &of, const double *x,
                                           std::int64_t stride, std::size_t n, double *out) {
    switch (of.rank) {
        case 1: return sum_tile_of<1>(of, x, stride, n, out);
        case 2: return sum_tile_of<2>(of, x, stride, n, out);
        case 3: return sum_tile_of<3>(of, x, stride, n, out);
        default: return sum_tile_of<MOST_RANK>(of, x, stride, n, out);
    }
}

}  // namespace SPARSEBAG_TILE
}  // namespace sparsebag

#undef SPARSEBAG_TILE_INLINE
#undef SPARSEBAG_ALL
