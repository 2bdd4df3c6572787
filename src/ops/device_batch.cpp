// SPDX-License-Identifier: Apache-2.0
#include "ops/device_batch.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace heddle::ops {

namespace {

static_assert(std::is_trivially_copyable_v<StateSnapshot>);
static_assert(std::is_trivially_copyable_v<PageWrite>);

constexpr int64_t kAlignment = 16;  // alignment of each array, in bytes
constexpr int64_t kLeastWidth = 16;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t block_bytes(const DeviceBatchSizes& sizes) {
  const auto ints = [](int64_t count) { return aligned(bytes_of(DType::kI32, count)); };
  const int64_t B = sizes.max_sequences;
  const int64_t masks = aligned(sizes.max_rows * static_cast<int64_t>(sizeof(uint64_t)));
  return 3 * ints(sizes.max_rows) + masks + 2 * ints(B + 1) + 4 * ints(B) +
         ints(sizes.max_logit_rows) +
         aligned(sizes.max_snapshots * static_cast<int64_t>(sizeof(StateSnapshot)));
}

// Lays out arrays one after the other, at the same offsets in the host's and the device's block.
class BlockWriter {
 public:
  BlockWriter(std::byte* host, const std::byte* device) : host_(host), device_(device) {}

  // Reserves room for `count` numbers: where the host writes them and where the device will read
  // them.
  template <typename T>
  std::pair<T*, const T*> add(int64_t count) {
    const std::pair places{reinterpret_cast<T*>(host_ + used_),
                           reinterpret_cast<const T*>(device_ + used_)};
    used_ += aligned(count * static_cast<int64_t>(sizeof(T)));
    return places;
  }

  template <typename T>
  const T* copy(std::span<const T> values) {
    const auto [host, device] = add<T>(std::ssize(values));
    std::ranges::copy(values, host);
    return device;
  }

  [[nodiscard]] int64_t used() const { return used_; }

 private:
  std::byte* host_;
  const std::byte* device_;
  int64_t used_ = 0;
};

const int32_t* write_row_sequences(BlockWriter& block, const ForwardContext& forward, int64_t T) {
  const auto [host, device] = block.add<int32_t>(T);
  std::fill_n(host, T, -1);
  for (int64_t b = 0; b < forward.num_real_sequences(); ++b) {
    std::fill_n(host + forward.query_start[static_cast<size_t>(b)], forward.num_rows(b),
                static_cast<int32_t>(b));
  }
  return device;
}

const int32_t* write_state_slots(BlockWriter& block, const ForwardContext& forward) {
  if (!forward.state_slots.empty()) return block.copy(forward.state_slots);
  const auto [host, device] = block.add<int32_t>(forward.num_sequences());
  std::fill_n(host, forward.num_real_sequences(), 0);
  std::fill_n(host + forward.num_real_sequences(), forward.num_padding, -1);
  return device;
}

const int32_t* write_snapshot_start(BlockWriter& block, const ForwardContext& forward) {
  const int64_t B = forward.num_sequences();
  const auto [host, device] = block.add<int32_t>(B + 1);
  auto next = forward.snapshots.begin();
  for (int64_t b = 0; b <= B; ++b) {
    while (next != forward.snapshots.end() && next->sequence < b) ++next;
    host[b] = static_cast<int32_t>(next - forward.snapshots.begin());
  }
  return device;
}

Status check_fits(const DeviceBatchSizes& sizes, int64_t rows, const ForwardContext& forward) {
  const auto fits = [](const char* name, int64_t value, int64_t largest) -> Status {
    if (value <= largest) return {};
    return invalid_argument(
        fmt::format("a batch with {} {}, at most {} fit", value, name, largest));
  };
  HEDDLE_RETURN_IF_ERROR(fits("rows", rows, sizes.max_rows));
  HEDDLE_RETURN_IF_ERROR(fits("sequences", forward.num_sequences(), sizes.max_sequences));
  const size_t num_tables = forward.num_page_tables();
  HEDDLE_RETURN_IF_ERROR(fits("pages of a sequence",
                              num_tables > 0 ? DeviceBatchUpload::width_of(forward) : 0,
                              sizes.max_pages_per_sequence));
  HEDDLE_RETURN_IF_ERROR(fits("page tables", static_cast<int64_t>(num_tables),
                              static_cast<int64_t>(sizes.num_page_tables)));
  HEDDLE_RETURN_IF_ERROR(fits("snapshots", std::ssize(forward.snapshots), sizes.max_snapshots));
  return fits("rows whose logits are wanted", std::ssize(forward.logit_rows), sizes.max_logit_rows);
}

}  // namespace

int64_t DeviceBatchUpload::width_of(const ForwardContext& forward) {
  int64_t most = kLeastWidth;
  for (int64_t b = 0; b < forward.num_real_sequences(); ++b) {
    most = std::max(most, forward.num_pages(b));
  }
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most)));
}

Result<DeviceBatchUpload> DeviceBatchUpload::create(device::Device& device,
                                                    const DeviceBatchSizes& sizes) {
  DeviceBatchUpload upload;
  upload.sizes_ = sizes;
  HEDDLE_ASSIGN_OR_RETURN(upload.device_, device.allocate(block_bytes(sizes)));
  HEDDLE_ASSIGN_OR_RETURN(upload.num_blocks_done_, device.allocate(sizeof(uint32_t)));
  const int64_t numbers_bytes = sizes.max_in_flight * static_cast<int64_t>(sizeof(uint32_t));
  HEDDLE_ASSIGN_OR_RETURN(upload.read_numbers_, device.allocate_pinned(numbers_bytes));
  upload.host_blocks_.resize(static_cast<size_t>(sizes.max_in_flight));
  HEDDLE_ASSIGN_OR_RETURN(upload.page_table_, DevicePageTable::create(device, sizes.max_sequences,
                                                                      sizes.max_pages_per_sequence,
                                                                      sizes.num_page_tables));
  // One more, so that their number can be made even.
  const int64_t most_changes = upload.page_table_.num_entries() + 1;
  const auto change_bytes = most_changes * static_cast<int64_t>(sizeof(PageWrite));
  for (HostBlock& host : upload.host_blocks_) {
    HEDDLE_ASSIGN_OR_RETURN(host.pinned, device.allocate_pinned(block_bytes(sizes) + change_bytes));
  }
  return upload;
}

