// SPDX-License-Identifier: Apache-2.0
// Sampler: draws a token from a row of logits.
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
// "Better" means: a higher logit after step 4, or an equal logit and a lower id. Temperatures below
// 1e-6 are greedy: they draw the best token after step 4.
//
// Probabilities are whole multiples of 2^-44 of the best token's (ops/sampling/token_weight.h).
// Their sums are exact, so a device that sums in another order draws the same token.
//
// Logprobs are the log softmax after step 5 (with temperature 1 when greedy) and before step 7;
// masked tokens have -9999.
//
// Threading: thread-confined (it has scratch memory); several Samplers, one per thread, may work on
// different rows. Cost: the vocabulary is never sorted. Greedy draws and top_k read it once; top_p,
// draws without filters and logprobs read it once more for the softmax. Allocates nothing after
// construction, except in `logprob->top`.
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

// Most tokens whose weights have a sum that fits in 64 bits.
inline constexpr int64_t kMaxVocabSize = (int64_t{1} << (64 - ops::kWeightBits)) - 1;

struct SampleArgs {
  std::span<float> logits;  // logits of the row [V], overwritten
  const SamplingParams* params = nullptr;
  std::span<const TokenId> output_tokens;     // output so far, for penalties
  std::span<const TokenId> forbidden_tokens;  // tokens that may not be drawn now
  // Bit i % 32 of word i / 32 says whether token i may be drawn; tokens beyond the words may not.
  // Empty: all tokens may be drawn.
  std::span<const uint32_t> mask;
  uint64_t seed = 0;
  int64_t position = 0;  // absolute index of the token that is drawn
  int32_t choice_index = 0;
  int32_t top_logprobs = 0;                 // number of alternatives to report in `logprob`
  std::span<const TokenId> logprob_tokens;  // further tokens to report in `logprob`, whatever their
                                            // rank
};

// The error of a row that gave no token: kInternal, with a message that begins "numerical error".
// OK if a token was drawn or none was wanted.
[[nodiscard]] Status outcome_status(ops::SampleOutcome outcome, int64_t position);

class Sampler {
 public:
  // `vocab_size` is from 1 to kMaxVocabSize (checked).
  explicit Sampler(int64_t vocab_size);

  // Draws a token. If `logprob` is not null, also reports its logprob, the best alternatives and
  // the listed tokens. Error: kInternal, with a message that begins "numerical error", when a logit
  // is NaN or +inf or every token is masked. `logits` must have V entries, and token ids must be
  // within the vocabulary (checked).
  Result<TokenId> sample(const SampleArgs& args, TokenLogprob* logprob = nullptr);

  // Computes the logprob of a given token at `position`, with `top_logprobs` alternatives and the
  // tokens in `listed`: the log softmax of the unmodified logits. Error: as that of sample().
  Status score(std::span<const float> logits, TokenId token, int64_t position, int32_t top_logprobs,
               std::span<const TokenId> listed, TokenLogprob& logprob);

  [[nodiscard]] int64_t vocab_size() const { return static_cast<int64_t>(counts_.size()); }

 private:
  struct Candidate {
    float logit;
    TokenId token;
    uint64_t weight;
  };

  // The worst token that the filters keep; all better tokens are kept too.
  struct Cut {
    float logit;
    TokenId token;

    [[nodiscard]] bool keeps(float other_logit, TokenId other_token) const {
      return other_logit > logit || (other_logit == logit && other_token <= token);
    }
  };

  // A row after step 4 of the order of operations above.
  struct Row {
    std::span<const float> logits;
    float max;
    float inverse_temperature;
    uint64_t total;  // sum of weights; 0 if it is not needed

    [[nodiscard]] uint64_t weight(float logit) const {
      return ops::token_weight(logit, max, inverse_temperature);
    }
  };

  void edit_logits(const SampleArgs& args);
  // Scans the row at this temperature and fills block_max_. Sets `best` to its best token.
  Result<Row> scan(std::span<const float> logits, float temperature, int64_t position,
                   TokenId& best);
  [[nodiscard]] Cut find_cut(const Row& row, const SamplingParams& params);
  [[nodiscard]] Cut find_top_p(const Row& row, float top_p, Cut cut);
  [[nodiscard]] TokenId draw_open(const Row& row, const SampleArgs& args) const;
  [[nodiscard]] TokenId draw_below_cut(const Row& row, const Cut& cut,
                                       const SampleArgs& args) const;
  void fill_logprob(const Row& row, const LogSoftmax& log_softmax, TokenId token,
                    int32_t top_logprobs, std::span<const TokenId> listed, TokenLogprob& logprob);

  // A logit that at least `count` tokens reach; -inf if the block maxima do not suffice to find
  // one.
  [[nodiscard]] float reached_by(size_t count);
  void gather(const Row& row, float lowest_logit);  // fills candidates_ with the tokens from
                                                    // lowest_logit up

  std::vector<int32_t> counts_;        // [V] occurrences of each token in the output; all zero
                                       // between calls
  std::vector<float> block_max_;       // [blocks] the largest logit of each block
  std::vector<float> block_scratch_;   // [blocks] scratch of reached_by()
  std::vector<uint64_t> block_sums_;   // [blocks] the sum of each block's weights
  std::vector<Candidate> candidates_;  // has capacity for V tokens
};

}  // namespace heddle::sampling
