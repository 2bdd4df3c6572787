// SPDX-License-Identifier: Apache-2.0
// CpuReference: computes the nodes of a step of another device again on the CPU, in fp32 and exact
// mode, each from the numbers that it read there, so that no error is carried on to the next one.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/shape_contract.h"
#include "integration/watched_step.h"
#include "runner/step/pools.h"
#include "support/tensors.h"

namespace heddle::testing {

class CpuReference {
 public:
  // `cpu` is in exact mode. `forward`: the step, with pools of the CPU, which follow its nodes.
  // `tolerance`: of a result, as a part of the largest number of its tensor.
  CpuReference(const runner::ComputeDevice& cpu, const ops::ForwardContext& forward,
               const ops::Extents& extents, double tolerance)
      : context_(cpu.context()), forward_(forward), extents_(extents), tolerance_(tolerance) {}

  // In the order of the nodes.
  void expect_near(const WatchedStep::Launched& launched) {
    const graph::Node& node = launched.node;
    std::vector<Tensor> read, written;  // fp32
    std::vector<TensorView> inputs;
    std::vector<ops::TensorMeta> metas;
    for (const TensorView& input : launched.inputs) {
      const bool is_floating = kFloating.contains(input.dtype);
      read.push_back(is_floating ? converted(input, DType::kF32) : Tensor());
      inputs.push_back(is_floating ? TensorView(read.back().view()) : input);
      metas.push_back(ops::TensorMeta::of(inputs.back()));
    }
    std::vector<MutableTensorView> outputs;
    for (const TensorView& output : launched.outputs) {
      outputs.push_back(written.emplace_back(output.shape, DType::kF32).view());
    }
    for (const ops::OpDef::Alias& alias : node.op->aliases) {
      if (!alias.mutates) continue;
      outputs[static_cast<size_t>(alias.output)] = read[static_cast<size_t>(alias.input)].view();
    }
    Tensor workspace({node.op->workspace_bytes == nullptr
                          ? 0
                          : node.op->workspace_bytes(metas, node.attrs, extents_, context_)},
                     DType::kU8);
    const Status status = node.op->launch(context_, {.inputs = inputs,
                                                     .outputs = outputs,
                                                     .attrs = node.attrs,
                                                     .forward = forward_,
                                                     .workspace = workspace.span<std::byte>()});
    ASSERT_TRUE(status.ok()) << "on the CPU: " << status.to_string();
    for (size_t i = 0; i < outputs.size(); ++i) {
      expect_near(launched.outputs[i], outputs[i], fmt::format("output {}", i));
    }
  }

  // After the last node: pages and states of the device.
  void expect_near(const runner::ComputeDevice& compute, const runner::Pools& pools) const {
    for (size_t i = 0; i < forward_.kv_layers.size(); ++i) {
      const ops::KvLayer& got = pools.kv_layers()[i];
      const ops::KvLayer& want = forward_.kv_layers[i];
      expect_near(on_host(compute, got.k).view(), want.k, fmt::format("keys of layer {}", i));
      if (want.v.data == nullptr) continue;
      expect_near(on_host(compute, got.v).view(), want.v, fmt::format("values of layer {}", i));
    }
    for (size_t i = 0; i < forward_.state_layers.size(); ++i) {
      const ops::StateLayer& got = pools.state_layers()[i];
      const ops::StateLayer& want = forward_.state_layers[i];
      // A layer has one or both of the two parts of a state.
      if (want.conv.data != nullptr) {
        expect_near(on_host(compute, got.conv).view(), want.conv,
                    fmt::format("inputs kept for layer {}", i));
      }
      if (want.recurrent.data != nullptr) {
        expect_near(on_host(compute, got.recurrent).view(), want.recurrent,
                    fmt::format("states of layer {}", i));
      }
    }
  }

 private:
  void expect_near(const TensorView& got, const TensorView& want, const std::string& what) const {
    const std::vector<double> numbers = to_doubles(got), truths = to_doubles(want);
    ASSERT_EQ(numbers.size(), truths.size()) << what;
    double error = 0, largest = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double difference = std::fabs(numbers[i] - truths[i]);
      ASSERT_TRUE(std::isfinite(difference))
          << what << ": number " << i << " is " << numbers[i] << ", on the CPU " << truths[i];
      error = std::max(error, difference);
      largest = std::max(largest, std::fabs(truths[i]));
    }
    EXPECT_LE(error, tolerance_ * largest) << what << ", whose largest number is " << largest;
  }

  ops::Context& context_;
  ops::ForwardContext forward_;
  ops::Extents extents_;
  double tolerance_;
};

}  // namespace heddle::testing
