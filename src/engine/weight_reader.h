// SPDX-License-Identifier: Apache-2.0
// WeightReader: reads new weights on a thread of its own, so that requests run meanwhile.
//
//   start() -> take(): nullopt while reading, ..., then the weights or an error -> start() ...
//
// Threading: confined to the engine thread; the function passed to start() runs on the reader's
//            thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "core/mutex.h"
#include "runner/runner.h"

namespace heddle::engine {

class WeightReader {
 public:
  using Weights = Result<std::unique_ptr<runner::NewWeights>>;

  // Reads weights; must return soon after `cancelled` has become true. An exception becomes an
  // error.
  using Read = std::function<Weights(const std::atomic<bool>& cancelled)>;

  // `on_read` is called on the reader's thread when take() has a result. With `own_thread` false,
  // start() reads on the calling thread.
  WeightReader(bool own_thread, std::function<void()> on_read);

  // Cancels the reading and waits for the thread.
  ~WeightReader() { cancel(); }

  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

  // Whether start() was called and take() has not yet returned its weights.
  [[nodiscard]] bool busy() const { return busy_; }

  // Not while busy (checked). Error: kResourceExhausted when the system has no thread.
  Status start(Read read);

  // Returns the weights or the error once; nullopt while reading is in progress.
  [[nodiscard]] std::optional<Weights> take() HEDDLE_EXCLUDES(mutex_);

  // Makes a running read end early and drops its weights. Afterwards busy() is false.
  void cancel() HEDDLE_EXCLUDES(mutex_);

 private:
  void run(const Read& read) HEDDLE_EXCLUDES(mutex_);

  const bool own_thread_;
  const std::function<void()> on_read_;
  const Status out_of_memory_;  // allocated early: later memory for it may be short
  bool busy_ = false;
  std::atomic<bool> cancelled_ = false;
  Mutex mutex_;
  std::optional<Weights> weights_ HEDDLE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace heddle::engine
