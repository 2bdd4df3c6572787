// SPDX-License-Identifier: Apache-2.0
// GuardedStep: one step of a program in memory that shows which bytes were written.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/program.h"

namespace heddle::testing {

using Bytes = std::vector<std::byte>;

// Memory that begins and ends with bytes that must not change.
class GuardedMemory {
 public:
  GuardedMemory() = default;

  GuardedMemory(int64_t size, std::byte pattern)
      : size_(size), bytes_({size + 2 * kGuardBytes}, DType::kU8) {
    std::memset(bytes_.view().data, static_cast<int>(pattern),
                static_cast<size_t>(bytes_.num_bytes()));
  }

  [[nodiscard]] std::byte* data() { return bytes_.view().as<std::byte>() + kGuardBytes; }

  [[nodiscard]] std::span<std::byte> span() { return {data(), static_cast<size_t>(size_)}; }

  [[nodiscard]] Bytes all() const {
    const auto* begin = bytes_.view().as<std::byte>();
    return {begin, begin + bytes_.num_bytes()};
  }

  [[nodiscard]] bool guards_hold(std::byte pattern) const {
    const Bytes bytes = all();
    const auto is_pattern = [pattern](std::byte byte) { return byte == pattern; };
    return std::ranges::all_of(std::span(bytes).first(kGuardBytes), is_pattern) &&
           std::ranges::all_of(std::span(bytes).last(kGuardBytes), is_pattern);
  }

  // The offset of `data` in all().
  [[nodiscard]] size_t offset_of(const void* data) const {
    return static_cast<size_t>(static_cast<const std::byte*>(data) - bytes_.view().as<std::byte>());
  }

 private:
  static constexpr int64_t kGuardBytes = 256;

  int64_t size_ = 0;
  Tensor bytes_;
};

inline size_t row_bytes(const TensorView& view) {
  return static_cast<size_t>(bytes_of(view.dtype, TensorView::dense_row_stride(view.shape)));
}

template <typename Visit>
void for_each_row(const TensorView& view, Visit visit) {
  const int64_t stride = bytes_of(view.dtype, view.row_stride);
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    visit(static_cast<const std::byte*>(view.data) + i * stride);
  }
}

// Runs nodes one by one in memory of its own, which holds `pattern` wherever nothing was written,
// and fails the test where a launch does not do what its op's shape function says: every element of
// the outputs is written and no byte beside them, inputs included, the workspace asked for is
// enough, and an output of another shape is refused before anything is written.
class GuardedStep {
 public:
  GuardedStep(const graph::Program& program, ops::Extents extents, std::byte pattern)
      : placed_(program.placed), extents_(extents), pattern_(pattern) {
    storages_.resize(graph().values.size());
    for (uint32_t id = 0; id < graph().values.size(); ++id) {
      if (is_computed({id}) && placed_.placements[id].storage == graph::Value{id}) {
        storages_[id] = GuardedMemory(placed_.storage_bytes({id}, extents), pattern);
      }
    }
  }

  // All that nodes wrote to their outputs, in order: what an output's launch leaves out differs
  // between two patterns. Ends with the first failure.
  Bytes run(ops::Context& context, const ops::ForwardContext& forward,
            std::span<const TensorView> inputs) {
    for (const graph::Node& node : graph().nodes) {
      SCOPED_TRACE(node.scope + std::string(node.op->name));
      launch(context, forward, inputs, node);
      if (::testing::Test::HasFailure()) break;
    }
    return std::move(written_);
  }

 private:
  using Outputs = std::vector<MutableTensorView>;
  using Storages = std::map<uint32_t, Bytes>;  // by value id

  [[nodiscard]] const graph::Graph& graph() const { return placed_.graph; }

  [[nodiscard]] bool is_computed(graph::Value value) const {
    return graph().info(value).kind == graph::ValueKind::kComputed;
  }

