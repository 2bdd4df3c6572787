// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "core/check.h"
#include "ops/sampling/logit_edits.h"
#include "ops/sampling/uniform_draw.h"
#include "sampling/sampling_slot.h"

namespace heddle::sampling {

using ops::SampleOutcome;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr TokenId kAnyToken = std::numeric_limits<TokenId>::max();

constexpr auto kBetter = [](const auto& a, const auto& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

void mask_logits(std::span<const uint32_t> mask, std::span<float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t word = begin / 32 < mask.size() ? mask[begin / 32] : 0u;
    if (word == ~0u) continue;
    const size_t end = std::min(begin + 32, logits.size());
    for (size_t i = begin; i < end; ++i) {
      if ((word >> (i - begin) & 1) == 0) logits[i] = -kInfinity;
    }
  }
}

}  // namespace

Status outcome_status(SampleOutcome outcome, int64_t position) {
  switch (outcome) {
    case SampleOutcome::kDrawn:
    case SampleOutcome::kSkipped:
      return {};
    case SampleOutcome::kPending:
      return internal_error(fmt::format("nothing was drawn at position {} yet", position));
    case SampleOutcome::kNotANumber:
      return internal_error(
          fmt::format("numerical error: a logit for position {} is not a number", position));
    case SampleOutcome::kInfinite:
      return internal_error(
          fmt::format("numerical error: a logit for position {} is infinite", position));
    case SampleOutcome::kAllMasked:
      break;
  }
  return internal_error(
      fmt::format("numerical error: every token is masked at position {}; check logit_bias and "
                  "min_new_tokens",
                  position));
}

Sampler::Sampler(int64_t vocab_size) {
  HEDDLE_CHECK(vocab_size >= 1 && vocab_size <= kMaxVocabSize);
  const auto size = static_cast<size_t>(vocab_size);
  counts_.resize(size);
  block_max_.resize(num_blocks(size));
  block_scratch_.resize(num_blocks(size));
  block_sums_.resize(num_blocks(size));
  candidates_.reserve(size);
}

void Sampler::edit_logits(const SampleArgs& args) {
  const SamplingParams& params = *args.params;
  const auto at = [&](TokenId token) -> float& {
    HEDDLE_CHECK(token >= 0 && token < vocab_size());
    return args.logits[static_cast<size_t>(token)];
  };
  if (!args.mask.empty()) mask_logits(args.mask, args.logits);
  for (const TokenId token : args.forbidden_tokens) at(token) = -kInfinity;
  for (const auto& [token, bias] : params.logit_bias) at(token) += bias;

  if (!request::penalises(params)) return;
  const ops::Penalties penalties{.repetition = params.repetition_penalty,
                                 .frequency = params.frequency_penalty,
                                 .presence = params.presence_penalty};
  const auto count = [&](TokenId token) {
    (void)at(token);
    ++counts_[static_cast<size_t>(token)];
  };
  const auto penalise = [&](TokenId token) {
    int32_t& occurrences = counts_[static_cast<size_t>(token)];
    if (occurrences == 0) return;  // already penalised at an earlier occurrence
    float& logit = at(token);
    logit = penalties.apply(logit, occurrences);
    occurrences = 0;
  };
  for (const TokenId token : args.output_tokens) count(token);
  for (const TokenId token : args.output_tokens) penalise(token);
}

Result<Sampler::Row> Sampler::scan(std::span<const float> logits, float temperature,
                                   int64_t position, TokenId& best) {
  HEDDLE_CHECK_EQ(static_cast<int64_t>(logits.size()), vocab_size());
  const RowScan scan = scan_row(logits, block_max_);
  if (scan.has_nan) return outcome_status(SampleOutcome::kNotANumber, position);
  if (scan.max == kInfinity) return outcome_status(SampleOutcome::kInfinite, position);
  if (scan.max == -kInfinity) return outcome_status(SampleOutcome::kAllMasked, position);
  best = scan.argmax;
  return Row{
      .logits = logits, .max = scan.max, .inverse_temperature = 1.0f / temperature, .total = 0};
}