uint32_t* DeviceBatchUpload::read_number() {
  return reinterpret_cast<uint32_t*>(read_numbers_.data()) + current_;
}

Status DeviceBatchUpload::upload(Context& context, device::Stream& stream,
                                 std::span<const int32_t> ids, std::span<const int32_t> positions,
                                 ForwardContext& forward) {
  HEDDLE_RETURN_IF_ERROR(lay_out(stream, ids, positions, forward));
  return bring(context, stream, {});
}

Status DeviceBatchUpload::lay_out(device::Stream& stream, std::span<const int32_t> ids,
                                  std::span<const int32_t> positions, ForwardContext& forward) {
  HEDDLE_CHECK_EQ(ids.size(), positions.size());
  const int64_t T = std::ssize(ids);
  HEDDLE_RETURN_IF_ERROR(check_fits(sizes_, T, forward));
  current_ = (current_ + 1) % host_blocks_.size();
  HostBlock& host = host_blocks_[current_];
  while (std::atomic_ref(*read_number()).load(std::memory_order_acquire) != host.number) {
    HEDDLE_ASSIGN_OR_RETURN(const bool idle, stream.is_idle());
    if (idle) break;  // nothing is in flight, so the block is free even if it was never uploaded
    std::this_thread::yield();
  }
  ++host.number;
  BlockWriter block(host.pinned.data(), device_.data());
  const auto writable = [&]<typename T>(const T* array) {
    if (array == nullptr) return static_cast<T*>(nullptr);
    return reinterpret_cast<T*>(device_.data() +
                                (reinterpret_cast<const std::byte*>(array) - device_.data()));
  };
  ids_ = block.copy(ids);
  positions_ = block.copy(positions);
  forward.batch.row_sequences = write_row_sequences(block, forward, T);
  forward.batch.query_start = block.copy(forward.query_start);
  forward.batch.context_lens = block.copy(forward.context_lens);
  forward.batch.kv_lens =
      block.copy(forward.kv_lens.empty() ? forward.context_lens : forward.kv_lens);
  forward.batch.state_slots = write_state_slots(block, forward);
  forward.batch.snapshot_start = write_snapshot_start(block, forward);
  forward.batch.logit_rows = block.copy(forward.logit_rows);
  for (size_t table = 0; table < kMaxPageTables; ++table) {
    const bool is_there = !forward.page_tables[table].empty();
    forward.batch.page_tables[table] = is_there ? page_table_.rows_of(table) : nullptr;
  }
  forward.batch.page_table_width = width_of(forward);
  forward.batch.page_table_stride = page_table_.row_stride();
  forward.batch.snapshots = block.copy(forward.snapshots);
  const bool has_trees = !forward.tree_starts.empty();
  forward.batch.tree_starts = has_trees ? block.copy(forward.tree_starts) : nullptr;
  forward.batch.tree_masks = has_trees ? block.copy(forward.tree_masks) : nullptr;
  rows_ = {.ids = writable(ids_),
           .positions = writable(positions_),
           .row_sequences = writable(forward.batch.row_sequences),
           .state_slots = writable(forward.batch.state_slots),
           .context_lens = writable(forward.batch.context_lens),
           .kv_lens = writable(forward.batch.kv_lens),
           .logit_rows = writable(forward.batch.logit_rows),
           .tree_masks = writable(forward.batch.tree_masks)};
  num_bytes_ = block.used();
  PageWrite* const changes = host.changes_behind(num_bytes_);
  num_changes_ =
      page_table_.list_changes(forward, {changes, static_cast<size_t>(page_table_.num_entries())});
  if (num_changes_ % 2 != 0) {
    changes[num_changes_] = changes[num_changes_ - 1];
    ++num_changes_;
  }
  return {};
}

Status DeviceBatchUpload::bring(Context& context, device::Stream& stream,
                                const FeedDrawnArgs& feed) {
  HostBlock& host = host_blocks_[current_];
  const PageWrite* const changes = host.changes_behind(num_bytes_);
  page_table_.sent();
  if (context.device == DeviceKind::kCpu) {
    HEDDLE_CHECK_EQ(feed.num_fed, 0);
    // Copies of a CPU stream are synchronous, so the block is free after this call.
    *read_number() = host.number;
    for (int64_t i = 0; i < num_changes_; ++i) {
      page_table_.entries()[changes[i].place] = changes[i].page;
    }
    return stream.copy(device_.data(), host.pinned.data(), num_bytes_);
  }
  return bring_batch_cuda(static_cast<CudaContext&>(context),
                          {.from = host.pinned.data(),
                           .to = device_.data(),
                           .num_bytes = num_bytes_,
                           .changes = changes,
                           .num_changes = num_changes_,
                           .page_tables = page_table_.entries(),
                           .read_number = read_number(),
                           .number = host.number,
                           .num_blocks_done = reinterpret_cast<uint32_t*>(num_blocks_done_.data()),
                           .feed = feed});
}

}  // namespace heddle::ops
