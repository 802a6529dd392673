// Sums over rows × trees: routing rows to leaves, adding up what falls into them, cutting subtrees
// and refitting the leaves that are left.
//
// Trees lie one after the other in flat arrays, children after their parents, so that one pass
// forwards goes from the roots down and one pass backwards from the leaves up. Every sum is taken
// in the order of the rows by one thread: results do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#include "../objective/kernel/module.h"
#include "../objective/kernel/threads.h"

namespace {

using namespace sparsebag;

constexpr std::size_t SIDE_BY_SIDE = 32;  // rows walked at once, so that memory is read ahead

// Indices from low up to, but not, high.
void check_nodes(const std::int32_t *at, std::size_t n, std::size_t low, std::size_t high) {
    const auto first = static_cast<std::uint32_t>(low), last = static_cast<std::uint32_t>(high) - 1;
    std::uint32_t signs = 0;  // the first bit of what is negative is set; no branches, so vectorised
    for (std::size_t i = 0; i < n; ++i) {
        const auto node = static_cast<std::uint32_t>(at[i]);
        signs |= (node - first) | (last - node);
    }
    check(signs >> 31 == 0, "a row lies in a node that its tree does not have");
}

void check_offset(In<std::int64_t, 1> offset, std::size_t n_nodes) {
    const std::int64_t *o = offset.data();
    const std::size_t n = offset.size();
    check(n >= 2 && o[0] == 0 && o[n - 1] == static_cast<std::int64_t>(n_nodes) &&
              std::adjacent_find(o, o + n, std::greater_equal<>()) == o + n,
          "the trees' offsets do not fit their nodes");
}

// Adds each row's weight to its leaf of each tree.
std::vector<double> mass_of(In<std::int32_t, 2> leaf, In<double, 1> weight,
                            In<std::int64_t, 1> offset, std::size_t n_nodes) {
    const std::size_t n = leaf.shape(1);
    check(weight.size() == n && offset.size() == leaf.shape(0) + 1,
          "rows and leaves do not fit together");
    check_offset(offset, n_nodes);
    std::vector<double> mass(n_nodes);
    for (std::size_t t = 0; t < leaf.shape(0); ++t) {
        const std::int32_t *at = leaf.data() + t * n;
        check_nodes(at, n, offset.data()[t], offset.data()[t + 1]);
        for (std::size_t i = 0; i < n; ++i) mass[at[i]] += weight.data()[i];
    }
    return mass;
}

// Children after their parents, before the end: a walk ends.
void check_children(std::int64_t l, std::int64_t r, std::int64_t parent, std::int64_t end) {
    check(l > parent && r > parent && l < end && r < end, "a node leads nowhere");
}

template <typename F>
void each(std::size_t n, int n_threads, F &&work) {
    const std::size_t most = std::min<std::size_t>(n, 1024);
    const std::size_t threads = n_threads < 1 ? 1 : std::min<std::size_t>(n_threads, most);
    share(n, threads, [&](std::size_t part, std::size_t) { work(part); });
}

struct Node {
    float threshold;  // rounded down: the same rows are not above it
    std::int32_t feature;
    std::int32_t child[2];
};

float rounded_down(double x) {
    const auto y = static_cast<float>(x);
    return static_cast<double>(y) > x ? std::nextafter(y, -INFINITY) : y;
}

class Trees {
  public:
    Trees(In<std::int32_t, 1> left, In<std::int32_t, 1> right, In<std::int32_t, 1> feature,
          In<double, 1> threshold, In<std::uint8_t, 1> missing_left, In<std::int64_t, 1> offset,
          std::int64_t n_features)
        : n_features(n_features), offset(offset.data(), offset.data() + offset.size()) {
        const std::size_t n = left.size();
        check(right.size() == n && feature.size() == n && threshold.size() == n &&
                  missing_left.size() == n && n < 0x7fffffff && n_features > 0,
              "the arrays of the trees do not fit together");
        check_offset(offset, n);
        nodes.resize(n);
        missing_right.resize(n);
        for (std::size_t t = 0; t < n_trees(); ++t) {
            for (std::int64_t i = this->offset[t]; i < this->offset[t + 1]; ++i) {
                const std::int32_t l = left.data()[i], r = right.data()[i], f = feature.data()[i];
                const bool leaf = l < 0;
                if (!leaf) check_children(l, r, i, this->offset[t + 1]);
                check(leaf || (f >= 0 && f < n_features), "a node reads a column there is not");
                const auto here = static_cast<std::int32_t>(i);
                nodes[i] = {rounded_down(threshold.data()[i]), leaf ? 0 : f,
                            {leaf ? here : l, leaf ? here : r}};
                missing_right[i] = !missing_left.data()[i];
            }
        }
    }