Status Sampler::score(std::span<const float> logits, TokenId token, int64_t position,
                      int32_t top_logprobs, std::span<const TokenId> listed,
                      TokenLogprob& logprob) {
  HEDDLE_CHECK(token >= 0 && token < vocab_size());
  TokenId best = 0;
  HEDDLE_ASSIGN_OR_RETURN(Row row, scan(logits, 1.0f, position, best));
  row.total = sum_weights(row.logits, row.max, row.inverse_temperature, block_sums_);
  fill_logprob(row, LogSoftmax(row.max, 1.0f, row.total), token, top_logprobs, listed, logprob);
  return {};
}

Result<TokenId> Sampler::sample(const SampleArgs& args, TokenLogprob* logprob) {
  HEDDLE_CHECK_EQ(static_cast<int64_t>(args.logits.size()), vocab_size());
  const SamplingParams& params = *args.params;
  edit_logits(args);

  TokenId token = 0;
  HEDDLE_ASSIGN_OR_RETURN(Row row,
                          scan(args.logits, weight_temperature(params), args.position, token));
  const bool greedy = is_greedy(params);
  const bool top_k = params.top_k >= 1 && params.top_k < vocab_size();
  const bool open = !top_k && params.top_p >= 1 && params.min_p <= 0;
  if (logprob != nullptr || (!greedy && (open || params.top_p < 1))) {
    row.total = sum_weights(row.logits, row.max, row.inverse_temperature, block_sums_);
  }

  if (!greedy) {
    token = open ? draw_open(row, args) : draw_below_cut(row, find_cut(row, params), args);
  }
  if (logprob != nullptr) {
    const LogSoftmax log_softmax(row.max, weight_temperature(params), row.total);
    fill_logprob(row, log_softmax, token, args.top_logprobs, args.logprob_tokens, *logprob);
  }
  return token;
}

float Sampler::reached_by(size_t count) {
  if (count > block_max_.size()) return -kInfinity;
  std::copy(block_max_.begin(), block_max_.end(), block_scratch_.begin());
  const auto nth = block_scratch_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(block_scratch_.begin(), nth, block_scratch_.end(), std::greater<>());
  return *nth;
}

void Sampler::gather(const Row& row, float lowest_logit) {
  candidates_.clear();
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (block_max_[b] < lowest_logit) continue;
    auto token = static_cast<TokenId>(b * kBlockSize);
    for (const float logit : block_of(row.logits, b)) {
      if (logit >= lowest_logit) {
        candidates_.push_back({.logit = logit, .token = token, .weight = row.weight(logit)});
      }
      ++token;
    }
  }
}

// Each of the three filters keeps a prefix of the tokens sorted from best to worst, independently
// of the others. So the shortest prefix decides.
Sampler::Cut Sampler::find_cut(const Row& row, const SamplingParams& params) {
  const float lowest = ops::lowest_within(row.max, min_p_reach(params));
  Cut cut{.logit = lowest, .token = kAnyToken};

  if (params.top_k >= 1 && params.top_k < vocab_size()) {
    const auto k = static_cast<size_t>(params.top_k);
    cut.logit = std::max(lowest, reached_by(k));
    gather(row, cut.logit);
    if (candidates_.size() > k) {
      const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
      std::nth_element(candidates_.begin(), last, candidates_.end(), kBetter);
      cut = {.logit = last->logit, .token = last->token};
      candidates_.resize(k);
    }
    return params.top_p < 1 ? find_top_p(row, params.top_p, cut) : cut;
  }
  if (params.top_p >= 1) return cut;

  // In most distributions few tokens decide, so tokens within e^-6 of the best are tried first.
  const uint64_t limit = ops::share_of_mass(params.top_p, row.total);
  for (const float distance : {6.0f, 12.0f, 24.0f, kInfinity}) {
    cut.logit = std::max(lowest, row.max - distance * weight_temperature(params));
    gather(row, cut.logit);
    uint64_t mass = 0;
    for (const Candidate& candidate : candidates_) mass += candidate.weight;
    if (mass > limit || cut.logit == lowest) break;
  }
  return find_top_p(row, params.top_p, cut);
}

