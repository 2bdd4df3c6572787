// SPDX-License-Identifier: Apache-2.0
// PlainLoops: the layers of decoders as plain loops in double precision: a reference that knows
// nothing of Heddle but the names of hub tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace heddle::testing {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

inline double dot(const Row& a, const Row& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// to += factor * from
inline void add(Rows& to, const Rows& from, double factor = 1) {
  for (size_t t = 0; t < to.size(); ++t) {
    for (size_t i = 0; i < to[t].size(); ++i) to[t][i] += factor * from[t][i];
  }
}

inline Row softmax(Row scores) {
  const double largest = *std::ranges::max_element(scores);
  for (double& score : scores) score = std::exp(score - largest);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= sum;
  return scores;
}

class PlainLoops {
 public:
  struct Heads {
    int64_t queries = 0;
    int64_t keys = 0;
    size_t width = 0;
    double theta = 0;              // of the rotation; 0: none
    double scale = 0;              // of scores
    size_t window = 0;             // tokens that a query sees, its own included; 0: all before it
    size_t value_width = 0;        // of a head's values; 0: width
    double value_scale = 1;        // of values
    bool interleaved = false;      // the rotation turns pairs of neighbours
    bool gated = false;            // the output of a head times the sigmoid of its row of g_proj
    bool keys_are_values = false;  // values are keys before their norm; there is no v_proj
    bool norms_values = false;     // of each head, without a weight
    enum class Norm { kNone, kHeads, kWhole, kRotated } norm = Norm::kNone;  // of queries and keys
  };

  // Keys and values: of which module, and computed from what.
  struct Source {
    std::string name;
    const Rows* x;
  };

  // fp32 tensors by their names in the hub.
  PlainLoops(std::map<std::string, Tensor> weights, double epsilon)
      : weights_(std::move(weights)), epsilon_(epsilon) {}

  [[nodiscard]] Row row_of(const std::string& name, int64_t row) const {
    const Tensor& tensor = weights_.at(name);
    const int64_t width = tensor.shape().rank() == 1 ? tensor.num_elements() : tensor.shape()[1];
    const float* first = tensor.view().as<float>() + row * width;
    return {first, first + width};
  }

  // With a bias where there is one.
  [[nodiscard]] Row product(const std::string& module, const Row& x) const {
    const int64_t N = weights_.at(module + ".weight").shape()[0];
    Row y = weights_.contains(module + ".bias") ? row_of(module + ".bias", 0)
                                                : Row(static_cast<size_t>(N));
    for (int64_t n = 0; n < N; ++n) {
      y[static_cast<size_t>(n)] += dot(row_of(module + ".weight", n), x);
    }
    return y;
  }

  [[nodiscard]] Rows products(const std::string& module, const Rows& x) const {
    Rows result;
    for (const Row& row : x) result.push_back(product(module, row));
    return result;
  }

  // RMS norms, or layer norms where `centred`; with a weight and a bias where there is one.
  [[nodiscard]] Rows norms(const Rows& h, const std::string& name, bool centred = false) const {
    Rows result = h;
    for (Row& x : result) x = normed(std::move(x), name, centred);
    return result;
  }

  // `source`: where keys and values come from; none: `name` and `x`.
  [[nodiscard]] Rows attention(const std::string& name, const Rows& x, const Heads& heads,
                               std::optional<Source> source = {}) const {
    const Source own = source.value_or(Source{name, &x});
    const size_t D = heads.width, Dv = heads.value_width > 0 ? heads.value_width : D;
    const auto group = static_cast<size_t>(heads.queries / heads.keys);
    Rows keys, values, outputs;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row q = positioned(product(name + "q_proj", x[t]), name + "q_norm", t, heads);
      const Row key = product(own.name + "k_proj", (*own.x)[t]);
      Row value = heads.keys_are_values ? key : product(own.name + "v_proj", (*own.x)[t]);
      for (double& channel : value) channel *= heads.value_scale;
      values.push_back(heads.norms_values ? by_heads(std::move(value), Dv, "") : std::move(value));
      keys.push_back(positioned(key, own.name + "k_norm", t, heads));
      const Row gates = heads.gated ? product(name + "g_proj", x[t]) : Row();
      const size_t first = heads.window > 0 && t + 1 > heads.window ? t + 1 - heads.window : 0;
      Row all(static_cast<size_t>(heads.queries) * Dv);
      for (size_t head = 0; head < static_cast<size_t>(heads.queries); ++head) {
        Row scores(t + 1 - first);
        for (size_t j = first; j <= t; ++j) {
          for (size_t i = 0; i < D; ++i) {
            scores[j - first] += q[head * D + i] * keys[j][head / group * D + i];
          }
          scores[j - first] *= heads.scale;
        }
        const Row weights = softmax(scores);
        for (size_t j = first; j <= t; ++j) {
          for (size_t i = 0; i < Dv; ++i) {
            all[head * Dv + i] += weights[j - first] * values[j][head / group * Dv + i];
          }
        }
        for (size_t i = 0; i < Dv && heads.gated; ++i) {
          all[head * Dv + i] /= 1 + std::exp(-gates[head]);
        }
      }
      outputs.push_back(product(name + "o_proj", all));
    }
    return outputs;
  }

  // W_down f(W_gate x, W_up x), element by element.
  template <typename Activation>
  [[nodiscard]] Row gated(const std::string& name, const Row& x, const Activation& f) const {
    Row gate = product(name + "gate_proj", x);
    const Row up = product(name + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = f(gate[i], up[i]);
    return product(name + "down_proj", gate);
  }

  [[nodiscard]] Row swiglu(const std::string& name, const Row& x) const {
    return gated(name, x, [](double g, double u) { return g * u / (1 + std::exp(-g)); });
  }

 private:
  // By the weight "NAME.weight", where there is one.
  [[nodiscard]] Row normed(Row x, const std::string& name, bool centred = false) const {
    const auto size = static_cast<double>(x.size());
    if (centred) {
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / size;
      for (double& value : x) value -= mean;
    }
    const double scale = 1 / std::sqrt(dot(x, x) / size + epsilon_);
    const auto of = [&](const char* ending, double none) {
      return weights_.contains(name + ending) ? row_of(name + ending, 0) : Row(x.size(), none);
    };
    const Row weight = of(".weight", 1), bias = of(".bias", 0);
    for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] * scale * weight[i] + bias[i];
    return x;
  }

  // Each head alone.
  [[nodiscard]] Row by_heads(Row x, size_t width, const std::string& norm) const {
    for (size_t head = 0; head < x.size(); head += width) {
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(head);
      std::ranges::copy(normed(Row(first, first + static_cast<std::ptrdiff_t>(width)), norm),
                        first);
    }
    return x;
  }

  // Queries or keys after their norm and rotation.
  [[nodiscard]] Row positioned(Row values, const std::string& norm, size_t position,
                               const Heads& heads) const {
    using Norm = Heads::Norm;
    if (heads.norm == Norm::kWhole) values = normed(std::move(values), norm);
    if (heads.norm == Norm::kHeads) values = by_heads(std::move(values), heads.width, norm);
    values = rotated(std::move(values), position, heads);
    return heads.norm == Norm::kRotated ? by_heads(std::move(values), heads.width, "") : values;
  }

  static Row rotated(Row values, size_t position, const Heads& heads) {
    if (heads.theta == 0) return values;
    const size_t half = heads.width / 2;
    for (size_t head = 0; head < values.size(); head += heads.width) {
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(heads.theta, -2.0 * static_cast<double>(i) / static_cast<double>(heads.width));
        double& a = values[head + (heads.interleaved ? 2 * i : i)];
        double& b = values[head + (heads.interleaved ? 2 * i + 1 : i + half)];
        std::tie(a, b) = std::pair(a * std::cos(angle) - b * std::sin(angle),
                                   b * std::cos(angle) + a * std::sin(angle));
      }
    }
    return values;
  }

  std::map<std::string, Tensor> weights_;
  double epsilon_;
};

}  // namespace heddle::testing
