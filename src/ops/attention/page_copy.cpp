// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/page_copy.h"

#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace heddle::ops {

namespace {

// Checks a list of copies; `per_page(layer)` is the number of copied units in a page of the layer.
template <typename PerPage>
Status check_copies(const char* op, const char* kind, Context& context,
                    const MirroredSpan<KvLayer>& layers, const MirroredSpan<IdCopy>& copies,
                    const PerPage& per_page) {
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "layers", context, layers));
  HEDDLE_RETURN_IF_ERROR(check_mirrored(op, "copies", context, copies));
  for (const KvLayer& layer : layers.host) {
    const int64_t count = layer.k.shape[0] * per_page(layer);
    for (const IdCopy& copy : copies.host) {
      if (copy.from >= 0 && copy.from < count && copy.to >= 0 && copy.to < count) continue;
      return invalid_argument(fmt::format("{}: {} {} to {} {}, the pool has {}", op, kind,
                                          copy.from, kind, copy.to, count));
    }
  }
  return {};
}

// Copies a unit of the keys or values of one layer.
void copy_of(const MutableTensorView& pool, int64_t per_page, const IdCopy& copy) {
  if (pool.data == nullptr) return;  // the layer's values are a part of its keys
  const int64_t bytes = bytes_of(pool.dtype, pool.row_stride / per_page);
  std::memmove(pool.as<std::byte>() + copy.to * bytes, pool.as<std::byte>() + copy.from * bytes,
               static_cast<size_t>(bytes));
}

int64_t one_per_page(const KvLayer& /*layer*/) { return 1; }

int64_t rows_per_page(const KvLayer& layer) { return layer.k.shape[1]; }

}  // namespace

Status copy_pages(Context& context, const PageCopyArgs& args) {
  if (args.pages.host.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(
      check_copies("copy_pages", "page", context, args.layers, args.pages, one_per_page));
  return HEDDLE_DISPATCH_DEVICE(context, copy_pages, args);
}

Status copy_pages_cpu(CpuContext& /*context*/, const PageCopyArgs& args) {
  for (const KvLayer& layer : args.layers.host) {
    for (const IdCopy& copy : args.pages.host) {
      copy_of(layer.k, 1, copy);
      copy_of(layer.v, 1, copy);
    }
  }
  return {};
}

Status copy_rows(Context& context, const RowCopyArgs& args) {
  if (args.rows.host.empty()) return {};
  HEDDLE_RETURN_IF_ERROR(
      check_copies("copy_rows", "row", context, args.layers, args.rows, rows_per_page));
  return HEDDLE_DISPATCH_DEVICE(context, copy_rows, args);
}

Status copy_rows_cpu(CpuContext& /*context*/, const RowCopyArgs& args) {
  for (const KvLayer& layer : args.layers.host) {
    const int64_t per_page = rows_per_page(layer);
    for (const IdCopy& copy : args.rows.host) {
      copy_of(layer.k, per_page, copy);
      copy_of(layer.v, per_page, copy);
    }
  }
  return {};
}

}  // namespace heddle::ops
