// SPDX-License-Identifier: Apache-2.0
// Replaces the launchers in *_cuda.cu in a build without CUDA.
#include "ops/attention/latent_projection.h"
#include "ops/attention/page_copy.h"
#include "ops/attention/paged_attention.h"
#include "ops/attention/paged_attention_sm90.h"
#include "ops/attention/paged_attention_split.h"
#include "ops/attention/rotate_append.h"
#include "ops/bring_batch.h"
#include "ops/drafting/grow_trees.h"
#include "ops/drafting/walk_drafts.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gemm/dense_products.h"
#include "ops/gemm/linear.h"
#include "ops/gemm/skinny_product.h"
#include "ops/layout/layout.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/decayed_linear_attention.h"
#include "ops/linear_attention/delta_step_sm90.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_delta_rule_sm90.h"
#include "ops/linear_attention/gated_rms_norm.h"
#include "ops/linear_attention/selective_scan.h"
#include "ops/linear_attention/state_snapshot.h"
#include "ops/moe/few_experts.h"
#include "ops/moe/moe_route.h"
#include "ops/moe/routed_moe.h"
#include "ops/moe/routed_moe_sm90.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sampling/count_tokens.h"
#include "ops/sampling/sample_rows.h"

namespace heddle::ops {

namespace {

Status no_cuda() { return unimplemented("this program was built without CUDA"); }

}  // namespace

Result<std::unique_ptr<DenseProducts>> DenseProducts::create(device::CudaDevice&) {
  return no_cuda();
}

Status absorb_query_cuda(CudaContext&, const LatentProjectionArgs&) { return no_cuda(); }

Status expand_values_cuda(CudaContext&, const LatentProjectionArgs&) { return no_cuda(); }

Status copy_pages_cuda(CudaContext&, const PageCopyArgs&) { return no_cuda(); }

Status copy_rows_cuda(CudaContext&, const RowCopyArgs&) { return no_cuda(); }

Status paged_attention_cuda(CudaContext&, const PagedAttentionArgs&) { return no_cuda(); }

bool paged_attention_sm90_takes(const CudaContext&, const AttentionForm&) { return false; }

bool paged_attention_split_takes(const CudaContext&, const AttentionForm&) { return false; }

std::string describe_attention_cuda(const CudaContext&, const AttentionForm&) { return ""; }

Status attend_to_pages_cuda(CudaContext&, const PagedAttentionArgs&) { return no_cuda(); }

Status rotate_append_cuda(CudaContext&, const RotateAppendArgs&) { return no_cuda(); }

Status elementwise_cuda(CudaContext&, const ElementwiseArgs&) { return no_cuda(); }

Status embedding_cuda(CudaContext&, const EmbeddingArgs&) { return no_cuda(); }

Status copy_rows_cuda(CudaContext&, const TensorView&, std::span<const int32_t>,
                      const MutableTensorView&) {
  return no_cuda();
}

Status linear_cuda(CudaContext&, const LinearArgs&) { return no_cuda(); }

bool skinny_products_fit(const CudaContext&, const SkinnyProducts&) { return false; }

Status skinny_products(CudaContext&, const SkinnyProducts&) { return no_cuda(); }

Status causal_conv1d_cuda(CudaContext&, const CausalConv1dArgs&) { return no_cuda(); }

Status decayed_linear_attention_cuda(CudaContext&, const DecayedLinearAttentionArgs&) {
  return no_cuda();
}

int64_t gated_delta_rule_workspace_bytes_cuda(const CudaContext&, const GatedDeltaRuleSizes&) {
  return 0;
}

bool gated_delta_rule_sm90_fits(const CudaContext&, const GatedDeltaRuleArgs&) { return false; }

Status gated_delta_rule_cuda(CudaContext&, const GatedDeltaRuleArgs&) { return no_cuda(); }

bool delta_step_fits(const CudaContext&, const DeltaStepArgs&) { return false; }

Status delta_step_cuda(CudaContext&, const DeltaStepArgs&) { return no_cuda(); }

Status selective_scan_cuda(CudaContext&, const SelectiveScanArgs&) { return no_cuda(); }

Status gated_rms_norm_cuda(CudaContext&, const GatedRmsNormArgs&) { return no_cuda(); }

Status move_states_cuda(CudaContext&, const StateMoveArgs&) { return no_cuda(); }

bool few_experts_add(const CudaContext&, const RoutedMoeArgs&, int64_t) { return false; }

Status moe_route_cuda(CudaContext&, const MoeRouteArgs&) { return no_cuda(); }

bool routed_moe_is_tiled(const CudaContext&, const RoutedMoeShape&) { return false; }

Status routed_moe_cuda(CudaContext&, const RoutedMoeArgs&) { return no_cuda(); }

Status rms_norm_cuda(CudaContext&, const RmsNormArgs&) { return no_cuda(); }

Status layer_norm_cuda(CudaContext&, const LayerNormArgs&) { return no_cuda(); }

Status rope_cuda(CudaContext&, const RopeArgs&) { return no_cuda(); }

Status position_scale_cuda(CudaContext&, const PositionScaleArgs&) { return no_cuda(); }

Status bring_batch_cuda(CudaContext&, const BringBatchArgs&) { return no_cuda(); }

Status walk_drafts_cuda(CudaContext&, const WalkDraftsArgs&) { return no_cuda(); }

Status count_tokens_cuda(CudaContext&, const CountTokensArgs&) { return no_cuda(); }

Status grow_trees_cuda(CudaContext&, const GrowTreesArgs&) { return no_cuda(); }

Status select_drafts_cuda(CudaContext&, const SelectDraftsArgs&) { return no_cuda(); }

Status sample_rows_cuda(CudaContext&, const SampleRowsArgs&) { return no_cuda(); }

}  // namespace heddle::ops
