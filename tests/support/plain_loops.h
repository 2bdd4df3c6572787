// SPDX-License-Identifier: Apache-2.0
// PlainLoops: the layers of decoders as plain loops in double precision: a reference that knows
// nothing of Heddle but the names of hub tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
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
    double theta = 0;   // of the rotation; 0: none
    double scale = 0;   // of scores
    size_t window = 0;  // tokens that a query sees, its own included; 0: all before it
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

  [[nodiscard]] Rows norms(const Rows& h, const std::string& name) const {
    const Row weight = row_of(name, 0);
    Rows result = h;
    for (Row& x : result) {
      const double scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + epsilon_);
      for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
    }
    return result;
  }

  [[nodiscard]] Rows attention(const std::string& name, const Rows& x, const Heads& heads) const {
    const size_t D = heads.width;
    const auto group = static_cast<size_t>(heads.queries / heads.keys);
    Rows keys, values, outputs;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row q = rotated(product(name + "q_proj", x[t]), t, heads);
      keys.push_back(rotated(product(name + "k_proj", x[t]), t, heads));
      values.push_back(product(name + "v_proj", x[t]));
      const size_t first = heads.window > 0 && t + 1 > heads.window ? t + 1 - heads.window : 0;
      Row all(q.size());
      for (size_t head = 0; head < static_cast<size_t>(heads.queries); ++head) {
        const size_t from = head * D, kv_from = head / group * D;
        Row scores(t + 1 - first);
        for (size_t j = first; j <= t; ++j) {
          for (size_t i = 0; i < D; ++i) scores[j - first] += q[from + i] * keys[j][kv_from + i];
          scores[j - first] *= heads.scale;
        }
        const Row weights = softmax(scores);
        for (size_t j = first; j <= t; ++j) {
          for (size_t i = 0; i < D; ++i) {
            all[from + i] += weights[j - first] * values[j][kv_from + i];
          }
        }
      }
      outputs.push_back(product(name + "o_proj", all));
    }
    return outputs;
  }

  [[nodiscard]] Row swiglu(const std::string& name, const Row& x) const {
    Row gate = product(name + "gate_proj", x);
    const Row up = product(name + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return product(name + "down_proj", gate);
  }

 private:
  static Row rotated(Row values, size_t position, const Heads& heads) {
    if (heads.theta == 0) return values;
    const size_t half = heads.width / 2;
    for (size_t head = 0; head < values.size(); head += heads.width) {
      for (size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(heads.theta, -2.0 * static_cast<double>(i) / static_cast<double>(heads.width));
        double& a = values[head + i];
        double& b = values[head + i + half];
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
