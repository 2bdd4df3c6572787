// SPDX-License-Identifier: Apache-2.0
// The source of weights: the safetensors files of a checkpoint (checkpoint_files.h), GGUF files
// (gguf_weights.h) or a generator of seeded random values (dummy_weights.h). All are asked by hub
// name and give rows of a tensor in the wanted dtype, so that a generated model of any size never
// exists twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/drawn_weight.h"
#include "core/tensor.h"
#include "quant/block_formats.h"

namespace heddle::checkpoint {

// The distribution that a generator draws a tensor from.
enum class Initial : uint8_t {
  kSmall,      // normal, standard deviation 0.02: matrices, zero-centred norms
  kAroundOne,  // 1 + the above: plain norms, dt_bias
  kLogDecay,   // log of a uniform number of (0, 16): A_log of gated delta networks
};

struct WeightRequest {
  std::string_view name;  // hub name
  Shape shape;            // what the model expects; a generator takes it as given
  Initial initial = Initial::kSmall;
};

struct StoredWeight {
  std::string_view name;
  std::string_view stored_dtype;  // for messages
  std::optional<DType> dtype;     // none: stored in a format Heddle does not know
  Shape shape;
  const void* data = nullptr;  // null when there is no memory to use in place
  // Blocks, which packed rows hold value for value. read() gives their numbers, too.
  std::optional<quant::BlockRows> blocks = std::nullopt;
  Initial initial = Initial::kSmall;
};

// Threading: const functions are thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // None when there is no such tensor.
  [[nodiscard]] virtual std::optional<StoredWeight> find(const WeightRequest& request) const = 0;

  // Every stored name, so that tensors that no weight uses are noticed. Empty for a generator.
  // Valid while *this lives.
  [[nodiscard]] virtual std::vector<std::string_view> names() const = 0;

  // Where the folder's files give two answers to one question: both, and which of them is used. To
  // be logged once, by whoever loads the weights.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }

  // A sentence that names weight files of the folder that are not read, or empty.
  [[nodiscard]] virtual std::string unread_files() const { return {}; }

  // Copies elements [first, first + count) of a weight that find() returned, converted to `dtype`.
  // Both dtypes are equal or convertible (convert.h).
  virtual void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                    void* target) const = 0;

  // The rule by which a GPU computes the same values in place. None for weights that are stored
  // and for those that only the host can draw.
  [[nodiscard]] virtual std::optional<DrawnWeight> drawn(const StoredWeight&) const {
    return std::nullopt;
  }
};

}  // namespace heddle::checkpoint