    // The leaf of each row in each tree.
    void route(In<float, 2> X, Out<std::int32_t, 2> leaf, int n_threads) const {
        const std::size_t n = X.shape(0);
        check(static_cast<std::int64_t>(X.shape(1)) == n_features && leaf.shape(0) == n_trees() &&
                  leaf.shape(1) == n,
              "rows and leaves do not fit the trees");
        each(n_trees(), n_threads, [&](std::size_t t) {
            std::int32_t *out = leaf.data() + t * n;
            for (std::size_t i = 0; i < n; i += SIDE_BY_SIDE)
                walk(t, X.data() + i * n_features, std::min(SIDE_BY_SIDE, n - i), out + i);
        });
    }

    std::size_t n_trees() const { return offset.size() - 1; }

  private:
    void walk(std::size_t t, const float *rows, std::size_t n, std::int32_t *at) const {
        for (std::size_t i = 0; i < n; ++i) at[i] = static_cast<std::int32_t>(offset[t]);
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t i = 0; i < n; ++i) {  // a leaf leads to itself: no branch to mispredict
                const Node &node = nodes[at[i]];
                const float x = rows[i * n_features + node.feature];
                bool right = !(x <= node.threshold);
                if (std::isnan(x)) right = missing_right[at[i]];
                moved |= node.child[right] != at[i];
                at[i] = node.child[right];
            }
        }
    }

    std::vector<Node> nodes;
    std::vector<std::uint8_t> missing_right;
    std::int64_t n_features;
    std::vector<std::int64_t> offset;
};

// Adds each row's weight and weighted values to the node it fell into.
void add_rows(In<std::int32_t, 2> leaf, In<double, 1> weight, In<double, 2> values,
              Out<double, 1> total_weight, Out<double, 2> total, int n_threads) {
    const std::size_t n = leaf.shape(1), width = values.shape(1), n_nodes = total.shape(0);
    check(weight.size() == n && values.shape(0) == n && total_weight.size() == n_nodes &&
              total.shape(1) == width,
          "rows and totals do not fit together");
    each(leaf.shape(0), n_threads, [&](std::size_t t) {
        const std::int32_t *at = leaf.data() + t * n;
        check_nodes(at, n, 0, n_nodes);
        double *mass = total_weight.data();
        for (std::size_t i = 0; i < n; ++i) {
            const double w = weight.data()[i], *v = values.data() + i * width;
            mass[at[i]] += w;
            double *sum = total.data() + static_cast<std::size_t>(at[i]) * width;
            for (std::size_t c = 0; c < width; ++c) sum[c] += w * v[c];
        }
    });
}

// Adds the values of each row's leaves, tree by tree.
void add_votes(In<std::int32_t, 2> leaf, In<double, 2> value, Out<double, 2> vote, int n_threads) {
    const std::size_t n = leaf.shape(1), width = value.shape(1), block = 256;
    check(vote.shape(0) == n && vote.shape(1) == width, "rows and votes do not fit together");
    each((n + block - 1) / block, n_threads, [&](std::size_t b) {
        const std::size_t first = b * block, last = std::min(n, first + block);
        for (std::size_t t = 0; t < leaf.shape(0); ++t) {
            const std::int32_t *at = leaf.data() + t * n;
            check_nodes(at + first, last - first, 0, value.shape(0));
            for (std::size_t i = first; i < last; ++i) {
                const double *v = value.data() + static_cast<std::size_t>(at[i]) * width;
                double *sum = vote.data() + i * width;
                for (std::size_t c = 0; c < width; ++c) sum[c] += v[c];
            }
        }
    });
}

