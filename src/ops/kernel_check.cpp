// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel_check.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/tensor.h"
#include "device/cpu_device.h"
#include "ops/attention/latent_projection.h"
#include "ops/attention/page_copy.h"
#include "ops/attention/paged_attention.h"
#include "ops/device_batch.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/forward_context.h"
#include "ops/gemm/linear.h"
#include "ops/layout/layout.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_rms_norm.h"
#include "ops/linear_attention/state_snapshot.h"
#include "ops/moe/routed_moe.h"
#include "ops/norm/rms_norm.h"
#include "ops/pool_lists.h"
#include "ops/rope/rope.h"

namespace heddle::ops {

namespace {

constexpr double kTolerance = 1e-4;  // of a result's norm: sums of some hundred fp32 terms
constexpr int64_t kRows = 5;
constexpr int32_t kPageSize = 16;

// One of the two devices that a case runs on. Both make the same numbers in the same order.
class Side {
 public:
  Side(device::Device& device, device::Stream& stream, Context& context)
      : context_(context), device_(device), stream_(stream) {}

  [[nodiscard]] Context& context() const { return context_; }

  // Forgets the case before; its memory goes with it.
  void begin() {
    state_ = 1;
    buffers_.clear();
    host_.clear();
    outputs_.clear();
    status_ = {};
  }

  // Numbers within [-1, 1].
  MutableTensorView random(const Shape& shape, float scale = 1) {
    Tensor tensor(shape, DType::kF32);
    for (float& value : tensor.span<float>()) value = scale * draw();
    return put(std::move(tensor));
  }

  TensorView ids(const std::vector<int32_t>& values) {
    Tensor tensor({std::ssize(values)}, DType::kI32);
    std::memcpy(tensor.view().data, values.data(), static_cast<size_t>(tensor.num_bytes()));
    return put(std::move(tensor));
  }

  // A result of the case.
  MutableTensorView output(const Shape& shape) {
    const MutableTensorView view = put(Tensor(shape, DType::kF32));
    outputs_.push_back(view);
    return view;
  }

  // A tensor that an op changes in place is a result, too.
  MutableTensorView changed(const MutableTensorView& view) {
    outputs_.push_back(view);
    return view;
  }

  std::span<std::byte> workspace(int64_t num_bytes) {
    const MutableTensorView view = put(Tensor({num_bytes}, DType::kU8));
    return {view.as<std::byte>(), static_cast<size_t>(num_bytes)};
  }

  template <typename Element>
  MirroredSpan<Element> list(const std::vector<Element>& values) {
    Tensor bytes({static_cast<int64_t>(values.size() * sizeof(Element))}, DType::kU8);
    std::memcpy(bytes.view().data, values.data(), static_cast<size_t>(bytes.num_bytes()));
    const auto* mirror = put(std::move(bytes)).template as<Element>();
    return {.host = values, .device = context_.device == DeviceKind::kCpu ? nullptr : mirror};
  }

  // One sequence of kRows rows without context, in page 1 and slot 1.
  const ForwardContext& forward() {
    static constexpr std::array<int32_t, 2> kStarts = {0, kRows};
    static constexpr std::array<int32_t, 1> kNone = {0};
    static constexpr std::array<int32_t, 1> kOne = {1};
    static constexpr std::array<int32_t, kRows> kIds = {0, 1, 2, 3, 4};
    forward_ = {.query_start = kStarts,
                .context_lens = kNone,
                .kv_lens = kNone,
                .page_table = kOne,
                .page_table_width = 1,
                .page_size = kPageSize,
                .state_slots = kOne};
    if (context_.device != DeviceKind::kCpu) keep(upload(kIds));
    return forward_;
  }

  // The results on the host, once the device is done.
  Result<std::vector<Tensor>> results() {
    HEDDLE_RETURN_IF_ERROR(status_);
    std::vector<Tensor> tensors;
    for (const MutableTensorView& output : outputs_) {
      Tensor tensor(output.shape, output.dtype);
      HEDDLE_RETURN_IF_ERROR(stream_.copy(tensor.view().data, output.data, tensor.num_bytes()));
      tensors.push_back(std::move(tensor));
    }
    HEDDLE_RETURN_IF_ERROR(stream_.synchronize());
    return tensors;
  }

