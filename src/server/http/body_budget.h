// SPDX-License-Identifier: Apache-2.0
// BodyBudget bounds the bytes of request bodies that are kept at once, over all connections: those
// that still arrive, wait for a worker or are parsed. Only bytes that have arrived count, so that
// an announcement alone takes nothing from others.
//
// Threading: bodies grow on the I/O thread; a lease may end wherever the last user of its exchange
// lets go of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace heddle::server {

struct BodyBudget {
  explicit BodyBudget(int64_t limit) : limit_bytes(limit) {}

  const int64_t limit_bytes;
  std::atomic<int64_t> used_bytes = 0;
};

// One body's part of the budget, given back when the lease ends.
class BodyLease {
 public:
  // Ordinary requests find room whatever the large ones do.
  static constexpr int64_t kAlwaysTakenBytes = 64 << 10;

  BodyLease() = default;

  explicit BodyLease(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}

  BodyLease(BodyLease&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}

  BodyLease& operator=(BodyLease&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  ~BodyLease() { release(); }

  // The body has `bytes` now. False when that is too much beside the others: a body that is small
  // or alone is always taken.
  [[nodiscard]] bool grow_to(int64_t bytes) {
    const int64_t used = budget_->used_bytes += bytes - std::exchange(bytes_, bytes);
    return bytes <= kAlwaysTakenBytes || used == bytes || used <= budget_->limit_bytes;
  }

  void release() {
    if (budget_ != nullptr) budget_->used_bytes -= std::exchange(bytes_, 0);
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  int64_t bytes_ = 0;
};

}  // namespace heddle::server