// Adds children's totals to their parents', leaves first.
void add_up(In<std::int32_t, 1> left, In<std::int32_t, 1> right, Out<double, 2> total) {
    const std::size_t width = total.shape(1);
    check(left.size() == total.shape(0) && right.size() == left.size(), "sizes differ");
    for (std::size_t i = left.size(); i-- > 0;) {
        if (left.data()[i] < 0) continue;
        check_children(left.data()[i], right.data()[i], i, left.size());
        const double *l = total.data() + static_cast<std::size_t>(left.data()[i]) * width;
        const double *r = total.data() + static_cast<std::size_t>(right.data()[i]) * width;
        double *here = total.data() + i * width;
        for (std::size_t c = 0; c < width; ++c) here[c] = l[c] + r[c];
    }
}

// Totals become values: each node's weighted mean, shrunk to its parent's value. The rows are
// counted, not weighed, or the leaves of light classes would be shrunk more than those of heavy ones.
void shrink_to_parent(In<std::int32_t, 1> left, In<std::int32_t, 1> right, In<double, 1> mass,
                      In<double, 1> count, In<std::int64_t, 1> offset, double shrink,
                      Out<double, 2> value) {
    const std::size_t n = left.size(), width = value.shape(1);
    check(right.size() == n && mass.size() == n && count.size() == n && value.shape(0) == n,
          "sizes differ");
    check_offset(offset, n);
    for (std::size_t t = 0; t + 1 < offset.size(); ++t)
        for (std::size_t c = 0; c < width; ++c) {
            const auto root = static_cast<std::size_t>(offset.data()[t]);
            value.data()[root * width + c] /= std::max(mass.data()[root], 1e-300);
        }
    for (std::size_t i = 0; i < n; ++i) {
        if (left.data()[i] < 0) continue;
        check_children(left.data()[i], right.data()[i], i, n);
        for (const std::int32_t child : {left.data()[i], right.data()[i]}) {
            const double own = mass.data()[child] > 0.0 ? count.data()[child] : 0.0;
            const double share = own / (own + std::max(shrink, 1e-9));
            const double mean = share / std::max(mass.data()[child], 1e-300);
            for (std::size_t c = 0; c < width; ++c) {
                double &v = value.data()[static_cast<std::size_t>(child) * width + c];
                v = mean * v + (1.0 - share) * value.data()[i * width + c];
            }
        }
    }
}

// Cost-complexity pruning: at a price per leaf a subtree is kept where its leaves cost less than what
// is lost where it becomes one leaf. ends: where a row that was in a node is then, the node itself
// where it is left.
struct Cuts {
    In<std::int32_t, 1> left, right;
    In<std::int64_t, 1> offset;
    Out<std::int32_t, 1> ends;
    std::vector<double> lost, cost;
    std::vector<std::uint8_t> kept;
    std::int64_t count = 0;  // of all trees, after all()

    Cuts(In<std::int32_t, 1> left, In<std::int32_t, 1> right, In<std::int64_t, 1> offset,
         Out<std::int32_t, 1> ends)
        : left(left), right(right), offset(offset), ends(ends), lost(ends.size()),
          cost(ends.size()), kept(ends.size()) {
        const std::size_t n = ends.size();
        check(left.size() == n && right.size() == n, "sizes differ");
        check_offset(offset, n);
        for (std::size_t t = 0; t + 1 < offset.size(); ++t)
            for (std::int64_t i = offset.data()[t]; i < offset.data()[t + 1]; ++i)
                if (left.data()[i] >= 0)
                    check_children(left.data()[i], right.data()[i], i, offset.data()[t + 1]);
    }

