// SPDX-License-Identifier: Apache-2.0
// Limits on the cost of a chat template. A template comes with a model and its values come with a
// request. Neither is trusted, so parsing and rendering run under these limits and end in a clear
// error instead of exhausting the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <heddle/status.h>

namespace heddle::chat {

// The defaults are some hundred times what the largest known template needs for a long
// conversation.
struct RenderLimits {
  int64_t max_source_bytes = int64_t{1} << 20;  // bytes of template source; known templates have
                                                // less than 20 kB
  int max_nesting_depth = 150;                  // nesting of blocks, brackets and operators in the
                                                // source
  int64_t max_steps = 10'000'000;  // evaluated nodes, plus one per 64 bytes read or written
  int64_t max_output_bytes = int64_t{32} << 20;   // bytes of the rendered text, and of each
                                                  // captured block
  int64_t max_memory_bytes = int64_t{128} << 20;  // bytes of all strings, lists and dicts that
                                                  // exist at one time
  int max_recursion_depth = 600;  // nested evaluations: expressions, blocks and macro calls
                                  // together
};

// The deepest nesting of lists and dicts that a Value can have, so that recursive walks never
// exhaust the stack.
inline constexpr int kMaxValueDepth = 200;

// Budget counts what one render has used of its limits. Thread-confined; must outlive the values
// that are counted with it.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits) {}

  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Counts steps. Error (here and below): kInvalidArgument naming the exceeded limit; the same
  // render would fail again.
  Status step(int64_t count = 1) {
    steps_ += count;
    return steps_ <= limits_.max_steps ? Status() : out_of_steps();
  }

  // Counts the steps for reading or writing `bytes` bytes.
  Status touch(size_t bytes) { return step(static_cast<int64_t>(bytes / 64)); }

  // Checks whether `bytes` more may be allocated; call it before allocating.
  Status fits(size_t bytes) const {
    const auto limit = static_cast<size_t>(limits_.max_memory_bytes);
    if (bytes <= limit && memory_bytes_ <= limit - bytes) return {};
    return out_of_memory();
  }

  void allocate(size_t bytes) { memory_bytes_ += bytes; }

  void release(size_t bytes) { memory_bytes_ -= bytes; }

  [[nodiscard]] const RenderLimits& limits() const { return limits_; }

  [[nodiscard]] int64_t steps() const { return steps_; }

  [[nodiscard]] size_t memory_bytes() const { return memory_bytes_; }

  // The error for a text longer than max_output_bytes.
  Status out_of_output() const {
    exceeded_ = true;
    return invalid_argument("the template writes more than " +
                            std::to_string(limits_.max_output_bytes) + " bytes (max_output_bytes)");
  }

  // Whether a limit was exceeded.
  [[nodiscard]] bool exceeded() const { return exceeded_; }

 private:
  Status out_of_steps() const {
    exceeded_ = true;
    return invalid_argument("the template takes more than " + std::to_string(limits_.max_steps) +
                            " steps (max_steps)");
  }

  Status out_of_memory() const {
    exceeded_ = true;
    return invalid_argument("the template needs more than " +
                            std::to_string(limits_.max_memory_bytes) +
                            " bytes for intermediate values (max_memory_bytes)");
  }

  RenderLimits limits_;
  int64_t steps_ = 0;
  size_t memory_bytes_ = 0;
  mutable bool exceeded_ = false;
};

// Counts memory in a Budget until it is destroyed. Without a budget it counts nothing.
class Metered {
 public:
  Metered(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->allocate(bytes_);
  }

  ~Metered() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }

  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;

 private:
  Budget* budget_;
  size_t bytes_;
};

}  // namespace heddle::chat
