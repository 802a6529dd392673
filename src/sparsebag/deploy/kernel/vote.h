// From the summed votes of a row to its probabilities.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace sparsebag {

// What is done to the raw sums of a row: nothing (a part of a larger vote, or regression), or
// floor, normalisation and temperature.
struct Finish {
    bool vote = false;
    double floor = 0.0, inverse_temperature = 1.0, share = 0.0;

    void operator()(double *p, std::size_t n_classes) const {
        if (!vote) return;
        clip(p, n_classes);
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = (1.0 - floor) * p[c] + floor / static_cast<double>(n_classes);
            total += p[c];
        }
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
        if (inverse_temperature != 1.0) temper(p, n_classes);
        if (share == 0.0) return;
        const double uniform = share / static_cast<double>(n_classes);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] = (1.0 - share) * p[c] + uniform;
    }

  private:
    // Refined leaves may give a class less than nothing; votes that do not are left to the bit.
    void clip(double *p, std::size_t n_classes) const {
        bool below = false;
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) {
            if (p[c] < 0.0) {
                p[c] = 0.0;
                below = true;
            }
            total += p[c];
        }
        if (!below && total > 0.0) return;
        const double uniform = 1.0 / static_cast<double>(n_classes);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] = total > 0.0 ? p[c] / total : uniform;
    }

    void temper(double *p, std::size_t n_classes) const {
        double top = -std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < n_classes; ++c) {
            p[c] = std::log(p[c]) * inverse_temperature;
            top = std::max(top, p[c]);
        }
        double total = 0.0;
        for (std::size_t c = 0; c < n_classes; ++c) total += p[c] = std::exp(p[c] - top);
        for (std::size_t c = 0; c < n_classes; ++c) p[c] /= total;
    }
};

}  // namespace sparsebag
