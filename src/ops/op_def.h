// SPDX-License-Identifier: Apache-2.0
// OpDef: an op as the graph sees it: how shapes follow from shapes, what it changes, how it is
// launched. The op's own header (ops/norm/rms_norm.h) holds the contract; an OpDef only adapts it.
// Every op family offers its definitions through a function that ops/registry.h declares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// The numbers of a step that a dimension may depend on; all others are known when the graph is
// built.
enum class Symbol : uint8_t {
  kNone,
  kTokens,  // T: rows of the step
  kLogits,  // rows whose logits are wanted
};

struct Extents {
  int64_t tokens = 0;
  int64_t logits = 0;
  int64_t sequences = 0;  // no dimension depends on it, scratch may
};

// scale * symbol + offset. Monotone in the symbol, so that a plan for the largest step fits every
// step.
struct SymbolicDim {
  int64_t scale = 0;
  int64_t offset = 0;
  Symbol symbol = Symbol::kNone;

  [[nodiscard]] static SymbolicDim fixed(int64_t value) { return {.offset = value}; }

  [[nodiscard]] static SymbolicDim of(Symbol symbol) { return {.scale = 1, .symbol = symbol}; }

  [[nodiscard]] bool is_fixed() const { return symbol == Symbol::kNone; }

  [[nodiscard]] int64_t at(const Extents& extents) const {
    switch (symbol) {
      case Symbol::kTokens:
        return scale * extents.tokens + offset;
      case Symbol::kLogits:
        return scale * extents.logits + offset;
      case Symbol::kNone:
        return offset;
    }
    return offset;
  }

  friend bool operator==(const SymbolicDim&, const SymbolicDim&) = default;
};

struct TensorMeta {
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<SymbolicDim, Shape::kMaxRank> dims{};

  TensorMeta() = default;

  TensorMeta(DType type, std::initializer_list<SymbolicDim> shape)
      : dtype(type), rank(static_cast<int>(shape.size())) {
    HEDDLE_CHECK_LE(rank, Shape::kMaxRank);
    size_t i = 0;
    for (const SymbolicDim& dim : shape) dims[i++] = dim;
  }

  // The metadata of a tensor: all dimensions are fixed.
  [[nodiscard]] static TensorMeta of(const TensorView& view);

  [[nodiscard]] const SymbolicDim& operator[](int i) const { return dims[static_cast<size_t>(i)]; }

  [[nodiscard]] Shape shape_at(const Extents& extents) const;
  [[nodiscard]] int64_t bytes_at(const Extents& extents) const;
  [[nodiscard]] std::string to_string() const;  // "float32[T, 256]"

  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

// The named numbers of a node: {"epsilon", 1e-6}, {"layer", 3}. At most twelve; names are literals.
class Attrs {
 public:
  struct Entry {
    std::string_view name;
    double value = 0;  // integers up to 2^53 are exact
  };

  Attrs() = default;

  Attrs(std::initializer_list<Entry> entries) {
    for (const Entry& entry : entries) set(entry.name, entry.value);
  }

  void set(std::string_view name, double value);

  // Aborts when the name is not there: the builder and the launcher of an op belong together.
  [[nodiscard]] double real(std::string_view name) const;

  // nullopt if there is no attribute of this name
  [[nodiscard]] std::optional<double> find(std::string_view name) const;

  [[nodiscard]] int64_t integer(std::string_view name) const {
    return static_cast<int64_t>(real(name));
  }

  [[nodiscard]] std::span<const Entry> entries() const { return {entries_.data(), size_}; }

 private:
  std::array<Entry, 12> entries_{};
  size_t size_ = 0;
};

// The dtype of a node's output: that of the attribute "output_dtype", where the builder asked for
// one (activations of an embedding, fp32 logits), else `otherwise`.
[[nodiscard]] inline DType output_dtype(const Attrs& attrs, DType otherwise) {
  const std::optional<double> asked = attrs.find("output_dtype");
  return asked ? static_cast<DType>(static_cast<int>(*asked)) : otherwise;
}

enum Effect : uint32_t {
  kPure = 0,
  kReadsContext = 1,  // reads the ForwardContext
  kWritesState = 2,   // writes KV pages or recurrent state: never dead code
  kSplit = 4,         // launches differ between batches: a captured program is split here
  kCollective = 8,    // all ranks take part, in the same order: never dead code
};

// The rows that an op writes of outputs that have one for each row of the step.
enum class WriteCoverage : uint8_t {
  kAllRows,
  kRealRows,  // rows of padding may keep what their memory held (DeviceBatch::row_sequences)
};

struct LaunchArgs {
  std::span<const TensorView> inputs;
  std::span<const MutableTensorView> outputs;
  const Attrs& attrs;
  const ForwardContext& forward;
  std::span<std::byte> workspace;
};

struct OpDef {
  std::string_view name;
  uint32_t effects = kPure;
  WriteCoverage coverage = WriteCoverage::kAllRows;
  int num_inputs = 0;

  // Outputs that may share memory with an input. With `mutates`, the op writes there and the output
  // is the input's next version; otherwise the output is a column range of the input, and the op is
  // launched (as a copy) only where a reader cannot take strided rows.
  struct Alias {
    int output = 0;
    int input = 0;
    bool mutates = false;
  };

  std::span<const Alias> aliases = {};

  // Whether inputs and outputs may be column ranges of wider tensors (row stride above the width).
  bool takes_strided_rows = true;

  // Shapes of the outputs, or which input does not fit.
  Status (*infer)(std::span<const TensorMeta> inputs, const Attrs& attrs,
                  std::vector<TensorMeta>& outputs) = nullptr;

  // Scratch for the largest step; null: none.
  int64_t (*workspace_bytes)(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             const Extents& largest, const Context& context) = nullptr;

  // Checks and runs the op on the context's device.
  Status (*launch)(Context& context, const LaunchArgs& args) = nullptr;
};

}  // namespace heddle::ops
