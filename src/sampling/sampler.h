// SPDX-License-Identifier: Apache-2.0
// Sampler: a row of logits becomes a token.
//
// The order of operations, on fp32 logits:
//   1 tokens that are forbidden, or that a mask rules out, become -inf
//   2 logit_bias is added
//   3 repetition penalty, once per distinct token of the output: positive logits / p, negative * p
//   4 - frequency_penalty * count - presence_penalty, for tokens that occur in the output
//   5 divided by the temperature          6 softmax
//   7 top_k, then top_p on the probabilities of step 6 (a token stays if the mass of the better
//     ones is <= top_p), then min_p (stays if its probability is >= min_p times the best)
//   8 draw: the kept tokens in ascending order of id; the first whose cumulated probability exceeds
//     uniform_draw(seed, position, choice) times the mass that was kept
// Better means: higher logit after step 4, at equal logits the lower id. Temperatures below 1e-6
// are greedy: the best token after step 4.
//
// Probabilities are whole numbers of 2^-44 of the best one's (ops/sampling/token_weight.h): their
// sums are exact, and a device that sums in another order draws the same token.
//
// Logprobs are the log softmax after step 5 (temperature 1 when greedy), before step 7; masked
// tokens have -9999.
//
// Threading: thread-confined (scratch inside); one Sampler per thread may work on different rows.
// Cost: the vocabulary is never sorted. Greedy and top_k read it once; top_p, the open draw and
// logprobs once more for the softmax. Allocates nothing after construction, except in
// `logprob->top`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "ops/sampling/sample_rows.h"
#include "ops/sampling/token_weight.h"
#include "request/batch_plan.h"
#include "sampling/log_softmax.h"
#include "sampling/logit_row.h"

namespace heddle::sampling {

inline constexpr TokenId kNoToken = -1;

// The weights of this many tokens have a 64-bit sum.
inline constexpr int64_t kMaxVocabSize = (int64_t{1} << (64 - ops::kWeightBits)) - 1;

struct SampleArgs {
  std::span<float> logits;  // [V], overwritten
  const SamplingParams* params = nullptr;
  std::span<const TokenId> output_tokens;     // output so far, for penalties
  std::span<const TokenId> forbidden_tokens;  // may not be drawn now
  // Bit i % 32 of word i / 32 says whether token i may be drawn; tokens beyond the words may not.
  // Empty: all may.
  std::span<const uint32_t> mask;
  uint64_t seed = 0;
  int64_t position = 0;  // absolute index of the token that is drawn
  int32_t choice_index = 0;
  int32_t top_logprobs = 0;                 // alternatives to report in `logprob`
  std::span<const TokenId> logprob_tokens;  // others to report there, wherever they rank
};

// Why a row gave no token: kInternal with a message that begins "numerical error". OK where one was
// drawn or none was wanted.
[[nodiscard]] Status outcome_status(ops::SampleOutcome outcome, int64_t position);

class Sampler {
 public:
  // `vocab_size` is from 1 to kMaxVocabSize (checked).
  explicit Sampler(int64_t vocab_size);

  // The token; with `logprob` not null also its logprob, the best alternatives and those listed.
  // Error: kInternal with a message that begins "numerical error", when a logit is NaN or +inf or
  // every token is masked. `logits` has V entries and token ids lie within the vocabulary
  // (checked).
  Result<TokenId> sample(const SampleArgs& args, TokenLogprob* logprob = nullptr);

  // The logprob of a given token at `position`, with `top_logprobs` alternatives and those of
  // `listed`: the log softmax of the unmodified logits. Error: as that of sample().
  Status score(std::span<const float> logits, TokenId token, int64_t position, int32_t top_logprobs,
               std::span<const TokenId> listed, TokenLogprob& logprob);

  [[nodiscard]] int64_t vocab_size() const { return static_cast<int64_t>(counts_.size()); }

 private:
  struct Candidate {
    float logit;
    TokenId token;
    uint64_t weight;
  };

  // The worst token that is kept; everything better is kept too.
  struct Cut {
    float logit;
    TokenId token;

    [[nodiscard]] bool keeps(float other_logit, TokenId other_token) const {
      return other_logit > logit || (other_logit == logit && other_token <= token);
    }
  };

  // A row after step 4.
  struct Row {
    std::span<const float> logits;
    float max;
    float inverse_temperature;
    uint64_t total;  // sum of weights; 0 where it is not needed

    [[nodiscard]] uint64_t weight(float logit) const {
      return ops::token_weight(logit, max, inverse_temperature);
    }
  };

  void edit_logits(const SampleArgs& args);
  // The row at this temperature, with block_max_; `best` is its best token.
  Result<Row> scan(std::span<const float> logits, float temperature, int64_t position,
                   TokenId& best);
  [[nodiscard]] Cut find_cut(const Row& row, const SamplingParams& params);
  [[nodiscard]] Cut find_top_p(const Row& row, float top_p, Cut cut);
  [[nodiscard]] TokenId draw_open(const Row& row, const SampleArgs& args) const;
  [[nodiscard]] TokenId draw_below_cut(const Row& row, const Cut& cut,
                                       const SampleArgs& args) const;
  void fill_logprob(const Row& row, const LogSoftmax& log_softmax, TokenId token,
                    int32_t top_logprobs, std::span<const TokenId> listed, TokenLogprob& logprob);

  // A logit that at least `count` tokens reach; -inf if the blocks do not tell.
  [[nodiscard]] float reached_by(size_t count);
  void gather(const Row& row, float lowest_logit);  // into candidates_

  std::vector<int32_t> counts_;        // [V], all zero between calls
  std::vector<float> block_max_;       // [blocks]
  std::vector<float> block_scratch_;   // [blocks]
  std::vector<uint64_t> block_sums_;   // [blocks]
  std::vector<Candidate> candidates_;  // capacity V
};

}  // namespace heddle::sampling
