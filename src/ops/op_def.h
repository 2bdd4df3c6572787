// SPDX-License-Identifier: Apache-2.0
// OpDef: an op as the graph sees it: how output shapes follow from input shapes, which memory it
// changes, how it is launched. The contract of an op is in its own header (ops/norm/rms_norm.h);
// its OpDef only adapts it to the graph. Each op family returns its definitions from a function
// that ops/registry.h declares.
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

// The numbers of a step that a tensor's dimension may depend on; other dimensions are known when
// the graph is built.
enum class Symbol : uint8_t {
  kNone,
  kTokens,  // T: rows of the step
  kLogits,  // R: rows of the step whose logits are wanted
};

struct Extents {
  int64_t tokens = 0;
  int64_t logits = 0;
  // Sequences of the step; used for the size of workspaces, not for dimensions.
  int64_t sequences = 0;
};

// A dimension scale * symbol + offset. It never shrinks when the symbol grows, so that a memory
// plan for the largest step fits every step.
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

  // The metadata of an existing tensor, with all dimensions fixed.
  [[nodiscard]] static TensorMeta of(const TensorView& view);

  [[nodiscard]] const SymbolicDim& operator[](int i) const { return dims[static_cast<size_t>(i)]; }

  [[nodiscard]] Shape shape_at(const Extents& extents) const;
  [[nodiscard]] int64_t bytes_at(const Extents& extents) const;
  [[nodiscard]] std::string to_string() const;  // as in "float32[T, 256]"

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

  // Aborts if there is no attribute of this name: the code that builds a node must set it.
  [[nodiscard]] double real(std::string_view name) const;

  // nullopt if there is no attribute of this name.
  [[nodiscard]] std::optional<double> find(std::string_view name) const;

  [[nodiscard]] int64_t integer(std::string_view name) const {
    return static_cast<int64_t>(real(name));
  }

  [[nodiscard]] std::span<const Entry> entries() const { return {entries_.data(), size_}; }

 private:
  std::array<Entry, 12> entries_{};
  size_t size_ = 0;
};

// The dtype of a node's output: the attribute "output_dtype" if the builder has set it (for
// activations of an embedding, fp32 logits), else `otherwise`.
[[nodiscard]] inline DType output_dtype(const Attrs& attrs, DType otherwise) {
  const std::optional<double> asked = attrs.find("output_dtype");
  return asked ? static_cast<DType>(static_cast<int>(*asked)) : otherwise;
}

enum Effect : uint32_t {
  kPure = 0,
  kReadsContext = 1,  // reads the ForwardContext
  kWritesState = 2,   // writes KV pages or recurrent state: never removed as dead code
  kSplit = 4,         // launches differ between batches: a captured program is split here
  kCollective = 8,    // all ranks take part, in the same order: never dead code
};

// Which rows an op writes of outputs that have one row for each row of the step.
enum class WriteCoverage : uint8_t {
  kAllRows,
  kRealRows,  // rows of padding may be left unwritten (DeviceBatch::row_sequences)
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

  // An output that may share memory with an input. If `mutates`, the op writes to the input's
  // memory and the output is the input's new version. Otherwise the output is a column range of the
  // input, and the op is launched (as a copy) only if a reader does not support strided rows.
  struct Alias {
    int output = 0;
    int input = 0;
    bool mutates = false;
  };

  std::span<const Alias> aliases = {};

  // Whether inputs and outputs may be column ranges of wider tensors (row stride above the width).
  bool takes_strided_rows = true;

  // Computes the shapes of the outputs, or returns an error that names the input that does not fit.
  Status (*infer)(std::span<const TensorMeta> inputs, const Attrs& attrs,
                  std::vector<TensorMeta>& outputs) = nullptr;

  // Bytes of scratch memory for the largest step; null: the op needs none.
  int64_t (*workspace_bytes)(std::span<const TensorMeta> inputs, const Attrs& attrs,
                             const Extents& largest, const Context& context) = nullptr;

  // Checks and runs the op on the context's device.
  Status (*launch)(Context& context, const LaunchArgs& args) = nullptr;
};

}  // namespace heddle::ops