    // Prunes one tree, and says how many of its nodes are left.
    std::int64_t one(std::size_t t, double price) {
        const std::int64_t root = offset.data()[t], end = offset.data()[t + 1];
        for (std::int64_t i = end; i-- > root;) {
            const std::int32_t l = left.data()[i], r = right.data()[i];
            const double below = l < 0 ? INFINITY : cost[l] + cost[r];
            kept[i] = below < lost[i] + price;
            cost[i] = kept[i] ? below : lost[i] + price;
        }
        std::int64_t nodes = 0;
        ends.data()[root] = static_cast<std::int32_t>(root);
        for (std::int64_t i = root; i < end; ++i) {
            const bool here = ends.data()[i] == i;
            nodes += here;
            if (left.data()[i] < 0) continue;
            for (const std::int32_t child : {left.data()[i], right.data()[i]})
                ends.data()[child] = here && kept[i] ? child : ends.data()[i];
        }
        return nodes;
    }

    // Prunes all trees to about so many nodes together and not more, and says at what price.
    double all(std::int64_t most) {
        auto prune_at = [&](double price) {
            count = 0;
            for (std::size_t t = 0; t + 1 < offset.size(); ++t) count += one(t, price);
            return price;
        };
        double largest = 0.0;
        for (const double x : lost) largest = std::max(largest, std::abs(x));
        // The number of nodes falls about as a power of the price: two steps of three go where that
        // says.
        double low = std::log(1e-12 * largest + 1e-300), high = std::log(2.0 * largest + 1e-299);
        double more = std::log(static_cast<double>(lost.size()));
        double fewer = std::log(static_cast<double>(offset.size() - 1));
        const double wanted = std::log(0.99 * static_cast<double>(most));
        for (int step = 0; step < 60; ++step) {
            double part = 0.5;
            if (step % 3 != 2 && more > fewer) part = (more - wanted) / (more - fewer);
            const double middle = low + std::clamp(part, 0.05, 0.95) * (high - low);
            const double price = prune_at(std::exp(middle));
            if (count <= most && count >= most - most / 50) return price;  // 2 % below is near enough
            (count > most ? low : high) = middle;
            (count > most ? more : fewer) = std::log(static_cast<double>(count));
        }
        return prune_at(std::exp(high));
    }
};

std::int64_t prune(In<std::int32_t, 1> left, In<std::int32_t, 1> right,
                   In<std::int64_t, 1> offset, In<double, 1> lost, std::int64_t most,
                   Out<std::int32_t, 1> ends) {
    Cuts cuts(left, right, offset, ends);
    check(lost.size() == ends.size(), "sizes differ");
    cuts.lost.assign(lost.data(), lost.data() + lost.size());
    cuts.all(most);
    return cuts.count;
}

