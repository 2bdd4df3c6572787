// SPDX-License-Identifier: Apache-2.0
#include "engine/weight_reader.h"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/no_thread.h"

namespace heddle::engine {

WeightReader::WeightReader(bool own_thread, std::function<void()> on_read)
    : own_thread_(own_thread),
      on_read_(std::move(on_read)),
      out_of_memory_(resource_exhausted("there is no host memory to read them")) {}

Status WeightReader::start(Read read) {
  HEDDLE_CHECK(!busy_);
  busy_ = true;
  cancelled_ = false;
  if (!own_thread_) {
    run(read);
    return {};
  }
  try {
    thread_ = std::thread([this, read = std::move(read)] { run(read); });
  } catch (const std::system_error& error) {
    busy_ = false;
    return no_thread("to read the weights", error);
  }
  return {};
}

// Runs `read` on the reader's thread. Exceptions of libraries, mostly out of memory, must not end
// the process.
void WeightReader::run(const Read& read) {
  Weights weights = out_of_memory_;
  try {
    weights = read(cancelled_);
  } catch (const std::bad_alloc&) {  // `weights` is the out-of-memory error already
  } catch (const std::exception& error) {
    weights = internal_error(fmt::format("they could not be read: {}", error.what()));
  }
  {
    const MutexLock lock(mutex_);
    weights_ = std::move(weights);
  }
  on_read_();
}

std::optional<WeightReader::Weights> WeightReader::take() {
  std::optional<Weights> weights;
  {
    const MutexLock lock(mutex_);
    weights = std::exchange(weights_, std::nullopt);
  }
  if (!weights) return weights;
  if (thread_.joinable()) thread_.join();
  busy_ = false;
  return weights;
}

void WeightReader::cancel() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  weights_.reset();
  busy_ = false;
}

}  // namespace heddle::engine
