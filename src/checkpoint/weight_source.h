// SPDX-License-Identifier: Apache-2.0
// The source of weights: the safetensors files of a checkpoint (checkpoint_files.h), GGUF files
// (gguf_weights.h) or a generator of seeded random values (dummy_weights.h). Sources are asked by
// hub name and return rows of a tensor in the requested dtype, so that a generated model is never
// in memory twice.
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
  kLogDecay,   // logarithm of a uniform number in (0, 16): A_log of gated delta networks
};

struct WeightRequest {
  std::string_view name;  // name of the tensor in the hub
  Shape shape;            // the shape that the model expects; a generator uses it without a check
  Initial initial = Initial::kSmall;
};

struct StoredWeight {
  std::string_view name;
  std::string_view stored_dtype;  // the dtype as the file spells it, for messages
  std::optional<DType> dtype;     // none if Heddle does not know the stored format
  Shape shape;
  const void* data = nullptr;  // the numbers in memory; null if they cannot be used in place
  // Set if the weight is stored in blocks that packed rows can hold unchanged. read() also returns
  // their numbers.
  std::optional<quant::BlockRows> blocks = std::nullopt;
  Initial initial = Initial::kSmall;
};

// Threading: const functions are thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Finds a stored tensor; none if there is no such tensor.
  [[nodiscard]] virtual std::optional<StoredWeight> find(const WeightRequest& request) const = 0;

  // The names of all stored tensors, for finding those that no weight uses. Empty for a generator.
  // Valid as long as *this.
  [[nodiscard]] virtual std::vector<std::string_view> names() const = 0;

  // One sentence for each contradiction among the folder's files, with the variant that is used.
  // The caller that loads the weights logs them once.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }

  // A sentence that names weight files of the folder that are not read, or empty.
  [[nodiscard]] virtual std::string unread_files() const { return {}; }

  // Copies elements [first, first + count) of a weight that find() returned, converted to `dtype`.
  // The stored dtype and `dtype` are equal or convertible (convert.h).
  virtual void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                    void* target) const = 0;

  // The rule by which a GPU computes the same values in place. None for stored weights and for
  // those that only the host can draw.
  [[nodiscard]] virtual std::optional<DrawnWeight> drawn(const StoredWeight&) const {
    return std::nullopt;
  }
};

}  // namespace heddle::checkpoint
