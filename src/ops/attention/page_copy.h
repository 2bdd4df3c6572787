// SPDX-License-Identifier: Apache-2.0
// copy_pages() copies whole KV pages, keys and values of all layers, at the head of a step: a
// sequence that resumes inside a page first copies that page. copy_rows() copies single rows of
// pages after a step: those of accepted tree nodes move to where a chain would have stored them.
// Both process their list in order.
#pragma once

#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

struct PageCopyArgs {
  MirroredSpan<KvLayer> layers;  // shapes of rows may differ between layers
  MirroredSpan<IdCopy> pages;
};

struct RowCopyArgs {
  // Shapes of rows may differ between layers, but not the number of tokens of a page.
  MirroredSpan<KvLayer> layers;
  MirroredSpan<IdCopy> rows;  // row r means token r % S of page r / S, S tokens a page
};

// One launch; reads and writes each page once: bandwidth-bound. Allocates nothing. An
// empty list launches nothing.
// Error: kInvalidArgument, naming the page that is not in every layer's pool.
Status copy_pages(Context& context, const PageCopyArgs& args);
Status copy_pages_cpu(CpuContext& context, const PageCopyArgs& args);    // args already checked
Status copy_pages_cuda(CudaContext& context, const PageCopyArgs& args);  // args already checked

// As copy_pages(), but for single rows: one launch, bandwidth-bound, the same errors.
Status copy_rows(Context& context, const RowCopyArgs& args);
Status copy_rows_cpu(CpuContext& context, const RowCopyArgs& args);    // args already checked
Status copy_rows_cuda(CudaContext& context, const RowCopyArgs& args);  // args already checked

}  // namespace heddle::ops
