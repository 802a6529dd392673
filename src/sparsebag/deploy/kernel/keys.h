// Keys: the numbers of a row as unsigned integers in the order of float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "nodes.h"

namespace sparsebag {

constexpr int LANES = 8;                         // rows whose keys lie side by side
constexpr std::size_t WORD = 64;                 // rows whose bits make one word
constexpr std::uint32_t INFINITE = 0x7f800000u;  // bits of float32's infinity; NaN is above
constexpr std::uint32_t LAST_KEY = 0xffffffffu;  // above every number: sends any walk left

// Adding 0 makes -0.0 and 0.0 one number.
inline std::uint32_t key_of(float x) {
    x += 0.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
}

inline std::uint32_t magnitude_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

// Rows as the caller has them; strides in numbers.
template <typename T>
struct Rows {
    const T *x;
    std::int64_t row_stride, column_stride;
    std::size_t n;

    const T *row(std::size_t i) const { return x + static_cast<std::int64_t>(i) * row_stride; }
    Rows part(std::size_t first, std::size_t count) const {
        return {row(first), row_stride, column_stride, count};
    }
};

// Keys of a block of rows, LANES rows interleaved: feature after feature, lane after lane. More
// than one row have room for whole words of them; past the last row keys are of no effect.
struct Keys {
    std::vector<std::uint32_t> values;
    std::size_t width = 0;

    void fit(std::size_t n_rows, std::size_t n_columns) {
        width = n_columns * LANES;
        const std::size_t groups = n_rows == 1 ? 1 : (n_rows + WORD - 1) / WORD * (WORD / LANES);
        const std::size_t needed = groups * width;
        if (values.size() < needed) values.resize(needed);
    }
    std::uint32_t *row(std::size_t i) { return values.data() + i / LANES * width + i % LANES; }
    const std::uint32_t *row(std::size_t i) const {
        return values.data() + i / LANES * width + i % LANES;
    }
};

// Keys of a block of rows; returns the largest magnitude of the numbers read.
template <typename T>
std::uint32_t make_keys(const Rows<T> &rows, const std::vector<std::uint32_t> &columns,
                        Keys &keys) {
    std::uint32_t largest[LANES] = {};
    for (std::size_t i = 0; i < rows.n; i += LANES) {
        const T *row[LANES];  // past the last row, the last row again
        UNROLLED for (int l = 0; l < LANES; ++l) row[l] = rows.row(std::min(i + l, rows.n - 1));
        std::uint32_t *out = keys.row(i);
        for (std::size_t f = 0; f < columns.size(); ++f, out += LANES) {
            const std::int64_t at = static_cast<std::int64_t>(columns[f]) * rows.column_stride;
            float value[LANES];
            UNROLLED for (int l = 0; l < LANES; ++l) value[l] = static_cast<float>(row[l][at]);
            for (int l = 0; l < LANES; ++l) {
                out[l] = key_of(value[l]);
                largest[l] = std::max(largest[l], magnitude_of(value[l]));
            }
        }
    }
    return *std::max_element(largest, largest + LANES);
}

// Keys of one row, where other lanes would be work for nothing.
template <typename T>
std::uint32_t make_row_keys(const Rows<T> &rows, const std::vector<std::uint32_t> &columns,
                            Keys &keys) {
    std::uint32_t largest = 0, *out = keys.row(0);
    for (const std::uint32_t column : columns) {
        const float value = static_cast<float>(rows.x[column * rows.column_stride]);
        *out = key_of(value);
        out += LANES;
        largest = std::max(largest, magnitude_of(value));
    }
    return largest;
}

// Keys of rows with missing values come twice: with NaN above every threshold (it goes right),
// then below (it goes left); nodes read the one they need. Returns whether a number is infinite.
template <typename T>
bool make_missing_keys(const Rows<T> &rows, const std::vector<std::uint32_t> &columns,
                       Keys &keys) {
    keys.fit(rows.n, 2 * columns.size());
    bool infinite = false;
    for (std::size_t i = 0; i < rows.n; ++i) {
        const T *row = rows.row(i);
        std::uint32_t *right = keys.row(i), *left = right + columns.size() * LANES;
        for (std::size_t f = 0; f < columns.size(); ++f) {
            const float value = static_cast<float>(
                row[static_cast<std::int64_t>(columns[f]) * rows.column_stride]);
            const bool missing = std::isnan(value);
            infinite |= std::isinf(value);
            right[f * LANES] = missing ? LAST_KEY : key_of(value);
            left[f * LANES] = missing ? 0 : key_of(value);
        }
    }
    return infinite;
}

}  // namespace sparsebag
