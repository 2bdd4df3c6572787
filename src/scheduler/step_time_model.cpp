// SPDX-License-Identifier: Apache-2.0
#include "scheduler/step_time_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

constexpr size_t kTerms = 3;
constexpr double kSingular = 1e-9;    // smallest pivot of a solvable system; the diagonal is about
                                      // 1
constexpr double kSameError = 1e-12;  // squared relative errors that differ by less are equal

using Vector = std::array<double, kTerms>;
using Matrix = std::array<Vector, kTerms>;

// Solves a x = b for the terms in `used`; the others are 0. Returns false when the terms depend on
// each other.
bool solve(Matrix a, Vector b, unsigned used, Vector& x) {
  x = {};
  std::array<size_t, kTerms> terms{};
  size_t count = 0;
  for (size_t term = 0; term < kTerms; ++term) {
    if ((used >> term & 1u) != 0) terms[count++] = term;
  }
  // The matrix is symmetric and positive definite, so that no pivoting is needed.
  for (size_t i = 0; i < count; ++i) {
    const size_t pivot = terms[i];
    if (a[pivot][pivot] < kSingular) return false;
    for (size_t j = i + 1; j < count; ++j) {
      const size_t row = terms[j];
      const double factor = a[row][pivot] / a[pivot][pivot];
      for (size_t k = i; k < count; ++k) a[row][terms[k]] -= factor * a[pivot][terms[k]];
      b[row] -= factor * b[pivot];
    }
  }
  for (size_t i = count; i-- > 0;) {
    double sum = b[terms[i]];
    for (size_t k = i + 1; k < count; ++k) sum -= a[terms[i]][terms[k]] * x[terms[k]];
    x[terms[i]] = sum / a[terms[i]][terms[i]];
  }
  return true;
}

}  // namespace

void StepWork::add(int64_t num_tokens, int64_t context_tokens) {
  const auto count = static_cast<double>(num_tokens);
  new_tokens += num_tokens;
  attended_tokens += count * static_cast<double>(context_tokens) + count * (count + 1) / 2;
}

void StepTimeModel::add(const StepWork& work, bool prefills, double seconds) {
  HEDDLE_CHECK_GE(work.new_tokens, 1);
  if (seconds <= 0) return;
  Memory& memory = prefills ? prefill_ : decode_;
  memory.steps[memory.next] = {
      .terms = {1, static_cast<double>(work.new_tokens), work.attended_tokens}, .seconds = seconds};
  memory.next = (memory.next + 1) % kRemembered;
  memory.count = std::min(memory.count + 1, kRemembered);
}

void StepTimeModel::fit() {
  knows_prefill_ = prefill_.count > 0;
  // The equation of each step is divided by its seconds, and each term by its largest value, so
  // that the summands are about 1.
  Vector scale{};
  const auto each_step = [this](const auto& visit) {
    for (const Memory* memory : {&prefill_, &decode_}) {
      for (size_t i = 0; i < memory->count; ++i) visit(memory->steps[i]);
    }
  };
  each_step([&scale](const Step& step) {
    for (size_t i = 0; i < kTerms; ++i) {
      scale[i] = std::max(scale[i], step.terms[i] / step.seconds);
    }
  });
  const auto count = static_cast<double>(prefill_.count + decode_.count);
  if (count == 0) return;
  Matrix squares{};
  Vector products{};
  each_step([&](const Step& step) {
    Vector terms{};
    for (size_t i = 0; i < kTerms; ++i) terms[i] = step.terms[i] / step.seconds / scale[i];
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t j = 0; j < kTerms; ++j) squares[i][j] += terms[i] * terms[j] / count;
      products[i] += terms[i] / count;
    }
  });

  // Tries subsets of the terms and takes the best that needs no negative coefficient. If the steps
  // are too similar to tell two subsets apart, the cost is ascribed to the tokens.
  double least = std::numeric_limits<double>::infinity();
  for (const unsigned used : {0b010u, 0b110u, 0b011u, 0b111u, 0b100u, 0b101u, 0b001u}) {
    Vector x{};
    if (!solve(squares, products, used, x)) continue;
    if (*std::min_element(x.begin(), x.end()) < 0) continue;
    double error = 1;
    for (size_t i = 0; i < kTerms; ++i) {
      error -= 2 * x[i] * products[i];
      for (size_t j = 0; j < kTerms; ++j) error += x[i] * squares[i][j] * x[j];
    }
    if (error > least - kSameError) continue;
    least = error;
    for (size_t i = 0; i < kTerms; ++i) coefficients_[i] = x[i] / scale[i];
  }
}

double StepTimeModel::seconds(const StepWork& work) const {
  return coefficients_[0] + coefficients_[1] * static_cast<double>(work.new_tokens) +
         coefficients_[2] * work.attended_tokens;
}

double StepTimeModel::added_seconds(int64_t num_tokens, int64_t context_tokens) const {
  StepWork more;
  more.add(num_tokens, context_tokens);
  return seconds(more) - coefficients_[0];
}

int64_t StepTimeModel::tokens_within(double seconds, int64_t context_tokens, int64_t most) const {
  if (most <= 0 || added_seconds(most, context_tokens) <= seconds)
    return std::max<int64_t>(most, 0);
  int64_t fits = 0;
  int64_t too_many = most;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (added_seconds(middle, context_tokens) <= seconds ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace heddle::scheduler
