// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/page_copy.h"

#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace heddle::ops {

Status copy_pages(Context& context, const PageCopyArgs& args) {
  if (args.pages.host.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(check_mirrored("copy_pages", "layers", context, args.layers));
  HEDDLE_RETURN_IF_ERROR(check_mirrored("copy_pages", "pages", context, args.pages));
  for (const KvLayer& layer : args.layers.host) {
    const int64_t num_pages = layer.k.shape[0];
    for (const IdCopy& copy : args.pages.host) {
      if (copy.from >= 0 && copy.from < num_pages && copy.to >= 0 && copy.to < num_pages) continue;
      return invalid_argument(fmt::format("copy_pages: page {} to page {}, the pool has {}",
                                          copy.from, copy.to, num_pages));
    }
  }
  return HEDDLE_DISPATCH_DEVICE(context, copy_pages, args);
}

namespace {

void copy_page_of(const MutableTensorView& pool, const IdCopy& copy) {
  if (pool.data == nullptr) return;  // values that are a part of the keys
  const int64_t bytes = bytes_of(pool.dtype, pool.row_stride);
  std::memmove(pool.as<std::byte>() + copy.to * bytes, pool.as<std::byte>() + copy.from * bytes,
               static_cast<size_t>(bytes));
}

}  // namespace

Status copy_pages_cpu(CpuContext& /*context*/, const PageCopyArgs& args) {
  for (const KvLayer& layer : args.layers.host) {
    for (const IdCopy& copy : args.pages.host) {
      copy_page_of(layer.k, copy);
      copy_page_of(layer.v, copy);
    }
  }
  return {};
}

}  // namespace heddle::ops
