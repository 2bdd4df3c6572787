// SPDX-License-Identifier: Apache-2.0
// WatchedStep: one step of a program in memory of its device that shows which bytes were written.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/program.h"
#include "runner/program/compute_device.h"

namespace heddle::testing {

using Bytes = std::vector<std::byte>;

// Between the host and the device. An error of a kernel launched before fails the test here.
inline void copy_and_wait(const runner::ComputeDevice& compute, void* to, const void* from,
                          int64_t num_bytes) {
  Status status = compute.stream().copy(to, from, num_bytes);
  if (status.ok()) status = compute.stream().synchronize();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

// A dense copy of a tensor in memory of the device.
inline Tensor on_host(const runner::ComputeDevice& compute, const TensorView& view) {
  Tensor copy(view.shape, view.dtype);
  const int64_t num_pieces = view.dense() ? 1 : view.shape[0];
  const int64_t piece_bytes = copy.num_bytes() / num_pieces;
  for (int64_t i = 0; i < num_pieces; ++i) {
    copy_and_wait(compute, copy.view().as<std::byte>() + i * piece_bytes,
                  view.as<std::byte>() + i * bytes_of(view.dtype, view.row_stride), piece_bytes);
  }
  return copy;
}

// Memory of a device that begins and ends with bytes that must not change; the host sees copies.
class GuardedMemory {
 public:
  static constexpr int64_t kGuardBytes = 256;

  GuardedMemory() = default;

  // All bytes are `pattern`.
  GuardedMemory(const runner::ComputeDevice& compute, int64_t size, std::byte pattern)
      : compute_(&compute),
        size_(size),
        buffer_(compute.device().allocate(size + 2 * kGuardBytes).value()) {
    const Bytes bytes(static_cast<size_t>(buffer_.size()), pattern);
    copy_and_wait(compute, buffer_.data(), bytes.data(), buffer_.size());
  }

  // In memory of the device.
  [[nodiscard]] std::byte* data() const { return buffer_.data() + kGuardBytes; }

  [[nodiscard]] std::span<std::byte> span() const { return {data(), static_cast<size_t>(size_)}; }

  // data() is at kGuardBytes of these.
  [[nodiscard]] Bytes all() const { return bytes(0, buffer_.size()); }

  [[nodiscard]] bool guards_hold(std::byte pattern) const {
    const Bytes guard(kGuardBytes, pattern);
    return bytes(0, kGuardBytes) == guard && bytes(kGuardBytes + size_, kGuardBytes) == guard;
  }

 private:
  [[nodiscard]] Bytes bytes(int64_t begin, int64_t count) const {
    Bytes copy(static_cast<size_t>(count));
    copy_and_wait(*compute_, copy.data(), buffer_.data() + begin, count);
    return copy;
  }

  const runner::ComputeDevice* compute_ = nullptr;
  int64_t size_ = 0;
  device::Buffer buffer_;
};

// Runs nodes one by one in memory of its own, which holds `pattern` wherever nothing was written,
// and fails the test where a launch does not do what its op's shape function says: every element of
// the outputs is written and no byte beside them, inputs included, the workspace asked for is
// enough, and an output of another shape is refused before anything is written.
class WatchedStep {
 public:
  // The inputs and outputs of a launch, on the host.
  struct Launched {
    const graph::Node& node;
    std::span<const TensorView> inputs;  // as they were before
    std::span<const TensorView> outputs;
  };

  using Check = std::function<void(const Launched&)>;

  // `compute` is the device that the program was compiled for.
  WatchedStep(const graph::Program& program, const runner::ComputeDevice& compute,
              const ops::Extents& extents, std::byte pattern)
      : placed_(program.placed), compute_(compute), extents_(extents), pattern_(pattern) {
    storages_.resize(graph().values.size());
    for (uint32_t id = 0; id < graph().values.size(); ++id) {
      if (is_computed({id}) && placed_.placements[id].storage == graph::Value{id}) {
        storages_[id] = GuardedMemory(compute, placed_.storage_bytes({id}, extents), pattern);
      }
    }
  }

  // All that nodes wrote to their outputs, in order: what an output's launch leaves out differs
  // between two patterns. Inputs and arrays of the batch lie in memory of the device. `check`, if
  // any, sees every launch. Ends with the first failure.
  Bytes run(const ops::ForwardContext& forward, std::span<const TensorView> inputs,
            const Check& check = {}) {
    for (const graph::Node& node : graph().nodes) {
      SCOPED_TRACE(node.scope + std::string(node.op->name));
      launch(forward, inputs, node, check);
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

  // A computed value, whose storage begins at `data`.
  [[nodiscard]] MutableTensorView view(graph::Value value, std::byte* data) const {
    const ops::TensorMeta& meta = graph().info(value).meta;
    const int64_t offset = bytes_of(meta.dtype, placed_.placements[value.id].column);
    return {data + offset, meta.dtype, meta.shape_at(extents_), placed_.row_stride(value)};
  }

  [[nodiscard]] MutableTensorView computed(graph::Value value) const {
    return view(value, storages_[storage_of(value)].data());
  }

  [[nodiscard]] MutableTensorView copied(graph::Value value, Storages& storages) const {
    return view(value, storages.at(storage_of(value)).data() + GuardedMemory::kGuardBytes);
  }

  [[nodiscard]] TensorView input(graph::Value value,
                                 std::span<const TensorView> step_inputs) const {
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
        if (!is_computed(value) || storages.contains(storage_of(value))) continue;
        storages[storage_of(value)] = storages_[storage_of(value)].all();
      }
    }
    return storages;
  }

  void launch(const ops::ForwardContext& forward, std::span<const TensorView> step_inputs,
              const graph::Node& node, const Check& check) {
    ops::Context& context = compute_.context();
    std::vector<TensorView> inputs;
    std::vector<ops::TensorMeta> metas;
    for (const graph::Value value : node.inputs) {
      inputs.push_back(input(value, step_inputs));
      metas.push_back(graph().info(value).meta);
    }
    Outputs outputs;
    for (const graph::Value value : node.outputs) outputs.push_back(computed(value));
    const GuardedMemory workspace(
        compute_,
        node.op->workspace_bytes == nullptr
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

    Storages before = storages_of(node);
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (const int dim : {0, outputs[i].shape.rank() - 1}) {
        Outputs wrong = outputs;
        wrong[i].shape = one_more(wrong[i].shape, dim);
        EXPECT_FALSE(launch_into(wrong).ok())
            << "output " << i << ": " << wrong[i].shape.to_string();
      }
    }
    EXPECT_TRUE(storages_of(node) == before) << "what was refused was written all the same";

    Status status = launch_into(outputs);
    if (status.ok()) status = compute_.stream().synchronize();
    ASSERT_TRUE(status.ok()) << status.to_string();
    Storages after = storages_of(node);
    expect_only_outputs_changed(node, before, after);
    EXPECT_TRUE(workspace.guards_hold(pattern_))
        << workspace.span().size() << " bytes of workspace are not enough";
    for (const graph::Value value : node.outputs) {
      const MutableTensorView output = copied(value, after);
      for (int64_t i = 0; i < output.shape[0]; ++i) {
        written_.insert(written_.end(), row(output, i), row(output, i) + row_bytes(output));
      }
    }
    if (check) show(node, inputs, before, after, check);
  }

  void expect_only_outputs_changed(const graph::Node& node, Storages expected,
                                   Storages& after) const {
    for (const graph::Value value : node.outputs) {
      const MutableTensorView output = copied(value, after), copy = copied(value, expected);
      for (int64_t i = 0; i < output.shape[0]; ++i) {
        std::memcpy(row(copy, i), row(output, i), row_bytes(output));
      }
    }
    EXPECT_TRUE(after == expected) << "more was written than the outputs";
  }

  void show(const graph::Node& node, std::span<const TensorView> inputs, Storages& before,
            Storages& after, const Check& check) const {
    std::vector<Tensor> from_outside;
    std::vector<TensorView> read, written;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_computed(node.inputs[i])) {
        read.push_back(copied(node.inputs[i], before));
      } else {
        read.push_back(from_outside.emplace_back(on_host(compute_, inputs[i])).view());
      }
    }
    for (const graph::Value value : node.outputs) written.push_back(copied(value, after));
    check({.node = node, .inputs = read, .outputs = written});
  }

  static std::byte* row(const MutableTensorView& view, int64_t i) {
    return view.as<std::byte>() + i * bytes_of(view.dtype, view.row_stride);
  }

  static size_t row_bytes(const MutableTensorView& view) {
    return static_cast<size_t>(bytes_of(view.dtype, TensorView::dense_row_stride(view.shape)));
  }

  static Shape one_more(const Shape& shape, int dim) {
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
    ++dims[static_cast<size_t>(dim)];
    return Shape(dims);
  }

  const graph::PlacedGraph& placed_;
  const runner::ComputeDevice& compute_;
  ops::Extents extents_;
  std::byte pattern_;
  std::vector<GuardedMemory> storages_;  // by value id
  Bytes written_;
};

}  // namespace heddle::testing