// Each tree in turn is pruned again by what the others leave over of the goal. value: what rows are
// told at the leaves of the whole trees; then what the nodes that are left tell them.
void prune_jointly(In<std::int32_t, 2> leaf, In<double, 1> weight, In<double, 2> goal,
                   In<std::int32_t, 1> left, In<std::int32_t, 1> right,
                   In<std::int64_t, 1> offset, In<double, 2> start, double ridge, bool clipped,
                   std::int64_t most, Out<double, 2> value, Out<std::int32_t, 1> ends) {
    const std::size_t n = leaf.shape(1), k = leaf.shape(0), width = value.shape(1);
    const std::size_t n_nodes = value.shape(0);
    check(goal.shape(0) == n && goal.shape(1) == width && ends.size() == n_nodes &&
              start.shape(0) == n_nodes && start.shape(1) == width,
          "rows, goal and leaves do not fit together");
    Cuts cuts(left, right, offset, ends);
    std::vector<double> residual(goal.data(), goal.data() + n * width);
    std::vector<double> mass = mass_of(leaf, weight, offset, n_nodes);
    std::vector<double> sum(n_nodes * width), move(value.data(), value.data() + n_nodes * width);
    auto take_away = [&](std::size_t t) {
        const std::int32_t *at = leaf.data() + t * n;
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t c = 0; c < width; ++c)
                residual[i * width + c] -= move[at[i] * width + c];
    };
    for (std::size_t t = 0; t < k; ++t) take_away(t);
    for (std::size_t j = n_nodes; j-- > 0;)
        if (left.data()[j] >= 0) mass[j] = mass[left.data()[j]] + mass[right.data()[j]];
    // Each node's sum of what the tree should say there, and minus what one value explains of it.
    auto weigh = [&](std::size_t t) {
        const std::int32_t *at = leaf.data() + t * n;
        const std::int64_t root = offset.data()[t], end = offset.data()[t + 1];
        for (std::size_t x = root * width; x < end * width; ++x)
            sum[x] = left.data()[x / width] < 0 ? mass[x / width] * value.data()[x] : 0.0;
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t c = 0; c < width; ++c) {
                const double wanted = goal.data()[i * width + c], error = residual[i * width + c];
                sum[at[i] * width + c] +=
                    weight.data()[i] * (clipped ? std::clamp(error, wanted - 1.0, wanted) : error);
            }
        for (std::int64_t j = end; j-- > root;) {
            const std::int32_t l = left.data()[j], r = right.data()[j];
            cuts.lost[j] = 0.0;
            for (std::size_t c = 0; c < width; ++c) {
                double &here = sum[j * width + c];
                if (l >= 0) here = sum[l * width + c] + sum[r * width + c];
                const double from = start.data()[j * width + c], pulled = here + ridge * from;
                cuts.lost[j] += ridge * from * from - pulled * pulled / (mass[j] + ridge);
            }
        }
    };
    for (std::size_t t = 0; t < k; ++t) weigh(t);
    const double price = cuts.all(most);
    for (std::size_t t = 0; t < k; ++t) {
        weigh(t);
        cuts.one(t, price);
        for (std::int64_t j = offset.data()[t]; j < offset.data()[t + 1]; ++j)
            for (std::size_t c = 0; c < width; ++c) {
                const std::size_t end = ends.data()[j], at = end * width + c;
                const double now = (sum[at] + ridge * start.data()[at]) / (mass[end] + ridge);
                move[j * width + c] = now - value.data()[j * width + c];
                value.data()[j * width + c] = now;
            }
        take_away(t);
    }
}

// Rows of one tree: what the tree before moved is taken from the residual, and what is left of it is
// added up in this tree's nodes. A vote is clipped where it is read, so that beyond zero and one it
// errs by no more than its clipped value does.
template <std::size_t WIDTH, bool CLIPPED, typename Real>
void add_residual(const std::int32_t *at, const std::int32_t *before, std::size_t n,
                  const Real *weight, const Real *goal, const Real *move,
                  Real *__restrict residual, Real *__restrict sum) {
    for (std::size_t i = 0; i < n; ++i) {
        const Real *moved = move + static_cast<std::size_t>(before[i]) * WIDTH;
        Real *mine = sum + static_cast<std::size_t>(at[i]) * WIDTH;
        const Real w = weight[i];
#pragma omp simd
        for (std::size_t c = 0; c < WIDTH; ++c) {
            Real error = residual[i * WIDTH + c] - moved[c];
            residual[i * WIDTH + c] = error;
            if (CLIPPED) {
                const Real most = goal[i * WIDTH + c], least = most - Real(1);
                error = error > most ? most : error;
                error = error < least ? least : error;
            }
            mine[c] += w * error;
        }
    }
}

// Leaves fitted jointly to the goal, tree after tree, with a ridge towards where they start.
template <bool CLIPPED>
struct Refit {
    // Votes for classes are rounded further yet; numbers may be of any size.
    using Real = std::conditional_t<CLIPPED, float, double>;
    In<std::int32_t, 2> leaf;
    In<std::int64_t, 1> offset;
    In<double, 2> goal;
    double ridge;
    int sweeps;
    Out<double, 2> value;
    std::vector<Real> weight;
    std::vector<double> mass;  // of each leaf

    void all_columns() const {
        const std::size_t width = value.shape(1);
        for (std::size_t first = 0; first < width;) {
            const std::size_t left = width - first;
            if (left == 1) first += columns<1>(first);
            else if (left <= 4) first += columns<4>(first);
            else first += columns<8>(first);
        }
    }

