// SPDX-License-Identifier: Apache-2.0
// HopperDeltaRuleTest: runs steps of the gated delta rule on a Hopper GPU, in bf16 with heads of
// 128, from random inputs and states, and compares them with the reference. Its tests skip
// elsewhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/gated_delta_rule_reference.h"
#include "ops/linear_attention/gated_delta_rule_sm90.h"
#include "support/tensors.h"

namespace heddle::ops {

class HopperDeltaRuleTest : public DeviceTest {
 protected:
  static constexpr int64_t kDim = 128;

  // Products of numbers rounded to bf16, with fp32 sums: 2^-8 for each factor, averaged over 128.
  // Keys that are all nearly the same cancel and lose more.
  static constexpr double kRounding = 6e-3;
  static constexpr double kParallelRounding = 4e-2;

  enum class Kind : uint8_t { kRandom, kParallelKeys, kStrongDecay, kSlowDecay };

  struct Step {
    int64_t Nk = 1, Nv = 2;
    std::vector<int32_t> rows;          // per sequence
    std::vector<int32_t> context_lens;  // per sequence
    std::vector<StateSnapshot> snapshots = {};
    Kind kind = Kind::kRandom;
    DType snapshot_dtype = DType::kF32;
  };

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const device::CudaProperties& gpu = cuda_context().gpu.properties();
    if (gpu.major != 9) GTEST_SKIP() << gpu.name << " is no Hopper GPU";
  }

  CudaContext& cuda_context() { return static_cast<CudaContext&>(context()); }

  // Makes a step's inputs; sequence b has working slot b + 1, snapshots have a separate pool.
  void make(const Step& step, uint64_t seed) {
    step_ = step;
    query_start_ = {0};
    slots_.clear();
    for (const int32_t rows : step.rows) {
      query_start_.push_back(query_start_.back() + rows);
      slots_.push_back(static_cast<int32_t>(slots_.size()) + 1);
    }
    T_ = query_start_.back();
    const int64_t width = (2 * step.Nk + step.Nv) * kDim;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Tensor inputs({T_, width}, DType::kF32);
    for (float& x : inputs.span<float>()) x = normal(random);
    if (step.kind == Kind::kParallelKeys) {
      std::vector<float> key(static_cast<size_t>(kDim));
      for (float& x : key) x = normal(random);
      for (int64_t t = 0; t < T_; ++t) {
        float* keys = inputs.view().row<float>(t) + step.Nk * kDim;
        for (int64_t c = 0; c < step.Nk * kDim; ++c) {
          keys[c] = key[static_cast<size_t>(c % kDim)] + 0.15f * keys[c];
        }
      }
    }
    qkv_ = testing::converted(inputs.view(), DType::kBf16);
    a_ = testing::random_tensor({T_, step.Nv}, DType::kF32, seed + 1);
    b_ = testing::random_tensor({T_, step.Nv}, DType::kF32, seed + 2);
    dt_bias_ = testing::random_tensor({step.Nv}, DType::kF32, seed + 3);
    neg_exp_a_log_ = Tensor({step.Nv}, DType::kF32);
    for (float& x : neg_exp_a_log_.span<float>()) {
      switch (step.kind) {
        case Kind::kRandom:
          x = -std::exp(0.5f * normal(random) - 1.0f);
          break;
        case Kind::kParallelKeys:
          x = -1e-4f;
          break;
        case Kind::kStrongDecay:
          x = -5.0f;
          break;
        case Kind::kSlowDecay:
          x = -1e-3f;
      }
    }
    if (step.kind == Kind::kParallelKeys) {
      for (float& x : b_.span<float>()) x = 6.0f;
    }
    const int64_t num_slots = std::ssize(step.rows) + 1;
    states_ = testing::random_tensor({num_slots, step.Nv, kDim, kDim}, DType::kF32, seed + 4);
    const int64_t num_snapshots = std::ssize(step.snapshots) + 1;
    snapshots_ = Tensor({num_snapshots, step.Nv, kDim, kDim}, step.snapshot_dtype);
    testing::poison(snapshots_);
  }

  // Leaves the first `count` sequences in the step.
  void keep_sequences(size_t count) {
    step_.rows.resize(count);
    step_.context_lens.resize(count);
    query_start_.resize(count + 1);
    slots_.resize(count);
    T_ = query_start_.back();
    for (Tensor* rows : {&qkv_, &a_, &b_}) {
      const TensorView all = std::as_const(*rows).view();
      *rows =
          testing::converted(TensorView(all.data, all.dtype, Shape{T_, all.shape[1]}), all.dtype);
    }
  }

