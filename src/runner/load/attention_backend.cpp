// SPDX-License-Identifier: Apache-2.0
#include "runner/load/attention_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/choice_names.h"
#include "core/log.h"
#include "ops/attention/paged_attention.h"

namespace heddle {

namespace {

// The names after "plain" are those of SGLang.
constexpr ChoiceNames<AttentionBackend, 11> kBackends = {{
    {"auto", AttentionBackend::kAuto},
    {"plain", AttentionBackend::kPlain},
    {"torch_native", AttentionBackend::kPlain},
    {"flashinfer", AttentionBackend::kAuto},
    {"fa3", AttentionBackend::kAuto},
    {"fa4", AttentionBackend::kAuto},
    {"triton", AttentionBackend::kAuto},
    {"flashmla", AttentionBackend::kAuto},
    {"cutlass_mla", AttentionBackend::kAuto},
    {"trtllm_mha", AttentionBackend::kAuto},
    {"trtllm_mla", AttentionBackend::kAuto},
}};

}  // namespace

std::string_view to_string(AttentionBackend backend) { return name_of(kBackends, backend); }

Result<AttentionBackend> parse_attention_backend(std::string_view name) {
  return choice_of(kBackends, name, "attention_backend", "auto or plain");
}

}  // namespace heddle

namespace heddle::runner {

void choose_attention(AttentionBackend backend, int32_t page_size, ForwardPass& pass) {
  if (pass.context().device == ops::DeviceKind::kCpu) return;
  auto& context = static_cast<ops::CudaContext&>(pass.context());
  context.plain_attention = backend == AttentionBackend::kPlain;
  const models::CacheNeeds needs = pass.cache_needs();
  std::vector<std::string> described;  // groups of the same shape share a line
  for (const models::PageGroup& group : needs.page_groups) {
    const int64_t value_dim = group.shape.value_width();
    std::string kernels = ops::describe_attention_cuda(context, {.activations = pass.activations(),
                                                                 .pages = pass.kv_dtype(),
                                                                 .head_dim = group.shape.head_dim,
                                                                 .value_dim = value_dim,
                                                                 .is_latent = value_dim == 0,
                                                                 .page_size = page_size});
    if (std::ranges::find(described, kernels) != described.end()) continue;
    log_info(fmt::format("attention: {}", kernels));
    described.push_back(std::move(kernels));
  }
}

}  // namespace heddle::runner
