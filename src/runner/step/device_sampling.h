// SPDX-License-Identifier: Apache-2.0
// DeviceSampling: draws the tokens of a step on the device that has the logits, so that a step
// reads back a few bytes per sequence instead of a row of the vocabulary. For equal logits the
// tokens are those of the Sampler, bit for bit (ops/sampling/sample_rows.h). Existing tokens are
// scored the same way: their rows draw the best token, which is not used, for the sum of weights
// and the alternatives that come with it.
//
// Threading: confined to one thread. Cost: one or three launches a step (ops::DrawKind), and a copy
// of 4 bytes for each token that is scored or listed (Request::logprob_tokens). One upload in a
// step whose settings differ from those of the step before; the same rows some tokens later do not
// count as different. Allocates nothing once its sizes have been seen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "device/staging.h"
#include "ops/context.h"
#include "ops/sampling/sample_rows.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "sampling/log_softmax.h"

namespace heddle::runner {

// The output that penalties count at the draw of a row: the counts of one batch slot, and ids of
// drafts on the path to the row.
struct RowOutput {
  int32_t counts_row = 0;
  int32_t path_begin = 0;
  uint64_t path = 0;  // bit i: count the id of row path_begin + i
};

// The step's arrays in device memory; null if nothing refers to them.
struct SamplingMemory {
  const int32_t* ended = nullptr;           // by row; not 0: it draws nothing, its text has ended
                                            // (DrawnFeed)
  const int32_t* ids = nullptr;             // [T], the ids of the step
  const ops::TokenCount* counts = nullptr;  // the table of OutputCounts
};

class DeviceSampling {
 public:
  // For steps with at most `max_rows` rows of logits. Error: kResourceExhausted.
  static Result<DeviceSampling> create(device::Device& device, int64_t max_rows,
                                       int64_t vocab_size);

  // Begins a step with `num_rows` rows of logits; no row is drawn from until it is added.
  void begin(int64_t num_rows);

  // Row `row` draws the token at `position` for the sequence in `slot`, from the tokens that `mask`
  // allows (PlannedSequence::masks). `output` is needed only if the sequence has penalties.
  void add(int64_t row, const request::BatchSlot& slot, int64_t position,
           std::span<const uint32_t> mask, const RowOutput& output = {});

  // Row `row` scores `token`, which is at `position`, with `top_logprobs` alternatives and the
  // logprobs of the tokens in `listed`.
  void add_scored(int64_t row, TokenId token, int64_t position, int32_t top_logprobs,
                  std::span<const TokenId> listed);

  [[nodiscard]] bool draws(int64_t row) const {
    return asked_.rows[static_cast<size_t>(row)].slot >= 0;
  }

  // Enqueues the draws of the added rows; kernels write the results to host memory. `logits`
  // [num_rows, V] f32, in device memory; rows with a mask, a bias or a penalty are modified.
  // `tells_all`: as in SampleRowsArgs.
  Status enqueue(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
                 const SamplingMemory& memory, bool tells_all = false);

  // Whether the kernels of the last enqueue() signal the host when they have drawn. If not, the
  // caller needs an event after them.
  [[nodiscard]] bool tells() const { return tells_; }

  // Whether the results have arrived in host memory. Only if tells().
  [[nodiscard]] bool told();

  // The token of each added row, in device memory [max_rows]; -1 where the draw failed.
  [[nodiscard]] int32_t* drawn() { return reinterpret_cast<int32_t*>(drawn_.data()); }

  // Whether an added row drew nothing because of SamplingMemory::ended. Valid once the enqueued
  // work is done, or told() is true.
  [[nodiscard]] bool has_ended(int64_t row) const;

  // The token, logprob and error of an added row. Valid when has_ended() is.
  void take(int64_t row, request::SampledToken& sampled) const;

  // The logprob or error of the `index`-th row of add_scored(). Valid when has_ended() is.
  void take_scored(size_t index, request::ScoredToken& scored) const;

 private:
  explicit DeviceSampling(device::Device& device)
      : upload_(device, /*num_blocks=*/1, device::UploadRing::Waits::kNever),
        results_(device, /*num_blocks=*/1),
        fetched_logits_(device, /*num_blocks=*/1) {}

  // A single logit that is read back.
  struct Fetched {
    int64_t row = 0;
    TokenId token = 0;
  };

  // Range of fetched_ with the logits of the tokens that a row lists. If the row scores a token,
  // that token's logit comes right before the range.
  struct RowLogits {
    size_t begin = 0;
    size_t num_listed = 0;
  };

  // The draws of a step in the form that the device reads.
  struct Asked {
    std::vector<ops::SamplingRow> rows;
    std::vector<ops::SamplingSlot> slots;  // by row of logits: the parameters of its draw
    std::vector<int32_t> forbidden;
    std::vector<ops::TokenBias> biases;
    std::vector<uint32_t> masks;  // ceil(V / 32) words for each row with a mask

    void clear();

    // The value for SampleRowsArgs::kind.
    [[nodiscard]] ops::DrawKind kind() const;

    // By how many tokens each row is further than in `earlier`, if that is the only difference.
    [[nodiscard]] std::optional<int64_t> shift_from(const Asked& earlier) const;
  };

  // Byte offsets of the lists in the uploaded block.
  struct Offsets {
    int64_t rows = 0, slots = 0, forbidden = 0, biases = 0, masks = 0;
    int64_t end = 0;

    static Offsets of(const Asked& asked);
  };

  Status upload(device::Stream& stream, const Offsets& offsets);
  void list(int64_t row, std::span<const TokenId> tokens);
  Status fetch_logits(device::Stream& stream, const MutableTensorView& logits);
  [[nodiscard]] std::span<ops::SampledRow> results();
  [[nodiscard]] const ops::SampledRow& result(int64_t row) const;
  [[nodiscard]] float fetched_logit(size_t index) const;
  void add_alternatives(int64_t row, const sampling::LogSoftmax& log_softmax,
                        TokenLogprob& logprob) const;

  int64_t vocab_size_ = 0;
  bool wants_logprobs_ = false;
  bool tells_ = false;
  size_t num_told_ = 0;  // number of rows that are known to be complete
  Asked asked_;
  Asked uploaded_;                     // the contents of upload_
  std::vector<float> temperatures_;    // temperature of the weights, by row
  std::vector<int64_t> scored_;        // rows added by add_scored()
  std::vector<RowLogits> row_logits_;  // by row of logits: its range in fetched_
  std::vector<Fetched> fetched_;
  // upload_ never waits: the caller begins no step before the step that used the same memory is
  // done.
  device::UploadRing upload_;
  device::ReadbackRing results_;  // results of the draws: SampledRow [R], then TopLogit [R,
                                  // kMostTopLogits]
  device::ReadbackRing fetched_logits_;
  device::Buffer workspace_;
  device::Buffer drawn_;
};

}  // namespace heddle::runner