 private:
  float draw() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
  }

  // The first error.
  void keep(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  MutableTensorView put(Tensor tensor) {
    MutableTensorView view = tensor.view();
    if (context_.device != DeviceKind::kCpu) {
      Result<device::Buffer> buffer = device_.allocate(std::max<int64_t>(tensor.num_bytes(), 1));
      keep(buffer.status());
      if (!buffer.ok()) return view;
      view.data = buffer->data();
      keep(stream_.copy(view.data, tensor.view().data, tensor.num_bytes()));
      buffers_.push_back(std::move(buffer).value());
    }
    host_.push_back(std::move(tensor));  // until the copy is done
    return view;
  }

  Status upload(std::span<const int32_t> ids) {
    if (!batch_) {
      HEDDLE_ASSIGN_OR_RETURN(
          batch_, DeviceBatchUpload::create(
                      device_, {.max_rows = kRows,
                                .max_sequences = 1,
                                .max_pages_per_sequence = DeviceBatchUpload::width_of(forward_),
                                .max_snapshots = 1,
                                .max_logit_rows = 1}));
    }
    return batch_->upload(stream_, ids, ids, forward_);
  }

  Context& context_;
  device::Device& device_;
  device::Stream& stream_;
  uint64_t state_ = 1;
  std::vector<device::Buffer> buffers_;
  std::vector<Tensor> host_;
  std::vector<MutableTensorView> outputs_;
  ForwardContext forward_;
  std::optional<DeviceBatchUpload> batch_;
  Status status_;
};

Status norm_case(Side& side) {
  const MutableTensorView x = side.random({kRows, 96});
  const MutableTensorView weight = side.random({96});
  return rms_norm(side.context(), {.x = x, .weight = weight, .y = side.output(x.shape)});
}

Status elementwise_case(Side& side) {
  const MutableTensorView a = side.random({kRows, 100});
  const MutableTensorView b = side.random({kRows, 100});
  for (const ElementwiseKind kind :
       {ElementwiseKind::kAdd, ElementwiseKind::kMul, ElementwiseKind::kSigmoid,
        ElementwiseKind::kSigmoidMul, ElementwiseKind::kSiluMul}) {
    const TensorView second = kind == ElementwiseKind::kSigmoid ? TensorView() : TensorView(b);
    HEDDLE_RETURN_IF_ERROR(elementwise(
        side.context(), {.kind = kind, .a = a, .b = second, .y = side.output(a.shape)}));
  }
  return {};
}

Status layout_case(Side& side) {
  const MutableTensorView table = side.random({11, 40});
  const TensorView ids = side.ids({3, 0, 10, 7, 3});
  const MutableTensorView rows = side.output({kRows, 40});
  HEDDLE_RETURN_IF_ERROR(embedding(side.context(), {.ids = ids, .table = table, .y = rows}));
  return copy_rows(side.context(), rows, {}, side.output(rows.shape));
}

Status rope_case(Side& side) {
  const MutableTensorView x = side.random({kRows, 2 * 32});
  const MutableTensorView frequencies = side.random({8});
  const MutableTensorView weight = side.random({32});
  return rope(side.context(), {.x = x,
                               .norm_weight = weight,
                               .positions = side.ids({0, 1, 2, 30, 31}),
                               .inverse_frequencies = frequencies,
                               .y = side.output(x.shape),
                               .head_dim = 32});
}

Status linear_case(Side& side) {
  for (const int64_t T : {int64_t{1}, kRows, int64_t{40}}) {  // rows, and the library's
    const int64_t K = 72;
    const int64_t N = 48;
    const MutableTensorView x = side.random({T, K});
    const MutableTensorView weight = side.random({N, K});
    const MutableTensorView bias = side.random({N});
    HEDDLE_RETURN_IF_ERROR(
        linear(side.context(), {.x = x,
                                .weight = weight,
                                .bias = bias,
                                .y = side.output({T, N}),
                                .workspace = side.workspace(linear_workspace_bytes(
                                    side.context(), T, K, N, DType::kF32))}));
  }
  return {};
}

Status moe_case(Side& side) {
  const RoutedMoeShape shape{.H = 64, .I = 32, .E = 6, .A = 2, .weight = DType::kF32};
  const MutableTensorView x = side.random({kRows, shape.H});
  const MutableTensorView logits = side.random({kRows, shape.E}, 4);
  const MutableTensorView w13 = side.random({shape.E, 2 * shape.I, shape.H});
  const MutableTensorView w2 = side.random({shape.E, shape.H, shape.I});
  return routed_moe(
      side.context(),
      {.x = x,
       .router_logits = logits,
       .w13 = w13,
       .w2 = w2,
       .y = side.output(x.shape),
       .experts_per_token = shape.A,
       .workspace = side.workspace(routed_moe_workspace_bytes(side.context(), kRows, shape))});
}

Status linear_attention_case(Side& side) {
  constexpr int64_t kHeads = 2;
  constexpr int64_t kKeyDim = 32;
  constexpr int64_t kValueDim = 48;
  constexpr int64_t kChannels = 2 * kHeads * kKeyDim + kHeads * kValueDim;
  const StateLayer state{.conv = side.changed(side.random({2, 3, kChannels})),
                         .recurrent = side.changed(side.random({2, kHeads, kValueDim, kKeyDim}))};
  const MutableTensorView qkv = side.output({kRows, kChannels});
  HEDDLE_RETURN_IF_ERROR(causal_conv1d(side.context(), {.x = side.random({kRows, kChannels}),
                                                        .weight = side.random({kChannels, 4}),
                                                        .y = qkv,
                                                        .state = state,
                                                        .snapshots = {},
                                                        .forward = &side.forward()}));
  const MutableTensorView a = side.random({kRows, kHeads});
  const MutableTensorView b = side.random({kRows, kHeads});
  const MutableTensorView decay = side.random({kHeads});
  const MutableTensorView bias = side.random({kHeads});
  const MutableTensorView o = side.output({kRows, kHeads * kValueDim});
  HEDDLE_RETURN_IF_ERROR(gated_delta_rule(
      side.context(),
      {.qkv = qkv,
       .a = a,
       .b = b,
       .neg_exp_a_log = decay,
       .dt_bias = bias,
       .y = o,
       .num_key_heads = kHeads,
       .key_dim = kKeyDim,
       .value_dim = kValueDim,
       .state = state,
       .snapshots = {},
       .forward = &side.forward(),
       .workspace = side.workspace(gated_delta_rule_workspace_bytes(
           side.context(), {.max_tokens = kRows, .key_dim = kKeyDim, .value_dim = kValueDim}))}));
  const MutableTensorView z = side.random(o.shape);
  const MutableTensorView weight = side.random({kValueDim});
  return gated_rms_norm(side.context(),
                        {.x = o, .z = z, .weight = weight, .y = side.output(o.shape)});
}

Status state_case(Side& side) {
  const std::vector<StateLayer> layers = {{.conv = side.changed(side.random({3, 3, 8})),
                                           .recurrent = side.changed(side.random({3, 2, 4, 4}))}};
  const std::vector<IdCopy> copies = {{.from = 1, .to = 2}};
  const std::vector<int32_t> zeroed = {1};
  const MirroredSpan<StateLayer> working = side.list(layers);
  HEDDLE_RETURN_IF_ERROR(
      copy_states(side.context(), {.working = working, .slots = side.list(copies)}));
  HEDDLE_RETURN_IF_ERROR(
      zero_states(side.context(), {.working = working, .slots = side.list(zeroed)}));
  // Lists are read when the kernels run.
  return side.results().status();
}

Status attention_case(Side& side) {
  constexpr int64_t kDim = 32;
  const KvLayer kv{.k = side.changed(side.random({3, kPageSize, 1, kDim})),
                   .v = side.changed(side.random({3, kPageSize, 1, kDim}))};
  const MutableTensorView q = side.random({kRows, 2 * kDim});
  const MutableTensorView k = side.random({kRows, kDim});
  const MutableTensorView v = side.random({kRows, kDim});
  HEDDLE_RETURN_IF_ERROR(
      paged_attention(side.context(), {.q = q,
                                       .k = k,
                                       .v = v,
                                       .y = side.output(q.shape),
                                       .num_kv_heads = 1,
                                       .head_dim = kDim,
                                       .scale = 0.2f,
                                       .sinks = {},
                                       .kv = kv,
                                       .forward = &side.forward(),
                                       .workspace = side.workspace(paged_attention_workspace_bytes(
                                           side.context(), kRows, kDim, kDim))}));
  const std::vector<KvLayer> layers = {kv};
  const std::vector<IdCopy> copies = {{.from = 1, .to = 2}};
  HEDDLE_RETURN_IF_ERROR(
      copy_pages(side.context(), {.layers = side.list(layers), .pages = side.list(copies)}));
  return side.results().status();
}

Status latent_case(Side& side) {
  constexpr int64_t kHeads = 2;
  constexpr int64_t kKeyDim = 16;
  constexpr int64_t kValueDim = 24;
  constexpr int64_t kLatent = 40;
  const MutableTensorView weight = side.random({kHeads * (kKeyDim + kValueDim), kLatent});
  HEDDLE_RETURN_IF_ERROR(absorb_query(side.context(), {.x = side.random({kRows, kHeads * kKeyDim}),
                                                       .weight = weight,
                                                       .y = side.output({kRows, kHeads * kLatent}),
                                                       .num_heads = kHeads,
                                                       .key_dim = kKeyDim}));
  return expand_values(side.context(), {.x = side.random({kRows, kHeads * kLatent}),
                                        .weight = weight,
                                        .y = side.output({kRows, kHeads * kValueDim}),
                                        .num_heads = kHeads,
                                        .key_dim = kKeyDim});
}

double relative_error(const Tensor& got, const Tensor& want) {
  double delta = 0;
  double norm = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i) {
    const auto index = static_cast<size_t>(i);
    const double expected = want.span<float>()[index];
    const double difference = got.span<float>()[index] - expected;
    delta += difference * difference;
    norm += expected * expected;
  }
  if (!std::isfinite(delta)) return INFINITY;
  return norm > 0 ? std::sqrt(delta / norm) : std::sqrt(delta);
}

struct Case {
  const char* name;
  Status (*run)(Side& side);
};

constexpr Case kCases[] = {{"rms_norm", norm_case},
                           {"elementwise", elementwise_case},
                           {"embedding", layout_case},
                           {"rope", rope_case},
                           {"linear", linear_case},
                           {"routed_moe", moe_case},
                           {"gated_delta_rule", linear_attention_case},
                           {"copy_states", state_case},
                           {"paged_attention", attention_case},
                           {"latent_projection", latent_case}};

Result<std::vector<Tensor>> run_case(const Case& one, Side& side) {
  side.begin();
  HEDDLE_RETURN_IF_ERROR(one.run(side).with_context(one.name));
  Result<std::vector<Tensor>> results = side.results();
  if (!results.ok()) return results.status().with_context(one.name);
  return results;
}

}  // namespace

Status check_kernels(device::Device& device, device::Stream& stream, Context& context) {
  device::CpuDevice cpu(1);
  HEDDLE_ASSIGN_OR_RETURN(const auto cpu_stream, cpu.create_stream());
  CpuContext cpu_context(cpu.pool(), context.exact);
  Side reference(cpu, *cpu_stream, cpu_context);
  Side tested(device, stream, context);
  for (const Case& one : kCases) {
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Tensor> want, run_case(one, reference));
    HEDDLE_ASSIGN_OR_RETURN(const std::vector<Tensor> got, run_case(one, tested));
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = relative_error(got[i], want[i]);
      if (error < kTolerance) continue;
      return internal_error(
          fmt::format("{} on {} differs from the CPU by {:.1e}", one.name, device.name(), error));
    }
  }
  return {};
}

}  // namespace heddle::ops