    // WIDTH columns at a time, padded with zeros: columns do not meet each other.
    template <std::size_t WIDTH>
    std::size_t columns(std::size_t first) const {
        const std::size_t n = leaf.shape(1), k = leaf.shape(0), stride = value.shape(1);
        const std::size_t used = std::min(WIDTH, stride - first), n_nodes = value.shape(0);
        std::vector<double> start(n_nodes * WIDTH), left(n * WIDTH);
        for (std::size_t i = 0; i < n_nodes; ++i)
            std::copy_n(value.data() + i * stride + first, used, start.data() + i * WIDTH);
        for (std::size_t i = 0; i < n; ++i)
            std::copy_n(goal.data() + i * stride + first, used, left.data() + i * WIDTH);
        const std::vector<Real> wanted(left.begin(), left.end());
        for (std::size_t t = 0; t < k; ++t)
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t c = 0; c < WIDTH; ++c)
                    left[i * WIDTH + c] -= start[leaf.data()[t * n + i] * WIDTH + c];
        std::vector<Real> residual(left.begin(), left.end());
        std::vector<Real> sum(n_nodes * WIDTH), move(n_nodes * WIDTH);
        std::vector<double> now = start;
        const std::int32_t *before = leaf.data();  // nothing has moved yet
        for (int sweep = 0; sweep < sweeps; ++sweep)
            for (std::size_t t = 0; t < k; ++t) {
                const std::int32_t *at = leaf.data() + t * n;
                const auto low = static_cast<std::size_t>(offset.data()[t]) * WIDTH;
                const auto high = static_cast<std::size_t>(offset.data()[t + 1]) * WIDTH;
                std::fill(sum.begin() + low, sum.begin() + high, Real(0));
                add_residual<WIDTH, CLIPPED>(at, before, n, weight.data(), wanted.data(),
                                             move.data(), residual.data(), sum.data());
                for (std::size_t j = low; j < high; ++j) {
                    const double held = mass[j / WIDTH];
                    if (held == 0.0) continue;
                    const double pull = ridge * (start[j] - now[j]);
                    move[j] = static_cast<Real>((sum[j] + pull) / (held + ridge));
                    now[j] += move[j];
                }
                before = at;
            }
        for (std::size_t i = 0; i < n_nodes; ++i)
            std::copy_n(now.data() + i * WIDTH, used, value.data() + i * stride + first);
        return used;
    }
};

void backfit(In<std::int32_t, 2> leaf, In<double, 1> weight, In<std::int64_t, 1> offset,
             In<double, 2> goal, double ridge, int sweeps, bool clipped, Out<double, 2> value) {
    const double *w = weight.data(), *end = w + weight.size();
    check(goal.shape(0) == weight.size() && goal.shape(1) == value.shape(1),
          "rows, goal and leaves do not fit together");
    const std::vector<double> mass = mass_of(leaf, weight, offset, value.shape(0));
    if (clipped) Refit<true>{leaf, offset, goal, ridge, sweeps, value, {w, end}, mass}.all_columns();
    else Refit<false>{leaf, offset, goal, ridge, sweeps, value, {w, end}, mass}.all_columns();
}

}  // namespace

NB_MODULE(_student, m) {
    open_module();
    using Free = nb::call_guard<WithoutGil>;
    nb::class_<Trees>(m, "Trees")
        .def(nb::init<In<std::int32_t, 1>, In<std::int32_t, 1>, In<std::int32_t, 1>, In<double, 1>,
                      In<std::uint8_t, 1>, In<std::int64_t, 1>, std::int64_t>())
        .def("route", &Trees::route, Free());
    m.def("add_rows", &add_rows, Free());
    m.def("add_votes", &add_votes, Free());
    m.def("add_up", &add_up, Free());
    m.def("shrink_to_parent", &shrink_to_parent, Free());
    m.def("prune", &prune, Free());
    m.def("prune_jointly", &prune_jointly, Free());
    m.def("backfit", &backfit, Free());
}
