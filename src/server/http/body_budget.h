// SPDX-License-Identifier: Apache-2.0
// BodyBudget limits the bytes of request bodies that are in memory at one time, over all
// connections: bodies that are arriving, that wait for a worker or that are being parsed. Only
// bytes that have arrived count, so that a mere Content-Length reserves nothing.
//
// Threading: bodies grow on the I/O thread. A lease may end on the thread that releases the last
//            reference to its exchange.
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

// The part of the budget that one body uses, returned when the lease is destroyed.
class BodyLease {
 public:
  // Bodies up to this size are always accepted, even when large bodies have used up the budget.
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

  // Sets the size of the body. Returns false if the budget is exceeded, unless the body is small or
  // the only one: those are always accepted.
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