// Narrows `cut`, which keeps exactly the candidates, to those for which the better ones weigh at
// most top_p of the total. Halves the undecided range in each round, so that the candidates are
// never all sorted.
Sampler::Cut Sampler::find_top_p(const Row& row, float top_p, Cut cut) {
  constexpr std::ptrdiff_t kSortBelow = 128;
  const uint64_t limit = ops::share_of_mass(top_p, row.total);
  auto low = candidates_.begin();  // all candidates before this are kept
  auto high = candidates_.end();   // no candidate from here on is kept
  uint64_t mass_before_low = 0;
  while (high - low > kSortBelow) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, kBetter);
    uint64_t mass = mass_before_low;
    for (auto it = low; it != middle; ++it) mass += it->weight;
    if (mass <= limit) {
      low = middle;
      mass_before_low = mass;
    } else {
      high = middle;
    }
  }
  std::sort(low, high, kBetter);
  auto end = low;
  while (end != high && mass_before_low <= limit) {
    mass_before_low += end->weight;
    ++end;
  }
  if (end == candidates_.end()) return cut;
  HEDDLE_CHECK(end != candidates_.begin());
  const Candidate& last = *(end - 1);
  return {.logit = last.logit, .token = last.token};
}

TokenId Sampler::draw_open(const Row& row, const SampleArgs& args) const {
  uint64_t target = ops::draw_target(args.seed, args.position, args.choice_index, row.total);
  size_t block = 0;
  while (target >= block_sums_[block]) target -= block_sums_[block++];
  auto token = static_cast<TokenId>(block * kBlockSize);
  for (const float logit : block_of(row.logits, block)) {
    const uint64_t weight = row.weight(logit);
    if (target < weight) break;
    target -= weight;
    ++token;
  }
  return token;
}

TokenId Sampler::draw_below_cut(const Row& row, const Cut& cut, const SampleArgs& args) const {
  const auto for_each_kept = [&](auto&& visit) {
    for (size_t b = 0; b < block_max_.size(); ++b) {
      if (block_max_[b] < cut.logit) continue;
      auto token = static_cast<TokenId>(b * kBlockSize);
      for (const float logit : block_of(row.logits, b)) {
        if (cut.keeps(logit, token) && !visit(token, row.weight(logit))) return;
        ++token;
      }
    }
  };
  uint64_t kept_mass = 0;
  for_each_kept([&](TokenId, uint64_t weight) {
    kept_mass += weight;
    return true;
  });
  const uint64_t target = ops::draw_target(args.seed, args.position, args.choice_index, kept_mass);
  uint64_t mass = 0;
  TokenId drawn = 0;
  for_each_kept([&](TokenId token, uint64_t weight) {
    drawn = token;
    mass += weight;
    return mass <= target;
  });
  return drawn;
}

void Sampler::fill_logprob(const Row& row, const LogSoftmax& log_softmax, TokenId token,
                           int32_t top_logprobs, std::span<const TokenId> listed,
                           TokenLogprob& logprob) {
  const auto of = [&](TokenId id) { return log_softmax(row.logits[static_cast<size_t>(id)]); };
  logprob.token = token;
  logprob.logprob = of(token);
  logprob.listed.clear();
  for (const TokenId id : listed) logprob.listed.push_back(of(id));
  logprob.top.clear();
  if (top_logprobs <= 0) return;
  const auto wanted = static_cast<size_t>(std::min<int64_t>(top_logprobs, vocab_size()));
  gather(row, std::max(reached_by(wanted), std::numeric_limits<float>::lowest()));
  const size_t count = std::min(wanted, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates_.end(), kBetter);
  for (size_t i = 0; i < count; ++i) {
    logprob.top.emplace_back(candidates_[i].token, log_softmax(candidates_[i].logit));
  }
}

}  // namespace heddle::sampling
