// SPDX-License-Identifier: Apache-2.0
// DeviceSampling: the draws of a step, made where the logits are, so that a step brings back some
// bytes for each sequence and not a row of the vocabulary. Given equal logits the tokens are those
// of the Sampler, bit for bit (ops/sampling/sample_rows.h). Tokens that are there already are
// scored likewise: their rows draw the best token, which is not used, for the sum of the weights
// and the alternatives that come with it.
//
// Threading: confined. Cost: three launches a step, or one (ops::DrawKind), and a copy of 4 bytes
// for each token that is scored or listed (Request::logprob_tokens); one copy to the device where a
// step asks for other things than the last one, the same rows some tokens further on are the same.
// Allocates nothing once its sizes have been seen.
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

// The output at the draw of a row, for penalties: as the counts say, and some ids of the step.
struct RowOutput {
  int32_t counts_row = 0;
  int32_t path_begin = 0;
  uint64_t path = 0;  // bit i: the id of row path_begin + i
};

// The step's arrays in device memory; null if nothing refers to them.
struct SamplingMemory {
  const int32_t* ended = nullptr;           // rows that draw nothing after all (DrawnFeed)
  const int32_t* ids = nullptr;             // [T]
  const ops::TokenCount* counts = nullptr;  // OutputCounts
};

class DeviceSampling {
 public:
  // For steps of at most `max_rows` rows of logits. Error: kResourceExhausted.
  static Result<DeviceSampling> create(device::Device& device, int64_t max_rows,
                                       int64_t vocab_size);

  // Begins a step with that many rows of logits, none of which is drawn from yet.
  void begin(int64_t num_rows);

  // Row `row` draws the token at `position` for the sequence in `slot`, out of those that `mask`
  // allows (PlannedSequence::masks). `output`: where the sequence has penalties.
  void add(int64_t row, const request::BatchSlot& slot, int64_t position,
           std::span<const uint32_t> mask, const RowOutput& output = {});

  // Row `row` scores `token`, the one at `position`, with `top_logprobs` alternatives and those of
  // `listed`.
  void add_scored(int64_t row, TokenId token, int64_t position, int32_t top_logprobs,
                  std::span<const TokenId> listed);

  [[nodiscard]] bool draws(int64_t row) const {
    return asked_.rows[static_cast<size_t>(row)].slot >= 0;
  }

  // Enqueues the draws of the rows that were added; kernels write the results to the host's memory.
  // `logits` [num_rows, V] f32, in memory of the device; rows with a mask, a bias or a penalty are
  // edited. `tells_all`: as in SampleRowsArgs.
  Status enqueue(ops::Context& context, device::Stream& stream, const MutableTensorView& logits,
                 const SamplingMemory& memory, bool tells_all = false);

  // Whether the kernels of the last enqueue() signal the host when they have drawn; otherwise the
  // caller needs an event after them.
  [[nodiscard]] bool tells() const { return tells_; }

  // With tells(): whether the results have arrived.
  [[nodiscard]] bool told();

  // In memory of the device, [max_rows]: the token of each row that was added, -1 where the draw
  // failed.
  [[nodiscard]] int32_t* drawn() { return reinterpret_cast<int32_t*>(drawn_.data()); }

  // After the enqueued work, or with told(): whether an added row drew nothing because of
  // SamplingMemory::ended.
  [[nodiscard]] bool has_ended(int64_t row) const;

  // Then also: an added row's token, logprob and error.
  void take(int64_t row, request::SampledToken& sampled) const;

  // Then also: the logprob or error of the `index`-th row of add_scored().
  void take_scored(size_t index, request::ScoredToken& scored) const;

 private:
  explicit DeviceSampling(device::Device& device)
      : upload_(device, /*num_blocks=*/1, device::UploadRing::Waits::kNever),
        results_(device, /*num_blocks=*/1),
        fetched_logits_(device, /*num_blocks=*/1) {}

  // A logit that comes back by itself.
  struct Fetched {
    int64_t row = 0;
    TokenId token = 0;
  };

  // In fetched_: the logits of the tokens that a row lists, before them the one that it scores.
  struct RowLogits {
    size_t begin = 0;
    size_t num_listed = 0;
  };

  // The draws of a step, as the device reads them.
  struct Asked {
    std::vector<ops::SamplingRow> rows;
    std::vector<ops::SamplingSlot> slots;  // by row
    std::vector<int32_t> forbidden;
    std::vector<ops::TokenBias> biases;
    std::vector<uint32_t> masks;  // for rows with a mask, ceil(V / 32) words each

    void clear();

    // SampleRowsArgs::kind.
    [[nodiscard]] ops::DrawKind kind() const;

    // How much further each row is than in `earlier`, where that is the only difference.
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
  size_t num_told_ = 0;  // rows known to be complete
  Asked asked_;
  Asked uploaded_;                     // contents of upload_
  std::vector<float> temperatures_;    // temperature of the weights, by row
  std::vector<int64_t> scored_;        // rows
  std::vector<RowLogits> row_logits_;  // by row
  std::vector<Fetched> fetched_;
  // The caller begins no step before the one that used them is done.
  device::UploadRing upload_;
  device::ReadbackRing results_;  // SampledRow [R], then TopLogit [R, kMostTopLogits]
  device::ReadbackRing fetched_logits_;
  device::Buffer workspace_;
  device::Buffer drawn_;
};

}  // namespace heddle::runner
