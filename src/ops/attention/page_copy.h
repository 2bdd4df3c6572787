// SPDX-License-Identifier: Apache-2.0
// Copies whole KV pages, all layers, keys and values, at the head of a step: a sequence that
// resumes inside a page first copies it. And single rows of them, after a step: those of accepted
// nodes of a tree go to where a chain would have them. The entries are done in the order of the
// list.
#pragma once

#include "ops/context.h"
#include "ops/forward_context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

struct PageCopyArgs {
  MirroredSpan<KvLayer> layers;  // geometries may differ
  MirroredSpan<IdCopy> pages;
};

struct RowCopyArgs {
  MirroredSpan<KvLayer> layers;  // geometries may differ, but not the tokens of a page
  MirroredSpan<IdCopy> rows;     // row r is token r % S of page r / S
};

// One launch; reads and writes each page once: bandwidth-bound. Allocates nothing. An
// empty list launches nothing.
// Error: kInvalidArgument, naming the page that does not lie within every layer's pool.
Status copy_pages(Context& context, const PageCopyArgs& args);
Status copy_pages_cpu(CpuContext& context, const PageCopyArgs& args);    // args already checked
Status copy_pages_cuda(CudaContext& context, const PageCopyArgs& args);  // args already checked

// As copy_pages(), for rows: one launch, bandwidth-bound, the same errors.
Status copy_rows(Context& context, const RowCopyArgs& args);
Status copy_rows_cpu(CpuContext& context, const RowCopyArgs& args);    // args already checked
Status copy_rows_cuda(CudaContext& context, const RowCopyArgs& args);  // args already checked

}  // namespace heddle::ops
