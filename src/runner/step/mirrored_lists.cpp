// SPDX-License-Identifier: Apache-2.0
#include "runner/step/mirrored_lists.h"

namespace heddle::runner {

MirroredLists::MirroredLists(device::Device& device) {
  if (device.kind() == device::DeviceKind::kCpu) return;
  ring_.emplace(device, /*num_blocks=*/2, device::UploadRing::Waits::kForCopies);
}

Status MirroredLists::begin(device::Stream& stream, int64_t num_bytes) {
  used_ = 0;
  room_ = num_bytes;
  return ring_ && num_bytes > 0 ? ring_->begin(stream, num_bytes) : Status();
}

Status MirroredLists::upload(device::Stream& stream) {
  return used_ > 0 ? ring_->upload(stream, used_) : Status();
}

}  // namespace heddle::runner
