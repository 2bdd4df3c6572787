// SPDX-License-Identifier: Apache-2.0
#include "runner/step/mirrored_lists.h"

namespace heddle::runner {

Result<MirroredLists> MirroredLists::create(device::Device& device) {
  MirroredLists lists;
  if (device.kind() == device::DeviceKind::kCpu) return lists;
  lists.device_ = &device;
  for (HostBlock& host : lists.host_blocks_) {
    HEDDLE_ASSIGN_OR_RETURN(host.copied, device.create_event());
  }
  return lists;
}

Status MirroredLists::begin(int64_t num_bytes) {
  used_ = 0;
  if (device_ == nullptr || num_bytes == 0) return {};
  current_ = (current_ + 1) % host_blocks_.size();
  HEDDLE_RETURN_IF_ERROR(current().copied->wait());
  if (num_bytes <= block_.size()) return {};
  const int64_t size = std::max<int64_t>(2 * num_bytes, 4096);
  for (HostBlock& host : host_blocks_) {
    HEDDLE_RETURN_IF_ERROR(host.copied->wait());
    HEDDLE_ASSIGN_OR_RETURN(host.pinned, device_->allocate_pinned(size));
  }
  HEDDLE_ASSIGN_OR_RETURN(block_, device_->allocate(size));
  return {};
}

Status MirroredLists::upload(device::Stream& stream) {
  if (used_ == 0) return {};
  HEDDLE_RETURN_IF_ERROR(stream.copy(block_.data(), current().pinned.data(), used_));
  return stream.record(*current().copied);
}

}  // namespace heddle::runner