  // Runs the step of make(), from its states.
  void run(bool exact = false) {
    ForwardContext forward;
    forward.query_start = query_start_;
    forward.context_lens = step_.context_lens;
    forward.state_slots = slots_;
    forward.snapshots = step_.snapshots;
    upload_batch(forward);
    const DeviceTensor qkv = upload(qkv_), a = upload(a_), b = upload(b_);
    const DeviceTensor dt_bias = upload(dt_bias_), neg_exp_a_log = upload(neg_exp_a_log_);
    DeviceTensor states = upload(states_), snapshots = upload(snapshots_);
    DeviceTensor scales = poisoned({snapshots_.shape()[0], step_.Nv, kDim}, DType::kF32);
    DeviceTensor y = poisoned({T_, step_.Nv * kDim}, DType::kBf16);
    const device::Buffer scratch =
        workspace(gated_delta_rule_workspace_bytes(context(exact), {.max_tokens = T_,
                                                                    .num_value_heads = step_.Nv,
                                                                    .key_dim = kDim,
                                                                    .value_dim = kDim,
                                                                    .dtype = DType::kBf16}));
    GatedDeltaRuleArgs args{.qkv = qkv.view(),
                            .a = a.view(),
                            .b = b.view(),
                            .neg_exp_a_log = neg_exp_a_log.view(),
                            .dt_bias = dt_bias.view(),
                            .y = y.view(),
                            .num_key_heads = step_.Nk,
                            .key_dim = kDim,
                            .value_dim = kDim,
                            .state = {.conv = {}, .recurrent = states.view()},
                            .snapshots = {.conv = {}, .recurrent = snapshots.view(), .scales = {}},
                            .forward = &forward,
                            .workspace = scratch.bytes()};
    if (step_.snapshot_dtype == DType::kI8) args.snapshots.scales = scales.view();
    if (!exact) {
      ASSERT_TRUE(gated_delta_rule_sm90_fits(cuda_context(), args));
    }
    const Status status = gated_delta_rule(context(exact), args);
    ASSERT_TRUE(status.ok()) << status.message();
    y_ = download(y);
    states_after_ = download(states);
    snapshots_after_ = download(snapshots);
    scales_after_ = download(scales);
  }

  // Relative errors over all sequences and heads.
  void expect_near_reference(double tolerance) {
    double error = 0, norm = 0, state_error = 0, state_norm = 0;
    const Tensor inputs = testing::converted(qkv_.view(), DType::kF32);
    const std::vector<double> got = testing::to_doubles(y_.view());
    const auto gate = [&](int64_t t, int64_t h) {
      const double x = static_cast<double>(a_.view().row<float>(t)[h]) +
                       static_cast<double>(dt_bias_.span<float>()[static_cast<size_t>(h)]);
      return static_cast<double>(neg_exp_a_log_.span<float>()[static_cast<size_t>(h)]) *
             std::log1p(std::exp(x));
    };
    for (size_t q = 0; q < step_.rows.size(); ++q) {
      const int64_t first = query_start_[q];
      for (int64_t h = 0; h < step_.Nv; ++h) {
        std::vector<float> g, beta;
        for (int64_t t = first; t < first + step_.rows[q]; ++t) {
          g.push_back(static_cast<float>(gate(t, h)));
          beta.push_back(static_cast<float>(
              1.0 / (1.0 + std::exp(-static_cast<double>(b_.view().row<float>(t)[h])))));
        }
        const float* row = inputs.view().row<float>(first);
        const int64_t width = inputs.shape()[1];
        const int64_t key_head = h / (step_.Nv / step_.Nk);
        const DeltaRuleHead head{.q = row + key_head * kDim,
                                 .k = row + (step_.Nk + key_head) * kDim,
                                 .v = row + 2 * step_.Nk * kDim + h * kDim,
                                 .q_stride = width,
                                 .k_stride = width,
                                 .v_stride = width,
                                 .g = g.data(),
                                 .beta = beta.data(),
                                 .num_tokens = step_.rows[q],
                                 .key_dim = kDim,
                                 .value_dim = kDim};
        std::vector<double> state(static_cast<size_t>(kDim * kDim));
        const auto matrix = [&](const Tensor& states, int64_t slot) {
          return states.view().row<float>(slot) + h * kDim * kDim;
        };
        if (step_.context_lens[q] > 0) {
          const float* before = matrix(states_, slots_[q]);
          for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<double>(before[i]);
        }
        const std::vector<double> want = delta_rule_reference(head, state);
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t t = i / static_cast<size_t>(kDim), v = i % static_cast<size_t>(kDim);
          const size_t at = ((static_cast<size_t>(first) + t) * static_cast<size_t>(step_.Nv) +
                             static_cast<size_t>(h)) *
                                static_cast<size_t>(kDim) +
                            v;
          error += (got[at] - want[i]) * (got[at] - want[i]);
          norm += want[i] * want[i];
        }
        const float* after = matrix(states_after_, slots_[q]);
        for (size_t i = 0; i < state.size(); ++i) {
          const double difference = static_cast<double>(after[i]) - state[i];
          state_error += difference * difference;
          state_norm += state[i] * state[i];
        }
      }
    }
    EXPECT_LT(std::sqrt(error / norm), tolerance);
    EXPECT_LT(std::sqrt(state_error / state_norm), tolerance);
  }

  Step step_;
  int64_t T_ = 0;
  std::vector<int32_t> query_start_, slots_;
  Tensor qkv_, a_, b_, dt_bias_, neg_exp_a_log_, states_, snapshots_;
  Tensor y_, states_after_, snapshots_after_, scales_after_;
};

}  // namespace heddle::ops