  [[nodiscard]] uint32_t storage_of(graph::Value value) const {
    return placed_.placements[value.id].storage.id;
  }

  MutableTensorView computed(graph::Value value) {
    const ops::TensorMeta& meta = graph().info(value).meta;
    const int64_t offset = bytes_of(meta.dtype, placed_.placements[value.id].column);
    return {storages_[storage_of(value)].data() + offset, meta.dtype, meta.shape_at(extents_),
            placed_.row_stride(value)};
  }

  TensorView input(graph::Value value, std::span<const TensorView> step_inputs) {
    const graph::ValueInfo& info = graph().info(value);
    if (info.kind == graph::ValueKind::kConstant) return info.constant;
    if (info.kind == graph::ValueKind::kComputed) return computed(value);
    for (size_t i = 0; i < step_inputs.size(); ++i) {
      if (graph().inputs[i] == value) return step_inputs[i];
    }
    return {};
  }

  [[nodiscard]] Storages storages_of(const graph::Node& node) const {
    Storages storages;
    for (const auto& values : {node.inputs, node.outputs}) {
      for (const graph::Value value : values) {
        if (!is_computed(value)) continue;
        storages[storage_of(value)] = storages_[storage_of(value)].all();
      }
    }
    return storages;
  }

  void launch(ops::Context& context, const ops::ForwardContext& forward,
              std::span<const TensorView> step_inputs, const graph::Node& node) {
    std::vector<TensorView> inputs;
    std::vector<ops::TensorMeta> metas;
    for (const graph::Value value : node.inputs) {
      inputs.push_back(input(value, step_inputs));
      metas.push_back(graph().info(value).meta);
    }
    Outputs outputs;
    for (const graph::Value value : node.outputs) outputs.push_back(computed(value));
    GuardedMemory workspace(node.op->workspace_bytes == nullptr
                                ? 0
                                : node.op->workspace_bytes(metas, node.attrs, extents_, context),
                            pattern_);
    const auto launch_into = [&](const Outputs& results) {
      return node.op->launch(context, {.inputs = inputs,
                                       .outputs = results,
                                       .attrs = node.attrs,
                                       .forward = forward,
                                       .workspace = workspace.span()});
    };

    const Storages before = storages_of(node);
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (const int dim : {0, outputs[i].shape.rank() - 1}) {
        Outputs wrong = outputs;
        wrong[i].shape = one_more(wrong[i].shape, dim);
        EXPECT_FALSE(launch_into(wrong).ok())
            << "output " << i << ": " << wrong[i].shape.to_string();
      }
    }
    EXPECT_TRUE(storages_of(node) == before) << "what was refused was written all the same";

    const Status status = launch_into(outputs);
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_only_outputs_changed(node, outputs, before);
    EXPECT_TRUE(workspace.guards_hold(pattern_))
        << workspace.span().size() << " bytes of workspace are not enough";
    for (const MutableTensorView& output : outputs) {
      for_each_row(output, [&](const std::byte* row) {
        written_.insert(written_.end(), row, row + row_bytes(output));
      });
    }
  }

  void expect_only_outputs_changed(const graph::Node& node, const Outputs& outputs,
                                   Storages expected) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const uint32_t storage = storage_of(node.outputs[i]);
      for_each_row(outputs[i], [&](const std::byte* row) {
        std::memcpy(expected[storage].data() + storages_[storage].offset_of(row), row,
                    row_bytes(outputs[i]));
      });
    }
    EXPECT_TRUE(storages_of(node) == expected) << "more was written than the outputs";
  }

  static Shape one_more(const Shape& shape, int dim) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    ++dims[static_cast<size_t>(dim)];
    return Shape(dims);
  }

  const graph::PlacedGraph& placed_;
  ops::Extents extents_;
  std::byte pattern_;
  std::vector<GuardedMemory> storages_;  // by value id
  Bytes written_;
};

}  // namespace heddle::testing
